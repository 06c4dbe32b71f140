"""Who may do what."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from google.protobuf import duration_pb2

from raftsched.cluster.api import bootstrap_secrets, lasting
from raftsched.cluster.node.bootstrap_token import digest
from raftsched.proto.contract import methods
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    cluster_pb2,
    common_pb2,
    event_pb2,
    event_pb2_grpc,
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
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.model import keys

from .conftest import Served, Start
from .talk import Anything, create, handler_job, refused
from .worker import Worker

Role = options_pb2.Role
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)


def bearer(secret: str) -> Anything:
    return (("authorization", f"Bearer {secret}"),)


def access(served: Served) -> Anything:
    return access_pb2_grpc.AccessServiceStub(served.channel)


def jobs(served: Served) -> Anything:
    return job_pb2_grpc.JobServiceStub(served.channel)


async def make(
    served: Served, name: str, role: options_pb2.Role.ValueType, root: str = "", **more: Anything
) -> str:
    """A token; its secret."""
    token = access_pb2.AccessToken(name=name, role=role, **more)
    request = access_pb2.CreateAccessTokenRequest(access_token=token)
    made = await access(served).CreateAccessToken(request, metadata=bearer(root) if root else ())
    return str(made.secret)


async def test_without_tokens_everybody_is_an_admin(start: Start) -> None:
    served = await start("a")
    await jobs(served).CreateJob(create("report"))
    await jobs(served).CreateJob(create("other"), metadata=bearer("whatever"))


async def test_the_first_token_closes_the_cluster(start: Start) -> None:
    await start("a")
    served = await start("b")
    found = await refused(make(served, "eve", Role.ROLE_VIEWER))
    assert found.reason == "FIELD_INVALID"
    root = await make(served, "root", Role.ROLE_ADMIN)
    assert root.startswith("rs_")
    for metadata in ((), bearer("wrong"), (("authorization", "Basic abc"),)):
        found = await refused(jobs(served).CreateJob(create("report"), metadata=metadata))
        assert (found.code, found.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    request = access_pb2.ListAuditRecordsRequest(filter="method=CreateJob")
    page = await access(served).ListAuditRecords(request, metadata=bearer(root))
    assert [record.actor for record in page.records] == ["root"]


async def test_of_ten_strangers_at_once_one_makes_the_first_token(start: Start) -> None:
    served = await start("a")
    asked = [make(served, f"root{number}", Role.ROLE_ADMIN) for number in range(10)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert len(access_tokens(served)) == 1


def access_tokens(served: Served) -> list[bytes]:
    return [key for key, _ in served.node.replica.store.scan(keys.ACCESS, keys.after(keys.ACCESS))]


BOOTSTRAP = "rsb_the-secret-in-the-folder-of-a-node"


async def unopened(start: Start) -> Served:
    """A cluster with `tokens` on and no token yet: a node, and a follower that is asked."""
    leader, served = await start("a", failures=100_000), await start("b", failures=100_000)
    for one in (leader, served):
        one.node.needs_token = True
        one.node.bootstraps = frozenset({digest("of another node"), digest(BOOTSTRAP)})
    return served


async def test_before_the_first_token_every_call_is_refused(start: Start) -> None:
    served = await unopened(start)
    assert served.node.world.leader is not None
    leader = grpc.aio.insecure_channel(served.node.world.leader.address)
    wrong = []
    for method in methods():
        for metadata in ((), bearer("wrong"), bearer(BOOTSTRAP)):
            if metadata == bearer(BOOTSTRAP) and method.name == "AccessService/CreateAccessToken":
                continue
            if method.streams_in:
                # On a follower a worker is sent to the leader before anybody asks who it is.
                call: Anything = leader.stream_stream(method.path)(metadata=metadata)
                found = await refused(rest_of(call))
            elif method.streams_out:
                stream: Anything = served.channel.unary_stream(method.path)
                found = await refused(rest_of(stream(b"", metadata=metadata)))
            else:
                unary: Anything = served.channel.unary_unary(method.path)
                found = await refused(unary(b"", metadata=metadata))
            if found.reason != "NOT_BOOTSTRAPPED":
                wrong.append((method.name, found.reason))
            assert BOOTSTRAP not in found.message
    assert wrong == []
    await leader.close()


async def test_the_secret_of_a_node_makes_the_first_token_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_secrets, "HEAR_S", 0.05)
    served = await unopened(start)
    for bad in (Role.ROLE_EDITOR, Role.ROLE_VIEWER):
        assert (await refused(make(served, "eve", bad, BOOTSTRAP))).reason == "FIELD_INVALID"
    for secret in ("", "wrong", BOOTSTRAP + "x"):
        found = await refused(make(served, "eve", Role.ROLE_ADMIN, secret))
        assert (found.reason, found.code) == (
            "NOT_BOOTSTRAPPED", grpc.StatusCode.UNAUTHENTICATED,
        )  # fmt: skip
        assert "raftsched token bootstrap" in found.message
        assert found.values["file"] == "/data/bootstrap-secret"
    asked = [make(served, f"root{number}", Role.ROLE_ADMIN, BOOTSTRAP) for number in range(10)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    [root] = [answer for answer in answers if isinstance(answer, str)]
    assert len(access_tokens(served)) == 1
    found = await refused(make(served, "late", Role.ROLE_ADMIN, BOOTSTRAP))
    assert found.reason == "UNAUTHENTICATED"
    assert "bootstrap-secret.used in the folder says when" in found.message
    assert "root" not in found.message  # Whoever has no token learns no name of one.
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    found = await refused(jobs(served).CreateJob(create("b"), metadata=bearer(BOOTSTRAP)))
    assert found.reason == "UNAUTHENTICATED"


async def test_a_leader_waits_for_the_bootstrap_secrets_of_others(start: Start) -> None:
    """Right after the start it has not heard of them, and refused whoever showed one."""
    served = await unopened(start)
    leader = served.node.world.leader
    assert leader is not None
    leader.bootstraps = frozenset({digest("of another node")})
    asked = asyncio.ensure_future(make(served, "root", Role.ROLE_ADMIN, BOOTSTRAP))
    await asyncio.sleep(0.05)
    assert not asked.done()
    leader.bootstraps |= {digest(BOOTSTRAP)}
    root = await asked
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))


async def test_who_waits_with_a_wrong_bootstrap_secret_is_bounded(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await unopened(start)
    monkeypatch.setattr(bootstrap_secrets, "HEAR_S", 0.2)
    monkeypatch.setattr(bootstrap_secrets, "HEARING_MAX", 2)
    began = time.monotonic()
    answers = await asyncio.gather(
        *(refused(make(served, f"eve{n}", Role.ROLE_ADMIN, f"rsb_{n}")) for n in range(5))
    )
    assert {answer.reason for answer in answers} == {"NOT_BOOTSTRAPPED"}
    assert time.monotonic() - began >= 0.2
    # Nobody waits for what only looks like a secret.
    await refused(make(served, "eve", Role.ROLE_ADMIN, "wrong"))


async def test_the_first_token_is_not_lost_with_its_answer(start: Start) -> None:
    """Sent again with its request id it comes with the same secret; others get none."""
    served = await unopened(start)
    token = access_pb2.AccessToken(name="root", role=Role.ROLE_ADMIN)
    request = access_pb2.CreateAccessTokenRequest(access_token=token, request_id="by-chance")
    first = await access(served).CreateAccessToken(request, metadata=bearer(BOOTSTRAP))
    again = await access(served).CreateAccessToken(request, metadata=bearer(BOOTSTRAP))
    assert (again.secret, again.access_token) == (first.secret, first.access_token)
    await jobs(served).CreateJob(create("report"), metadata=bearer(first.secret))
    request.request_id = "another"
    for secret in (BOOTSTRAP, "wrong", ""):
        found = await refused(access(served).CreateAccessToken(request, metadata=bearer(secret)))
        assert found.reason == "UNAUTHENTICATED"


async def test_a_secret_is_shown_once_and_ends_with_its_token(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    token = access_pb2.AccessToken(name="ed", role=Role.ROLE_EDITOR)
    request = access_pb2.CreateAccessTokenRequest(access_token=token, request_id="r1")
    first = await access(served).CreateAccessToken(request, metadata=bearer(root))
    again = await access(served).CreateAccessToken(request, metadata=bearer(root))
    assert (bool(first.secret), again.secret) == (True, "")
    assert again.access_token == first.access_token
    await jobs(served).CreateJob(create("report"), metadata=bearer(first.secret))
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="ed")
    await access(served).RevokeAccessToken(revoke, metadata=bearer(root))
    found = await refused(jobs(served).GetJob(job_pb2.GetJobRequest(job="report"),
                                              metadata=bearer(first.secret)))  # fmt: skip
    assert found.reason == "UNAUTHENTICATED"


async def test_the_last_admin_stays(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    await make(served, "ed", Role.ROLE_EDITOR, root)
    later = timestamp(4_000_000_000_000)
    await make(served, "for-now", Role.ROLE_ADMIN, root, expire_time=later)
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="root")
    found = await refused(access(served).RevokeAccessToken(revoke, metadata=bearer(root)))
    assert found.reason == "FIELD_INVALID"
    await make(served, "heir", Role.ROLE_ADMIN, root)
    await access(served).RevokeAccessToken(revoke, metadata=bearer(root))


async def test_a_closed_cluster_stays_closed(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="root")
    found = await refused(access(served).RevokeAccessToken(revoke, metadata=bearer(root)))
    assert found.reason == "FIELD_INVALID"
    found = await refused(jobs(served).CreateJob(create("report")))
    assert found.reason == "UNAUTHENTICATED"


def test_each_call_needs_the_role_that_the_contract_says() -> None:
    needs = {method.name: method.needs for method in methods()}
    for name, role in {
        "JobService/CreateJob": Role.ROLE_EDITOR,
        "JobService/GetJob": Role.ROLE_VIEWER,
        "JobService/PreviewSchedule": Role.ROLE_VIEWER,
        "RunService/WaitRun": Role.ROLE_VIEWER,
        "QueueService/PauseQueue": Role.ROLE_EDITOR,
        "AlertService/PutAlert": Role.ROLE_EDITOR,  # Of a namespace; see test_places.
        "WorkerService/Work": Role.ROLE_WORKER,
        "WorkerService/Complete": Role.ROLE_WORKER,
        "WorkerService/ListWorkers": Role.ROLE_VIEWER,
        "WorkerService/DrainWorker": Role.ROLE_EDITOR,
        "NamespaceService/UpdateNamespace": Role.ROLE_ADMIN,
        "NamespaceService/GetNamespace": Role.ROLE_VIEWER,
        "AccessService/ListAccessTokens": Role.ROLE_ADMIN,
        "AccessService/ListAuditRecords": Role.ROLE_ADMIN,
        "ClusterService/GetClusterStatus": Role.ROLE_VIEWER,
        "ClusterService/DrainNode": Role.ROLE_ADMIN,
        "ClusterService/TakeSnapshot": Role.ROLE_ADMIN,
        "EventService/WatchEvents": Role.ROLE_VIEWER,
    }.items():
        assert needs[name] == role, name


async def test_each_role_may_do_what_those_below_it_may(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    secrets = {Role.ROLE_ADMIN: root}
    for role in (Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER):
        secrets[role] = await make(served, Role.Name(role).lower().replace("_", "-"), role, root)
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    hello = worker_pb2.WorkerHello(worker="w1")

    def calls(metadata: Anything) -> dict[options_pb2.Role.ValueType, Anything]:
        fresh = namespace_pb2.Namespace(name=f"n{metadata[0][1][-4:].lower().strip('-_')}x")
        request = namespace_pb2.CreateNamespaceRequest(namespace=fresh, validate_only=True)
        return {
            Role.ROLE_ADMIN: names.CreateNamespace(request, metadata=metadata),
            Role.ROLE_EDITOR: jobs(served).PauseJob(
                job_pb2.PauseJobRequest(job="report"), metadata=metadata
            ),
            Role.ROLE_WORKER: workers.Lease(
                worker_pb2.LeaseRequest(hello=hello), metadata=metadata
            ),
            Role.ROLE_VIEWER: jobs(served).GetJob(
                job_pb2.GetJobRequest(job="report"), metadata=metadata
            ),
        }

    for role, secret in secrets.items():
        for needs, call in calls(bearer(secret)).items():
            if role <= needs:
                await call
            else:
                found = await refused(call)
                assert (found.code, found.reason) == (
                    grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN",
                )  # fmt: skip
                assert found.values["role"] == Role.Name(role).removeprefix("ROLE_")
                assert found.values["needs"] == Role.Name(needs).removeprefix("ROLE_")


@pytest.fixture
async def split(start: Start) -> tuple[Served, str, str]:
    """A node with two namespaces, the secret of root, and that of an editor of one of them."""
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    team = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="team"))
    await names.CreateNamespace(team, metadata=bearer(root))
    for namespace in ("", "team"):
        job = handler_job("report", overlap=ALLOW)
        job.namespace = namespace
        await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=bearer(root))
        request = job_pb2.TriggerJobRequest(namespace=namespace, job="report")
        await jobs(served).TriggerJob(request, metadata=bearer(root))
    return served, root, await make(served, "ed", Role.ROLE_EDITOR, root, namespace="team")


async def test_a_token_for_one_namespace_opens_nothing_else(split: tuple[Served, str, str]) -> None:
    served, root, editor = split
    mine = bearer(editor)
    get = job_pb2.GetJobRequest(namespace="team", job="report")
    assert (await jobs(served).GetJob(get, metadata=mine)).namespace == "team"
    elsewhere = job_pb2.Job(name="x")
    both = [handler_job("a"), handler_job("b")]
    both[0].namespace = "team"
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    lease = worker_pb2.LeaseRequest(hello=worker_pb2.WorkerHello(worker="w1"))
    names: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    taken = await workers.Lease(lease, metadata=bearer(root))
    [other] = taken.leases
    complete = worker_pb2.CompleteRequest(run=other.run, token=other.token)
    report = worker_pb2.ReportResultsRequest(
        worker="?", results=[worker_pb2.Result(run=other.run, token=other.token)]
    )
    for call in (
        jobs(served).GetJob(job_pb2.GetJobRequest(job="report"), metadata=mine),
        jobs(served).CreateJob(job_pb2.CreateJobRequest(job=elsewhere), metadata=mine),
        jobs(served).ImportJobs(job_pb2.ImportJobsRequest(jobs=both), metadata=mine),
        workers.Lease(lease, metadata=mine),
        names.ListNamespaces(namespace_pb2.ListNamespacesRequest(), metadata=mine),
        names.GetNamespace(namespace_pb2.GetNamespaceRequest(namespace="default"), metadata=mine),
    ):
        found = await refused(call)
        assert found.reason == "FORBIDDEN", found
    lost = worker_pb2.HeartbeatRequest(worker="w1")
    gone = worker_pb2.DrainWorkerRequest(worker="w1")
    for call, reason in (
        (workers.Complete(complete, metadata=mine), "RUN_NOT_FOUND"),
        (workers.Heartbeat(lost, metadata=mine), "SESSION_LOST"),
        (workers.DrainWorker(gone, metadata=mine), "WORKER_NOT_FOUND"),
    ):
        found = await refused(call)
        assert found.reason == reason, found
    [ack] = (await workers.ReportResults(report, metadata=mine)).acks
    assert ack.reason == "RUN_NOT_FOUND"
    lease.hello.worker = "w2"
    lease.hello.namespaces.append("team")
    [own] = (await workers.Lease(lease, metadata=mine)).leases
    listed = await workers.ListWorkers(worker_pb2.ListWorkersRequest(), metadata=mine)
    assert [worker.worker for worker in listed.workers] == ["w2"]
    await workers.Complete(worker_pb2.CompleteRequest(run=own.run, token=own.token), metadata=mine)


async def test_an_admin_of_one_namespace_does_not_govern_the_cluster(
    split: tuple[Served, str, str],
) -> None:
    served, root, _ = split
    mine = bearer(await make(served, "boss", Role.ROLE_ADMIN, root, namespace="team"))
    drain: Anything = served.channel.unary_unary("/raftsched.v1.ClusterService/DrainNode")
    request = cluster_pb2.DrainNodeRequest(node="a").SerializeToString()
    assert (await refused(drain(request, metadata=mine))).reason == "FORBIDDEN"
    listed = access_pb2.ListAccessTokensRequest()
    found = await refused(access(served).ListAccessTokens(listed, metadata=mine))
    assert found.reason == "FORBIDDEN"
    records = await access(served).ListAuditRecords(
        access_pb2.ListAuditRecordsRequest(), metadata=mine
    )
    assert {record.namespace for record in records.records} == {"team"}


async def test_events_are_those_of_the_namespace(split: tuple[Served, str, str]) -> None:
    served, root, editor = split
    watches: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    found = await watches.ListEvents(event_pb2.ListEventsRequest(), metadata=bearer(editor))
    assert {event.namespace for event in found.events} == {"team"}
    watch = watches.WatchEvents(event_pb2.WatchEventsRequest(), metadata=bearer(editor))
    await watch.read()
    for namespace in ("", "team"):
        request = job_pb2.PauseJobRequest(namespace=namespace, job="report")
        await jobs(served).PauseJob(request, metadata=bearer(root))
    frame = await watch.read()
    assert [event.namespace for event in frame.events] == ["team"]
    watch.cancel()
    assert (await refused(watches.ListEvents(event_pb2.ListEventsRequest()))).reason == (
        "UNAUTHENTICATED"
    )


async def test_a_stream_shows_its_token_too(split: tuple[Served, str, str]) -> None:
    served, _, editor = split
    # Refused before it says anything: a hello might meet the end of the stream.
    worker = await Worker(served.channel).ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == "UNAUTHENTICATED"
    worker = Worker(served.channel, metadata=bearer(editor))
    await worker.send(hello=worker_pb2.WorkerHello(worker="w1"))
    await worker.ended()
    assert worker.refusal is not None
    assert worker.refusal.reason == "FORBIDDEN"
    await Worker(served.channel, metadata=bearer(editor)).hello(namespaces=["team"])


async def rest_of(stream: Anything) -> str:
    """Read to the end."""
    async with asyncio.timeout(60):
        while await stream.read() is not grpc.aio.EOF:
            pass
    return "it ended well"


async def test_streams_end_with_the_token_that_opened_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that were opened before there were tokens."""
    monkeypatch.setattr(lasting, "LOOK_AGAIN_S", 0.05)
    served = await start("a")
    events: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    everything = event_pb2.WatchEventsRequest()
    unnamed = events.WatchEvents(everything)
    await unnamed.read()
    root = await make(served, "root", Role.ROLE_ADMIN)
    await make(served, "mine", Role.ROLE_WORKER, root)
    mine = await make(served, "short", Role.ROLE_WORKER, root)
    worker = await Worker(served.channel, metadata=bearer(mine)).hello()
    watch = events.WatchEvents(everything, metadata=bearer(mine))
    kept = events.WatchEvents(everything, metadata=bearer(root))
    for stream in (watch, kept):
        await stream.read()
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="short")
    await access(served).RevokeAccessToken(revoke, metadata=bearer(root))
    await worker.ended()
    assert worker.refusal is not None
    assert (worker.refusal.reason, served.node.sessions.by_worker["/w1"].credits) == (
        "UNAUTHENTICATED", 0,
    )  # fmt: skip
    for stream in (unnamed, watch):
        assert (await refused(rest_of(stream))).reason == "UNAUTHENTICATED"
    await jobs(served).CreateJob(create("a"), metadata=bearer(root))
    while not (await kept.read()).events:
        pass
    kept.cancel()


async def test_calls_that_wait_end_with_their_token(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the leader and through a follower; a run that comes then is for somebody else."""
    monkeypatch.setattr(lasting, "LOOK_AGAIN_S", 0.05)
    leader, served = await start("a"), await start("b")
    root = await make(served, "root", Role.ROLE_ADMIN)
    mine = bearer(await make(served, "short", Role.ROLE_EDITOR, root))
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    trigger = job_pb2.TriggerJobRequest(job="report")
    run = await jobs(served).TriggerJob(trigger, metadata=bearer(root))
    wait = run_pb2.WaitRunRequest(run=run.id, timeout=duration_pb2.Duration(seconds=30))
    waiting = []
    for number, one in enumerate((leader, served)):
        workers: Anything = worker_pb2_grpc.WorkerServiceStub(one.channel)
        lease = worker_pb2.LeaseRequest(
            hello=worker_pb2.WorkerHello(worker=f"w{number}", queues=["other"]),
            wait=duration_pb2.Duration(seconds=30),
            request_id=f"r{number}",
        )
        waiting.append(workers.Lease(lease, metadata=mine))
        runs: Anything = run_pb2_grpc.RunServiceStub(one.channel)
        waiting.append(runs.WaitRun(wait, metadata=mine))
    sessions, shares = leader.node.sessions.by_worker, leader.server.shares
    async with asyncio.timeout(60):
        while len(sessions) < 2 or shares.waits.total < 4:
            await asyncio.sleep(0.01)
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="short")
    await access(served).RevokeAccessToken(revoke, metadata=bearer(root))
    async with asyncio.timeout(60):
        for call in waiting:
            assert (await refused(call)).reason == "UNAUTHENTICATED"
    assert [session.credits for session in sessions.values()] == [0, 0]


async def test_no_run_leaves_for_a_token_that_was_revoked_while_its_call_waited(
    start: Start,
) -> None:
    """The run comes before anybody has looked at the token again."""
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    mine = bearer(await make(served, "short", Role.ROLE_WORKER, root))
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    lease = worker_pb2.LeaseRequest(
        hello=worker_pb2.WorkerHello(worker="w1"),
        wait=duration_pb2.Duration(seconds=30),
        request_id="r1",
    )
    waiting = workers.Lease(lease, metadata=mine)
    async with asyncio.timeout(60):
        while "/w1" not in served.node.sessions.by_worker:
            await asyncio.sleep(0.01)
    revoke = access_pb2.RevokeAccessTokenRequest(access_token="short")
    await access(served).RevokeAccessToken(revoke, metadata=bearer(root))
    trigger = job_pb2.TriggerJobRequest(job="report")
    run = await jobs(served).TriggerJob(trigger, metadata=bearer(root))
    assert (await refused(waiting)).reason == "UNAUTHENTICATED"
    # It was given back, so the next worker gets it.
    lease.hello.worker = "w2"
    [taken] = (await workers.Lease(lease, metadata=bearer(root))).leases
    assert taken.run == run.id


async def test_payloads_are_for_those_who_may_see_them(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    secret = common_pb2.Payload(data=b"secret")
    job = handler_job("report", overlap=ALLOW, payload=secret)
    await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=bearer(root))
    run = await jobs(served).TriggerJob(
        job_pb2.TriggerJobRequest(job="report", payload=secret), metadata=bearer(root)
    )
    runs: Anything = run_pb2_grpc.RunServiceStub(served.channel)
    watches: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    for see in (False, True):
        mine = bearer(await make(served, f"v{see}".lower(), Role.ROLE_VIEWER, root,
                                 see_payloads=see))  # fmt: skip
        shown = [
            await jobs(served).GetJob(job_pb2.GetJobRequest(job="report"), metadata=mine),
            await jobs(served).ListJobs(job_pb2.ListJobsRequest(), metadata=mine),
            await runs.GetRun(run_pb2.GetRunRequest(run=run.id), metadata=mine),
            await watches.ListEvents(event_pb2.ListEventsRequest(), metadata=mine),
        ]
        assert [b"secret" in one.SerializeToString() for one in shown] == [see] * 4


async def test_what_is_of_another_namespace_is_answered_as_what_is_not_there(
    split: tuple[Served, str, str],
) -> None:
    """Word for word, so that nobody learns of it or of the namespace."""
    served, root, editor = split
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    hello = worker_pb2.WorkerHello(worker="theirs")
    theirs = worker_pb2.LeaseRequest(hello=hello, maximum=1)
    [other] = (await workers.Lease(theirs, metadata=bearer(root))).leases
    mine = bearer(editor)
    [own] = (
        await workers.Lease(
            worker_pb2.LeaseRequest(
                hello=worker_pb2.WorkerHello(worker="mine", namespaces=["team"])
            ),
            metadata=mine,
        )
    ).leases
    number = own.run.split(".")[1]
    missing = own.run.replace(number, str(int(number) + 99))
    for method, request, there, nowhere in (
        (workers.Complete, worker_pb2.CompleteRequest, {"run": other.run}, {"run": missing}),
        (workers.Fail, worker_pb2.FailRequest, {"run": other.run}, {"run": missing}),
        (workers.Release, worker_pb2.ReleaseRequest, {"run": other.run}, {"run": missing}),
        (workers.Extend, worker_pb2.ExtendRequest, {"run": other.run}, {"run": missing}),
        (workers.Heartbeat, worker_pb2.HeartbeatRequest, {"worker": "theirs"}, {"worker": "no"}),
        (workers.DrainWorker, worker_pb2.DrainWorkerRequest, {"worker": "theirs"},
         {"worker": "no"}),
    ):  # fmt: skip
        found = await refused(method(request(**there), metadata=mine))
        nothing = await refused(method(request(**nowhere), metadata=mine))
        [(key, here)] = there.items()
        assert found.message.replace(here, nowhere[key]) == nothing.message
        assert (found.reason, found.values) == (nothing.reason, {**nothing.values, key: here})


async def test_a_stream_speaks_of_the_runs_of_its_own_namespace_only(
    split: tuple[Served, str, str],
) -> None:
    served, root, editor = split
    other = await Worker(served.channel, "w1", metadata=bearer(root)).hello(credits=1)
    own = await Worker(served.channel, "w2", metadata=bearer(editor)).hello(
        credits=1, namespaces=["team"]
    )
    await other.until(lambda: len(other.leases) == 1)
    await own.until(lambda: len(own.leases) == 1)

    await own.succeed(*own.leases)
    await own.until(lambda: len(own.acks) == 1)
    await own.succeed(*other.leases)
    await own.until(lambda: len(own.acks) == 2)

    assert [ack.reason for ack in own.acks] == ["", "RUN_NOT_FOUND"]
    assert not own.over
    await other.succeed(*other.leases)
    await other.until(lambda: len(other.acks) == 1)
    assert other.acks[0].reason == ""


async def test_a_worker_goes_on_at_a_new_leader_that_knows_it_by_its_leases_only(
    split: tuple[Served, str, str],
) -> None:
    served, root, editor = split
    mine = bearer(editor)
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    hello = worker_pb2.WorkerHello(worker="w2", namespaces=["team"])
    [lease] = (await workers.Lease(worker_pb2.LeaseRequest(hello=hello), metadata=mine)).leases
    theirs = worker_pb2.WorkerHello(worker="w1")
    await workers.Lease(worker_pb2.LeaseRequest(hello=theirs), metadata=bearer(root))

    served.node.world.lead(served.node)

    beat = worker_pb2.HeartbeatRequest(worker="w2")
    await workers.Heartbeat(beat, metadata=mine)
    found = await refused(
        workers.Heartbeat(worker_pb2.HeartbeatRequest(worker="w1"), metadata=mine)
    )
    assert found.reason == "SESSION_LOST"
    found = await refused(
        workers.Heartbeat(worker_pb2.HeartbeatRequest(worker="w9"), metadata=mine)
    )
    assert found.reason == "SESSION_LOST"
    result = worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
    request = worker_pb2.ReportResultsRequest(worker="w2", results=[result])
    [ack] = (await workers.ReportResults(request, metadata=mine)).acks
    assert ack.reason == ""


async def test_a_token_has_two_secrets_while_it_is_rotated(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    old = await make(served, "ci", Role.ROLE_EDITOR, root)
    request = access_pb2.RotateAccessTokenRequest(access_token="ci", request_id="r")
    made = await access(served).RotateAccessToken(request, metadata=bearer(root))
    assert made.secret.startswith("rs_")
    for secret in (old, made.secret):
        await jobs(served).ListJobs(job_pb2.ListJobsRequest(), metadata=bearer(secret))
    again = await access(served).RotateAccessToken(request, metadata=bearer(root))
    assert again.secret == ""
    assert again.access_token == made.access_token
    served.node.levels["b"] = 3
    request.request_id = ""
    found = await refused(access(served).RotateAccessToken(request, metadata=bearer(root)))
    assert found.reason == "MEMBER_LACKS"


async def test_a_caller_may_make_so_many_calls_a_second(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    few = bearer(await make(served, "few", Role.ROLE_EDITOR, root, calls_per_second=3))
    other = bearer(await make(served, "other", Role.ROLE_EDITOR, root))
    served.server.rates.clock = lambda: 100.0
    ask = job_pb2.ListJobsRequest()
    for _ in range(3):
        await jobs(served).ListJobs(ask, metadata=few)
    found = await refused(jobs(served).ListJobs(ask, metadata=few))
    assert (found.reason, found.values) == ("RATE_LIMITED", {"caller": "few", "maximum": "3"})
    assert "few may make 3 calls a second; try again in 334 ms" in found.message
    await jobs(served).ListJobs(ask, metadata=other)
    served.server.rates.clock = lambda: 100.4
    await jobs(served).ListJobs(ask, metadata=few)


async def test_each_node_notes_which_tokens_are_used(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "LOOK_AGAIN_S", 0.0)
    leads, follows = await start("a"), await start("b")
    root = await make(leads, "root", Role.ROLE_ADMIN)
    ci = await make(leads, "ci", Role.ROLE_EDITOR, root)
    look = await make(leads, "look", Role.ROLE_VIEWER, root)
    for served in (leads, follows):
        served.node.leader.token_uses.to_send()
    stale = job_pb2.ListJobsRequest()
    stale.read.consistency = common_pb2.CONSISTENCY_STALE
    await jobs(follows).ListJobs(stale, metadata=bearer(ci))
    await refused(jobs(leads).CreateJob(create("report"), metadata=bearer(look)))
    await refused(jobs(leads).ListJobs(stale, metadata=bearer("rs_unknown")))
    assert follows.node.leader.token_uses.to_send() == ("ci",)
    # Also one that may not do what it asked for.
    assert leads.node.leader.token_uses.to_send() == ("look",)

    watch = event_pb2_grpc.EventServiceStub(follows.channel).WatchEvents(
        event_pb2.WatchEventsRequest(), metadata=bearer(ci)
    )
    await watch.read()
    follows.node.leader.token_uses.to_send()
    async with asyncio.timeout(10):
        while follows.node.leader.token_uses.to_send() != ("ci",):
            await asyncio.sleep(0.01)
    watch.cancel()


async def test_a_secret_in_the_folders_of_a_majority_makes_tokens_and_nothing_else(
    start: Start,
) -> None:
    leads, follows = await start("a", failures=100_000), await start("b", failures=100_000)
    root = await make(leads, "root", Role.ROLE_ADMIN)
    secret = "rsa_the-secret-that-a-majority-of-the-nodes-have"
    for served in (leads, follows):
        found = await refused(make(served, "again", Role.ROLE_ADMIN, secret))
        assert found.reason == "UNAUTHENTICATED"
        assert "of no access token" in found.message
    leads.node.recoveries[digest(secret)] = 1
    found = await refused(make(leads, "again", Role.ROLE_ADMIN, secret))
    assert found.reason == "UNAUTHENTICATED"
    assert found.message.startswith("1 of 3 voters have this secret")
    leads.node.recoveries[digest(secret)] = 2
    for served in (leads, follows):
        made = await make(served, f"by-{served.node.name}", Role.ROLE_ADMIN, secret)
        assert made.startswith("rs_")
        before = len(served.admitted)
        ask = job_pb2.ListJobsRequest()
        for freshness in (common_pb2.CONSISTENCY_LINEARIZABLE, common_pb2.CONSISTENCY_STALE):
            ask.read.consistency = freshness
            found = await refused(jobs(served).ListJobs(ask, metadata=bearer(secret)))
            assert found.reason == "UNAUTHENTICATED"
        # Its body was not even read.
        assert len(served.admitted) == before
    request = access_pb2.ListAuditRecordsRequest(filter="actor=recover-admin")
    page = await access(leads).ListAuditRecords(request, metadata=bearer(root))
    assert len(page.records) == 2
