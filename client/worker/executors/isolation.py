"""Which means of this machine keep a command apart from its worker, and what is said of them.

What is installed is tried with a command that does nothing, since a container or a setting of the
kernel may forbid what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import monotonic, sleep

from .launch import Launched, LaunchOrder, Lost, NotStarted, launch
from .shell_limits import ShellLimits

AUTO, NONE, BUBBLEWRAP, SYSTEMD = "auto", "none", "bubblewrap", "systemd"
KINDS = (AUTO, NONE, BUBBLEWRAP, SYSTEMD)
TRIAL_S = 10.0
WORDS_MAX = 300
TRIAL = ("/bin/sh", "-c", ":")
BUBBLEWRAP_OPTIONS = (
    "--proc", "/proc", "--unshare-pid", "--unshare-ipc", "--die-with-parent",
)  # fmt: skip
# bubblewrap's own two, which count as well where it makes a user namespace.
BUBBLEWRAP_TASKS = 2
SYSTEMD_RUNS = Path("/run/systemd/system")
# What `DelegateSubgroup=` of the worker's unit names: commands come beside it.
SUBGROUP = "worker"
LEFT_MAX = 1_000
# How long the ends of what was left are waited for, and how often it is looked.
LEFT_S, LEFT_LOOK_S = 1.0, 0.02
CGROUP_FILES = ("memory.max", "memory.swap.max", "pids.max")
User = tuple[int, int, Sequence[int]]


class CannotIsolate(Exception):
    """What was asked for cannot be had here; the text says why and what to do."""


@dataclass(frozen=True)
class Isolation:
    """What is in force for all commands of one executor."""

    kind: str = NONE
    limits: ShellLimits = field(default_factory=ShellLimits)
    directory: str = ""
    user: User | None = None
    user_name: str = ""
    # Where bubblewrap or systemd-run is.
    program: str = ""
    # Folders that commands may change; None: whatever their user may.
    writable: tuple[str, ...] | None = None
    # The cgroup in which each command gets its own, and which files those have; empty: none.
    cgroup: str = ""
    cgroup_files: frozenset[str] = frozenset()
    # Where cgroups are.
    cgroups: str = ""

    def order(self, argv: Sequence[str], environment: dict[str, str]) -> LaunchOrder:
        """What a launcher is given for one command."""
        name = f"raftsched-{os.getpid()}-{secrets.token_hex(6)}"
        return LaunchOrder(
            argv, environment, self._before(name), self.directory,
            self.limits.of_kernel(self._tasks()), self.limits.niceness, self.user,
            f"{self.cgroup}/{name}" if self.cgroup else "",
            self.limits.of_cgroup(self.cgroup_files),
            self.kind == BUBBLEWRAP, self.kind == SYSTEMD, self.cgroups,
        )  # fmt: skip

    def _before(self, name: str) -> list[str]:
        if self.kind == BUBBLEWRAP:
            # Root could mount what is read-only anew. A launcher that becomes another user needs
            # its rights, and has given them up when the command begins.
            shut = self.writable is not None and self.user is None and os.geteuid() == 0
            rights = ["--cap-drop", "ALL"] if shut else []
            opened = self.writable
            if opened is not None and self.user is not None and self.cgroup:
                # For the launcher, which is root: its user cannot write there.
                opened = (*opened, self.cgroup)
            return [self.program, *_folders(opened), *BUBBLEWRAP_OPTIONS, *rights, "--"]
        if self.kind == SYSTEMD:
            whose = [] if os.geteuid() == 0 else ["--user"]
            wanted = [word for one in self.limits.of_scope() for word in ("-p", one)]
            return [
                self.program, *whose, "--scope", "--quiet", "--collect", f"--unit={name}", *wanted,
                "--",
            ]  # fmt: skip
        return []

    def _tasks(self) -> int:
        """How many processes and threads count already where the kernel counts by user."""
        if self.limits.processes is None:
            return 0
        if "pids.max" in self.cgroup_files or self.kind == SYSTEMD:
            # The cgroup counts exactly; this must not come before it.
            return 1 << 20
        if self.kind == BUBBLEWRAP and os.geteuid() != 0:
            return BUBBLEWRAP_TASKS
        return tasks_of(os.geteuid() if self.user is None else self.user[0])

    @property
    def counts_processes(self) -> bool:
        """The kernel lets root have as many as it likes, but in a cgroup."""
        is_root = (os.geteuid() if self.user is None else self.user[0]) == 0
        return not is_root or "pids.max" in self.cgroup_files or self.kind == SYSTEMD

    def words(self, left_out: Sequence[str]) -> str:
        """What is in force, in one line."""
        who = self.user_name or f"{_name_of(os.geteuid())}, as this worker does"
        parts = [f"isolation {self.kind}", f"commands run as {who}"]
        if self.kind != SYSTEMD:
            parts.append(self._group_words())
        if left_out:
            parts.append("not used: " + "; ".join(left_out))
        return ", ".join(parts)

    def _group_words(self) -> str:
        if not self.cgroup:
            return "without a cgroup"
        counts = {"memory.max": "memory", "pids.max": "processes"}
        missing = [what for name, what in counts.items() if name not in self.cgroup_files]
        uncounted = f", which does not count {' and '.join(missing)}" if missing else ""
        return f"each in a cgroup of its own{uncounted}"

    def warning(self) -> str:
        """What an operator should know; empty: nothing."""
        if os.geteuid() == 0 and self.user is None:
            return (
                "shell commands run as root, so whoever may change shell jobs is root on this "
                "machine; name another user: --run-as USER, or ShellExecutor(user=...)"
            )
        return ""


def _folders(writable: tuple[str, ...] | None) -> list[str]:
    if writable is None:
        return ["--dev-bind", "/", "/"]
    opened = [word for one in writable for word in ("--bind", one, one)]
    return ["--ro-bind", "/", "/", "--dev", "/dev", *opened]


def user_of(name: str) -> User | None:
    """The user of this name; None: the worker's own."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CannotIsolate(
            f"there is no user {name!r} on this machine; make it: useradd --system {name}"
        ) from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise CannotIsolate(
            f"commands as {name!r} need a worker that runs as root, and this one runs as "
            f"{_name_of(os.geteuid())}; start it as root, or leave the user out"
        )
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has."""
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == uid:
                    count += len(os.listdir(folder / "task"))
    return count


def cgroup_here(mounts: str, own: str) -> tuple[str, str, bool]:
    """Where cgroups of version 2 are, the one in which commands may get theirs, and whether that
    was handed to this worker; from /proc/self/mounts and cgroup. Empty: there is none."""
    places = [line.split()[1] for line in mounts.splitlines() if line.split()[2:3] == ["cgroup2"]]
    within = [line[3:] for line in own.splitlines() if line.startswith("0::/")]
    if not places or not within:
        return "", "", False
    path = within[0].rstrip("/")
    above = path.removesuffix(f"/{SUBGROUP}")
    return places[0], places[0] + above, above != path


def offered(group: str, *, is_delegated: bool) -> frozenset[str] | None:
    """The files with limits that a cgroup made here has; None: none can be made."""
    _end_left(Path(group))
    trial = Path(group, f"raftsched-{os.getpid()}-trial")
    # As in a unit with Delegate= and DelegateSubgroup=; others are not ours to change.
    for controller in ("+memory", "+pids") if is_delegated else ():
        with contextlib.suppress(OSError):
            Path(group, "cgroup.subtree_control").write_text(controller)
    try:
        trial.mkdir()
    except OSError:
        return None
    try:
        if not (trial / "cgroup.kill").exists():
            return None
        return frozenset(name for name in CGROUP_FILES if (trial / name).exists())
    finally:
        trial.rmdir()


def _end_left(group: Path) -> None:
    """End the commands of workers that were killed together with their launchers."""
    found = islice(group.glob("raftsched-*-*"), LEFT_MAX)
    left = [one for one in found if not Path("/proc", one.name.split("-")[1]).exists()]
    for one in left:
        with contextlib.suppress(OSError):
            (one / "cgroup.kill").write_text("1")
    until = monotonic() + LEFT_S
    while left:
        for one in list(left):
            try:
                one.rmdir()
            except FileNotFoundError:
                pass  # Another worker that starts has seen it, too.
            except OSError:
                continue
            left.remove(one)
        if monotonic() > until:
            return  # Who cannot be ended keeps it; the next worker looks again.
        sleep(LEFT_LOOK_S)


async def find(
    asked: str, limits: ShellLimits, directory: str, user: str, writable: tuple[str, ...] | None
) -> tuple[Isolation, list[str]]:
    """What will be in force, with why the rest is not. CannotIsolate if what was asked for by name
    cannot be had."""
    if directory and not Path(directory).is_dir():
        raise CannotIsolate(f"the directory of commands, {directory!r}, is not there; make it")
    whose = user_of(user) if user else None
    base = Isolation(NONE, limits, directory, whose, user, writable=writable)
    left_out: list[str] = []
    for kind in (BUBBLEWRAP, SYSTEMD, NONE) if asked == AUTO else (asked,):
        if writable is not None and kind != BUBBLEWRAP:
            left_out.append(f"{kind}: it cannot keep folders from being changed")
            continue
        found, why = await _tried(kind, base)
        if found is not None:
            if limits.processes is not None and not found.counts_processes:
                raise CannotIsolate(
                    f"processes is {limits.processes}, and the kernel counts none of root's "
                    "outside of a cgroup; name another user: --run-as USER"
                )
            return found, left_out
        left_out.append(f"{kind}: {why}")
    what = "writable folders" if writable is not None and asked == AUTO else f"isolation {asked}"
    raise CannotIsolate(
        f"{what} cannot be had here: {'; '.join(left_out)}. Install it or allow it, or ask for "
        "isolation auto or none"
    )


async def _tried(kind: str, base: Isolation) -> tuple[Isolation | None, str]:
    program = ""
    if kind == BUBBLEWRAP:
        program = shutil.which("bwrap") or ""
        if not program:
            return None, "bwrap is not installed"
    if kind == SYSTEMD:
        program = shutil.which("systemd-run") or ""
        if not program:
            return None, "systemd-run is not installed"
        if not SYSTEMD_RUNS.is_dir():
            return None, "systemd does not run here"
    place, group, is_delegated = cgroup_here(_text("/proc/self/mounts"), _text("/proc/self/cgroup"))
    made = replace(base, kind=kind, program=program, cgroups=place)
    files = offered(group, is_delegated=is_delegated) if kind != SYSTEMD and group else None
    if files is not None:
        with_group = replace(made, cgroup=group, cgroup_files=files)
        if not await _trial(with_group):
            return with_group, ""
    why = await _trial(made)
    return (None, why) if why else (made, "")


async def _trial(found: Isolation) -> str:
    """Carry out a command that does nothing; why that does not work, or nothing."""
    launched: Launched | None = None
    with tempfile.TemporaryFile() as nothing, tempfile.TemporaryFile() as words:
        try:
            async with asyncio.timeout(TRIAL_S):
                order = found.order(TRIAL, {})
                launched = await launch(order, nothing, words.fileno(), words.fileno())
                ended = await launched.ended()
                why = f"a trial ended with code {ended.code}" if ended.code else ""
        except TimeoutError:
            why = f"a trial took longer than {TRIAL_S:g} s"
        except (OSError, NotStarted, Lost) as error:
            why = f"a trial failed: {error}"
        finally:
            if launched is not None:
                launched.kill()
        if not why:
            return ""
        words.seek(0)
        said = words.read(WORDS_MAX).decode("utf-8", "replace").strip()
        return f"{why}: {said}" if said else why


PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4


class HiddenProcess:
    """No process of the same user may read this one's memory and environment, where the token may
    be, as long as anybody wants that; only root may."""

    def __init__(self) -> None:
        self._wanted = 0
        self._before = 0

    def hide(self) -> None:
        libc = ctypes.CDLL(None)
        if not self._wanted:
            self._before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        self._wanted += 1

    def show(self) -> None:
        self._wanted -= 1
        if not self._wanted and self._before == 1:
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


# There is one of it in a process, however many executors there are.
HIDDEN = HiddenProcess()


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
