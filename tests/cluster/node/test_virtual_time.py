"""Time that stands still, and goes from one due time to the next when it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raftsched.cluster.local.virtual_clock import SIZE, Clock
from raftsched.cluster.node.node import Node
from raftsched.cluster.node.virtual_clock import NoClock, VirtualClock
from raftsched.proto.v1 import alert_pb2, job_pb2, run_pb2, worker_pb2

from .ear import Ear, success
from .test_node import cluster, leader_of, once, until

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class World:
    """Nodes with a virtual clock, and the hand that moves it."""

    def __init__(self, clock: Clock, nodes: dict[str, Node]) -> None:
        self.clock, self.nodes = clock, nodes

    async def advance(self, handler_timeout: float = 5.0, **lengths: float) -> None:
        def move() -> None:
            self.clock.advance(timedelta(**lengths), handler_timeout=handler_timeout, timeout=60)

        await asyncio.to_thread(move)

    async def runs(self, job: str) -> list[run_pb2.Run]:
        request = job_pb2.ListJobHistoryRequest(job=job, page_size=1_000)
        leader = await leader_of(self.nodes)
        answer = await leader.read(request, None, 5)
        assert isinstance(answer.message, job_pb2.ListJobHistoryResponse)
        return sorted(answer.message.runs, key=lambda run: run.scheduled_time.ToMilliseconds())


@contextmanager
def a_clock(folder: Path) -> Iterator[Clock]:
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(folder / "clock", BEGIN, lambda: None)
    try:
        yield clock
    finally:
        clock.close()


@asynccontextmanager
async def world(folder: Path, count: int = 1) -> AsyncIterator[World]:
    with a_clock(folder) as clock:
        async with cluster(folder, count, clock=folder / "clock") as nodes:
            await leader_of(nodes)
            yield World(clock, nodes)


def each_minute(name: str) -> job_pb2.CreateJobRequest:
    request = job_pb2.CreateJobRequest(job=job_pb2.Job(name=name))
    request.job.spec.action.handler = "build"
    request.job.spec.schedules.add().cron.expression = "* * * * *"
    request.job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
    return request


async def test_each_scheduled_time_fires_at_its_own_instant_and_in_order(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        await node.write(each_minute("report"), "", 5)

        await here.advance(hours=2)

        runs = await here.runs("report")
        expected = [BEGIN_MS + minute * MINUTE_MS for minute in range(1, 121)]
        assert [run.scheduled_time.ToMilliseconds() for run in runs] == expected
        assert [run.ready_time.ToMilliseconds() for run in runs] == expected
        assert here.clock.now == BEGIN + timedelta(hours=2)


async def test_time_stands_still_and_work_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        await node.write(once("later", BEGIN_MS + 1), "", 5)
        await node.write(once("now", BEGIN_MS), "", 5)
        ear = Ear()
        session = node.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(5)

        await until(lambda: ear.got)
        session.report([success(lease) for lease in ear.got])
        await until(lambda: ear.acked)

        assert [lease.job for lease in ear.got] == ["now"]
        assert node.clock.now_ms() == BEGIN_MS


async def test_time_waits_for_handlers(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        await node.write(each_minute("report"), "", 5)
        ear = Ear()
        session = node.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(100)
        moving = asyncio.create_task(here.advance(minutes=3))

        for minute in (1, 2, 3):
            await until(lambda: len(ear.got) == minute)  # noqa: B023
            for _ in range(3):
                node.turns._turn()
            assert node.clock.now_ms() == BEGIN_MS + minute * MINUTE_MS
            assert not moving.done()
            session.report([success(ear.got[-1])])
        await moving

        assert {run.state for run in await here.runs("report")} == {run_pb2.RUN_STATE_SUCCEEDED}


async def test_a_handler_that_does_not_end_holds_time_up_only_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        hanging = once("hangs", BEGIN_MS)
        hanging.job.spec.timeouts.run.FromSeconds(600)
        hanging.job.spec.retry.max_attempts = 1
        await node.write(hanging, "", 5)
        ear = Ear()
        session = node.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(1)
        await until(lambda: ear.got)
        await node.write(each_minute("report"), "", 5)
        began = asyncio.get_running_loop().time()

        await here.advance(hours=1, handler_timeout=0.1)

        assert asyncio.get_running_loop().time() - began > 0.1
        [run] = await here.runs("hangs")
        assert run.state == run_pb2.RUN_STATE_FAILED
        assert run.end_time.ToMilliseconds() == BEGIN_MS + 600_000
        assert ear.stopped
        assert len(await here.runs("report")) == 60


async def test_a_worker_that_was_told_to_stop_has_time_to_say_how_it_ended(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        replaced = each_minute("report")
        replaced.job.spec.overlap.rule = job_pb2.OverlapPolicy.RULE_REPLACE
        await node.write(replaced, "", 5)
        ear = Ear()
        session = node.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(1)
        moving = asyncio.create_task(here.advance(minutes=2.9, handler_timeout=2))
        await until(lambda: ear.stopped)

        [lease] = ear.got
        cancelled = worker_pb2.Failure(cancelled=True)
        session.report([worker_pb2.Result(run=lease.run, token=lease.token, failure=cancelled)])
        await moving

        first, second = await here.runs("report")
        # Not half a minute later, when it would be taken for one that does not answer.
        assert first.end_time.ToMilliseconds() == BEGIN_MS + 2 * MINUTE_MS
        assert second.state == run_pb2.RUN_STATE_PENDING


async def test_no_session_lapses_and_no_deadline_is_told_by_this_clock(tmp_path: Path) -> None:
    from raftsched.cluster.api.worker_frames import welcome

    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        node.sessions.open(worker_pb2.WorkerHello(worker="w1"), Ear(), stream=True)

        await here.advance(days=365)

        assert "w1" in node.sessions.by_worker
        assert not welcome(node.sessions, node.cluster).HasField("server_time")


async def test_alerts_are_raised_on_the_way(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        node = await leader_of(here.nodes)
        put = alert_pb2.PutAlertRequest(alert=alert_pb2.Alert(namespace="default", name="late"))
        put.alert.condition.lateness_above.FromSeconds(300)
        await node.write(put, "", 5)
        await node.write(each_minute("report"), "", 5)

        await here.advance(minutes=30)

        request = alert_pb2.ListAlertsRequest(namespace="default")
        answer = (await node.read(request, None, 5)).message
        assert isinstance(answer, alert_pb2.ListAlertsResponse)
        assert answer.alerts[0].raised_time.ToMilliseconds() == BEGIN_MS + 7 * MINUTE_MS


async def test_a_next_leader_goes_on_from_there(tmp_path: Path) -> None:
    async with world(tmp_path, 3) as here:
        leader = await leader_of(here.nodes)
        await leader.write(each_minute("report"), "", 5)
        await here.advance(minutes=30)
        assert {node.clock.now_ms() for node in here.nodes.values()} == {BEGIN_MS + 30 * MINUTE_MS}
        assert not any(node.leader.skew_ms for node in here.nodes.values())

        del here.nodes[leader.name]
        await leader.stop()
        await here.advance(minutes=30)

        runs = await here.runs("report")
        assert [run.scheduled_time.ToMilliseconds() for run in runs] == [
            BEGIN_MS + minute * MINUTE_MS for minute in range(1, 61)
        ]


async def test_time_waits_for_a_leader(tmp_path: Path) -> None:
    async with world(tmp_path, 3) as here:
        leader = await leader_of(here.nodes)
        await leader.write(each_minute("report"), "", 5)
        moving = asyncio.create_task(here.advance(hours=12))
        await until(lambda: here.clock.now > BEGIN + timedelta(minutes=20))

        del here.nodes[leader.name]
        await leader.stop()
        moment = here.clock.now
        await moving

        assert moment < BEGIN + timedelta(hours=11)
        assert [run.scheduled_time.ToMilliseconds() for run in await here.runs("report")] == [
            BEGIN_MS + minute * MINUTE_MS for minute in range(1, 721)
        ]


def test_a_clock_goes_on_in_the_same_folder_and_never_back(tmp_path: Path) -> None:
    with a_clock(tmp_path) as clock:
        VirtualClock(tmp_path / "clock").go_to(BEGIN_MS + 5)
        with pytest.raises(ValueError, match="cannot go back"):
            clock.advance_to(BEGIN)
        with pytest.raises(ValueError, match="cannot go back by 1:00:00"):
            clock.advance(hours=-1)
        with pytest.raises(ValueError, match="has no zone"):
            clock.advance_to(datetime(2027, 1, 1))  # noqa: DTZ001
    with a_clock(tmp_path) as clock:
        assert clock.now == BEGIN + timedelta(milliseconds=5)


def test_nobody_who_moves_it_is_a_matter_of_time(tmp_path: Path) -> None:
    with a_clock(tmp_path) as clock:
        with pytest.raises(TimeoutError, match=r"within 0\.05 s, on its way to 2026-01-01 01:00"):
            clock.advance(hours=1, timeout=0.05)

        assert not VirtualClock(tmp_path / "clock").is_asked


def test_whatever_ends_the_wait_ends_the_way(tmp_path: Path) -> None:
    class NodeEnded(Exception):
        pass

    def look() -> None:
        raise NodeEnded

    clock = Clock(tmp_path / "clock", BEGIN, look)
    with pytest.raises(NodeEnded):
        clock.advance(hours=1)

    assert not VirtualClock(tmp_path / "clock").is_asked
    assert clock.now == BEGIN
    clock.close()


def test_what_is_no_clock_is_not_taken_for_one(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    with pytest.raises(NoClock, match="No such file"):
        VirtualClock(file)
    file.write_bytes(b"short")
    with pytest.raises(NoClock, match="greater than file size"):
        VirtualClock(file)
    file.write_bytes(bytes(SIZE))
    with pytest.raises(NoClock, match="begins otherwise"):
        VirtualClock(file)
