"""Workers without a stream, and waiting for runs."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from raftsched.cluster.api import call as call_module
from raftsched.cluster.api import worker_unary
from raftsched.cluster.api.unary import NO_FORWARD
from raftsched.proto.contract import Role, methods
from raftsched.proto.v1 import (
    common_pb2,
    job_pb2,
    run_pb2,
    run_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from raftsched.statemachine.core.instants import duration

from .conftest import Served, Start
from .fake import HEARTBEAT_MS, World
from .talk import Anything, refused
from .test_worker_stream import trigger
from .worker import Worker

Hello = worker_pb2.WorkerHello


def workers(served: Served) -> Anything:
    return worker_pb2_grpc.WorkerServiceStub(served.channel)


def wish(maximum: int = 1, wait_ms: int = 0, worker: str = "w1", **more: Anything) -> Anything:
    return worker_pb2.LeaseRequest(
        hello=Hello(worker=worker), maximum=maximum, wait=duration(wait_ms), **more
    )


async def waits(served: Served, count: int = 1) -> None:
    """Return when so many polls listen."""
    async with asyncio.timeout(60):
        while (
            sum(session.credits > 0 for session in served.node.sessions.by_worker.values()) < count
        ):
            await asyncio.sleep(0)


async def test_a_worker_lives_by_unary_calls_alone(start: Start) -> None:
    await start("a")
    served = await start("b")
    await trigger(served.node.world.leader, 4)  # type: ignore[arg-type]
    taken = await workers(served).Lease(wish(3))
    assert len(taken.leases) == 3
    assert taken.welcome.heartbeat == duration(HEARTBEAT_MS)
    first, second, third = taken.leases
    await workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w1"))
    await workers(served).Complete(worker_pb2.CompleteRequest(run=first.run, token=first.token))
    failed = await workers(served).Fail(worker_pb2.FailRequest(run=second.run, token=second.token))
    assert failed.state == run_pb2.RUN_STATE_RETRYING
    await workers(served).Release(worker_pb2.ReleaseRequest(run=third.run, token=third.token))
    again = await workers(served).Lease(wish(5))
    assert {lease.run for lease in again.leases} >= {third.run}
    await workers(served).Extend(
        worker_pb2.ExtendRequest(
            run=again.leases[0].run, token=again.leases[0].token, by=duration(60_000)
        )
    )


async def test_a_call_from_a_namespace_that_is_not_there_is_refused(start: Start) -> None:
    served = await start("a")
    hello = Hello(worker="w1", namespaces=["defualt"])
    refusal = await refused(workers(served).Lease(worker_pb2.LeaseRequest(hello=hello)))
    assert (refusal.reason, refusal.values) == ("NAMESPACE_NOT_FOUND", {"namespace": "defualt"})
    assert "did you mean default?" in refusal.message
    hello.welcomed = True
    assert not (await workers(served).Lease(worker_pb2.LeaseRequest(hello=hello))).leases


async def test_the_workers_of_a_namespace_that_is_not_there_are_not_just_none(start: Start) -> None:
    served = await start("a")
    request = worker_pb2.ListWorkersRequest(namespace="defualt")
    assert (await refused(workers(served).ListWorkers(request))).reason == "NAMESPACE_NOT_FOUND"
    request.namespace = "default"
    assert not (await workers(served).ListWorkers(request)).workers


async def test_a_call_that_does_not_wait_is_answered_with_nothing(start: Start) -> None:
    served = await start("a")
    answer = await workers(served).Lease(wish(), timeout=2)
    assert list(answer.leases) == []


async def test_a_long_poll_is_answered_by_the_first_lease(start: Start) -> None:
    served = await start("a")
    call = asyncio.ensure_future(workers(served).Lease(wish(5, wait_ms=20_000)))
    await waits(served)
    await trigger(served.node, 1)
    async with asyncio.timeout(60):
        assert len((await call).leases) == 1


async def test_a_long_poll_ends_with_its_wait(start: Start) -> None:
    served = await start("a")
    assert list((await workers(served).Lease(wish(wait_ms=50), timeout=60)).leases) == []
    [session] = served.node.sessions.by_worker.values()
    assert session.credits == 0


async def test_the_same_request_id_gets_the_same_leases(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 4)
    first = await workers(served).Lease(wish(2, request_id="r1"))
    again = await workers(served).Lease(wish(2, request_id="r1"))
    assert list(again.leases) == list(first.leases)
    other = await workers(served).Lease(wish(2, request_id="r2"))
    assert {lease.token for lease in other.leases}.isdisjoint(lease.token for lease in first.leases)


async def test_the_same_request_id_with_another_wish_is_another_request(start: Start) -> None:
    served = await start("a")
    assert not (await workers(served).Lease(wish(1, request_id="r1"))).leases
    await trigger(served.node, 4)
    assert len((await workers(served).Lease(wish(2, request_id="r1"))).leases) == 2
    for unlike in (wish(1, request_id="r1"), wish(2, wait_ms=50, request_id="r1")):
        assert (await refused(workers(served).Lease(unlike))).reason == "REQUEST_ID_REUSED"


async def test_leases_that_do_not_fit_into_an_answer_go_back(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 60, payload=common_pb2.Payload(data=bytes(65_536)))
    first = await workers(served).Lease(wish(1_000, request_id="r1"))
    assert 40 < len(first.leases) < 50
    again = await workers(served).Lease(wish(1_000, request_id="r1"))
    assert list(again.leases) == list(first.leases)
    rest = await workers(served).Lease(wish(1_000))
    assert len(first.leases) + len(rest.leases) == 60
    assert {lease.attempt for lease in rest.leases} == {1}


async def test_calls_of_one_worker_take_turns(start: Start) -> None:
    served = await start("a")
    calls = [
        asyncio.ensure_future(workers(served).Lease(wish(1, wait_ms=20_000))) for _ in range(3)
    ]
    await waits(served)
    await trigger(served.node, 3)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*calls)
    assert sorted(len(answer.leases) for answer in answers) == [1, 1, 1]


async def test_leases_for_a_caller_that_has_left_go_back(start: Start) -> None:
    served = await start("a")
    call = workers(served).Lease(wish(1, wait_ms=20_000))
    await waits(served)
    call.cancel()
    async with asyncio.timeout(60):
        while served.server.shares.calls.total:
            await asyncio.sleep(0)
    await trigger(served.node, 1)
    answer = await workers(served).Lease(wish(1, wait_ms=5_000, worker="w2"))
    assert [lease.attempt for lease in answer.leases] == [1]


async def granting(served: Served, **more: Anything) -> Anything:
    """A call for a lease that is being granted at this moment, and nobody is told of it yet."""
    driver = served.node.driver
    call = workers(served).Lease(wish(1, **more))
    await waits(served)
    request = job_pb2.TriggerJobRequest(job="report")
    await trigger(served.node, 0)
    driver.held = []
    # The run that comes with this is leased in the same change.
    triggered = asyncio.ensure_future(served.node.write(request, "", 5))
    async with asyncio.timeout(60):
        while not driver.held:
            await asyncio.sleep(0)
    triggered.add_done_callback(lambda done: done.result())
    return call


async def test_a_lease_that_is_granted_as_the_wait_ends_is_not_lost(start: Start) -> None:
    served = await start("a")
    call = await granting(served, wait_ms=300)
    [session] = served.node.sessions.by_worker.values()
    async with asyncio.timeout(60):
        while session.credits:
            await asyncio.sleep(0)
    served.node.driver.release()
    async with asyncio.timeout(60):
        assert len((await call).leases) == 1


async def test_a_lease_that_is_granted_as_the_caller_leaves_goes_back(start: Start) -> None:
    served = await start("a")
    call = await granting(served, wait_ms=20_000)
    call.cancel()
    async with asyncio.timeout(60):
        while served.server.shares.calls.total:
            await asyncio.sleep(0)
    served.node.driver.release()
    answer = await workers(served).Lease(wish(1, wait_ms=5_000, worker="w2"))
    assert [lease.attempt for lease in answer.leases] == [1]


async def test_a_poll_goes_on_at_the_next_leader(start: Start, world: World) -> None:
    first, second = await start("a"), await start("b")
    call = asyncio.ensure_future(workers(first).Lease(wish(1, wait_ms=20_000), timeout=60))
    await waits(first)
    world.lead(second.node)
    await waits(second)
    await trigger(second.node, 1)
    async with asyncio.timeout(60):
        assert len((await call).leases) == 1


async def test_a_poll_without_leases_outlives_the_lapse(start: Start) -> None:
    served = await start("a")
    sessions = served.node.sessions
    sessions.heartbeat_ms = 50
    call = asyncio.ensure_future(workers(served).Lease(wish(1, wait_ms=20_000)))
    await waits(served)
    [session] = sessions.by_worker.values()
    began_ms = sessions.clock_ms()
    async with asyncio.timeout(60):
        # A session lapses after three periods in which it was not heard.
        while session.heard_ms < began_ms + 6 * sessions.heartbeat_ms:
            await asyncio.sleep(0.01)
    assert not call.done()
    await trigger(served.node, 1)
    async with asyncio.timeout(60):
        assert len((await call).leases) == 1


async def test_what_counts_as_a_heartbeat_is_what_the_contract_says(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish())).leases
    sessions, heard = served.node.sessions, list[str]()
    monkeypatch.setattr(sessions, "heard", lambda session, *_: heard.append(session.worker))
    for method in methods():
        if method.needs != Role.ROLE_WORKER or method.streams:
            continue
        made: Anything = method.request()
        for name, value in {"run": lease.run, "token": lease.token, "worker": "w1"}.items():
            if name in method.request.DESCRIPTOR.fields_by_name:
                setattr(made, name, value)
        if method.verb == "Lease":
            made = wish()
        heard.clear()
        call: Anything = served.channel.unary_unary(method.path)(made.SerializeToString())
        # One behind the other says otherwise of the same run.
        known = grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION
        assert await call.code() in (*known, grpc.StatusCode.ALREADY_EXISTS)
        assert bool(heard) == method.heartbeat, method.name


async def test_a_heartbeat_of_a_stranger_is_refused(start: Start) -> None:
    served = await start("a")
    found = await refused(workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w9")))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_LOST")
    assert found.values == {"worker": "w9", "cause": "UNKNOWN"}


async def test_cancels_and_lost_leases_are_told_until_they_are_over(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish(1))).leases
    await served.node.write(run_pb2.CancelRunRequest(run=lease.run), "", 5)
    old = worker_pb2.ProgressReport(run=lease.run, token=99)
    beat = worker_pb2.HeartbeatRequest(worker="w1", progress=[old])
    for _ in range(2):
        stops = {stop.token: stop.kind for stop in (await workers(served).Heartbeat(beat)).stops}
        assert stops == {99: worker_pb2.Stop.KIND_LOST, lease.token: worker_pb2.Stop.KIND_CANCEL}
    answer = await workers(served).Lease(wish(1))
    assert [stop.token for stop in answer.stops] == [lease.token]
    cancelled = worker_pb2.Failure(cancelled=True)
    result = worker_pb2.Result(run=lease.run, token=lease.token, failure=cancelled)
    await workers(served).ReportResults(
        worker_pb2.ReportResultsRequest(worker="w1", results=[result])
    )
    answer = await workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w1"))
    assert list(answer.stops) == []


async def test_a_checkpoint_over_its_limit_ends_no_lease(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish(1))).leases
    said = worker_pb2.ProgressReport(run=lease.run, token=lease.token, checkpoint=bytes(16_385))
    found = await refused(
        workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w1", progress=[said]))
    )
    assert (found.reason, found.values["actual"]) == ("LIMIT_EXCEEDED", "16385")
    said.checkpoint = bytes(16_384)
    kept = await workers(served).Heartbeat(
        worker_pb2.HeartbeatRequest(worker="w1", progress=[said])
    )
    assert list(kept.stops) == []


async def test_each_result_is_judged_alone(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 2)
    taken = (await workers(served).Lease(wish(2))).leases
    results = [
        worker_pb2.Result(run=taken[0].run, token=taken[0].token, success=worker_pb2.Success()),
        worker_pb2.Result(run=taken[1].run, token=99, success=worker_pb2.Success()),
        worker_pb2.Result(run="nonsense", token=1, success=worker_pb2.Success()),
    ]
    request = worker_pb2.ReportResultsRequest(worker="w1", results=results)
    answer = await workers(served).ReportResults(request)
    assert [ack.reason for ack in answer.acks] == ["", "LEASE_LOST", "RUN_NOT_FOUND"]
    request = worker_pb2.ReportResultsRequest(worker="w1", results=results * 400)
    found = await refused(workers(served).ReportResults(request))
    assert (found.reason, found.values["actual"]) == ("LIMIT_EXCEEDED", "1200")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (worker_pb2.LeaseRequest(), "FIELD_REQUIRED"),
        (wish(1_001), "FIELD_INVALID"),
        (wish(-1), "FIELD_INVALID"),
    ],
)
async def test_wishes_against_the_contract_are_refused(
    start: Start, request_: worker_pb2.LeaseRequest, reason: str
) -> None:
    served = await start("a")
    assert (await refused(workers(served).Lease(request_))).reason == reason


async def test_a_page_of_workers_looks_at_so_many(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_unary, "LOOKED_AT", 3)
    served = await start("a")
    for number in range(10):
        hello = Hello(worker=f"w{number}", queues=["mail" if number == 7 else "default"], slots=1)
        await workers(served).Lease(worker_pb2.LeaseRequest(hello=hello))
    request = worker_pb2.ListWorkersRequest(filter="queue=mail")
    found, pages = [], 0
    while True:
        page = await workers(served).ListWorkers(request)
        found += [worker.worker for worker in page.workers]
        pages += 1
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token

    assert (found, pages) == (["w7"], 3)


async def test_workers_are_listed_in_pages_with_filters(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    for number in range(5):
        hello = Hello(
            worker=f"w{number}", queues=["mail" if number % 2 else "default"],
            labels={"team": "x" if number < 2 else "y"}, slots=7, program="test/1",
        )  # fmt: skip
        await workers(served).Lease(worker_pb2.LeaseRequest(hello=hello))
    request = worker_pb2.ListWorkersRequest(page_size=2)
    names: list[str] = []
    while True:
        page = await workers(served).ListWorkers(request)
        names += [worker.worker for worker in page.workers]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert names == [f"w{number}" for number in range(5)]
    for text, expected in (
        ("queue=mail", ["w1", "w3"]),
        ("labels.team=x", ["w0", "w1"]),
        ("labels.team!=x AND queue=default", ["w2", "w4"]),
        ("draining=true", []),
    ):
        page = await workers(served).ListWorkers(worker_pb2.ListWorkersRequest(filter=text))
        assert [worker.worker for worker in page.workers] == expected, text
    first = (await workers(served).ListWorkers(worker_pb2.ListWorkersRequest())).workers[0]
    assert (first.leased, first.slots, first.program) == (1, 7, "test/1")
    for wrong in (
        worker_pb2.ListWorkersRequest(filter="colour=red"),
        worker_pb2.ListWorkersRequest(page_token="nonsense"),
    ):
        found = await refused(workers(served).ListWorkers(wrong))
        assert found.reason in ("FILTER_INVALID", "PAGE_TOKEN_INVALID")


async def test_a_worker_that_is_drained_gets_no_more(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 3)
    [lease] = (await workers(served).Lease(wish(1))).leases
    stream = await Worker(served.channel, "w2").hello()
    for worker, leased in (("w1", 1), ("w2", 0)):
        request = worker_pb2.DrainWorkerRequest(worker=worker, reason="repair", validate_only=True)
        assert (await workers(served).DrainWorker(request)).leased == leased
        request.validate_only = False
        assert (await workers(served).DrainWorker(request)).leased == leased
    answer = await workers(served).Lease(wish(1, wait_ms=20_000), timeout=60)
    assert (answer.drain, list(answer.leases)) == (True, [])
    beat = await workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w1"))
    assert beat.drain
    await stream.until(lambda: stream.frames[-1].drain)
    assert stream.frames[-1].drain_reason == "repair"
    found = await refused(workers(served).DrainWorker(worker_pb2.DrainWorkerRequest(worker="w9")))
    assert found.reason == "WORKER_NOT_FOUND"
    await workers(served).Complete(worker_pb2.CompleteRequest(run=lease.run, token=lease.token))


# Waiting for a run.


async def test_a_wait_is_answered_when_the_run_has_ended(start: Start, world: World) -> None:
    first, second = await start("a"), await start("b")
    await trigger(first.node, 1)
    [lease] = (await workers(first).Lease(wish(1))).leases
    runs: Anything = run_pb2_grpc.RunServiceStub(second.channel)
    asked = run_pb2.WaitRunRequest(run=lease.run)
    calls = [asyncio.ensure_future(runs.WaitRun(asked)) for _ in range(5)]
    await first.counted_route(5)
    # Leadership moves while they wait.
    world.lead(second.node)
    await second.node.write(worker_pb2.CompleteRequest(run=lease.run, token=lease.token), "", 5)
    async with asyncio.timeout(60):
        found = await asyncio.gather(*calls)
    assert {run.state for run in found} == {run_pb2.RUN_STATE_SUCCEEDED}
    assert (await runs.WaitRun(asked)).state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_run_that_ends_as_it_is_read_is_waited_for_in_vain_by_nobody(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish(1))).leases
    read, ended = served.node.read, asyncio.Event()

    async def late(*asked: Anything) -> Anything:
        answer = await read(*asked)
        if not ended.is_set():
            ended.set()
            complete = worker_pb2.CompleteRequest(run=lease.run, token=lease.token)
            await served.node.write(complete, "", 5)
        return answer

    monkeypatch.setattr(served.node, "read", late)
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    async with asyncio.timeout(60):
        run = await runs.WaitRun(run_pb2.WaitRunRequest(run=lease.run))
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_wait_that_is_over_shows_the_run_as_it_is(start: Start) -> None:
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish(1))).leases
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    run = await runs.WaitRun(run_pb2.WaitRunRequest(run=lease.run, timeout=duration(50)))
    assert run.state == run_pb2.RUN_STATE_RUNNING
    found = await refused(runs.WaitRun(run_pb2.WaitRunRequest(run="nope")))
    assert found.reason == "RUN_NOT_FOUND"


async def test_a_wait_as_long_as_the_callers_own_leaves_time_for_the_last_look(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nearly all of the time is for the last look, so that the test waits for none of it.
    monkeypatch.setattr(call_module, "LAST_LOOK_S", 59.8)
    monkeypatch.setattr(call_module, "LAST_LOOK_SHARE", 1.0)
    served = await start("a")
    await trigger(served.node, 1)
    [lease] = (await workers(served).Lease(wish(1))).leases
    read, left = served.node.read, list[float]()

    async def noted(body: Anything, options: Anything, timeout: float) -> Anything:
        left.append(timeout)
        return await read(body, options, timeout)

    monkeypatch.setattr(served.node, "read", noted)
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    asked = run_pb2.WaitRunRequest(run=lease.run, timeout=duration(60_000))
    run = await runs.WaitRun(asked, timeout=60.0)
    assert run.state == run_pb2.RUN_STATE_RUNNING
    assert len(left) == 2
    assert left[-1] > 1.0, "the last look had no time to ask a majority"


async def test_a_heartbeat_takes_all_of_its_progress_however_many_changes_that_needs(
    start: Start,
) -> None:
    served = await start("a")
    await trigger(served.node, 100)
    taken = (await workers(served).Lease(wish(100))).leases
    reports = [
        worker_pb2.ProgressReport(run=lease.run, token=lease.token, checkpoint=b"x" * 16_384)
        for lease in taken
    ]

    await workers(served).Heartbeat(worker_pb2.HeartbeatRequest(worker="w1", progress=reports))

    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    for lease in (taken[0], taken[-1]):
        assert (await runs.GetRun(run_pb2.GetRunRequest(run=lease.run))).checkpoint


async def test_a_lease_under_way_as_leadership_goes_ends_at_once_and_may_have_been_taken(
    start: Start, world: World
) -> None:
    first = await start("a")
    second = await start("b")
    call = asyncio.ensure_future(
        workers(first).Lease(wish(1, wait_ms=20_000), timeout=60, metadata=((NO_FORWARD, "1"),))
    )
    await waits(first)
    driver = first.node.driver
    driver.held = []
    asked = asyncio.ensure_future(trigger(first.node, 1))
    async with asyncio.timeout(60):
        while not first.node.sessions.by_worker["w1"].in_grant:
            await asyncio.sleep(0)

    world.lead(second.node)

    async with asyncio.timeout(60):
        found = await refused(call)
    assert found.reason == "LEADER_CHANGED"
    asked.cancel()
