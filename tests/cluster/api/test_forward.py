"""Calls on a node that does not lead."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from raftsched.cluster.api import call as call_module
from raftsched.cluster.api import unary
from raftsched.proto.v1 import common_pb2, job_pb2, job_pb2_grpc

from .conftest import Served, Start
from .fake import World
from .talk import Anything, create, refused, trailing_of

GET = job_pb2.GetJobRequest(job="report")


def jobs(served: Served) -> Anything:
    return job_pb2_grpc.JobServiceStub(served.channel)


async def test_a_follower_passes_calls_on_and_answers_as_the_leader_does(start: Start) -> None:
    leader, follower = await start("a"), await start("b")
    call = jobs(follower).CreateJob(create("report"))
    made = await call
    assert leader.node.written == [create("report")]
    assert (await trailing_of(call))["raftsched-leader"] == leader.address
    assert await jobs(follower).GetJob(GET) == made
    assert follower.counted.calls[0] == ("JobService/CreateJob", "OK")


async def test_a_refusal_comes_back_whole(start: Start) -> None:
    await start("a")
    follower = await start("b")
    direct = await refused(jobs(follower).GetJob(GET))
    assert direct.reason == "JOB_NOT_FOUND"
    assert direct.values["job"] == "report"
    assert direct.trailing["raftsched-term"] == "1"


async def test_who_forbids_passing_on_is_told_who_leads(start: Start) -> None:
    leader, follower = await start("a"), await start("b")
    found = await refused(jobs(follower).GetJob(GET, metadata=(("raftsched-no-forward", "1"),)))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADER")
    assert found.values["leader"] == leader.address


async def test_a_call_makes_one_hop_at_most(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes that each take the other for the leader pass a call on once, not for ever."""
    first, second = await start("a"), await start("b")
    monkeypatch.setattr(unary, "ELECTION_WAIT_S", 0.2)
    world.lead(None)
    first.node.believe(second.node)
    second.node.believe(first.node)
    found = await refused(jobs(first).CreateJob(create("report"), timeout=60))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "NO_QUORUM")
    assert found.retry_ms > 0
    hops = [
        call for call in second.counted.calls if call == ("JobService/CreateJob", "UNAVAILABLE")
    ]
    assert 0 < len(hops) < 20


async def test_without_a_leader_a_call_waits_a_little_and_is_refused(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start("a")
    monkeypatch.setattr(unary, "ELECTION_WAIT_S", 0.2)
    world.lead(None)
    found = await refused(jobs(served).CreateJob(create("report"), timeout=60))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "NO_QUORUM")
    assert found.retry_ms > 0


async def test_a_call_that_waits_is_answered_by_the_new_leader(start: Start, world: World) -> None:
    first, second = await start("a"), await start("b")
    world.lead(None)
    call = asyncio.ensure_future(jobs(first).CreateJob(create("report"), timeout=60))
    await first.counted_route(1)
    world.lead(second.node)
    assert (await call).name == "report"


async def test_a_leader_that_steps_down_at_the_last_moment_did_nothing(
    start: Start, world: World
) -> None:
    first, second = await start("a"), await start("b")
    first.node.gate.clear()
    call = asyncio.ensure_future(jobs(first).CreateJob(create("report"), timeout=60))
    await asyncio.wait_for(first.node.waits.wait(), 60)
    world.lead(second.node)
    first.node.gate.set()
    assert (await call).name == "report"
    assert second.node.written == [create("report")]


async def test_stale_reads_are_answered_by_any_node(start: Start, world: World) -> None:
    await start("a")
    follower = await start("b")
    made = await jobs(follower).CreateJob(create("report"))
    world.lead(None)
    read = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)
    assert await jobs(follower).GetJob(job_pb2.GetJobRequest(job="report", read=read)) == made


async def test_metadata_and_deadline_go_along(start: Start) -> None:
    leader, follower = await start("a"), await start("b")
    metadata = (("authorization", "Bearer secret"), ("tenant", "t1"), ("x-bin", b"\x00\xff"))
    await jobs(follower).CreateJob(create("report"), metadata=metadata, timeout=60)
    call = leader.admitted[-1]
    assert call.metadata["authorization"] == "Bearer secret"
    assert call.metadata["tenant"] == "t1"
    assert call.metadata["x-bin"] == b"\x00\xff"
    # More than a call has that says nothing of it.
    assert call_module.TIMEOUT_S < call.seconds <= 60


async def test_a_leader_that_dies_under_a_write_leaves_the_outcome_open(
    start: Start, world: World
) -> None:
    leader, follower = await start("a"), await start("b")
    leader.node.gate.clear()
    call = asyncio.ensure_future(jobs(follower).CreateJob(create("report"), timeout=60))
    await asyncio.wait_for(leader.node.waits.wait(), 60)
    await leader.server.stop(0)
    found = await refused(call)
    assert (found.code, found.reason) == (grpc.StatusCode.ABORTED, "LEADER_CHANGED")


async def test_a_read_is_sent_again_when_the_leader_dies(start: Start, world: World) -> None:
    leader, follower = await start("a"), await start("b")
    made = await jobs(follower).CreateJob(create("report"))
    leader.node.read_gate.clear()
    call = asyncio.ensure_future(jobs(follower).GetJob(GET, timeout=60))
    await asyncio.wait_for(leader.node.waits.wait(), 60)
    world.lead(follower.node)
    await leader.server.stop(0)
    assert await call == made


async def test_a_read_that_waited_long_is_sent_again_too(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience with an election counts from the loss of the leader, not from the call."""
    leader, follower = await start("a"), await start("b")
    monkeypatch.setattr(unary, "ELECTION_WAIT_S", 0.2)
    made = await jobs(follower).CreateJob(create("report"))
    leader.node.read_gate.clear()
    call = asyncio.ensure_future(jobs(follower).GetJob(GET, timeout=60))
    await asyncio.wait_for(leader.node.waits.wait(), 60)
    began = time.monotonic()
    async with asyncio.timeout(60):
        while time.monotonic() - began < 0.3:
            await asyncio.sleep(0.01)
    world.lead(None)
    await leader.server.stop(0)
    await asyncio.sleep(0)
    world.lead(follower.node)
    assert await call == made


async def test_a_leader_that_hangs_holds_up_nobody_once_another_leads(
    start: Start, world: World
) -> None:
    leader, follower, third = await start("a"), await start("b"), await start("c")
    leader.node.gate.clear()
    call = asyncio.ensure_future(jobs(follower).CreateJob(create("report"), timeout=60))
    await asyncio.wait_for(leader.node.waits.wait(), 60)
    world.lead(third.node)
    async with asyncio.timeout(60):
        found = await refused(call)
    assert found.reason == "LEADER_CHANGED"
