"""Large requests, parsed in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from google.protobuf.message import DecodeError

from raftsched.cluster.api import body
from raftsched.cluster.api.body import call_parsed, parsed, pieces
from raftsched.cluster.api.frames import varint
from raftsched.proto.contract import REQUEST_BYTES, methods
from raftsched.proto.v1 import job_pb2, schedule_pb2, worker_pb2
from raftsched.statemachine.core.rejection import Refused

from .talk import Anything, handler_job

JOB_SPEC = job_pb2.Job.SPEC_FIELD_NUMBER


def frame(chance: random.Random) -> worker_pb2.WorkRequest:
    """What a worker may say at most, or less."""
    made = worker_pb2.WorkRequest(beat=chance.randrange(1 << 40), credits=chance.randrange(100))
    made.hello.worker = "w" * chance.randrange(100)
    for number in range(chance.randrange(10_000)):
        made.hello.held.add(run=f"job.{number}.1", token=number)
    for number in range(chance.randrange(1_000)):
        result = made.results.add(run="r" * chance.randrange(300), token=number)
        result.success.result.data = bytes(chance.randrange(300))
    return made


async def test_a_message_in_pieces_is_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(10):
        said = frame(chance)
        monkeypatch.setattr(body, "PIECE_BYTES", chance.choice([100, 5_000, 64 << 10]))
        monkeypatch.setattr(body, "FIELDS_MAX", 100_000)
        assert await parsed(worker_pb2.WorkRequest, said.SerializeToString()) == said, (
            f"seed {seed}"
        )


async def test_no_piece_is_larger_than_it_may_be() -> None:
    said = frame(random.Random(1))
    sizes = [len(each) for each in pieces(said.SerializeToString(), said.DESCRIPTOR, 12_000)]
    assert max(sizes) <= body.PIECE_BYTES + 20


async def test_an_entry_is_as_long_as_the_request_may_be() -> None:
    text = "x" * (3 << 20)
    jobs = job_pb2.ImportJobsRequest(jobs=[handler_job("good"), handler_job("a", description=text)])
    assert await parsed(job_pb2.ImportJobsRequest, jobs.SerializeToString()) == jobs
    frame = worker_pb2.WorkRequest()
    frame.results.add(token=0).success.SetInParent()
    frame.results.add(token=1).failure.error.trace = text
    frame.results.add(token=2).success.result.data = text.encode()
    frame.results.add(token=3, log_tail=text.encode())
    assert await parsed(worker_pb2.WorkRequest, frame.SerializeToString()) == frame


async def test_an_entry_of_very_many_fields_is_refused_before_it_is_parsed() -> None:
    """However deep they lie; what they lie in may be as small as the calls let through anyway."""
    labels = handler_job("a", description="x" * REQUEST_BYTES)
    for number in range(body.FIELDS_MAX):
        labels.spec.labels[str(number)] = ""
    schedules = handler_job("a", description="x" * REQUEST_BYTES)
    schedules.spec.schedules.extend([schedule_pb2.Schedule()] * body.FIELDS_MAX)
    for job in (labels, schedules):
        data = job_pb2.ImportJobsRequest(jobs=[job]).SerializeToString()
        with pytest.raises(Refused, match="entries has more than 12000 fields"):
            await parsed(job_pb2.ImportJobsRequest, data)


async def test_an_entry_whose_fields_do_not_end_where_it_does_is_refused() -> None:
    spec = varint(JOB_SPEC << 3 | 2) + varint(3) + varint(1 << 3 | 2) + varint(9) + b"x"
    job = varint(999 << 3 | 2) + varint(REQUEST_BYTES) + bytes(REQUEST_BYTES) + spec
    data = varint(1 << 3 | 2) + varint(len(job)) + job
    with pytest.raises(Refused, match="it ends within a field"):
        await parsed(job_pb2.ImportJobsRequest, data)


@pytest.mark.parametrize("kind", [job_pb2.ImportJobsRequest, worker_pb2.WorkRequest])
async def test_bytes_that_are_no_message_are_refused_or_parsed(kind: Anything) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(200):
        data = bytearray(frame(random.Random(2)).SerializeToString()[:70_000])
        for _ in range(chance.randrange(1, 50)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            whole = kind.FromString(bytes(data))
        except DecodeError:
            whole = None
        # Groups are refused here, and would be known to nobody.
        with contextlib.suppress(Refused):
            assert await parsed(kind, bytes(data)) == whole, f"seed {seed}"


async def test_a_call_with_more_entries_than_it_may_have_is_refused_early() -> None:
    report = worker_pb2.ReportResultsRequest(worker="w")
    for number in range(1_000):
        report.results.add(run=f"report.1.{number}", token=number + 1).success.result.data = bytes(
            99
        )
    [method] = [each for each in methods() if each.name == "WorkerService/ReportResults"]
    assert await call_parsed(method, report.SerializeToString()) == report
    report.results.extend(list(report.results))
    report.results.extend(list(report.results))
    with pytest.raises(Refused, match="more than 2000 fields"):
        await call_parsed(method, report.SerializeToString())


async def test_of_large_messages_one_is_parsed_at_a_time() -> None:
    data = frame(random.Random(3)).SerializeToString()
    assert len(data) > 4 * body.PIECE_BYTES
    lock = body._turns().all
    steps: list[bool] = []

    async def watch() -> None:
        while True:
            steps.append(lock.locked())
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    both = [asyncio.create_task(parsed(worker_pb2.WorkRequest, data)) for _ in range(2)]
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await asyncio.wait(both)
    watching.cancel()
    assert both[0].result() == both[1].result()
    # Each had breaks, and the second began when the first was done.
    assert sum(steps) > 2 * (len(data) // body.PIECE_BYTES)


async def test_callers_take_turns_at_having_large_messages_parsed() -> None:
    """Twenty of one caller were parsed before one of another that came after them."""
    data = frame(random.Random(3)).SerializeToString()
    order: list[str] = []

    async def send(caller: str) -> None:
        await parsed(worker_pb2.WorkRequest, data, caller=caller)
        order.append(caller)

    async with asyncio.TaskGroup() as tasks:
        for caller in (*["large"] * 20, "small"):
            tasks.create_task(send(caller))

    assert order.index("small") <= 2
    assert not body._turns().of


def test_fields_with_short_and_long_heads_are_found() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for size in (0, 1, 126, 127, 128, 129, 16_382, 16_383, 16_384, 70_000):
        for number in (1, 15, 16, 2_000):
            head = varint(number << 3 | 2) + varint(size)
            before = bytes(chance.randrange(5))
            data = before + head + bytes(size)
            found = body._field(data, len(before))
            assert found == (number << 3 | 2, len(before) + len(head), len(data)), f"seed {seed}"
            if size:
                with pytest.raises(DecodeError):
                    body._field(data[:-1], len(before))
