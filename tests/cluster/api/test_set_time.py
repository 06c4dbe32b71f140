"""Clocks that were ahead: the cluster says so in words, and somebody sets its time back."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raftsched.cluster.node import node_spec
from raftsched.cluster.ops.figures import NodeFigures
from raftsched.proto.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2_grpc

from .real import cluster, followers_of, leader_of, until
from .talk import Anything, create, refused

CLUSTER = cluster_pb2_grpc.ClusterServiceStub
JOBS = job_pb2_grpc.JobServiceStub
STATUS = cluster_pb2.GetClusterStatusRequest()
HOUR_MS = 3_600_000


class Clocks:
    """Those of all nodes."""

    ahead_ms = 0
    monotonic = staticmethod(time.monotonic)

    def time_ns(self) -> int:
        return time.time_ns() + self.ahead_ms * 1_000_000


async def test_a_state_that_is_ahead_is_told_and_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(node_spec, "time", clocks)
    async with cluster(tmp_path, 3) as nodes:
        first = leader_of(nodes)
        await first.stub(JOBS).CreateJob(create("before"))
        assert (await refused(first.stub(CLUSTER).SetStateTime(
            cluster_pb2.SetStateTimeRequest()))).reason == "FIELD_INVALID"  # fmt: skip
        clocks.ahead_ms = HOUR_MS
        right_ms = first.node.replica.meta.now_ms
        made = 0
        while leader_of(nodes).node.replica.meta.now_ms < right_ms + HOUR_MS:
            made += 1
            await leader_of(nodes).stub(JOBS).CreateJob(create(f"j{made}"))
            await until(lambda: any(real.node.leads for real in nodes.values()))
        clocks.ahead_ms = 0
        await until(lambda: all(real.node.ahead_ms > HOUR_MS - 60_000 for real in nodes.values()))
        await until(lambda: any(real.node.leads for real in nodes.values()))
        for real in nodes.values():
            shown = await real.stub(CLUSTER).GetClusterStatus(STATUS)
            [problem] = [one for one in shown.problems if "state's time" in one]
            assert "59 min ahead of the clocks" in problem or "60 min ahead" in problem
            assert "raftsched cluster set-time" in problem
            figures = {one.name: one for one in NodeFigures(real.node, lambda: 0).collect()}
            [sample] = figures["raftsched_state_time_ahead_seconds"].samples
            assert 3_500 < sample.value <= 3_600
        # Through a follower, looked at first.
        [follower, _] = followers_of(nodes)
        await until(lambda: len(leader_of(nodes).node.directory.peer_infos) == 2)
        stub = follower.stub(CLUSTER)
        tried = await stub.SetStateTime(cluster_pb2.SetStateTimeRequest(validate_only=True))
        assert tried.from_time.ToMilliseconds() - tried.to_time.ToMilliseconds() > HOUR_MS - 60_000
        assert leader_of(nodes).node.ahead_ms
        await stub.SetStateTime(cluster_pb2.SetStateTimeRequest())
        await until(lambda: not any(real.node.ahead_ms for real in nodes.values()))
        shown = await stub.GetClusterStatus(STATUS)
        [problem] = [one for one in shown.problems if "state's time" in one]
        assert "was set back" in problem
        assert "raftsched job resume" in problem
        revisions = {real.node.replica.meta.fingerprint for real in nodes.values()}
        assert len(revisions) == 1


async def test_a_member_that_would_end_by_it_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        [real] = nodes.values()
        other: Anything = SimpleNamespace(members={"n1": None, "old": None})
        calls = real.server._cluster
        known = real.node.driver.core.config
        real.node.driver.core.members.config = other
        try:
            with pytest.raises(Exception, match="old has not shown what it knows"):
                calls._need_level(2)
        finally:
            real.node.driver.core.members.config = known
