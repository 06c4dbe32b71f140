"""Reads take turns between those who ask, and what waits is bounded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from raftsched.cluster.node import readers
from raftsched.cluster.node.readers import LOOKED_AT, REST_S, WORK_S, Readers
from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core.rejection import Reason, Refused
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.reads import reads

DEADLINE_S = 20.0


class Desk:
    """Reads that last until they are let go, and who computed when."""

    def __init__(self, threads: int = 3) -> None:
        self.readers = Readers(threads)
        self.began: list[str] = []
        self.gate = threading.Semaphore(0)

    def ask(self, caller: str, word: str = "") -> asyncio.Task[str]:
        def begin() -> Callable[[], str]:
            self.began.append(caller)
            return work

        def work() -> str:
            assert self.gate.acquire(timeout=DEADLINE_S)
            return word or caller

        return asyncio.create_task(self.readers.read(caller, begin))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await asyncio.sleep(0.001)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    made.gate.release(10_000)
    await asyncio.to_thread(made.readers.close)


async def test_one_caller_with_many_reads_has_one_thread(desk: Desk) -> None:
    heavy = [desk.ask("tenant", str(number)) for number in range(20)]
    await desk.until(lambda: desk.readers.waiting == 19)

    other = desk.ask("other")
    await desk.until(lambda: "other" in desk.began)

    assert desk.began == ["tenant", "other"]
    desk.gate.release(21)
    assert await asyncio.gather(*heavy) == [str(number) for number in range(20)]
    assert await other == "other"
    assert desk.readers.waiting == 0


async def test_callers_take_turns() -> None:
    desk = Desk(threads=1)
    asked = [desk.ask(caller) for caller in "abcde" for _ in range(3)]
    desk.gate.release(15)
    await asyncio.gather(*asked)
    await asyncio.to_thread(desk.readers.close)

    assert desk.began == list("abcde" * 3)


async def test_what_waits_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WAITING_BY_CALLER", 2)
    monkeypatch.setattr(readers, "WAITING_MAX", 4)
    asked = [desk.ask(caller) for caller in "aaabbbcdd"]
    await desk.until(lambda: all(task.done() for task in asked[-2:]))
    kept = asked[:-2]

    for refused in asked[-2:]:
        with pytest.raises(Refused) as found:
            await refused
        rejection = found.value.rejection
        assert rejection.reason == Reason.ERROR_REASON_NODE_LIMIT
        assert (rejection.values["limit"], rejection.values["of"]) == ("waiting_reads", "all")
        assert rejection.retry_after_ms > 0
    with pytest.raises(Refused) as found:
        await desk.ask("a")
    assert found.value.rejection.values["of"] == "a"
    desk.gate.release(len(kept))
    await asyncio.gather(*kept)


async def test_who_leaves_gives_its_place_back(desk: Desk) -> None:
    first, second, third = (desk.ask("a", word) for word in "123")
    await desk.until(lambda: desk.readers.waiting == 2)
    second.cancel()
    await desk.until(lambda: desk.readers.waiting == 1)
    # A thread that computes for nobody keeps its caller's turn until it is done.
    first.cancel()
    await asyncio.wait([first, second])
    assert desk.began == ["a"]
    desk.gate.release()
    await desk.until(lambda: len(desk.began) == 2)
    desk.gate.release()

    assert await third == "3"


async def test_who_leaves_when_its_turn_comes_gives_it_on(desk: Desk) -> None:
    first, second, third = (desk.ask("a", word) for word in "123")
    await desk.until(lambda: desk.readers.waiting == 2)
    ended = desk.readers._ended

    def end_and_cancel(caller: str) -> None:
        second.cancel()
        ended(caller)

    desk.readers._ended = end_and_cancel  # type: ignore[method-assign]
    desk.gate.release(2)

    assert (await first, await third) == ("1", "3")
    assert second.cancelled()


def test_a_read_stands_back_while_a_change_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore({b"%03d" % number: b"x" for number in range(200)})
    clock, slept, busy = [0.0], list[float](), [True]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    state = Readers(is_busy=lambda: busy[0]).paced(store)

    # Nothing is computed yet, so nobody needs a rest.
    assert state.get(b"001") == b"x"
    assert len(list(state.scan(b"0", b"1"))) == 100
    assert slept == []
    for look in (lambda: state.get(b"001"), lambda: state.get_many([b"001"])):
        clock[0] += 2 * WORK_S
        look()
        # No longer than that, though the change is still on its way.
        assert REST_S <= sum(slept) < 2 * REST_S
        slept.clear()
    scan = state.scan(b"0", b"2", backwards=True)
    for _ in scan:
        clock[0] += WORK_S / LOOKED_AT
    assert REST_S <= sum(slept) < 5 * REST_S
    slept.clear()
    busy[0] = False
    clock[0] += 1
    assert [key for key, _ in state.scan(b"0", b"01")] == [b"00%d" % n for n in range(10)]
    assert slept == []


async def test_what_a_read_raises_frees_its_thread(desk: Desk) -> None:
    def fails() -> Callable[[], str]:
        raise ValueError("no snapshot")

    for _ in range(10):
        with pytest.raises(ValueError, match="no snapshot"):
            await desk.readers.read("a", fails)
        with pytest.raises(ZeroDivisionError):
            await desk.readers.read("a", lambda: lambda: 1 // 0)
    desk.gate.release()
    assert await desk.ask("a") == "a"


def test_reads_of_few_records_are_named_one_by_one() -> None:
    assert set(reads.OF_FEW_RECORDS) <= reads.READS.keys()
    # It counts what waits and what ran, and its name begins as that of a smaller one does.
    assert job_pb2.GetJobStatusRequest not in reads.OF_FEW_RECORDS
