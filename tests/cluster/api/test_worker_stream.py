"""The worker's stream."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from raftsched.cluster.api import worker_frames, worker_stream, worker_streams
from raftsched.cluster.api.worker_stream import WorkStream
from raftsched.cluster.node.worker_sessions import WorkerSessions
from raftsched.proto.v1 import common_pb2, job_pb2, namespace_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.instants import duration

from .conftest import Served, Start
from .fake import HEARTBEAT_MS, FakeNode, World
from .talk import Anything, create, until
from .worker import Worker

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
Result = worker_pb2.Result
NEVER_MS = 3_600_000  # No test lasts as long.
# Else gRPC widens the window of a busy connection until all of it fits, unread.
NARROW = [("grpc.http2.bdp_probe", 0)]


async def trigger(node: FakeNode, count: int, name: str = "report", **spec: Anything) -> None:
    """A job with so many runs that are ready."""
    request = create(name)
    request.job.spec.MergeFrom(job_pb2.JobSpec(overlap=ALLOW, **spec))
    await node.write(request, "", 5)
    for _ in range(count):
        await node.write(job_pb2.TriggerJobRequest(job=name), "", 5)


async def test_the_first_frame_is_the_welcome(start: Start) -> None:
    served = await start("a")
    worker = await Worker(served.channel).hello()
    welcome = worker.frames[0].welcome
    assert welcome.heartbeat == duration(HEARTBEAT_MS)
    assert welcome.lapse == duration(3 * HEARTBEAT_MS)
    assert abs(welcome.server_time.seconds - time.time()) < 60


async def named(node: FakeNode, *names: str) -> None:
    for name in names:
        request = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name=name))
        await node.write(request, "", 5)


async def test_a_namespace_that_is_not_there_is_refused_with_names_near_it(start: Start) -> None:
    served = await start("a")
    await named(served.node, "billing", "shop")
    worker = Worker(served.channel)
    await worker.send(hello=worker_pb2.WorkerHello(worker="w1", namespaces=["shop", "biling"]))
    refusal = (await worker.ended()).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.NOT_FOUND,
        "NAMESPACE_NOT_FOUND",
    )
    assert refusal.values == {"namespace": "biling"}
    assert "'biling'" in refusal.message
    assert "did you mean billing?" in refusal.message
    assert "raftsched namespace create biling" in refusal.message
    assert not served.node.sessions.by_worker


async def test_a_namespace_with_a_wrong_name_is_a_wrong_field(start: Start) -> None:
    served = await start("a")
    worker = Worker(served.channel)
    await worker.send(hello=worker_pb2.WorkerHello(worker="w1", namespaces=["Billing!"]))
    refusal = (await worker.ended()).refusal
    assert refusal is not None
    assert refusal.reason == "FIELD_INVALID"


async def test_whoever_was_welcome_outlives_its_namespace_and_gets_runs_when_it_is_back(
    start: Start,
) -> None:
    served = await start("a")
    await Worker(served.channel).hello(namespaces=["default"])
    worker = Worker(served.channel)
    await worker.hello(credits=1, namespaces=["gone", "default"], welcomed=True)
    await named(served.node, "gone")
    request = create("report")
    request.job.namespace = "gone"
    await served.node.write(request, "", 5)
    await served.node.write(job_pb2.TriggerJobRequest(namespace="gone", job="report"), "", 5)
    await worker.until(lambda: len(worker.leases) == 1)
    assert worker.leases[0].namespace == "gone"


async def test_leases_come_against_credits_and_results_are_acknowledged(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 5)
    worker = await Worker(served.channel).hello(credits=2)
    await worker.until(lambda: len(worker.leases) == 2)
    await worker.succeed(*worker.leases, credits=2)
    await worker.until(lambda: len(worker.leases) == 4 and len(worker.acks) == 2)
    assert {ack.token for ack in worker.acks} == {lease.token for lease in worker.leases[:2]}
    assert all(not ack.reason for ack in worker.acks)
    # Two are open, none is left over.
    await worker.send(beat=7)
    await worker.until(lambda: worker.frames[-1].beat == 7)
    assert len(worker.leases) == 4


async def test_an_old_token_is_refused_in_its_acknowledgement(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    worker = await Worker(served.channel).hello(credits=1)
    await worker.until(lambda: len(worker.leases) == 1)
    [lease] = worker.leases
    await worker.send(results=[Result(run=lease.run, token=99, success=worker_pb2.Success())])
    await worker.until(lambda: bool(worker.acks))
    assert worker.acks[0].reason == "LEASE_LOST"


async def test_more_time_is_acknowledged_with_the_deadline(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1, timeouts=job_pb2.Timeouts(attempt=duration(60_000)))
    worker = await Worker(served.channel).hello(credits=1)
    await worker.until(lambda: len(worker.leases) == 1)
    [lease] = worker.leases
    more = worker_pb2.ExtendRequest(run=lease.run, token=lease.token, by=duration(600_000))
    await worker.send(extensions=[more])
    await worker.until(lambda: bool(worker.acks))
    [ack] = worker.acks
    assert ack.subject == worker_pb2.ResultAck.SUBJECT_EXTENSION
    assert ack.deadline.seconds > lease.deadline.seconds


async def test_a_cancel_reaches_the_worker(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    worker = await Worker(served.channel).hello(credits=1)
    await worker.until(lambda: len(worker.leases) == 1)
    await served.node.write(run_pb2.CancelRunRequest(run=worker.leases[0].run), "", 5)
    await worker.until(lambda: bool(worker.stops))
    assert worker.stops[0].kind == worker_pb2.Stop.KIND_CANCEL


async def test_progress_with_an_old_token_is_answered_by_a_stop(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    worker = await Worker(served.channel).hello(credits=1)
    await worker.until(lambda: len(worker.leases) == 1)
    said = worker_pb2.ProgressReport(run=worker.leases[0].run, token=99)
    await worker.send(progress=[said])
    await worker.until(lambda: bool(worker.stops))
    assert worker.stops[0].kind == worker_pb2.Stop.KIND_LOST


async def test_the_largest_beat_comes_back(start: Start) -> None:
    served = await start("a")
    worker = await Worker(served.channel).hello()
    for beat in (3, 9, 5):
        await worker.send(beat=beat)
    await worker.until(lambda: worker.frames[-1].beat == 9)


@pytest.mark.parametrize("few", [1, 0])
async def test_a_beat_is_answered_at_once_where_there_are_few_streams(
    start: Start, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(worker_stream, "FEW_STREAMS", few)
    served = await start("a")
    served.node.sessions.heartbeat_ms = 600_000
    worker = await Worker(served.channel).hello()

    await worker.send(beat=7)
    if few:
        await worker.until(lambda: worker.frames[-1].beat == 7)
    await worker.send(beat=9, drain=True)
    await worker.until(lambda: worker.frames[-1].drain)

    assert (7 in [frame.beat for frame in worker.frames]) == bool(few)


async def test_an_idle_stream_hears_something_in_each_period(start: Start) -> None:
    """However late the server looks at it: all streams are looked at within an eighth of one."""
    served = await start("a")
    worker = await Worker(served.channel).hello()
    [stream] = served.server.work.streams
    period = served.node.sessions.heartbeat_ms / 1000

    for _ in range(2):
        heard = len(worker.frames)
        await until(lambda: stream.writing is None)
        served.server.work.look(stream.wrote_at + period / 2)
        assert stream.writing is None
        served.server.work.look(stream.wrote_at + period * 7 / 8)
        await worker.until(lambda heard=heard: len(worker.frames) > heard)  # type: ignore[misc]


async def test_a_follower_sends_workers_to_the_leader(start: Start) -> None:
    leader, follower = await start("a"), await start("b")
    worker = Worker(follower.channel)
    await worker.ended()
    assert worker.refusal is None
    assert worker.redirect.leader == leader.address
    assert worker.redirect.reason


async def test_a_node_that_drains_takes_no_stream(start: Start) -> None:
    served = await start("a")
    served.node.drain()
    worker = await Worker(served.channel).ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == "DRAINING"


async def test_without_a_leader_the_redirect_names_none(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    monkeypatch.setattr(worker_streams, "LEADER_WAIT_S", 0.05)
    world.lead(None)
    worker = await Worker(served.channel).ended()
    assert worker.redirect.leader == ""
    assert worker.frames[-1].HasField("redirect")


async def test_workers_are_redirected_when_leadership_goes(start: Start, world: World) -> None:
    first, second = await start("a"), await start("b")
    worker = await Worker(first.channel).hello()
    world.lead(second.node)
    await worker.ended()
    assert worker.refusal is None
    assert worker.redirect.leader in ("", second.address)


async def test_a_second_stream_takes_the_session_over(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    first = await Worker(served.channel).hello(credits=1)
    await first.until(lambda: len(first.leases) == 1)
    [lease] = first.leases
    held = [worker_pb2.HeldLease(run=lease.run, token=lease.token)]
    second = await Worker(served.channel).hello(held=held)
    await first.ended()
    assert first.refusal is not None
    assert first.refusal.reason == "SESSION_LOST"
    assert first.refusal.values == {"worker": "w1", "cause": "TAKEN_OVER"}
    await second.succeed(lease)
    await second.until(lambda: bool(second.acks))
    assert not second.acks[0].reason


async def test_a_lease_that_is_not_listed_goes_back(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    first = await Worker(served.channel).hello(credits=1)
    await first.until(lambda: len(first.leases) == 1)
    first.call.cancel()
    second = await Worker(served.channel).hello(credits=1)
    await second.until(lambda: len(second.leases) == 1)
    assert second.leases[0].run == first.leases[0].run
    assert second.leases[0].attempt == 1


async def test_no_lease_comes_behind_the_drain(start: Start) -> None:
    served = await start("a")
    worker = await Worker(served.channel).hello(credits=5)
    await worker.send(drain=True)
    await worker.until(lambda: worker.frames[-1].drain)
    await trigger(served.node, 3)
    await worker.send(beat=1, credits=5)
    await worker.until(lambda: worker.frames[-1].beat == 1)
    assert worker.leases == []
    await worker.call.done_writing()
    assert (await worker.ended()).refusal is None


async def test_a_worker_that_says_with_its_hello_that_it_is_drained_gets_nothing(
    start: Start,
) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    worker = Worker(served.channel)
    hello = worker_pb2.WorkerHello(worker="w1", slots=10)
    await worker.send(hello=hello, credits=5, drain=True)
    await worker.until(lambda: any(frame.drain for frame in worker.frames))
    assert served.node.sessions.by_worker["w1"].draining
    other = await Worker(served.channel, "w2").hello(credits=5)
    await other.until(lambda: len(other.leases) == 1)
    assert not worker.leases


async def test_the_reason_of_a_drain_stays_when_the_worker_repeats_it(start: Start) -> None:
    served = await start("a")
    worker = await Worker(served.channel).hello()
    served.node.sessions.by_worker["w1"].drain("the host goes down")
    # Told in one turn of the loop, both would come in one frame.
    await worker.until(lambda: sum(frame.drain for frame in worker.frames) == 1)
    await worker.send(drain=True)
    await worker.until(lambda: sum(frame.drain for frame in worker.frames) == 2)
    assert {frame.drain_reason for frame in worker.frames if frame.drain} == {"the host goes down"}


async def test_a_worker_that_closes_its_side_ends_with_ok_and_keeps_its_leases(
    start: Start,
) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    worker = await Worker(served.channel).hello(credits=1)
    await worker.until(lambda: len(worker.leases) == 1)
    await worker.call.done_writing()
    assert (await worker.ended()).refusal is None
    complete = worker_pb2.CompleteRequest(run=worker.leases[0].run, token=worker.leases[0].token)
    assert await served.node.write(complete, "", 5) == worker_pb2.CompleteResponse()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([{}], "FIELD_REQUIRED"),
        ([{"hello": worker_pb2.WorkerHello()}], "FIELD_REQUIRED"),
        ([{"hello": worker_pb2.WorkerHello(worker="a b")}], "FIELD_INVALID"),
        ([{"hello": worker_pb2.WorkerHello(worker="w")}] * 2, "FIELD_INVALID"),
        ([{"hello": worker_pb2.WorkerHello(worker="w")}, {"credits": -1}], "FIELD_INVALID"),
        (
            [{"hello": worker_pb2.WorkerHello(worker="w")}, {"results": [Result()] * 1_001}],
            "LIMIT_EXCEEDED",
        ),
        (
            [
                {"hello": worker_pb2.WorkerHello(worker="w")},
                {"results": [Result(log_tail=bytes(60_000))] * 60},
            ],
            "LIMIT_EXCEEDED",
        ),
        (
            [
                {"hello": worker_pb2.WorkerHello(worker="w")},
                {"progress": [worker_pb2.ProgressReport(checkpoint=bytes(16_385))]},
            ],
            "LIMIT_EXCEEDED",
        ),
    ],
)
async def test_frames_against_the_contract_end_the_stream(
    start: Start, frames: list[dict[str, Anything]], reason: str
) -> None:
    served = await start("a")
    worker = Worker(served.channel)
    for frame in frames:
        await worker.send(**frame)
    await worker.ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == reason
    assert worker.refusal.code == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_without_a_hello_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_frames, "HELLO_S", 0.05)
    served = await start("a")
    worker = Worker(served.channel)
    await worker.ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == "FIELD_REQUIRED"


async def test_leases_beyond_a_frame_come_in_several(start: Start) -> None:
    served = await start("a")
    payload = common_pb2.Payload(data=bytes(65_536))
    await trigger(served.node, 100, payload=payload)
    worker = await Worker(served.channel).hello(credits=100)
    await worker.until(lambda: len(worker.leases) == 100)
    sizes = [frame.ByteSize() for frame in worker.frames]
    assert max(sizes) <= worker_frames.FRAME_MAX
    assert sum(sizes) > 2 * worker_frames.FRAME_MAX


async def test_what_waits_for_a_worker_that_does_not_read_is_bounded(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_stream, "AHEAD", 10)
    served = await start("a")
    payload = common_pb2.Payload(data=bytes(65_536))
    # More than twice what the system's buffers take up.
    await trigger(served.node, 400, payload=payload)
    async with grpc.aio.insecure_channel(served.address, options=NARROW) as channel:
        worker = await Worker(channel).hello(credits=400)
        [stream] = served.server.work.streams
        async with asyncio.timeout(60):
            while stream.writing is None or stream.loop.time() - stream.wrote_at < 0.2:
                await asyncio.sleep(0.01)
        # What the connection takes up is not much; the rest was not even leased.
        assert stream.credits > 100
        assert stream.credits + stream.at_session <= 400 - len(worker.leases)
        await worker.until(lambda: len(worker.leases) == 400)


async def test_a_worker_that_does_not_read_is_ended(start: Start) -> None:
    served = await start("a")
    served.node.sessions.lapse_ms = NEVER_MS
    payload = common_pb2.Payload(data=bytes(65_536))
    await trigger(served.node, 300, payload=payload)
    async with grpc.aio.insecure_channel(served.address, options=NARROW) as channel:
        worker = await Worker(channel).hello(credits=300)
        [stream] = served.server.work.streams
        await worker.until(lambda: bool(worker.leases))
        async with asyncio.timeout(60):
            while stream.writing is None or not stream._leases:
                await asyncio.sleep(0.01)
        served.server.work.look(stream.wrote_at + worker_stream.UNREAD_S)
        assert not stream.ended.done()
        served.server.work.look(stream.wrote_at + worker_stream.UNREAD_S + 0.1)
        assert stream.ended.done()
        await worker.ended()
    assert worker.refusal is not None
    assert worker.refusal.reason in ("BACKLOG_FULL", "")


async def test_a_silent_session_lapses(start: Start) -> None:
    served = await start("a")
    served.node.sessions.lapse_ms = 200
    worker = await Worker(served.channel).hello()
    await worker.ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == "SESSION_LOST"
    assert worker.refusal.values == {"worker": "w1", "cause": "LAPSED"}


async def open_streams(served: Served, count: int) -> list[Worker]:
    workers = [Worker(served.channel, f"w{number}") for number in range(count)]
    # Few at once: each waits for its own welcome only, however busy the machine is.
    for first in range(0, count, 25):
        together = workers[first : first + 25]
        await asyncio.gather(*(worker.hello(credits=1) for worker in together))
    return workers


async def test_a_drain_with_500_streams_ends_them_with_a_word(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    # To open so many may take longer than a hello may, or a silent session lives.
    monkeypatch.setattr(worker_frames, "HELLO_S", NEVER_MS / 1000)
    served.node.sessions.lapse_ms = NEVER_MS
    workers = await open_streams(served, 500)
    served.node.drain()
    await served.server.drain("the node stops")
    # Had one to be cut off in the end, its worker would be refused.
    await served.server.stop(60)
    for worker in workers:
        await worker.ended()
    assert {worker.redirect.reason for worker in workers} == {"the node stops"}
    assert all(worker.refusal is None for worker in workers)
    assert not served.server.work.streams


async def test_what_comes_after_the_end_of_a_stream_is_not_for_its_session(
    start: Start,
) -> None:
    """A frame that is on its way to a worker that does not read holds up the end of its stream."""
    served = await start("a")
    stream = WorkStream(NeverWrites(), worker_pb2.Welcome())  # type: ignore[arg-type]
    sessions = served.node.sessions
    stream.session = sessions.open(worker_pb2.WorkerHello(worker="w1"), stream, stream=True)
    stream.wake()
    stream.fail(worker_frames.unread(10.0))
    closing = asyncio.create_task(stream.close())
    await asyncio.sleep(0)

    stream.take(worker_pb2.WorkRequest(credits=5, beat=9))

    assert sessions.by_worker["w1"].credits == 0
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_a_beat_that_comes_while_a_frame_is_on_its_way_is_answered_behind_it() -> None:
    context = Slow()
    stream = WorkStream(context, worker_pb2.Welcome())  # type: ignore[arg-type]
    sessions = WorkerSessions(lambda: 0, lambda: 0, lambda: None, 600_000)
    stream.session = sessions.open(worker_pb2.WorkerHello(worker="w1"), stream, stream=True)
    stream.wake()
    await asyncio.sleep(0)
    assert len(context.frames) == 1

    stream.take(worker_pb2.WorkRequest(beat=7))
    context.taken.set()
    async with asyncio.timeout(60):
        while stream.writing is not None:
            await asyncio.sleep(0)

    assert [frame.beat for frame in context.frames] == [0, 7]


class Slow:
    """The context of a call whose client takes its frames when it is told to."""

    def __init__(self) -> None:
        self.frames: list[worker_pb2.WorkResponse] = []
        self.taken = asyncio.Event()

    async def write(self, frame: bytes) -> None:
        self.frames.append(worker_pb2.WorkResponse.FromString(frame))
        await self.taken.wait()


class NeverWrites:
    """The context of a call whose client does not read."""

    async def write(self, frame: bytes) -> None:
        await asyncio.Event().wait()


class Chatters(NeverWrites):
    """A worker that reports results of leases that nobody knows, and reads no answer."""

    def __init__(self) -> None:
        self.read_frames = 0
        said = worker_pb2.WorkRequest()
        for number in range(worker_frames.WORDS_MAX):
            # Large, so that no more than two frames of them wait for a change.
            result = said.results.add(run="report.1.1", token=number + 1)
            result.success.result.data = bytes(1_000)
        self.frame = said.SerializeToString()

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        self.read_frames += 1
        return self.frame


async def test_no_more_is_read_of_a_worker_that_reads_no_answers(start: Start) -> None:
    served = await start("a")
    context = Chatters()
    stream = WorkStream(context, worker_pb2.Welcome())  # type: ignore[arg-type]
    sessions = served.node.sessions
    stream.session = sessions.open(worker_pb2.WorkerHello(worker="w1"), stream, stream=True)
    stream.wake()
    reading = asyncio.create_task(stream.read())
    async with asyncio.timeout(60):
        while len(stream._acks) <= worker_stream.ACKS_IN_FRAME:
            await asyncio.sleep(0.01)
    for _ in range(50):
        await asyncio.sleep(0.01)
        assert len(stream._acks) < worker_stream.ACKS_IN_FRAME + 5 * worker_frames.WORDS_MAX
    assert context.read_frames < 20
    stream.end()
    reading.cancel()
    await asyncio.wait([reading])
