"""Becomes a program that ends when the process that started it does.

    python -I -S launch.py PARENT USER PROGRAM ARGUMENT...

The kernel kills it when the thread that started it ends (PR_SET_PDEATHSIG), a program that stands
still as well. It is a program of its own, since code between fork and exec would run in a copy of
the parent's threads, and now and then die in it. With a USER it runs as that one.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1


def launch(parent: int, user: str, command: list[str]) -> None:
    if user:
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        # Before the prctl, as another user forgets it.
        os.setuid(entry.pw_uid)
        os.chdir("/")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that ended before that is not noticed by the kernel.
    if os.getppid() == parent:
        os.execvp(command[0], command)


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
