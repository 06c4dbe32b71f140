"""A worker is known by its tenant and its id: nobody meets a worker of somebody else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from raftsched.cluster.node.peer_info import NodeInfo
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    namespace_pb2,
    namespace_pb2_grpc,
    options_pb2,
    run_pb2,
    run_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

from .conftest import Served, Start
from .real import cluster as real_cluster
from .real import until
from .talk import Anything, handler_job, refused
from .worker import Worker

Role = options_pb2.Role
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
LOST = worker_pb2.Stop.KIND_LOST


@dataclass
class Cluster:
    """Two tenants, blue and red, with two runs each that wait, as the default namespace has."""

    served: Served
    root: Anything = ()

    def token(self, secret: str) -> Anything:
        return (("authorization", f"Bearer {secret}"),)

    async def make(
        self, name: str, role: options_pb2.Role.ValueType, namespace: str = ""
    ) -> Anything:
        stub: Anything = access_pb2_grpc.AccessServiceStub(self.served.channel)
        token = access_pb2.AccessToken(name=name, role=role, namespace=namespace)
        request = access_pb2.CreateAccessTokenRequest(access_token=token)
        made = await stub.CreateAccessToken(request, metadata=self.root)
        return self.token(made.secret)

    async def close(self) -> None:
        """Make the first token."""
        self.root = await self.make("root", Role.ROLE_ADMIN)

    @property
    def workers(self) -> Anything:
        return worker_pb2_grpc.WorkerServiceStub(self.served.channel)

    async def lease(
        self, who: Anything, *namespaces: str, **more: Anything
    ) -> list[worker_pb2.Lease]:
        hello = worker_pb2.WorkerHello(worker="w1", namespaces=namespaces)
        request = worker_pb2.LeaseRequest(hello=hello, **more)
        return list((await self.workers.Lease(request, metadata=who)).leases)

    async def stream(self, who: Anything, *namespaces: str, **more: Anything) -> Worker:
        worker = Worker(self.served.channel, "w1", metadata=who)
        return await worker.hello(namespaces=namespaces, **more)

    async def listed(self, who: Anything) -> list[worker_pb2.Worker]:
        request = worker_pb2.ListWorkersRequest()
        return list((await self.workers.ListWorkers(request, metadata=who)).workers)


def has_lease(worker: Worker) -> bool:
    return bool(worker.leases)


async def leased(*workers: Worker) -> None:
    await asyncio.gather(*(worker.until(partial(has_lease, worker)) for worker in workers))


async def heard(worker: Worker) -> None:
    await worker.until(lambda: bool(worker.acks))


@pytest.fixture
async def opened(start: Start) -> Cluster:
    cluster = Cluster(await start("a"))
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(cluster.served.channel)
    jobs: Anything = job_pb2_grpc.JobServiceStub(cluster.served.channel)
    for namespace in ("blue", "red", ""):
        if namespace:
            made = namespace_pb2.Namespace(name=namespace)
            await names.CreateNamespace(namespace_pb2.CreateNamespaceRequest(namespace=made))
        job = handler_job("report", overlap=ALLOW)
        job.namespace = namespace
        await jobs.CreateJob(job_pb2.CreateJobRequest(job=job))
        for _ in range(2):
            request = job_pb2.TriggerJobRequest(namespace=namespace, job="report")
            await jobs.TriggerJob(request)
    return cluster


@pytest.fixture
async def cluster(opened: Cluster) -> Cluster:
    await opened.close()
    return opened


async def test_one_id_of_two_tenants_and_the_cluster_is_three_workers(cluster: Cluster) -> None:
    """None is kept out or ended, none hears of the others, and they go on at a new leader."""
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    whole = await cluster.make("whole", Role.ROLE_WORKER)
    # The one that comes first has the id to itself no more than the last one.
    [first] = await cluster.lease(red, "red")
    streams = [
        await cluster.stream(blue, "blue", credits=1),
        await cluster.stream(whole, "default", credits=1),
    ]
    await leased(*streams)
    [second] = await cluster.lease(red, "red")

    seen = {who: len(await cluster.listed(token)) for who, token in (
        ("blue", await cluster.make("see-blue", Role.ROLE_VIEWER, "blue")),
        ("all", cluster.root),
    )}  # fmt: skip
    for worker in streams:
        await worker.succeed(*worker.leases)
        await heard(worker)
    done = [worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
            for lease in (first, second)]  # fmt: skip
    cluster.served.node.world.lead(cluster.served.node)
    await cluster.workers.Heartbeat(worker_pb2.HeartbeatRequest(worker="w1"), metadata=red)
    report = worker_pb2.ReportResultsRequest(worker="w1", results=done)
    acks = (await cluster.workers.ReportResults(report, metadata=red)).acks

    assert seen == {"blue": 1, "all": 3}
    assert [ack.reason for ack in acks] == ["", ""]
    assert [worker.acks[0].reason for worker in streams] == ["", ""]
    assert not any(worker.over or worker.stops for worker in streams)


async def test_a_lease_of_another_tenant_is_answered_as_one_that_is_not_there(
    cluster: Cluster,
) -> None:
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    [theirs] = await cluster.lease(red, "red")
    missing = theirs.run.rpartition(".")[0] + ".0"
    held = [worker_pb2.HeldLease(run=theirs.run, token=theirs.token)]
    thief = await cluster.stream(blue, "blue", held=held)
    await thief.until(lambda: len(thief.stops) == 1)
    held = [worker_pb2.HeldLease(run=missing, token=theirs.token)]
    again = await cluster.stream(blue, "blue", held=held)
    await again.until(lambda: len(again.stops) == 1)

    assert thief.stops[0].kind == again.stops[0].kind == LOST
    assert thief.stops[0].message.replace(theirs.run, missing) == again.stops[0].message
    result = worker_pb2.Result(run=theirs.run, token=theirs.token, success=worker_pb2.Success())
    report = worker_pb2.ReportResultsRequest(worker="w1", results=[result])
    [ack] = (await cluster.workers.ReportResults(report, metadata=red)).acks
    assert ack.reason == ""


async def test_words_about_runs_of_others_are_judged_alone_in_a_call(cluster: Cluster) -> None:
    """What a worker says of its own runs is taken; a run of another tenant and one that is not
    there have the same answer, in the order of the request."""
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    [theirs] = await cluster.lease(red, "red")
    first, second = await cluster.lease(blue, "blue", maximum=2)
    missing = first.run.rpartition(".")[0] + ".0"
    runs = [theirs.run, first.run, missing, second.run]
    tokens = [theirs.token, first.token, theirs.token, second.token]
    said = [
        worker_pb2.ProgressReport(run=run, token=token + number * (run == missing), checkpoint=b"c")
        for number, (run, token) in enumerate(zip(runs, tokens, strict=True))
    ]
    results = [
        worker_pb2.Result(run=run, token=token, success=worker_pb2.Success())
        for run, token in zip(runs, tokens, strict=True)
    ]

    beat = worker_pb2.HeartbeatRequest(worker="w1", progress=said)
    stops = (await cluster.workers.Heartbeat(beat, metadata=blue)).stops
    report = worker_pb2.ReportResultsRequest(worker="w1", results=results)
    acks = (await cluster.workers.ReportResults(report, metadata=blue)).acks
    only_theirs = worker_pb2.ReportResultsRequest(worker="w1", results=results[:1])
    alone = (await cluster.workers.ReportResults(only_theirs, metadata=blue)).acks

    assert {stop.run: stop.kind for stop in stops} == {theirs.run: LOST, missing: LOST}
    words = {
        stop.run: stop.message.replace(stop.run, "").replace(str(stop.token), "") for stop in stops
    }
    assert words[theirs.run] == words[missing]
    assert [ack.reason for ack in acks] == ["RUN_NOT_FOUND", "", "RUN_NOT_FOUND", ""]
    assert [ack.token for ack in acks] == tokens
    assert acks[0].message.replace(theirs.run, missing) == acks[2].message
    assert list(alone) == [acks[0]]
    ended = worker_pb2.ReportResultsRequest(worker="w1", results=results[:1])
    [ack] = (await cluster.workers.ReportResults(ended, metadata=red)).acks
    assert ack.reason == ""


async def test_words_about_runs_of_others_are_judged_alone_on_a_stream(cluster: Cluster) -> None:
    """The stream stays, and the rest is taken."""
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    [theirs] = await cluster.lease(red, "red")
    worker = await cluster.stream(blue, "blue", credits=1)
    await leased(worker)
    [own] = worker.leases
    missing = own.run.rpartition(".")[0] + ".0"
    runs = [theirs.run, missing, own.run]
    frame = worker_pb2.WorkRequest()
    for number, run in enumerate(runs):
        token = own.token if run == own.run else 9_000 + number
        frame.results.add(run=run, token=token).success.SetInParent()
        frame.extensions.add(run=run, token=token).by.FromSeconds(60)
        frame.progress.add(run=run, token=token, checkpoint=b"c")

    await worker.call.write(frame)
    await worker.until(lambda: len(worker.acks) == 6 and len(worker.stops) == 2)

    for subject in (worker_pb2.ResultAck.SUBJECT_EXTENSION, 0):
        found = {ack.token: ack for ack in worker.acks if ack.subject == subject}
        assert found[own.token].reason == ""
        assert found[9_000].reason == found[9_001].reason == "RUN_NOT_FOUND"
        assert found[9_000].message.replace(theirs.run, missing) == found[9_001].message
    stops = {stop.run: stop for stop in worker.stops}
    assert stops[theirs.run].kind == stops[missing].kind == LOST
    expected = stops[theirs.run].message.replace(theirs.run, missing).replace("9000", "9001")
    assert expected == stops[missing].message
    assert not worker.over
    report = worker_pb2.ReportResultsRequest(worker="w1")
    report.results.add(run=theirs.run, token=theirs.token).success.SetInParent()
    [ack] = (await cluster.workers.ReportResults(report, metadata=red)).acks
    assert ack.reason == ""


async def test_a_stream_that_speaks_of_others_without_end_is_ended_by_name(
    cluster: Cluster,
) -> None:
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    [theirs] = await cluster.lease(red, "red")
    worker = await cluster.stream(blue, "blue")

    await worker.send(results=[worker_pb2.Result(run=theirs.run, token=n) for n in range(900)])
    await worker.until(lambda: len(worker.acks) == 900)
    await worker.send(
        progress=[worker_pb2.ProgressReport(run=theirs.run, token=n) for n in range(101)]
    )
    await worker.ended()

    assert worker.refusal is not None
    assert (worker.refusal.reason, worker.refusal.values["limit"]) == ("NODE_LIMIT", "foreign_runs")
    assert not worker.stops


async def test_a_request_id_is_the_tenants_own(cluster: Cluster) -> None:
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")

    [first] = await cluster.lease(red, "red", request_id="one")
    [other] = await cluster.lease(blue, "blue", request_id="one")
    [again] = await cluster.lease(red, "red", request_id="one")

    assert (first.run, first.token) == (again.run, again.token)
    assert other.token != first.token


async def test_another_token_of_the_same_tenant_takes_the_place(cluster: Cluster) -> None:
    """Tokens are changed for new ones while workers hold leases."""
    for owner, namespace in (("blue", "blue"), ("", "default")):
        old = await cluster.make(f"old-{namespace}", Role.ROLE_WORKER, owner)
        new = await cluster.make(f"new-{namespace}", Role.ROLE_WORKER, owner)
        before = await cluster.stream(old, namespace, credits=1)
        await leased(before)
        [lease] = before.leases
        held = [worker_pb2.HeldLease(run=lease.run, token=lease.token)]
        after = await cluster.stream(new, namespace, held=held)
        await before.ended()
        await after.succeed(lease)
        await heard(after)

        assert before.refusal is not None
        assert before.refusal.reason == "SESSION_LOST"
        assert "/" not in before.refusal.message
        assert (after.acks[0].reason, list(after.stops)) == ("", [])


async def test_people_see_the_id_alone_and_drain_their_own(cluster: Cluster) -> None:
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    editor = await cluster.make("ed", Role.ROLE_EDITOR, "blue")
    [lease] = await cluster.lease(blue, "blue")
    await cluster.lease(red, "red")
    runs: Anything = run_pb2_grpc.RunServiceStub(cluster.served.channel)
    order = worker_pb2.DrainWorkerRequest(worker="w1")

    run = await runs.GetRun(run_pb2.GetRunRequest(namespace="blue", run=lease.run), metadata=editor)
    filtered = run_pb2.ListRunsRequest(namespace="blue", filter="worker=w1")
    found = await runs.ListRuns(filtered, metadata=editor)
    drained = await cluster.workers.DrainWorker(order, metadata=editor)
    states = {one.namespaces[0]: one.draining for one in await cluster.listed(cluster.root)}

    assert (run.worker, [attempt.worker for attempt in run.attempts]) == ("w1", ["w1"])
    assert [one.id for one in found.runs] == [lease.run]
    assert [one.worker for one in await cluster.listed(cluster.root)] == ["w1", "w1"]
    assert (drained.leased, states) == (1, {"blue": True, "red": False})
    # Who may see all of them means all of them.
    everywhere = await cluster.workers.DrainWorker(order, metadata=cluster.root)
    assert everywhere.leased == 2
    assert all(one.draining for one in await cluster.listed(cluster.root))


async def test_a_page_names_no_worker_of_another_tenant(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a list goes on is no word of what was passed over."""
    monkeypatch.setattr("raftsched.cluster.api.worker_unary.LOOKED_AT", 1)
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    viewer = await cluster.make("see", Role.ROLE_VIEWER, "blue")
    await cluster.lease(red, "red")

    page = await cluster.workers.ListWorkers(worker_pb2.ListWorkersRequest(), metadata=viewer)

    assert (list(page.workers), page.next_page_token) == ([], "")


async def test_a_new_leader_shows_workers_to_their_tenant_before_their_hello(
    cluster: Cluster,
) -> None:
    """It knows them by their leases, and took all of them for workers of `default`."""
    red = await cluster.make("red", Role.ROLE_WORKER, "red")
    everywhere = await cluster.make("any", Role.ROLE_WORKER)
    await cluster.lease(red, "red")
    await cluster.lease(everywhere, "blue")
    seen = {
        name: await cluster.make(f"see-{name}", Role.ROLE_VIEWER, name)
        for name in ("default", "blue", "red")
    }

    node = cluster.served.node
    node.world.lead(node)

    assert [await cluster.listed(seen[name]) for name in ("default", "blue")] == [[], []]
    assert [list(one.namespaces) for one in await cluster.listed(seen["red"])] == [["red"]]
    assert sorted(list(one.namespaces) for one in await cluster.listed(cluster.root)) == [
        [],
        ["red"],
    ]


@pytest.mark.parametrize("owner", ["blue", ""])
async def test_who_was_known_by_its_id_alone_keeps_its_leases(opened: Cluster, owner: str) -> None:
    """From before there were tokens, or under an older version."""
    streamed = await opened.stream((), "blue", credits=1)
    await leased(streamed)
    [lease] = streamed.leases
    await opened.close()
    mine = await opened.make("mine", Role.ROLE_WORKER, owner)
    red = await opened.make("red", Role.ROLE_WORKER, "red")
    for _ in range(2):
        node = opened.served.node
        node.world.lead(node)
        # Somebody else's worker of that id has nothing to do with it.
        await opened.lease(red, "red", request_id="once")
        beat = worker_pb2.HeartbeatRequest(worker="w1")
        await opened.workers.Heartbeat(beat, metadata=mine)
        held = [worker_pb2.HeldLease(run=lease.run, token=lease.token)]
        again = await opened.stream(mine, "blue", held=held)
    await again.succeed(lease)
    await heard(again)

    assert (again.acks[0].reason, again.stops) == ("", [])


async def test_an_older_member_knows_workers_by_their_ids_only(cluster: Cluster) -> None:
    """Should it lead, it finds them; but an id that is taken keeps nobody out."""
    cluster.served.node.levels = {"b": 2}
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    red = await cluster.make("red", Role.ROLE_WORKER, "red")

    await cluster.lease(blue, "blue")
    await cluster.lease(red, "red")

    assert sorted(cluster.served.node.sessions.by_worker) == ["red/w1", "w1"]


@pytest.mark.parametrize("worker", ["blue/w1", "/w1", "w/1"])
async def test_no_id_is_taken_for_a_tenant_and_an_id(cluster: Cluster, worker: str) -> None:
    blue = await cluster.make("blue", Role.ROLE_WORKER, "blue")
    await cluster.lease(blue, "blue")
    hello = worker_pb2.WorkerHello(worker=worker, namespaces=["blue"])
    editor = await cluster.make("ed", Role.ROLE_EDITOR, "blue")
    for who in (cluster.root, editor):
        beat = worker_pb2.HeartbeatRequest(worker=worker)
        found = await refused(cluster.workers.Heartbeat(beat, metadata=who))
        assert found.reason == "SESSION_LOST"
        drain = worker_pb2.DrainWorkerRequest(worker=worker)
        found = await refused(cluster.workers.DrainWorker(drain, metadata=who))
        assert found.reason == "WORKER_NOT_FOUND"
        request = worker_pb2.LeaseRequest(hello=hello)
        found = await refused(cluster.workers.Lease(request, metadata=who))
        assert found.reason == "FIELD_INVALID"


async def test_a_node_knows_of_members_that_are_older(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, 1) as nodes:
        [real] = nodes.values()
        node = real.node
        await until(lambda: node.leads)
        older = NodeInfo("", "0.1.0", "", 2, True, 0, 0, 0, "")
        for name in ("n1", "no-member"):
            node.directory.peer_infos[name] = older
            assert node.knows(2)
            assert node.knows(3) == (name != "n1")
            del node.directory.peer_infos[name]
