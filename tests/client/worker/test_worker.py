"""A worker against servers in the same process, over real streams."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from raftsched.client import Worker
from raftsched.client.errors import RaftschedError
from raftsched.client.worker.connection import Pauses, Streams
from raftsched.client.worker.context import Context, current_context
from raftsched.client.worker.outcomes import PermanentError, RetryLater
from raftsched.proto.v1 import worker_pb2
from raftsched.proto.v1.worker_pb2 import ResultAck, Stop

from .node import PATIENCE_S, Node


def test_a_handler_is_registered_with_parentheses_and_without() -> None:
    worker = Worker("127.0.0.1:1")

    @worker.handler
    def one(day: str) -> str:
        return day

    @worker.handler()
    def two() -> None: ...

    @worker.handler("three")
    def other() -> None: ...

    assert worker.handlers == ("one", "three", "two")
    assert one("monday") == "monday"


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[Worker]:
    """The worker serves within; afterwards it drains."""
    task = asyncio.create_task(worker.serve())
    try:
        yield worker
        worker.stop(now=True)
        async with asyncio.timeout(PATIENCE_S):
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass
class Mail:
    to: str
    at: datetime


async def test_async_and_sync_handlers_get_typed_arguments_and_return_results() -> None:
    async with Node() as node:
        worker = Worker(node.address, queues=["q"], labels={"zone": "a"}, slots=4)
        threads: list[str] = []

        @worker.handler("send")
        async def send(mail: Mail, copies: int = 1) -> dict[str, Any]:
            return {"to": mail.to, "year": mail.at.year, "copies": copies}

        @worker.handler
        def count(words: list[str]) -> int:
            threads.append(threading.current_thread().name)
            return len(words)

        async with serving(worker):
            payload = b'{"mail": {"to": "ann", "at": "2026-11-18T09:00:00Z"}}'
            sent = await node.ended(node.lease("send", payload))
            counted = await node.ended(node.lease("count", b'{"words": ["a", "b"]}'))

    assert sent.success.result.data == b'{"to":"ann","year":2026,"copies":1}'
    assert sent.success.result.content_type == "application/json"
    assert counted.success.result.data == b"2"
    assert threads[0].startswith("raftsched-handler-")
    [hello] = node.hellos
    assert list(hello.handlers) == ["count", "send"]
    assert (list(hello.queues), dict(hello.labels), hello.slots) == (["q"], {"zone": "a"}, 4)
    # What is registered stays a plain function.
    assert count(["x"]) == 1


async def test_two_workers_never_share_an_id() -> None:
    async with Node() as one, Node() as other:
        for node in (one, other):
            worker = Worker(node.address)
            worker.handler("h")(lambda: None)
            async with serving(worker):
                await node.until(lambda node=node: node.hellos)  # type: ignore[misc]

    ids = [node.hellos[0].worker for node in (one, other)]
    assert ids[0] != ids[1]
    assert max(map(len, ids)) <= 128


async def test_a_wrong_payload_is_a_fatal_failure_that_says_what_is_wrong() -> None:
    async with Node() as node:
        worker = Worker(node.address)
        worker.handler("send")(lambda to: None)

        async def typed(mail: Mail) -> None: ...

        worker.handler("typed")(typed)
        async with serving(worker):
            missing = await node.ended(node.lease("send", b"{}"))
            wrong = await node.ended(node.lease("typed", b'{"to": 5}'))

    assert missing.failure.fatal
    assert missing.failure.error.kind == "PayloadInvalid"
    assert "`to`" in missing.failure.error.message
    assert "$.to" in wrong.failure.error.message


async def test_what_a_handler_raises_is_what_is_reported() -> None:
    async with Node() as node:
        worker = Worker(node.address)

        def fails() -> None:
            raise ValueError("no \ud800 such thing" + "x" * 9_000)

        async def never_again() -> None:
            raise PermanentError("gone", kind="http.410")

        async def later() -> None:
            raise RetryLater(timedelta(minutes=2), "busy")

        def gives_back(context: Context) -> None:
            context.release(delay=3, checkpoint={"at": 7})

        def exits() -> None:
            raise SystemExit(3)

        for function in (fails, never_again, later, gives_back, exits):
            worker.handler()(function)
        async with serving(worker):
            leases = [node.lease(name) for name in worker.handlers]
            ends = {lease.action.handler: await node.ended(lease) for lease in leases}

    failed = ends["fails"].failure
    assert (failed.error.kind, failed.fatal) == ("ValueError", False)
    assert failed.error.message.startswith("no ? such thing")
    assert len(failed.error.message) == 4_096
    assert "in fails" in failed.error.trace
    assert "runner.py" not in failed.error.trace
    assert (ends["never_again"].failure.fatal, ends["never_again"].failure.error.kind) == (
        True,
        "http.410",
    )
    assert ends["later"].failure.retry_after.ToSeconds() == 120
    assert ends["gives_back"].given_back.delay.ToSeconds() == 3
    assert ends["gives_back"].given_back.checkpoint == b'{"at":7}'
    assert ends["exits"].failure.error.kind == "SystemExit"


async def test_a_result_that_is_too_large_is_a_fatal_failure() -> None:
    async with Node() as node:
        worker = Worker(node.address)
        worker.handler("big")(lambda: b"x" * 65_537)
        worker.handler("odd")(lambda: object())
        async with serving(worker):
            big = await node.ended(node.lease("big"))
            odd = await node.ended(node.lease("odd"))

    assert big.failure.fatal
    assert "65,537" in big.failure.error.message
    assert "object" in odd.failure.error.message


async def test_the_context_says_what_the_lease_says() -> None:
    seen: dict[str, Any] = {}
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def look(context: Context, n: int) -> None:
            assert current_context() is context
            seen.update(
                run=context.run,
                key=context.idempotency_key,
                token=context.token,
                attempt=(context.attempt, context.max_attempts),
                scheduled=context.scheduled_time,
                deadline=context.deadline,
                checkpoint=context.load_checkpoint(list[int]),
                up=context.upstream("a", int),
                n=n,
            )
            context.progress(1, 2, "half")
            context.checkpoint([4])
            context.log.info("seen %d", n)

        async with serving(worker):
            at = datetime(2026, 11, 18, 9, tzinfo=UTC)
            lease = node.lease(payload=b'{"n": 3}', checkpoint=b"[1]", scheduled_time=at)
            result = await node.ended(lease)
            again = node.lease(
                payload=b'{"n": 3}', upstream=[{"job": "a", "result": {"data": b"9"}}]
            )
            await node.ended(again)

    assert result.failure.error.kind == "LookupError"
    assert (seen["run"], seen["key"], seen["token"]) == (again.run, again.run, again.token)
    assert seen["attempt"] == (1, 4)
    assert seen["deadline"] is None
    assert (seen["checkpoint"], seen["up"], seen["n"]) == (None, 9, 3)
    assert node.results[again.token].log_tail.endswith(b"INFO seen 3\n")


@pytest.mark.parametrize("kind", ["async", "sync", "inline"])
async def test_contextvars_of_one_run_are_not_seen_by_another(kind: str) -> None:
    from contextvars import ContextVar

    var: ContextVar[str] = ContextVar("var", default="clean")
    async with Node() as node:
        worker = Worker(node.address, slots=1)

        def look() -> str:
            found = var.get()
            var.set("dirty")
            return found

        async def look_async() -> str:
            return look()

        worker.handler("h", inline=kind == "inline")(look_async if kind == "async" else look)
        async with serving(worker):
            ends = [await node.ended(node.lease()) for _ in range(3)]

    assert [end.success.result.data for end in ends] == [b'"clean"'] * 3


async def test_more_sync_handlers_than_are_woken_at_once_run_side_by_side() -> None:
    together = threading.Barrier(20)
    async with Node() as node:
        worker = Worker(node.address, slots=20)

        @worker.handler("h")
        def meet() -> None:
            together.wait(PATIENCE_S)

        async with serving(worker):
            for lease in [node.lease() for _ in range(20)]:
                assert (await node.ended(lease)).HasField("success")


async def test_an_end_is_reported_at_once_not_at_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftsched.client.worker.connection.TICK_S", 60.0)
    async with Node(heartbeat_s=30, lapse_s=90) as node:
        worker = Worker(node.address)

        async def finish() -> None: ...

        worker.handler("async")(finish)
        worker.handler("sync")(lambda: None)
        worker.handler("inline", inline=True)(lambda: None)
        async with serving(worker):
            async with asyncio.timeout(60):
                for name in ["async", "sync", "inline"] * 5:
                    await node.ended(node.lease(name))


async def test_cancel_interrupts_async_handlers_and_flags_sync_ones() -> None:
    started: list[int] = []
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("waits")
        async def waits(context: Context) -> None:
            started.append(context.token)
            await asyncio.sleep(PATIENCE_S)

        @worker.handler("looks")
        def looks(context: Context) -> None:
            started.append(context.token)
            assert context.wait_cancelled_sync(PATIENCE_S)
            context.check_cancelled()

        @worker.handler("finishes")
        def finishes(context: Context) -> str:
            started.append(context.token)
            context.wait_cancelled_sync(PATIENCE_S)
            return context.stop_reason

        async with serving(worker):
            leases = [node.lease(name) for name in ("waits", "looks", "finishes")]
            await node.until(lambda: len(node.standing) == 3)
            while len(started) < 3:
                await asyncio.sleep(0.001)
            for lease in leases:
                node.stop_run(lease, Stop.KIND_CANCEL, "by ann")
            ends = [await node.ended(lease) for lease in leases]

    assert [end.failure.cancelled for end in ends] == [True, True, False]
    assert ends[0].failure.error.message == "by ann"
    assert ends[2].success.result.data == b'"by ann"'


async def test_a_cancel_that_is_said_again_does_not_disturb_the_cleaning_up() -> None:
    cleaning, go = asyncio.Event(), asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def tidy() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                cleaning.set()
                await go.wait()

        async with serving(worker):
            lease = node.lease()
            await node.until(lambda: lease.token in node.standing)
            node.stop_run(lease, Stop.KIND_CANCEL)
            await asyncio.wait_for(cleaning.wait(), PATIENCE_S)
            node.stop_run(lease, Stop.KIND_CANCEL)
            # Leases are taken in turn, so the second word was heard once this is answered.
            other = node.lease("no-such")
            await node.ended(other)
            assert lease.token not in node.results
            go.set()
            end = await node.ended(lease)

    assert end.failure.cancelled
    assert node.results[other.token].failure.error.kind == "HandlerUnknown"


async def test_a_handler_that_is_cancelled_before_its_first_step_ends_as_cancelled() -> None:
    async with Node() as node:
        worker = Worker(node.address)
        called: list[int] = []

        @worker.handler("h")
        async def waits(context: Context) -> None:
            called.append(context.token)
            await asyncio.sleep(PATIENCE_S)

        async with serving(worker):
            await node.until(lambda: node.credits)
            node.credits -= 1
            lease = node.lease()
            node.line.remove(lease) if lease in node.line else None
            node.standing.add(lease.token)
            stop = Stop(token=lease.token, run=lease.run, kind=Stop.KIND_CANCEL)
            node._outbox.get_nowait()
            node.say(leases=[lease], stops=[stop])
            end = await node.ended(lease)

    assert end.failure.cancelled
    assert called == []


async def test_a_lost_lease_stops_the_handler_and_nothing_is_reported() -> None:
    stopped = asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def waits() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                stopped.set()

        worker.handler("other")(lambda: None)
        async with serving(worker):
            lease = node.lease()
            await node.until(lambda: lease.token in node.standing)
            node.standing.clear()
            node.stop_run(lease, Stop.KIND_LOST)
            await asyncio.wait_for(stopped.wait(), PATIENCE_S)
            await node.ended(node.lease("other"))

    assert lease.token not in node.results
    assert node.reports == 1


async def test_a_redirect_leads_to_the_leader() -> None:
    async with Node() as follower, Node() as leader:
        follower.leader = leader.address
        worker = Worker(follower.address)
        worker.handler("h")(lambda: 1)
        async with serving(worker):
            assert (await leader.ended(leader.lease())).success.result.data == b"1"


async def test_a_worker_whose_leader_is_silent_goes_where_another_node_says_that_one_leads() -> (
    None
):
    """Seen before: it waited until it was sure by itself, 0.8 s at the soonest, here 20."""
    async with Node() as first, Node() as second, Node() as third:
        second.names = third.names = third.address
        worker = Worker([first.address, second.address, third.address], slots=1)
        worker.handler("h")(lambda: None)
        async with serving(worker):
            await first.until(lambda: first.hellos)
            first.mute = True
            first.lease()
            async with asyncio.timeout(PATIENCE_S / 2):
                await third.until(lambda: third.hellos)
    assert not second.hellos
    assert [one.token for one in third.hellos[0].held] == [1]


async def test_a_leader_that_is_slow_keeps_its_worker_as_long_as_nobody_else_leads() -> None:
    async with Node() as first, Node() as second:
        worker = Worker([first.address, second.address], slots=1)
        worker.handler("h")(lambda: None)
        async with serving(worker):
            await first.until(lambda: first.hellos)
            first.mute = True
            lease = first.lease()
            await second.until(lambda: second.inquiries == 2)
            second.names = first.address
            await second.until(lambda: second.inquiries == 5)
            assert (len(first.hellos), len(second.hellos)) == (1, 0)
            first.mute = False
            first.say(beat=2**31, acks=[ResultAck(token=lease.token)])


async def test_a_node_that_leads_no_more_and_knows_no_leader_is_not_asked_next() -> None:
    """Seen before: it held the next stream for a second, while the others had a leader."""
    async with Node() as first, Node() as second:
        worker = Worker([first.address, second.address], slots=1)
        worker.handler("h")(lambda: None)
        async with serving(worker):
            await first.until(lambda: first.hellos)
            first.say(redirect=worker_pb2.Redirect(reason="it leads no more"))
            await second.until(lambda: second.hellos)
    assert len(first.hellos) == 1


async def test_a_worker_follows_its_namespaces_to_another_cluster() -> None:
    async with Node() as home, Node() as other:
        home.elsewhere = other.address
        worker = Worker(home.address)
        worker.handler("h")(lambda: 1)
        async with serving(worker):
            assert (await other.ended(other.lease())).success.result.data == b"1"
    assert home.asked == 1


async def test_two_clusters_that_point_at_each_other_are_asked_by_turns_with_waits() -> None:
    async with Node() as home, Node() as other:
        home.elsewhere, other.elsewhere = other.address, home.address
        worker = Worker(home.address)
        worker.handler("h")(lambda: 1)
        async with serving(worker):
            async with asyncio.timeout(PATIENCE_S):
                while min(home.asked, other.asked) < 3:
                    await asyncio.sleep(0.01)
            assert abs(home.asked - other.asked) <= 1
            home.elsewhere = ""
            assert (await home.ended(home.lease())).success.result.data == b"1"


async def test_an_address_where_nobody_listens_is_passed_over() -> None:
    async with Node() as node:
        worker = Worker(["127.0.0.1:1", node.address])
        worker.handler("h")(lambda: 1)
        async with serving(worker):
            await node.ended(node.lease())


async def test_leases_and_reports_outlive_a_broken_stream() -> None:
    go = asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("waits")
        async def waits() -> str:
            await go.wait()
            return "done"

        worker.handler("quick")(lambda: "quick")
        async with serving(worker):
            node.acknowledges = False
            long, quick = node.lease("waits"), node.lease("quick")
            await node.until(lambda: node.reports)
            node.acknowledges = True
            node.drop()
            again = await node.ended(quick)
            go.set()
            end = await node.ended(long)

    assert again.success.result.data == b'"quick"'
    assert end.success.result.data == b'"done"'
    assert [hello.worker for hello in node.hellos] == [node.hellos[0].worker] * 2
    assert {one.token for one in node.hellos[1].held} == {long.token, quick.token}


async def test_a_silent_server_is_left_and_its_leases_are_given_up_in_time() -> None:
    """When that is, test_session.py holds by a clock of its own."""
    stopped = asyncio.Event()
    async with Node(heartbeat_s=0.2, lapse_s=0.5) as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def waits() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                stopped.set()

        async with serving(worker):
            lease = node.lease()
            await node.until(lambda: lease.token in node.standing)
            node.mute = True
            await asyncio.wait_for(stopped.wait(), 60)
            node.mute = False
            await node.until(lambda: len(node.hellos) >= 2)

    assert not node.hellos[-1].held


async def test_stopping_finishes_what_it_can_and_gives_back_the_rest() -> None:
    go = asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address, grace=0.2)

        @worker.handler("ends")
        async def ends(context: Context) -> str:
            assert not context.draining
            await go.wait()
            return "in time" if context.draining else "?"

        @worker.handler("waits")
        async def waits(context: Context) -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                context.checkpoint("half")

        @worker.handler("deaf")
        def deaf(context: Context) -> None:
            release.wait(PATIENCE_S)

        release = threading.Event()
        task = asyncio.create_task(worker.serve())
        leases = [node.lease(name) for name in ("ends", "waits", "deaf")]
        await node.until(lambda: len(node.standing) == 3)
        worker.stop()
        await node.until(lambda: node.drained)
        go.set()
        await asyncio.wait_for(task, PATIENCE_S)
        release.set()

    ended = [node.results[lease.token] for lease in leases]
    assert ended[0].success.result.data == b'"in time"'
    # What it notes while it cleans up goes along.
    assert ended[1].given_back.checkpoint == b'"half"'
    assert ended[2].HasField("given_back")
    assert node.closed_well


async def test_a_lease_that_comes_after_the_drain_is_given_back() -> None:
    hold = asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address, grace=PATIENCE_S)

        @worker.handler("h")
        async def waits() -> None:
            await hold.wait()

        task = asyncio.create_task(worker.serve())
        first = node.lease()
        await node.until(lambda: first.token in node.standing)
        worker.stop()
        await node.until(lambda: node.drained)
        node.credits = 1
        late = node.lease()
        assert (await node.ended(late)).HasField("given_back")
        hold.set()
        await asyncio.wait_for(task, PATIENCE_S)

    assert node.results[first.token].HasField("success")


async def test_cancelling_serve_gives_everything_back() -> None:
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def waits() -> None:
            await asyncio.sleep(PATIENCE_S)

        task = asyncio.create_task(worker.serve())
        lease = node.lease()
        await node.until(lambda: lease.token in node.standing)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert node.results[lease.token].HasField("given_back")


async def test_more_time_is_asked_for_and_shown() -> None:
    asked = asyncio.Event()
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        async def waits(context: Context) -> str:
            context.extend(timedelta(seconds=90))
            asked.set()
            while context.deadline is None:
                await asyncio.sleep(0.001)
            return context.deadline.isoformat()

        async with serving(worker):
            lease = node.lease()
            await node.until(lambda: node.extensions)
            ack = ResultAck(token=lease.token, subject=ResultAck.SUBJECT_EXTENSION)
            ack.deadline.FromDatetime(datetime(2099, 1, 1, tzinfo=UTC))
            node.say(acks=[ack])
            end = await node.ended(lease)

    assert node.extensions[0].by.ToSeconds() == 90
    assert end.success.result.data == b'"2099-01-01T00:00:00+00:00"'


async def test_a_worker_that_is_not_let_in_says_so_and_ends() -> None:
    async with Node() as node:
        node.refusal = grpc.StatusCode.UNAUTHENTICATED
        worker = Worker(node.address)
        worker.handler("h")(lambda: None)

        with pytest.raises(RaftschedError, match="not you"):
            await asyncio.wait_for(worker.serve(), PATIENCE_S)


async def test_a_worker_shows_its_access_token() -> None:
    async with Node() as node:
        worker = Worker(node.address, token="secret")
        worker.handler("h")(lambda: None)
        async with serving(worker):
            await node.until(lambda: node.hellos)

    assert node.metadata["authorization"] == "Bearer secret"


async def test_a_server_that_drains_the_worker_gets_no_more_credits() -> None:
    async with Node() as node:
        worker = Worker(node.address)
        worker.handler("h")(lambda: None)
        async with serving(worker):
            lease = node.lease()
            await node.ended(lease)
            node.say(drain=True, drain_reason="upgrade")
            node.credits = 1
            await node.ended(node.lease())

    assert node.credits == 0


async def test_the_log_of_a_run_carries_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async with Node() as node:
        worker = Worker(node.address)

        @worker.handler("h")
        def logs(context: Context) -> None:
            context.log.warning("careful %s", "now")

        with caplog.at_level(logging.INFO, "raftsched.run"):
            async with serving(worker):
                lease = node.lease()
                end = await node.ended(lease)

    [record] = [one for one in caplog.records if one.name == "raftsched.run"]
    assert (record.run, record.token) == (lease.run, lease.token)  # type: ignore[attr-defined]
    assert record.funcName == "logs"
    assert end.log_tail.endswith(b"WARNING careful now\n")


async def test_a_cluster_that_cannot_be_found_is_warned_of_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftsched.client.worker.connection.WAIT_FIRST_S", 0.001)
    monkeypatch.setattr("raftsched.client.worker.worker.LAST_WORD_NOW_S", 0.0)
    worker = Worker("127.0.0.1:1")
    worker.handler("h")(lambda: None)
    with caplog.at_level(logging.WARNING, "raftsched.worker"):
        async with serving(worker), asyncio.timeout(PATIENCE_S):
            while not caplog.records:
                await asyncio.sleep(0.01)

    assert "127.0.0.1:1" in caplog.records[0].getMessage()


@pytest.mark.parametrize("raised", [grpc.aio.InternalError, grpc.aio.UsageError, TimeoutError])
async def test_a_goodbye_to_a_stream_that_broke_at_this_moment_is_no_fault(
    raised: type[Exception],
) -> None:
    class Broken:
        async def done_writing(self) -> None:
            raise raised("the connection is gone")

    streams = Streams.__new__(Streams)
    streams._call = Broken()

    await streams.goodbye()

    assert streams._over


def test_pauses_grow_differ_and_begin_anew_only_after_a_stream_that_lived() -> None:
    pauses = Pauses(random.Random(1))

    flapping = [pauses.next(lived_s=0.1) for _ in range(30)]

    assert flapping[0] <= 0.075
    assert len(set(flapping)) == 30
    assert 1 <= min(flapping[15:]) <= max(flapping) <= 3
    # Its leader died, perhaps: another one is there within milliseconds.
    assert 0.005 <= pauses.next(lived_s=60) <= 0.015
    assert 0.025 <= pauses.next(lived_s=0.1) <= 0.075


async def test_what_breaks_in_the_worker_itself_ends_it_loudly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Node() as node:
        worker = Worker(node.address)
        worker.handler("h")(lambda: None)

        def broken(session: object, now: float) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("raftsched.client.worker.protocol.Session.frames", broken)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(worker.serve(), PATIENCE_S)


def test_run_is_for_the_main_thread() -> None:
    worker = Worker()
    worker.handler("h")(lambda: None)
    found: list[BaseException] = []

    def elsewhere() -> None:
        try:
            worker.run()
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE_S)

    assert "main thread" in str(found[0])


def test_a_worker_without_handlers_does_not_start() -> None:
    with pytest.raises(ValueError, match="no handler"):
        asyncio.run(Worker().serve())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"slots": 0}, "slots"),
        ({"slots": 10_001}, "slots"),
        ({"slots": 2, "threads": 3}, "threads"),
    ],
)
def test_wrong_settings_are_refused_with_their_name(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Worker(**arguments)
