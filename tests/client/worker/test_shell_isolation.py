"""What keeps shell commands apart from their worker, and what they may use.

The decisions by tables; then commands that want to get away, hide, read or take too much.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raftsched.client import Worker
from raftsched.client.executors import CannotIsolate, ShellExecutor
from raftsched.client.worker.executors import isolation
from raftsched.client.worker.executors.isolation import Isolation, cgroup_here
from raftsched.client.worker.executors.launch import Ended
from raftsched.client.worker.executors.output import sealed
from raftsched.client.worker.executors.shell_limits import ShellLimits

from .node import PATIENCE_S, Node
from .test_executors import carry_out, shell
from .test_worker import serving

MOUNTS = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
ROOT = os.geteuid() == 0


def bubblewrap_works() -> bool:
    """It is installed, and the kernel lets it make what it needs, as not in every container."""
    words = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]
    return (
        bool(shutil.which("bwrap"))
        and not subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        ).returncode
    )


KINDS = [
    "none",
    pytest.param(
        "bubblewrap",
        marks=pytest.mark.skipif(
            not bubblewrap_works(), reason="bwrap is missing (apt install bubblewrap) or barred"
        ),
    ),
]


@pytest.mark.parametrize(
    ("mounts", "own", "found"),
    [
        (MOUNTS, "0::/user.slice/a.scope\n", ("/sys/fs/cgroup/user.slice/a.scope", False)),
        (MOUNTS, "0::/system.slice/w.service/worker\n",
         ("/sys/fs/cgroup/system.slice/w.service", True)),
        (MOUNTS, "9:pids:/x\n0::/\n", ("/sys/fs/cgroup", False)),
        (MOUNTS, "4:memory:/a\n", None),
        ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", "0::/a\n", None),
        ("", "", None),
    ],
)  # fmt: skip
def test_the_cgroup_for_commands(mounts: str, own: str, found: tuple[str, bool] | None) -> None:
    place = "/sys/fs/cgroup" if found else ""

    assert cgroup_here(mounts, own) == (place, *(found or ("", False)))


def test_limits_become_those_of_kernel_cgroup_and_systemd() -> None:
    limits = ShellLimits(memory=64 << 20, cpu=7, processes=5, file_size=1_000)

    assert ShellLimits().of_kernel(9) == [(resource.RLIMIT_CORE, 0, 0)]
    assert limits.of_kernel(9) == [
        (resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_AS, 64 << 20, 64 << 20),
        (resource.RLIMIT_CPU, 7, 8), (resource.RLIMIT_NPROC, 14, 14),
        (resource.RLIMIT_FSIZE, 1_000, 1_000),
    ]  # fmt: skip
    assert limits.of_cgroup(frozenset({"memory.max", "pids.max"})) == {
        "memory.max": str(64 << 20), "pids.max": "5",
    }  # fmt: skip
    assert limits.of_cgroup(frozenset()) == {}
    assert limits.of_scope() == [f"MemoryMax={64 << 20}", "MemorySwapMax=0", "TasksMax=6"]


ALL = ShellLimits(memory=64 << 20, cpu=2, processes=5, file_size=1_000)


@pytest.mark.parametrize(
    ("limits", "ended", "words", "kind", "part"),
    [
        (ALL, Ended(-9, memory_met=1), b"", "shell.memory", "64 MiB"),
        (ALL, Ended(-24), b"", "shell.cpu", "2 s of CPU"),
        (ALL, Ended(152), b"", "shell.cpu", "2 s of CPU"),
        (ALL, Ended(-9, cpu_s=2.01), b"", "shell.cpu", "2 s of CPU"),
        (ALL, Ended(-25), b"", "shell.file_size", "1000 bytes"),
        (ALL, Ended(153), b"", "shell.file_size", "1000 bytes"),
        (ALL, Ended(2, processes_met=3), b"", "shell.processes", "5"),
        (ALL, Ended(1), b"MemoryError", "", "64 MiB of memory"),
        (ALL, Ended(2), b"sh: 1: Cannot fork", "", "5 processes"),
        (ALL, Ended(1), b"OSError: [Errno 27] File too large", "", "1000 bytes"),
        (ALL, Ended(1), b"no such table", "", ""),
        (ShellLimits(), Ended(-9), b"", "", "memory left"),
        (ShellLimits(), Ended(-25, memory_met=1), b"MemoryError", "", ""),
    ],
)
def test_which_limit_ended_a_command(
    limits: ShellLimits, ended: Ended, words: bytes, kind: str, part: str
) -> None:
    found, why = limits.met(ended, words)

    assert found == kind
    assert part in (why or limits.perhaps(ended, words))
    assert bool(part) == bool(why or limits.perhaps(ended, words))


def test_what_stands_before_a_command() -> None:
    plain = Isolation("bubblewrap", program="/b").order(["a"], {})
    shut = Isolation("bubblewrap", program="/b", writable=("/srv",)).order(["a"], {})
    scope = Isolation("systemd", ALL, program="/s").order(["a"], {})

    assert list(plain.before[:4]) == ["/b", "--dev-bind", "/", "/"]
    assert {"--unshare-pid", "--die-with-parent"} < set(plain.before)
    assert list(shut.before[1:9]) == ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", "/srv",
                                      "/srv"]  # fmt: skip
    assert (plain.is_private, scope.is_private, scope.scope) == (True, False, True)
    assert {"--scope", "TasksMax=6"} < set(scope.before)
    assert Isolation().order(["a"], {}).before == []


def test_only_a_launcher_that_is_not_its_commands_user_may_change_a_shut_cgroup() -> None:
    shut = Isolation("bubblewrap", program="/b", writable=("/srv",), cgroup="/c")
    other = replace(shut, user=(7, 7, ()))

    assert "/c" not in shut.order(["a"], {}).before
    before = other.order(["a"], {}).before
    assert list(before[5:12]) == ["/dev", "--bind", "/srv", "/srv", "--bind", "/c", "/c"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"memory.max", "pids.max"}, "each in a cgroup of its own"),
        ({"pids.max"}, "each in a cgroup of its own, which does not count memory"),
        (set(), "each in a cgroup of its own, which does not count memory and processes"),
    ],
)
def test_what_a_cgroup_does_not_count_is_said(files: set[str], words: str) -> None:
    assert Isolation(cgroup="/c", cgroup_files=frozenset(files)).words(()).endswith(words)
    assert Isolation().words(()).endswith("without a cgroup")


def test_what_a_killed_worker_and_its_launcher_left_is_ended_by_the_next_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "LEFT_S", 0.0)
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    for pid in (nobody, os.getpid()):
        (tmp_path / f"raftsched-{pid}-a").mkdir()
        (tmp_path / f"raftsched-{pid}-a" / "cgroup.kill").touch()

    isolation.offered(str(tmp_path), is_delegated=False)

    found = {one.name: (one / "cgroup.kill").read_text() for one in tmp_path.iterdir()}
    assert found == {f"raftsched-{nobody}-a": "1", f"raftsched-{os.getpid()}-a": ""}


def test_a_command_cannot_change_what_it_reads() -> None:
    with sealed(b"payload") as given:
        again = os.open(f"/proc/self/fd/{given.fileno()}", os.O_RDWR)
        for number in (given.fileno(), again):
            for change in (lambda n: os.write(n, b"x"), lambda n: os.ftruncate(n, 99)):
                with pytest.raises(PermissionError):
                    change(number)
            assert os.read(number, 99) == b"payload"
        os.close(again)


@pytest.mark.slow
@pytest.mark.skipif(not ROOT or not bubblewrap_works(), reason="needs root, and bubblewrap")
async def test_with_writable_folders_commands_have_a_cgroup_that_they_cannot_leave(
    tmp_path: Path,
) -> None:
    plain, _ = await isolation.find("bubblewrap", ShellLimits(), "", "nobody", None)
    if not plain.cgroup:
        pytest.skip("no cgroup can be made here")
    found, _ = await isolation.find("bubblewrap", ShellLimits(), "", "nobody", (str(tmp_path),))

    end = await carry_out(
        ShellExecutor(isolation="bubblewrap", user="nobody", writable=(str(tmp_path),)),
        shell(
            f"cd {found.cgroup}; cat /proc/self/cgroup; echo 0 > cgroup.procs || touch a",
            use_shell=True,
        ),
    )  # fmt: skip

    assert end.failure.error.kind == "exit.1"
    assert b"/raftsched-" in end.log_tail.partition(b"0::")[2]
    assert end.log_tail.count(b"denied") == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"isolation": "chroot"}, "auto, none, bubblewrap, systemd"),
        ({"niceness": 20}, "at most 19"),
        ({"niceness": -1}, "at least 0"),
        ({"processes": 0}, "at least 1"),
        ({"output": 0}, "at least 1"),
        ({"cpu": 1.5}, "cpu is 1.5"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ShellExecutor(**settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"isolation": "bubblewrap"}, "bwrap is not installed"),
        ({"isolation": "systemd"}, "systemd"),
        ({"isolation": "none", "writable": ("/srv",)}, "cannot keep folders"),
        ({"user": "nobody-of-this-name"}, "no user 'nobody-of-this-name'"),
        ({"directory": "/no/such"}, "'/no/such', is not there"),
    ],
)
async def test_what_cannot_be_had_is_an_error_before_there_are_runs(
    settings: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    worker = Worker("127.0.0.1:1", executors=[ShellExecutor(**settings)])

    with pytest.raises(CannotIsolate, match=why):
        await worker.serve()


@pytest.mark.skipif(not ROOT, reason="only root may have as many processes as it likes")
async def test_a_number_of_processes_that_would_not_be_counted_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "offered", lambda *_, **__: None)
    with pytest.raises(CannotIsolate, match="counts none of root's"):
        await ShellExecutor(isolation="none", processes=5).open()


async def test_the_workers_memory_is_hidden_as_long_as_an_executor_needs_it() -> None:
    libc = ctypes.CDLL(None)
    before = libc.prctl(isolation.PR_GET_DUMPABLE, 0, 0, 0, 0)
    one, two = ShellExecutor(isolation="none"), ShellExecutor(isolation="none")
    seen = []
    for do in (one.open, two.open, one.open, one.close, two.close):
        await do()
        seen.append(libc.prctl(isolation.PR_GET_DUMPABLE, 0, 0, 0, 0))

    assert seen == [0, 0, 0, 0, before]


def is_there(marker: str) -> bool:
    """Whether any process has this word among its arguments."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if marker.encode() in (process / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


async def becomes(marker: str, *, there: bool) -> bool:
    until = time.monotonic() + PATIENCE_S
    while is_there(marker) != there:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True


def marked() -> str:
    return str(random.SystemRandom().randrange(10**8, 10**9))


# A daemon as books teach it: forks twice, leads a session of its own, hears no word.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
if sys.argv[2] == "stay":
    time.sleep(600)
"""
WORKER = """
import sys
from raftsched.client import Worker
from raftsched.client.executors import ShellExecutor
Worker(sys.argv[1], executors=[ShellExecutor(isolation=sys.argv[2])], grace=0.2).run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_daemon_does_not_outlive_a_worker_that_is_killed(kind: str, number: int) -> None:
    """Before, it went on, and the run was leased again: two at once."""
    marker = marked()
    async with Node() as node:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, node.address, kind
        )
        try:
            node.lease(action=shell(sys.executable, "-c", DAEMON, marker, "stay"))
            assert await becomes(f"sleep\0{marker}", there=True)
            worker.send_signal(number)
            assert await becomes(marker, there=False)
        finally:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_daemon_does_not_outlive_its_command(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by its parents alone.
    monkeypatch.setattr(isolation, "offered", lambda *_, **__: None)
    marker = marked()

    end = await carry_out(
        ShellExecutor(isolation=kind), shell(sys.executable, "-c", DAEMON, marker, "go")
    )

    assert end.HasField("success")
    assert await becomes(marker, there=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_command_gets_its_word_before_it_is_killed(kind: str, tmp_path: Path) -> None:
    script = f"trap 'echo heard > {tmp_path}/heard; exit 0' TERM; while :; do sleep 0.05; done"

    end = await carry_out(ShellExecutor(isolation=kind, timeout=1), shell(script, use_shell=True))

    assert end.failure.error.kind == "shell.timeout"
    assert (tmp_path / "heard").read_text() == "heard\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_the_workers_environment_and_descriptors_are_not_the_commands(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, `cat /proc/$PPID/environ` showed the token."""
    monkeypatch.setenv("RAFTSCHED_TOKEN", "rs_of-the-worker")
    look = (
        "import os\n"
        f"for pid in [*range(1, 3), os.getppid(), {os.getpid()}]:\n"
        "    for name in ('environ', 'mem', 'fd', 'maps'):\n"
        "        try:\n"
        "            place = f'/proc/{pid}/{name}'\n"
        "            shown = os.listdir(place) if name == 'fd' else open(place, 'rb').read(100)\n"
        "            if shown: print(pid, name, shown)\n"
        "        except OSError as error: pass\n"
        "print(sorted(os.listdir('/proc/self/fd')))\n"
    )
    executor = ShellExecutor(isolation=kind, user="nobody" if ROOT else "")

    end = await carry_out(executor, shell("/usr/bin/python3", "-I", "-c", look))

    # The fourth is that of the folder it lists.
    assert end.success.result.data == b"['0', '1', '2', '3']\n", end


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
async def test_commands_run_as_the_user_that_was_named_and_cannot_become_root() -> None:
    end = await carry_out(
        ShellExecutor(user="nobody"),
        shell("id -un; grep -E '^(NoNewPrivs|CapEff|Groups)' /proc/self/status", use_shell=True),
    )

    name, groups, capabilities, shut = end.success.result.data.decode().splitlines()
    assert (name, capabilities.split()[1].strip("0"), shut.split()[1]) == ("nobody", "", "1")
    assert "0" not in groups.split()[1:]


async def said_by(limits: dict[str, Any], code: str) -> tuple[str, str, bytes]:
    executor = ShellExecutor(isolation="none", user="nobody" if ROOT else "", **limits)
    end = await carry_out(executor, shell("/usr/bin/python3", "-I", "-c", code))
    return end.failure.error.kind, end.failure.error.message, end.log_tail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "code", "kind", "part"),
    [
        ({"memory": 256 << 20}, "x = bytearray(1 << 30)", "exit.1", "256 MiB of memory"),
        ({"cpu": 1}, "while True: pass", "shell.cpu", "1 s of CPU"),
        ({"file_size": 4_096},
         "import os, signal, tempfile; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
         "tempfile.TemporaryFile().write(bytes(1 << 20))", "shell.file_size", "4 KiB"),
        ({"file_size": 4_096}, "import tempfile; tempfile.TemporaryFile().write(bytes(1 << 20))",
         "exit.1", "a file may have 4 KiB"),
        ({"output": 1 << 20}, "while True: print('x' * 1_000)", "shell.output", "1 MiB"),
        ({}, "import os, resource; print(resource.getrlimit(resource.RLIMIT_CORE), flush=True); "
         "os.abort()",
         "signal.SIGABRT", "SIGABRT"),
    ],
    ids=["memory", "cpu", "file size", "file size met", "output", "core"],
)  # fmt: skip
async def test_the_limit_that_was_met_is_the_reason(
    limits: dict[str, Any], code: str, kind: str, part: str
) -> None:
    found, message, log = await said_by(limits, code)

    assert (found, part in message) == (kind, True), message
    if kind == "signal.SIGABRT":
        assert b"(0, 0)" in log


BOMB = """
import os, sys, time
until = time.monotonic() + 20
met = 0
while time.monotonic() < until and met < 50:
    try:
        os.fork()
    except BlockingIOError:
        met += 1
        time.sleep(0.01)
sys.exit("cannot fork any more: Resource temporarily unavailable")
"""


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="needs a user that has nothing else")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_fork_bomb_is_bounded_and_goes_with_its_command(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "offered", lambda *_, **__: None)
    executor = ShellExecutor(isolation=kind, processes=40, user="nobody")
    before = isolation.tasks_of(65534)

    end = await carry_out(executor, shell("/usr/bin/python3", "-I", "-c", BOMB))

    assert end.failure.error.kind == "exit.1"
    assert "40 processes" in end.failure.error.message
    assert isolation.tasks_of(65534) <= before


@pytest.mark.slow
async def test_of_much_output_the_log_has_beginning_and_end_and_says_so() -> None:
    code = "print('first'); print('x' * 50_000_000); print('last')"

    end = await carry_out(ShellExecutor(isolation="none"), shell("/usr/bin/python3", "-c", code))

    log = end.log_tail.decode()
    assert b"last\n" in end.log_tail
    assert "[it wrote 50,000,012 bytes" in log
    assert "it began:]\nfirst\nxxx" in log
    assert len(end.log_tail) <= 16_384


@pytest.mark.slow
async def test_a_launcher_that_is_killed_takes_its_command_along() -> None:
    marker = marked()
    script = f"setsid sleep {marker} & kill -9 $PPID; exec sleep {marker}"
    executor = ShellExecutor(isolation="none")
    await executor.open()
    in_cgroup = "each in a cgroup" in executor._isolation.words(())  # type: ignore[union-attr]

    end = await carry_out(executor, shell(script, use_shell=True))

    assert end.failure.error.kind == "shell.launcher"
    assert "SIGKILL" in end.failure.error.message
    if in_cgroup:
        assert await becomes(marker, there=False)
    else:
        # Who leads a session of its own is not found; production.md says so.
        ended = await asyncio.create_subprocess_exec("pkill", "-9", "-f", f"sleep {marker}")
        await ended.wait()


def fake(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.slow
async def test_a_scope_of_systemd_stands_before_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a program of this name that does what it does for the scope's own cgroup: nothing."""
    fake(tmp_path, "systemd-run", f'echo "$@" >> {tmp_path}/asked\n'
         'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(isolation, "SYSTEMD_RUNS", tmp_path)
    group = tmp_path / "cgroups"
    monkeypatch.setattr(isolation, "cgroup_here", lambda *_: (str(group), "", False))
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines()
               if line.startswith("0::"))  # fmt: skip
    (group / own.strip("/")).mkdir(parents=True)
    (group / own.strip("/") / "cgroup.procs").write_text("")

    end = await carry_out(ShellExecutor(isolation="systemd", memory=64 << 20), shell("echo", "hi"))

    assert end.success.result.data == b"hi\n"
    asked = (tmp_path / "asked").read_text()
    assert "--scope" in asked
    assert f"-p MemoryMax={64 << 20}" in asked


async def test_each_kind_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    until: Callable[[], bool] = lambda: "isolation none" in caplog.text  # noqa: E731
    async with (
        Node() as node,
        serving(Worker(node.address, executors=[ShellExecutor(isolation="none")])),
    ):
        await node.until(lambda: bool(node.hellos))

    assert until()
    assert ("root on this machine" in caplog.text) == ROOT
