"""Short turns on a processor, where the system has them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.cluster.ops.slices import SCHED_SETATTR, SLICE_NS, ask_for_short


def on_a_thread(what: Callable[[], object]) -> None:
    """The rest of the tests keeps what it has."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            what()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def slice_ns() -> int:
    """What this thread has, if the kernel tells."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/sched")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[-1]) for line in lines if line.startswith("se.slice")), 0)


def test_threads_that_are_started_later_have_short_turns_too() -> None:
    def ask() -> None:
        before = slice_ns()
        if not before or not ask_for_short():
            pytest.skip("this kernel has no slices, or does not tell them")
        assert before > SLICE_NS
        assert slice_ns() == SLICE_NS
        on_a_thread(lambda: seen.append(slice_ns()))

    seen: list[int] = []
    on_a_thread(ask)
    assert seen == [SLICE_NS]


def test_a_node_keeps_the_niceness_that_it_was_given() -> None:
    def ask() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        ask_for_short()
        assert os.getpriority(os.PRIO_PROCESS, 0) == 7

    on_a_thread(ask)


def test_a_machine_without_them_is_none_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "another")
    assert not ask_for_short()
    # A call that no kernel has.
    monkeypatch.setitem(SCHED_SETATTR, "another", 100_000)
    assert not ask_for_short()
