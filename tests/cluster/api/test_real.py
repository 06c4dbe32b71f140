"""The services on real nodes: the leader dies, callers find out, generic clients find their way."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from raftsched.proto.contract import services
from raftsched.proto.v1 import event_pb2, event_pb2_grpc, job_pb2, job_pb2_grpc

from .real import Real, cluster, followers_of, leader_of, until
from .talk import Anything, create, refusal_of
from .worker import Worker

JOBS = job_pb2_grpc.JobServiceStub
CALLS = 300
DEADLINE_S = 60.0
# What a call may end with that was under way when a leader died; all of these may be tried again.
NAMED = {"LEADER_CHANGED", "NO_QUORUM", "COMMIT_TIMEOUT", "NOT_LEADER", "DRAINING"}


async def outcome(real: Real, number: int) -> tuple[str, float]:
    """How a call ended, and how long it took."""
    began = time.monotonic()
    try:
        await real.stub(JOBS).CreateJob(
            create(f"job-{number}", request_id=f"id-{number}"), timeout=DEADLINE_S
        )
        word = "OK"
    except grpc.aio.AioRpcError as error:
        found = refusal_of(error)
        word = found.reason or f"{found.code.name}: {found.message}"
    return word, time.monotonic() - began


async def test_the_leader_dies_under_many_calls(tmp_path: Path) -> None:
    """Each ends in time, with an answer or a named refusal; what was answered is there; and the
    same request again gets the first answer, or does it now."""
    async with cluster(tmp_path, 3) as nodes:
        leader, followers = leader_of(nodes), followers_of(nodes)
        calls = [
            asyncio.ensure_future(outcome(followers[number % 2], number)) for number in range(CALLS)
        ]
        await until(lambda: leader.node.revision > 0)
        await leader.kill()
        ended = await asyncio.gather(*calls)
        assert {word for word, _ in ended} <= {"OK", *NAMED}
        assert max(took for _, took in ended) < DEADLINE_S
        await until(lambda: any(real.node.leads for real in followers))
        again = await asyncio.gather(
            *(outcome(followers[number % 2], number) for number in range(CALLS))
        )
        assert {word for word, _ in again} == {"OK"}
        page = await followers[0].stub(JOBS).ListJobs(job_pb2.ListJobsRequest(page_size=1_000))
        assert len(page.jobs) == CALLS


async def test_a_worker_finds_the_next_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = leader_of(nodes), followers_of(nodes)[0]
        worker = await Worker(leader.channel).hello(credits=1)
        await follower.stub(JOBS).CreateJob(create("report"))
        await follower.stub(JOBS).TriggerJob(job_pb2.TriggerJobRequest(job="report"))
        await worker.until(lambda: len(worker.leases) == 1)
        await leader.kill()
        heirs = [real for real in nodes.values() if real.up]
        await until(lambda: any(real.node.leads for real in heirs))
        lost = next(real for real in heirs if not real.node.leads)
        await until(lambda: lost.node.leader_address)
        sent = await Worker(lost.channel).ended()
        heir = next(real for real in heirs if real.address == sent.redirect.leader)
        held = [{"run": lease.run, "token": lease.token} for lease in worker.leases]
        again = await Worker(heir.channel).hello(held=held)
        await again.succeed(*worker.leases)
        await again.until(lambda: len(again.acks) == 1)
        assert again.acks[0].reason == ""


async def test_a_watch_goes_on_at_another_node(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, followers = leader_of(nodes), followers_of(nodes)
        kind = event_pb2_grpc.EventServiceStub
        first = leader.stub(kind).WatchEvents(event_pb2.WatchEventsRequest())
        await first.read()
        for number in range(3):
            await followers[0].stub(JOBS).CreateJob(create(f"job-{number}"))
        frame = await first.read()
        assert frame.events[0].job == "job-0"
        await leader.kill()
        second = (
            followers[1].stub(kind).WatchEvents(event_pb2.WatchEventsRequest(after=frame.progress))
        )
        names: list[str] = []
        async with asyncio.timeout(60):
            while len(names) < 3 - len(frame.events):
                names += [event.job for event in (await second.read()).events]
        assert names == [f"job-{number}" for number in range(len(frame.events), 3)]
        second.cancel()


async def test_health_says_who_serves_and_who_leads(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = leader_of(nodes), followers_of(nodes)[0]
        kind: Anything = health_pb2_grpc.HealthStub
        serving = health_pb2.HealthCheckResponse.SERVING

        async def said(real: Real, service: str) -> bool:
            request = health_pb2.HealthCheckRequest(service=service)
            return bool((await real.stub(kind).Check(request)).status == serving)

        async with asyncio.timeout(60):
            while not (
                await said(follower, "raftsched.ready") and await said(leader, "raftsched.leader")
            ):
                # Strangers who ask without a pause are broken off.
                await asyncio.sleep(0.1)
        for name in ("", *services()):
            assert await said(follower, name), name
        assert (await said(leader, "raftsched.leader"), await said(follower, "raftsched.leader")) \
            == (True, False)  # fmt: skip
        watch = follower.stub(kind).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == serving
        await follower.server.drain("it stops")
        assert (await watch.read()).status != serving
        # An open watch does not hold the stop up.
        async with asyncio.timeout(60):
            await follower.server.stop(20)


async def test_a_generic_client_finds_its_way(tmp_path: Path) -> None:
    """With reflection alone: find a service, learn its messages, make a call."""
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        kind: Anything = reflection_pb2_grpc.ServerReflectionStub
        talk = real.stub(kind).ServerReflectionInfo()

        async def ask(**question: str) -> Anything:
            await talk.write(reflection_pb2.ServerReflectionRequest(**question))
            return await talk.read()

        listed = (await ask(list_services="")).list_services_response.service
        assert {one.name for one in listed} > {*services(), "grpc.health.v1.Health"}
        pool = descriptor_pool.DescriptorPool()
        answer = await ask(file_containing_symbol="raftsched.v1.JobService")
        files = answer.file_descriptor_response.file_descriptor_proto
        for file in files[::-1]:
            add(pool, descriptor_pb2.FileDescriptorProto.FromString(file), files)
        method = pool.FindServiceByName("raftsched.v1.JobService").methods_by_name["CreateJob"]
        request = message_factory.GetMessageClass(method.input_type)()
        made: Anything = request
        made.job.name = "found"
        made.job.spec.action.handler = "work"
        call: Anything = real.channel.unary_unary("/raftsched.v1.JobService/CreateJob")
        data = await call(request.SerializeToString())
        shown: Anything = message_factory.GetMessageClass(method.output_type).FromString(data)
        assert shown.name == "found"
        await talk.done_writing()


def add(pool: Anything, file: descriptor_pb2.FileDescriptorProto, files: Anything) -> None:
    """Add a file behind those that it imports."""
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        for name in file.dependency:
            for data in files:
                other = descriptor_pb2.FileDescriptorProto.FromString(data)
                if other.name == name:
                    add(pool, other, files)
        pool.Add(file)
