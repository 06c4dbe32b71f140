"""How the cluster has done, from any node and from whoever leads next."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import grpc
import pytest

from raftsched.cluster.node.figure_history import FigureHistory
from raftsched.cluster.ops.metrics import Metrics
from raftsched.proto.v1 import cluster_pb2, cluster_pb2_grpc

from .real import cluster, followers_of, leader_of, until
from .talk import Anything

CLUSTER = cluster_pb2_grpc.ClusterServiceStub
Request = cluster_pb2.GetFiguresRequest
Step = cluster_pb2.Figures


def count(real: Anything) -> None:
    metrics = Metrics()
    metrics.follow(real.node.replica, real.node.leader)
    real.node.figures.count_by(metrics.totals)


def has(history: FigureHistory, second: int) -> bool:
    return history.last_second >= second


async def test_whoever_leads_next_has_the_past(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        for real in nodes.values():
            count(real)
        leader = leader_of(nodes)
        await until(lambda: len(leader.node.figures.history.since(1, 0)) >= 3)
        seen = leader.node.figures.history.since(1, 0)[:3]
        for real in followers_of(nodes):
            history = real.node.figures.history
            await until(partial(has, history, seen[-1].second))
            answer = await real.stub(CLUSTER).GetFigures(Request())
            assert [one.time.seconds for one in answer.figures][:3] == [one.second for one in seen]
            assert {one.leader for one in answer.figures} == {leader.name}
            assert set(answer.figures[0].behind) == set(nodes) - {leader.name}
        await leader.kill()
        await until(lambda: any(real.up and real.node.leads for real in nodes.values()))
        after = leader_of(nodes)
        await until(lambda: after.node.figures.history.newest(1)[0].leader == after.name)
        answer = await after.stub(CLUSTER).GetFigures(Request())
        assert [one.time.seconds for one in answer.figures][:3] == [one.second for one in seen]
        since = Request(step=Step.STEP_MINUTE)
        since.since_time.FromSeconds(seen[0].second + 3_600)
        assert not (await after.stub(CLUSTER).GetFigures(since)).figures


async def test_an_unknown_step_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await leader_of(nodes).stub(CLUSTER).GetFigures(Request(step=9))  # type: ignore[arg-type]
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
