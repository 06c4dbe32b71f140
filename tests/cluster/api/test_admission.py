"""Who calls, and whether there is room for them, before a byte of the request is read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace

import grpc
import pytest

from raftsched.chaos.real.hostile import http2
from raftsched.client import AsyncClient
from raftsched.cluster.api import auth as access_module
from raftsched.cluster.api import body, events, strangers, unread, worker_streams
from raftsched.cluster.api import failures as failures_module
from raftsched.cluster.api import refused as refused_calls
from raftsched.cluster.api.auth import AccessCheck, Token
from raftsched.cluster.api.body import Bodies
from raftsched.cluster.api.call import Call
from raftsched.cluster.api.caller_limits import ANSWERED_BYTES
from raftsched.cluster.api.failures import Failures
from raftsched.proto.contract import REQUEST_BYTES
from raftsched.proto.v1 import (
    event_pb2,
    event_pb2_grpc,
    job_pb2,
    run_pb2,
    run_pb2_grpc,
    worker_pb2_grpc,
)
from raftsched.statemachine.core.rejection import Refused

from .conftest import Served, Start
from .talk import Anything, Refusal, create, handler_job, refusal_of, refused
from .test_auth import Role, bearer, jobs, make
from .worker import Worker

CREATE = "/raftsched.v1.JobService/CreateJob"
IMPORT = "/raftsched.v1.JobService/ImportJobs"
WATCH = "/raftsched.v1.EventService/WatchEvents"
LARGE = b"\x12" + bytes(4_000_000)
LIST = job_pb2.ListJobsRequest(page_size=1_000)
NO_WINDOW = struct.pack(">HI", http2.INITIAL_WINDOW, 0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls whose requests were asked for, on all nodes."""
    names: list[str] = []
    really = Bodies.read

    async def note(bodies: Bodies, call: Call) -> bytes:
        names.append(call.method.name)
        return await really(bodies, call)

    monkeypatch.setattr(Bodies, "read", note)
    return names


def unary(served: Served, path: str, data: bytes, secret: str = "") -> Anything:
    call: Anything = served.channel.unary_unary(path)
    return call(data, metadata=bearer(secret) if secret else ())


async def refused_stream(call: Anything) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as found:
        async for _ in call:
            pass
    return refusal_of(found.value)


async def test_nothing_is_read_of_a_stranger_on_any_node(
    start: Start, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else who sends so much unheard is broken off, if a look falls into the test.
    monkeypatch.setattr(strangers, "STRANGER_BYTES", 1 << 20)
    leads, follows = await start("a"), await start("b")
    await make(leads, "root", Role.ROLE_ADMIN)
    read.clear()
    for served in (leads, follows):
        for secret in ("", "wrong"):
            found = await refused(unary(served, CREATE, LARGE, secret))
            assert found.reason == "UNAUTHENTICATED"
        watch: Anything = served.channel.unary_stream(WATCH)
        assert (await refused_stream(watch(LARGE))).reason == "UNAUTHENTICATED"
        work: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
        assert (await refused_stream(work.Work())).reason == "UNAUTHENTICATED"
    assert read == []
    # The follower did not ask the leader.
    assert [code for _, code in leads.counted.calls[1:]] == ["UNAUTHENTICATED"] * 4


async def test_nothing_is_read_of_whoever_may_not_do_it(start: Start, read: list[str]) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    viewer = await make(served, "eve", Role.ROLE_VIEWER, root)
    read.clear()
    found = await refused(unary(served, CREATE, LARGE, viewer))
    assert (found.reason, found.values["needs"]) == ("FORBIDDEN", "EDITOR")
    assert read == []


async def test_a_token_that_a_follower_has_not_heard_of_is_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads, follows = await start("a"), await start("b")
    root = await make(leads, "root", Role.ROLE_ADMIN)
    find = AccessCheck._find
    known = False

    def late(access: AccessCheck, call: Call) -> Token | None:
        return find(access, call) if known or access.node is leads.node else None

    monkeypatch.setattr(AccessCheck, "_find", late)
    follows.node.driver.stale_s = 0.05
    asked = asyncio.ensure_future(jobs(follows).CreateJob(create("report"), metadata=bearer(root)))
    async with asyncio.timeout(60):
        while not follows.server._access._waiting:
            await asyncio.sleep(0)
    known = True
    assert (await asked).name == "report"


async def test_whether_a_secret_is_known_cannot_be_said_without_a_leader(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "CATCH_UP_S", 0.05)
    leads, follows = await start("a"), await start("b")
    await make(leads, "root", Role.ROLE_ADMIN)
    follows.node.driver.stale_s = 1_000.0
    found = await refused(unary(follows, CREATE, b"", "wrong"))
    assert found.reason == "NO_QUORUM"


async def test_each_method_takes_requests_up_to_its_size(start: Start) -> None:
    served = await start("a")
    found = await refused(unary(served, CREATE, bytes(REQUEST_BYTES + 1)))
    assert (found.code, found.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "LIMIT_EXCEEDED")
    assert found.values == {
        "limit": "request", "maximum": str(REQUEST_BYTES), "actual": str(REQUEST_BYTES + 1),
    }  # fmt: skip
    found_jobs = [handler_job(f"job-{number}", description="x" * 1_000) for number in range(500)]
    request = job_pb2.ImportJobsRequest(jobs=found_jobs)
    assert request.ByteSize() > REQUEST_BYTES
    answer: Anything = await unary(served, IMPORT, request.SerializeToString())
    assert len(job_pb2.ImportJobsResponse.FromString(answer).results) == 500


async def test_a_request_of_millions_of_parts_is_not_parsed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    really = body.pieces

    def note(*arguments: Anything) -> Anything:
        for piece in really(*arguments):
            parsed.append(len(piece))
            yield piece

    monkeypatch.setattr(body, "pieces", note)
    served = await start("a")
    found = await refused(unary(served, IMPORT, b"\x0a\x00" * (2 << 20)))
    assert found.reason == "FIELD_INVALID"
    assert sum(parsed) < 1 << 20


async def test_a_request_that_does_not_come_is_not_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "BODY_S", 0.05)
    served = await start("a")

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    call: Anything = served.channel.stream_unary(CREATE)
    found = await refused(call(silent()))
    assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "NODE_LIMIT")
    assert found.values["limit"] == "sending"
    assert found.retry_ms > 0
    none: Anything = served.channel.stream_unary(CREATE)
    assert (await refused(none([]))).reason == "FIELD_REQUIRED"


async def test_those_who_send_slowly_make_room_when_many_send(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "READING_MAX", 2)
    monkeypatch.setattr(body, "SLOW_S", 0.05)
    served = await start("a")

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    call: Anything = served.channel.stream_unary(CREATE)
    waiting = [call(silent()) for _ in range(5)]
    over, _ = await asyncio.wait(
        [asyncio.ensure_future(refused(each)) for each in waiting],
        return_when=asyncio.FIRST_COMPLETED, timeout=5,
    )  # fmt: skip
    assert {each.result().values["limit"] for each in over} == {"sending"}
    assert (await jobs(served).CreateJob(create("report"))).name == "report"
    for each in waiting:
        each.cancel()


async def test_one_caller_leaves_room_for_another(start: Start) -> None:
    served = await start("a", calls_by_caller=2, calls=3)
    root = await make(served, "root", Role.ROLE_ADMIN)
    other = await make(served, "other", Role.ROLE_EDITOR, root)
    served.node.gate.clear()
    waiting = [
        asyncio.ensure_future(jobs(served).CreateJob(create(f"job-{n}"), metadata=bearer(root)))
        for n in range(2)
    ]
    await served.counted_route(2)
    found = await refused(jobs(served).CreateJob(create("job-3"), metadata=bearer(root)))
    assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "NODE_LIMIT")
    assert found.values == {"limit": "calls_by_caller", "maximum": "2", "of": "root"}
    assert found.retry_ms > 0
    waiting.append(
        asyncio.ensure_future(jobs(served).CreateJob(create("job-4"), metadata=bearer(other)))
    )
    await served.counted_route(3)
    found = await refused(jobs(served).CreateJob(create("job-5"), metadata=bearer(other)))
    assert found.values == {"limit": "calls", "maximum": "3", "of": "all"}
    served.node.gate.set()
    await asyncio.gather(*waiting)
    assert (served.server.shares.calls.total, served.server.shares.calls.held) == (0, {})
    assert (served.server.shares.bytes.total, served.server.shares.bytes.held) == (0, {})
    assert served.server.refused.count == {"calls_by_caller": 1, "calls": 1}


async def test_what_calls_came_with_is_bounded(start: Start) -> None:
    served = await start("a", body_mb=1, body_mb_by_caller=1)
    served.node.gate.clear()
    job = handler_job("large")
    job.spec.payload.data = bytes(65_000)
    waiting = []
    for number in range(16):
        request = job_pb2.CreateJobRequest(job=job, request_id=str(number))
        waiting.append(asyncio.ensure_future(jobs(served).CreateJob(request)))
    await served.counted_route(16)
    found = await refused(jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job)))
    assert (found.reason, found.values["limit"]) == ("NODE_LIMIT", "body_mb")
    served.node.gate.set()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_watchers_and_waits_are_bounded_by_caller(start: Start) -> None:
    served = await start("a", watchers_by_caller=2, waits_by_caller=1)
    events: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    watches = [events.WatchEvents(event_pb2.WatchEventsRequest()) for _ in range(2)]
    for watch in watches:
        await watch.read()
    found = await refused_stream(events.WatchEvents(event_pb2.WatchEventsRequest()))
    assert found.values == {
        "limit": "watchers_by_caller", "maximum": "2", "of": "ipv4:127.0.0.1",
    }  # fmt: skip

    await jobs(served).CreateJob(create("report"))
    run = await jobs(served).TriggerJob(job_pb2.TriggerJobRequest(job="report"))
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    first = asyncio.ensure_future(runs.WaitRun(run_pb2.WaitRunRequest(run=run.id)))
    async with asyncio.timeout(60):
        while not served.server.shares.waits.total:
            await asyncio.sleep(0)
    found = await refused(runs.WaitRun(run_pb2.WaitRunRequest(run=run.id)))
    assert found.values == {
        "limit": "waits_by_caller", "maximum": "1", "of": "ipv4:127.0.0.1",
    }  # fmt: skip
    first.cancel()
    for watch in watches:
        watch.cancel()


async def test_a_watcher_that_does_not_read_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "UNREAD_S", 0.05)
    served = await start("a")

    async def never(frame: object) -> None:
        await asyncio.Event().wait()

    call: Anything = SimpleNamespace(context=SimpleNamespace(write=never), caller="eve")
    frame = event_pb2.WatchEventsResponse(events=[event_pb2.Event(namespace="default")])
    done = asyncio.Event()

    async def serve() -> None:
        with pytest.raises(Refused) as found:
            await served.server.events._write(call, frame)
        refusals.append(found.value)
        await done.wait()

    refusals: list[Refused] = []
    serving = asyncio.ensure_future(serve())
    async with asyncio.timeout(60):
        while not refusals:
            await asyncio.sleep(0.001)
    # It counts until gRPC has done with it.
    assert served.server.shares.answers.held == {"eve": 2 * frame.ByteSize()}
    done.set()
    await serving
    assert served.server.shares.answers.held == {}
    [refusal] = refusals
    assert refusal.rejection.word == "NODE_LIMIT"
    assert refusal.rejection.values == {"limit": "unread", "maximum": "0.05", "of": "eve"}


async def test_who_fails_again_and_again_is_told_to_wait(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "STRANGER_S", 0.001)
    served = await start("a", failures=3)
    root = await make(served, "root", Role.ROLE_ADMIN)
    served.server._access.failures.clock = lambda: 100.0
    found = [await refused(unary(served, CREATE, b"", "wrong")) for _ in range(5)]
    assert [each.reason for each in found] == ["UNAUTHENTICATED"] * 3 + ["NODE_LIMIT"] * 2
    assert found[4].values == {"limit": "failures", "maximum": "3", "of": "ipv4:127.0.0.1"}
    # Who has a valid token calls from the same address as before.
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    assert served.server.refused.count == {"UNAUTHENTICATED": 3, "failures": 2}


def test_failures_are_counted_by_address_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    failures = Failures(2, lambda: now[0])
    assert [failures.allow("a") for _ in range(3)] == [True, True, False]
    assert failures.allow("b")
    now[0] += 0.5
    assert [failures.allow("a") for _ in range(2)] == [True, False]
    monkeypatch.setattr(failures_module, "ADDRESSES_MAX", 10)
    for number in range(100):
        failures.allow(str(number))
    assert len(failures._left) == 10


async def test_of_refused_calls_some_are_logged_and_all_are_counted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(
        refused_calls, "logs", type("Logs", (), {"warning": lambda _, *a, **k: lines.append(k)})()
    )
    served = await start("a")
    await make(served, "root", Role.ROLE_ADMIN)
    for _ in range(30):
        await refused(unary(served, CREATE, b""))
    assert len(lines) == refused_calls.LOGGED
    assert lines[0]["method"] == "JobService/CreateJob"
    assert lines[0]["address"] == "ipv4:127.0.0.1"
    assert served.server.refused.count == {"UNAUTHENTICATED": 30}


async def test_answers_that_nobody_takes_are_bounded_by_caller(start: Start) -> None:
    served = await start("a", answers_mb=32, answers_mb_by_caller=16)
    root = await make(served, "root", Role.ROLE_ADMIN)
    other = await make(served, "bob", Role.ROLE_EDITOR, root)
    for number in range(10):
        job = handler_job(f"large-{number}")
        job.spec.payload.data = bytes(60_000)
        request = job_pb2.CreateJobRequest(job=job)
        await jobs(served).CreateJob(request, metadata=bearer(other))
    share, host = served.server.shares.answers, served.address.split(":")
    connection = http2.Connection(*await asyncio.open_connection(host[0], int(host[1])))
    connection.writer.write(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, NO_WINDOW))
    head = http2.headers("/raftsched.v1.JobService/ListJobs", root)
    for _ in range(40):
        connection.send(connection.begin(head), http2.message(b""), end=True)
    async with asyncio.timeout(60):
        while "answers_mb_by_caller" not in served.server.refused.count:
            await asyncio.sleep(0.001)
    assert 8 << 20 < share.held["root"] <= 16 << 20
    found = await refused(jobs(served).ListJobs(LIST, metadata=bearer(root)))
    assert found.values == {"limit": "answers_mb_by_caller", "maximum": "16", "of": "root"}
    # Who takes answers has them, and what is taken counts no more.
    for _ in range(20):
        await jobs(served).ListJobs(LIST, metadata=bearer(other))
    connection.writer.transport.abort()
    async with asyncio.timeout(60):
        while share.total:
            await asyncio.sleep(0.001)
    assert share.held == {}
    await jobs(served).ListJobs(LIST, metadata=bearer(root))


async def test_many_large_lists_of_one_caller_wait_and_none_fails(start: Start) -> None:
    """A page has up to a megabyte; with four of them on their way there is no room for a fifth."""
    served = await start("a", answers_mb=32, answers_mb_by_caller=16)
    root = await make(served, "root", Role.ROLE_ADMIN)
    for number in range(60):
        job = handler_job(f"large-{number}")
        job.spec.payload.data = bytes(60_000)
        await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=bearer(root))
    async with AsyncClient(served.address, token=root, timeout=60.0) as client:
        lists = await asyncio.gather(*(client.call(LIST) for _ in range(20)))
    assert all(answer.ByteSize() > 1_000_000 and answer.next_page_token for answer in lists)


async def test_an_answer_that_nobody_takes_ends_with_its_connection(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    share, host = served.server.shares.answers, served.address.split(":")
    reader, writer = await asyncio.open_connection(host[0], int(host[1]))
    connection = http2.Connection(reader, writer)
    writer.write(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, NO_WINDOW))
    head = http2.headers("/raftsched.v1.JobService/ListJobs", root)
    for _ in range(3):
        connection.send(connection.begin(head), http2.message(b""), end=True)
    async with asyncio.timeout(60):
        while share.held.get("root", 0) < 3 * ANSWERED_BYTES:
            await asyncio.sleep(0.001)
        assert served.server.refused.count == {}
        monkeypatch.setattr(unread, "TAKEN_S", 0.0)
        await connection.swallow()
        while share.total:
            await asyncio.sleep(0.001)
    assert served.server.refused.count["unread"] >= 3
    monkeypatch.setattr(unread, "TAKEN_S", 60.0)
    # Other connections of the same caller are as they were.
    await jobs(served).ListJobs(LIST, metadata=bearer(root))
    writer.close()


async def test_a_worker_that_does_not_read_where_to_go_is_let_go(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_streams, "LAST_WORD_S", 0.1)
    first, served = await start("a"), await start("b")
    assert first.node.leads
    host = served.address.split(":")
    connection = http2.Connection(*await asyncio.open_connection(host[0], int(host[1])))
    connection.writer.write(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, NO_WINDOW))
    head, streams = http2.headers("/raftsched.v1.WorkerService/Work"), 30
    for _ in range(streams):
        connection.begin(head)

    async with asyncio.timeout(60):
        while len(served.counted.calls) < streams:
            await asyncio.sleep(0.005)

    assert served.server.shares.greetings.total == 0
    # Others are served as before.
    worker = await Worker(served.channel).ended()
    assert worker.redirect.leader == first.address
    connection.close()
