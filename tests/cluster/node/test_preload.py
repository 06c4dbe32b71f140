"""What a call names is looked at before the leader's loop needs it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from raftsched.cluster.node import preload as module
from raftsched.cluster.node.preload import Ahead
from raftsched.cluster.node.readers import Readers
from raftsched.proto.v1 import calendar_pb2, job_pb2
from raftsched.statemachine.calls import imports
from raftsched.statemachine.schedule import compiler, zones

NOW_MS = 1_800_000_000_000
DEADLINE_S = 20.0


@pytest.fixture
async def ahead(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ahead]:
    monkeypatch.setattr(zones, "_ZONES", {})
    monkeypatch.setattr(zones, "_WARM", {})
    compiler._shape.cache_clear()
    compiler._rules.cache_clear()
    readers = Readers()
    made = Ahead(readers)
    yield made
    made.stop()
    await asyncio.to_thread(readers.close)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many schedules were looked at, on a thread that is not the loop's."""
    seen: list[int] = []

    def note(schedules: object, timing: object) -> object:
        assert threading.current_thread().name.startswith("read")
        seen.append(len(schedules))  # type: ignore[arg-type]
        return compiler.shape_of(schedules, timing)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "shape_of", note)
    return seen


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.005)


def a_job(zone: str = "", *expressions: str) -> job_pb2.Job:
    job = job_pb2.Job(name="a")
    job.spec.timing.zone = zone
    for expression in expressions:
        job.spec.schedules.add().cron.expression = expression
    return job


async def ready(ahead: Ahead, request: object, caller: str, now_ms: int) -> None:
    """As a call waits for what it names."""
    if unseen := ahead.unseen(request):
        await ahead.look_at(unseen, caller, now_ms)


async def test_a_call_waits_for_the_zones_it_names(ahead: Ahead) -> None:
    job = a_job("Europe/Berlin")
    await ready(ahead, job_pb2.CreateJobRequest(job=job), "", NOW_MS)
    assert not zones.cold(["Europe/Berlin"])
    assert zones.cold(["Asia/Tokyo"])
    calendar = calendar_pb2.Calendar(zone="Asia/Tokyo")
    await ready(ahead, calendar_pb2.CreateCalendarRequest(calendar=calendar), "", NOW_MS)
    assert not zones.cold(["Asia/Tokyo"])


async def test_expressions_are_read_once_and_not_on_the_loop(
    ahead: Ahead, shapes: list[int]
) -> None:
    jobs = [a_job("Europe/Berln", f"*/{n} 25 32 13 FOO", "0 9 * * *") for n in range(300)]
    request = job_pb2.ImportJobsRequest(jobs=jobs)
    await ready(ahead, request, "tenant", NOW_MS)
    assert shapes == [2] * 300
    # The rules find what was looked at.
    before = compiler._shape.cache_info()
    for job in jobs:
        compiler.shape_of(job.spec.schedules, job.spec.timing)
    after = compiler._shape.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (300, 0)

    await ready(ahead, request, "tenant", NOW_MS)
    for job in (job_pb2.Job(name="b"), a_job("", "0 9 * * *")):
        await ready(ahead, job_pb2.CreateJobRequest(job=job), "tenant", NOW_MS)
    await ready(ahead, job_pb2.TriggerJobRequest(job="a"), "tenant", NOW_MS)
    assert len(shapes) == 300


async def test_what_raises_is_left_to_the_rules(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(module, "shape_of", fails)
    await ready(ahead, job_pb2.CreateJobRequest(job=a_job("", "0 9 * * *")), "", NOW_MS)


async def test_much_of_one_caller_is_looked_at_in_turns(
    ahead: Ahead, shapes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.0)
    jobs = [a_job("", f"{n % 60} {n // 60} * * *") for n in range(50)]
    large = asyncio.create_task(ready(ahead, job_pb2.ImportJobsRequest(jobs=jobs), "a", NOW_MS))
    small = job_pb2.CreateJobRequest(job=a_job("", "7 7 7 * *"))
    await until(lambda: bool(shapes))
    await ready(ahead, small, "a", NOW_MS)
    assert len(shapes) < 51
    await large
    assert len(shapes) == 51


async def test_what_is_remembered_is_bounded(
    ahead: Ahead, shapes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEEN", 10)
    for number in range(40):
        job = a_job("", f"{number} * * * *")
        await ready(ahead, job_pb2.CreateJobRequest(job=job), "", NOW_MS)
        assert len(ahead._seen) <= 11


async def test_what_the_leader_uses_is_warmed_one_by_one(ahead: Ahead) -> None:
    names = list(zones.zone_names()[:10])
    began = time.monotonic()
    ahead.soon([*names, "Europe/Berln", ""], NOW_MS)
    ahead.soon(names, NOW_MS)
    # A call that names another one does not wait behind all of them.
    await ready(ahead, job_pb2.CreateJobRequest(job=a_job("Europe/Berlin")), "", NOW_MS)
    assert zones.cold(names)
    await until(lambda: not zones.cold(names))

    assert time.monotonic() - began > 9 * module.REST_S


async def test_the_others_hear_of_all_zones_by_and_by(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMED", 4)
    assert ahead.in_use() == []
    names = [name for name in zones.zone_names()[:10] if zones.find_zone(name)]

    told = [ahead.in_use() for _ in range(4)]

    assert told == [names[:4], names[4:8], names[8:], names[:4]]


@pytest.mark.parametrize("length", [1, 20, 123, 124, 127, 128, 200, 16_384, 20_000, 3_000_000])
def test_an_import_is_looked_through_for_names_of_any_length(ahead: Ahead, length: int) -> None:
    for job in (a_job("", "x" * length), a_job("z" * length)):
        request = job_pb2.ImportJobsRequest(jobs=[job_pb2.Job(name="a"), job])
        assert len(ahead.unseen(request)) == 1


def test_an_import_that_names_nothing_is_not_looked_through_job_by_job(ahead: Ahead) -> None:
    request = job_pb2.ImportJobsRequest()
    for number in range(300):
        job = request.jobs.add(name=f"job-{number}")
        job.spec.payload.data = b'{"to": "somebody@example.com"}'
        job.spec.schedules.add().once.time.FromMilliseconds(NOW_MS)
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        unseen, order = ahead.unseen(request), imports.order_of(request)
    finally:
        sys.setprofile(None)
    assert not unseen
    assert list(order) == list(range(300))
    assert calls < 50, "it must not ask each job"
