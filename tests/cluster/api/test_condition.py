"""How each node is, as any of them tells it: disk, certificates, who came to lead and why."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from raftsched.cluster.node.condition import KEPT, STRETCH_S, STRETCHES, NodeCondition
from raftsched.cluster.node.peer_info import SelfReport, TookOver
from raftsched.proto.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    job_pb2_grpc,
    namespace_pb2,
    namespace_pb2_grpc,
)

from .real import Real, cluster, followers_of, leader_of, until
from .talk import Anything, create, refused
from .test_auth import Role, bearer, make

CLUSTER = cluster_pb2_grpc.ClusterServiceStub
ASK = cluster_pb2.GetClusterStatusRequest()
Why = cluster_pb2.Election


async def status(real: Real) -> cluster_pb2.ClusterStatus:
    answer = await real.stub(CLUSTER).GetClusterStatus(ASK)
    assert isinstance(answer, cluster_pb2.ClusterStatus)
    return answer


def all_tell(real: Real) -> bool:
    directory = real.node.directory
    told = [directory.report, *(one.report for one in directory.fresh().values())]
    return len(told) == 3 and all(one.certificate_at and one.sync_ms for one in told)


def knows(real: Real, elections: int) -> bool:
    return len(real.node.condition.took_over()) >= elections


async def test_each_node_tells_how_all_of_them_are(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        ends = time.time() + 86_400 * 40
        for real in nodes.values():
            real.node.condition.expiries = {"peer": ends, "client": ends + 60}
        for real in nodes.values():
            await until(partial(all_tell, real))
            seen = await status(real)
            assert [one.certificate_end_time.seconds for one in seen.nodes] == [int(ends)] * 3
            assert all(one.slowest_sync.ToMicroseconds() > 0 for one in seen.nodes)


async def test_who_came_to_lead_is_known_to_all_with_the_reason(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        first, target = leader_of(nodes), followers_of(nodes)[0]
        await first.stub(CLUSTER).TransferLeadership(
            cluster_pb2.TransferLeadershipRequest(node=target.name)
        )
        await until(lambda: target.node.leads)
        await target.kill()
        await until(lambda: any(real.up and real.node.leads for real in nodes.values()))
        last = leader_of(nodes)
        for real in nodes.values():
            if not real.up:
                continue
            await until(partial(knows, real, 3))
            found = (await status(real)).elections
            assert [one.term for one in found] == sorted((one.term for one in found), reverse=True)
            assert [(one.leader, one.before, one.reason) for one in found[:2]] == [
                (last.name, target.name, Why.REASON_CONNECTION_LOST),
                (target.name, first.name, Why.REASON_HANDED_OVER),
            ]
            assert found[-1].leader == first.name


class Quiet:
    """As much of a node as is looked at here."""

    def __init__(self) -> None:
        self.at, self.name, self.term, self.known_leader = 1_000.0, "n1", 3, ""
        self.connected, self.was_handed_over = frozenset({"n2"}), False
        self.peer_infos: dict[str, Anything] = {}
        self.report = SelfReport()

    def seconds(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return int(self.at * 1_000)

    def on_sync(self, listener: object) -> None: ...

    on_leader_change = on_sync


def test_the_slowest_write_counts_for_a_minute_and_what_is_kept_has_an_end() -> None:
    one: Anything = Quiet()
    watch = NodeCondition(one, one, one, one)
    for took in (0.2, 0.7, 0.1):
        watch.synced(took)
    one.at += STRETCH_S * 2
    watch.synced(0.3)
    assert watch.slowest_sync() == 0.7
    one.at += STRETCH_S * (STRETCHES - 1)
    assert watch.slowest_sync() == 0.3
    # Somebody leads already: since when, this node cannot know. Then it is silent, and another one
    # comes; and of itself a node always knows.
    for term, leader in ((3, "n2"), (5, "n3"), (7, "n1")):
        one.term, one.known_leader = term, leader
        watch.look_at_leader()
        one.known_leader = ""
        watch.look_at_leader()
    assert [(found.term, found.before, found.why) for found in watch.took_over()] == [
        (7, "n3", "connection lost"), (5, "n2", "silent"),
    ]  # fmt: skip
    told = tuple(TookOver(one.wall_ms(), term, "n2") for term in range(10, 10 + 2 * KEPT))
    long_ago = TookOver(1, 1, "n2")
    one.peer_infos["n2"] = type("Info", (), {"report": SelfReport(took_over=(*told, long_ago))})
    watch.look()
    assert len(watch.took_over()) == KEPT
    assert one.report.took_over == watch.took_over()[:20]
    one.at += 86_401
    assert watch.took_over() == ()


async def test_whoever_is_bound_to_one_namespace_is_told_nothing_of_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        real: Anything = leader_of(nodes)
        root = await make(real, "root", Role.ROLE_ADMIN)
        team = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="team"))
        names = namespace_pb2_grpc.NamespaceServiceStub(real.channel)
        await names.CreateNamespace(team, metadata=bearer(root))
        jobs = job_pb2_grpc.JobServiceStub(real.channel)
        await jobs.CreateJob(create("report"), metadata=bearer(root))
        real.node.leader.troubles.failed("the report of a worker", ValueError("no"))
        viewer = bearer(await make(real, "look", Role.ROLE_VIEWER, root, namespace="team"))
        own = bearer(await make(real, "own", Role.ROLE_VIEWER, root, namespace="default"))
        stub = CLUSTER(real.channel)
        seen = {
            name: await stub.GetClusterStatus(ASK, metadata=mine)
            for name, mine in (("root", bearer(root)), ("team", viewer), ("default", own))
        }
        assert {name: one.jobs for name, one in seen.items()} == {
            "root": 1, "team": 0, "default": 1,
        }  # fmt: skip
        assert seen["root"].set_aside
        assert "the report of a worker" not in str(seen["team"])
        assert "the report of a worker" in str(seen["root"].problems)
        figures = cluster_pb2.GetFiguresRequest()
        assert (await refused(stub.GetFigures(figures, metadata=own))).reason == "FORBIDDEN"
        await stub.GetFigures(figures, metadata=bearer(root))
