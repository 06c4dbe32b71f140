"""Runs one command for the shell executor and ends with it, or with the worker.

    python -I -S launcher.py ORDER CONTROL

ORDER is a descriptor that holds what to run (`launch.py` writes it): by a descriptor, since the
environment of a command may hold secrets, and what it sets must not reach this program. CONTROL is
one end of a socket. The worker says TERM or KILL on it; its end means that the worker is gone, by
`kill -9` too. Two lines go back: where the command runs, and how it ended.

It is a program of its own, since code between fork and exec would run in a copy of the worker's
threads. It stays beside the command as the parent of all orphans below it (a subreaper), so that
whoever has left the command's session is found as well.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False  # To import `typing` would take a third of the time that it needs to start.
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
FILES_MAX = 1 << 20
TERM, KILL = b"T", b"K"
# How long it may take until all that was killed has ended, and how often it is looked for.
END_S = 5.0
LOOK_S = 0.005
# Those who go on to start others are found in so many looks, or not at all.
LOOKS_MAX = 2_000
WORDS_MAX = 1_024

libc = ctypes.CDLL(None)


def main(order: int, control: int) -> None:
    with os.fdopen(order, "rb") as file:
        asked: dict[str, Any] = marshal.load(file)  # The worker itself wrote it.
    # Nobody of the same user may look into it, or take its descriptors.
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    # A process that the worker has forked may hold its end of the socket; this one is sure, but
    # where another program stands between.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    group = asked["cgroup"]
    if group and (why := make_group(group, asked["cgroup_limits"])):
        say(control, b"refused %s" % why)
        return
    is_over = False
    try:
        command, words = start(asked, control)
        if words:
            say(control, b"refused %s" % words)
            return
        code, usage = attend(command, control, woken, asked)
        left = end_all(asked)
        is_over = True
        say(
            control,
            b"ended %d %d %d %d %d"
            % (code, left, int((usage.ru_utime + usage.ru_stime) * 1000), *met(group)),
        )
    finally:
        if not is_over:
            end_all(asked)
        if group:
            remove(group)


def say(control: int, words: bytes) -> None:
    try:
        os.write(control, words.replace(b"\n", b" ") + b"\n")
    except OSError:
        return  # The worker is gone.


def make_group(group: str, limits: dict[str, str]) -> bytes:
    """With the limits that the kernel offers here, which `isolation.py` has found. Why not, if it
    cannot be."""
    doing = group
    try:
        os.mkdir(group)
        for name, value in limits.items():
            doing = f"{group}/{name}"
            with open(doing, "w") as file:
                file.write(value)
    except OSError as error:
        return f"cannot make its cgroup, {doing}: {error.strerror}".encode()
    return b""


def start(asked: dict[str, Any], control: int) -> tuple[int, bytes]:
    """The command's process; or why there is none."""
    reading, writing = os.pipe()
    waiting, going = os.pipe()
    try:
        command = os.fork()
    except OSError as error:
        return 0, str(error.strerror).encode()
    if command == 0:
        os.close(going)
        os.read(waiting, 1)
        become(asked, writing)
    # Before it can do anything, so that it is found even if it ends this process at once.
    say(control, b"began %d %s" % (command, own_group(asked).encode()))
    for number in (going, waiting, writing):
        os.close(number)
    # The command's ends of the pipes are its own.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    with os.fdopen(reading, "rb") as file:
        return command, file.read(WORDS_MAX)


def become(asked: dict[str, Any], failing: int) -> NoReturn:
    """In the new process: be the command."""
    doing = "setsid"
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        if asked["cgroup"]:
            doing = "join its cgroup"
            with open(f"{asked['cgroup']}/cgroup.procs", "w") as file:
                file.write("0")
        doing = "set limits"
        for kind, soft, hard in asked["limits"]:
            _, most = resource.getrlimit(kind)
            if most != resource.RLIM_INFINITY:
                soft, hard = min(soft, most), min(hard, most)
            resource.setrlimit(kind, (soft, hard))
        if asked["niceness"]:
            os.nice(asked["niceness"])
        if asked["user"]:
            doing = "become its user"
            uid, gid, groups = asked["user"]
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After the user, as another one forgets it.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if asked["directory"]:
            doing = f"go to {asked['directory']}"
            os.chdir(asked["directory"])
        os.closerange(3, failing)
        os.closerange(failing + 1, FILES_MAX)
        argv = asked["argv"]
        doing = f"run {argv[0].decode('utf-8', 'replace')}"
        run(argv, asked["environment"])
    except BaseException as error:
        what = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        os.write(failing, f"cannot {doing}: {what}".encode("utf-8", "replace")[:WORDS_MAX])
    os._exit(127)


def run(argv: list[bytes], environment: dict[bytes, bytes]) -> NoReturn:
    """As os.execvpe, which imports something where it is not to be had any more by another user."""
    places = [argv[0]]
    if b"/" not in argv[0]:
        folders = environment.get(b"PATH", os.defpath.encode()).split(b":")
        places = [(folder or b".") + b"/" + argv[0] for folder in folders]
    why: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for place in places:
        try:
            os.execve(place, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            why = error
    raise why


def attend(
    command: int, control: int, woken: int, asked: dict[str, Any]
) -> tuple[int, resource.struct_rusage]:
    """Wait for the command, and do what the worker says."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    watched = os.getppid() == asked["worker"]
    while True:
        ended = reap(command)
        if ended is not None:
            return ended
        if watched and os.getppid() != asked["worker"]:
            watched = False
            end_all(asked, command)
        for number, _ in poll.poll():
            if number == woken:
                os.read(woken, 4_096)
                continue
            said = os.read(control, 1)
            if said == TERM:
                end_softly(command)
                continue
            if not said:
                poll.unregister(control)
            end_all(asked, command)


def reap(command: int) -> tuple[int, resource.struct_rusage] | None:
    """Bury whoever has ended; how the command did, if it has."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == command:
            return os.waitstatus_to_exitcode(status), usage


def buried() -> bool:
    """Bury whoever has ended, and say whether nobody is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def end_softly(command: int) -> None:
    try:
        os.killpg(command, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return


def end_all(asked: dict[str, Any], command: int = 0) -> int:
    """Kill all below this process, and return how many that were. With a command that one stays to
    be buried by whoever waits for it."""
    until = time.monotonic() + END_S
    killed: set[int] = set()
    while True:
        # Who is below has a parent below, or has come to this process as an orphan.
        if not command and not asked["scope"] and buried():
            return len(killed)
        if not killed:
            killed = below(asked, set(), set())
        if asked["cgroup"]:
            kill_group(asked["cgroup"])
        found = halted(asked)
        for pid in found:
            strike(pid, signal.SIGKILL)
        killed |= found
        if command or (asked["scope"] and not found) or time.monotonic() > until:
            return len(killed)
        time.sleep(LOOK_S)


def halted(asked: dict[str, Any]) -> set[int]:
    """All below this process, none of which can start another any more. Who is known to be a
    stranger is not looked at again: what multiplies must not be faster than this."""
    strangers: set[int] = set()
    stopped: set[int] = set()
    for _ in range(LOOKS_MAX):
        new = below(asked, strangers, stopped)
        if not new:
            break
        for pid in new:
            strike(pid, signal.SIGSTOP)
        stopped |= new
    return stopped


def below(asked: dict[str, Any], strangers: set[int], known: set[int]) -> set[int]:
    """The living below this process that are not known, and those in a cgroup of its own."""
    children: dict[int, list[int]] = {}
    seen = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in strangers or int(name) in known:
            continue
        parent = parent_of(int(name))
        if parent is not None:
            seen.add(int(name))
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    waiting = [os.getpid(), *known]
    while waiting:
        new = children.get(waiting.pop(), ())
        found.update(new)
        waiting.extend(new)
    if asked["scope"]:
        with open(f"{own_group(asked)}/cgroup.procs") as file:
            found |= {int(line) for line in file} & seen
    found.discard(os.getpid())
    strangers |= seen - found
    return found


def parent_of(pid: int) -> int | None:
    """None for who has ended, buried or not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except OSError:
        return None
    return None if state in b"ZX" else int(parent)


def strike(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def own_group(asked: dict[str, Any]) -> str:
    """The folder of the cgroup that holds the command and nobody else; empty: there is none."""
    if not asked["scope"]:
        return str(asked["cgroup"])
    with open("/proc/self/cgroup") as file:
        for line in file:
            if line.startswith("0::"):
                return str(asked["cgroups"]) + line[3:].rstrip("\n")
    return ""


def kill_group(group: str) -> None:
    try:
        with open(f"{group}/cgroup.kill", "w") as file:
            file.write("1")
    except OSError:
        return  # Before Linux 5.14; they are found by their parents then.


def met(group: str) -> tuple[int, int]:
    """How often the memory and the number of processes of its cgroup were too many."""
    return counted(group, "memory.events", "oom_kill"), counted(group, "pids.events", "max")


def counted(group: str, file: str, name: str) -> int:
    try:
        with open(f"{group}/{file}") as lines:
            for line in lines:
                if line.startswith(f"{name} "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0


def remove(group: str) -> None:
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        try:
            os.rmdir(group)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(LOOK_S)
        else:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
