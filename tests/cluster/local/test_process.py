"""Programs beside this one: started, watched, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.cluster.local.process import HOME, Process, ProcessFailed, environment, stop_all

SLEEP = "import time; print('here', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP


def program(text: str, folder: Path, name: str = "it") -> Process:
    return Process(name, [text], folder / f"{name}.log", program=(sys.executable, "-c"))


def until(reached: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """It is no more, or waits only for somebody to read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_process_is_started_paused_killed_and_started_again(tmp_path: Path) -> None:
    process = program(SLEEP, tmp_path)
    assert not process.alive
    with pytest.raises(ProcessFailed, match="never started"):
        assert process.pid
    try:
        process.start()
        until(lambda: process.tail() == "here")
        with pytest.raises(ProcessFailed, match="runs already"):
            process.start()
        process.pause()
        until(lambda: process.state == "T")
        process.resume()
        until(lambda: process.state == "S")
        assert process.rss_mb() > 0
        process.kill()
        assert (process.alive, process.code, process.ended_by_itself) == (False, -9, False)

        process.start()
        until(lambda: process.tail() == "here\nhere")
        assert process.alive
    finally:
        process.kill()


def test_one_that_does_not_hear_is_killed_and_that_is_said(tmp_path: Path) -> None:
    deaf, heard = program(DEAF, tmp_path, "deaf"), program(SLEEP, tmp_path, "heard")
    try:
        for process in (deaf, heard):
            process.start()
        until(lambda: deaf.tail() and heard.tail())
        # A signal reaches one that stands still only when it goes on.
        heard.pause()

        assert stop_all([deaf, heard], seconds=0.5) == [deaf]

        assert (deaf.code, heard.code) == (-9, -15)
    finally:
        deaf.kill()
        heard.kill()


def test_what_is_to_end_must_end_in_time_and_without_a_fault(tmp_path: Path) -> None:
    program("print('fine')", tmp_path).finish(20)
    with pytest.raises(ProcessFailed, match="ended with 3"):
        program("raise SystemExit(3)", tmp_path).finish(20)
    with pytest.raises(ProcessFailed, match="took over"):
        program(SLEEP, tmp_path).finish(0.2)


BOTH = "import sys; print(input('')); print('wrong', file=sys.stderr)"


def test_it_can_be_spoken_with(tmp_path: Path) -> None:
    process = program(BOTH, tmp_path)
    process.streams = "dialog"
    process.start()
    assert process.popen is not None
    out, _ = process.popen.communicate(b"hello\n", timeout=20)
    assert (out, process.code, process.tail()) == (b"hello\n", 0, "wrong")


def test_all_that_it_writes_can_be_read_line_by_line(tmp_path: Path) -> None:
    process = program("import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')", tmp_path)
    process.streams = "lines"
    process.start()
    assert process.popen is not None
    out, _ = process.popen.communicate(timeout=20)
    assert (out, process.tail()) == (b"out\nerr\n", "")


def test_a_program_that_is_not_there_ends_with_its_reason(tmp_path: Path) -> None:
    process = Process("none", [], tmp_path / "log", program=("/no/such/program",))
    with pytest.raises(ProcessFailed, match="No such file"):
        process.finish(20)


def test_it_takes_none_of_our_settings_and_imports_this_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAFTSCHED_TOKENS", "true")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    found = environment()
    assert "RAFTSCHED_TOKENS" not in found
    assert found["PYTHONPATH"].split(os.pathsep) == [HOME, "elsewhere"]
    assert (Path(HOME) / "raftsched" / "cluster" / "local").is_dir()


PARENT = """
import os, signal, sys
from pathlib import Path
from raftsched.cluster.local.process import Process
child = Process("child", [sys.argv[2]], Path(sys.argv[1]), program=(sys.executable, "-c"))
child.start()
while not child.tail():
    pass
if sys.argv[3:]:
    child.pause()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_parent_that_is_killed_leaves_nothing_behind(tmp_path: Path, *, frozen: bool) -> None:
    more = ["frozen"] if frozen else []
    ended = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path / "log"), DEAF, *more],
        capture_output=True, env=environment(), check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    until(lambda: is_gone(int(ended.stdout)))


def test_it_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    process = program(SLEEP, tmp_path)

    def start() -> None:
        process.start()
        until(lambda: process.tail() == "here")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    finally:
        process.kill()
