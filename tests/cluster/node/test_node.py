"""Whole nodes in one process: real consensus, real stores, loopback ports that are free."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node import node_spec
from raftsched.cluster.node.loop_steps import LoopSteps
from raftsched.cluster.node.node import Node
from raftsched.cluster.node.node_spec import MemberAddresses, NodeSpec
from raftsched.cluster.node.virtual_clock import VirtualClock
from raftsched.cluster.raft.faults import CallRefused as NotNow
from raftsched.proto.v1 import (
    access_pb2,
    common_pb2,
    job_pb2,
    options_pb2,
    run_pb2,
    worker_pb2,
)
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Reason, Refused
from raftsched.statemachine.model.request import CreateToken
from raftsched.statemachine.reads import reads
from raftsched.statemachine.tenants import access

from .ear import Ear, success

TURN_MAX_S = 0.05
STALE = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)


async def until(what: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait for something. Of a time in which this process was not let run only a little counts, or
    a busy machine would end the wait of a test whose nodes have done nothing yet."""
    left = seconds
    while not what():
        before = time.monotonic()
        await asyncio.sleep(0.002)
        left -= min(time.monotonic() - before, TURN_MAX_S)
        if left < 0:
            raise TimeoutError(f"not within {seconds} s: {inspect.getsource(what).strip()}")


@asynccontextmanager
async def cluster(
    folder: Path,
    count: int,
    ports: list[int] | None = None,
    heartbeat_ms: int = 2_000,
    clock: Path | None = None,
) -> AsyncIterator[dict[str, Node]]:
    names = [f"n{number}" for number in range(1, count + 1)]
    ports = ports or free_ports(count)
    members = {
        name: MemberAddresses(peer=f"127.0.0.1:{port}", client=f"{name}.example:7400")
        for name, port in zip(names, ports, strict=True)
    }
    nodes = {
        name: Node(
            NodeSpec(
                name=name, cluster="test", folder=folder / name, members=members,
                cache_bytes=8 << 20, heartbeat_ms=heartbeat_ms,
                virtual=VirtualClock(clock) if clock is not None else None,
            )
        )
        for name in names
    }  # fmt: skip
    for node in nodes.values():
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes.values():
            await node.stop()


def wait_longer(node: Node) -> None:
    """From now on a leader may be silent for seconds. On a busy machine a process stands still for
    longer than others wait; whoever is gone is noticed by its connections, as soon as ever."""
    core = node.driver.core
    for part in (core, core.node, core.election, core.replication):
        part.settings = replace(part.settings, silence_min=1.5, silence_max=3.0)


async def leader_of(nodes: dict[str, Node]) -> Node:
    await until(lambda: any(node.leads for node in nodes.values()))
    for node in nodes.values():
        wait_longer(node)
    return next(node for node in nodes.values() if node.leads)


def once(name: str, at_ms: int) -> job_pb2.CreateJobRequest:
    request = job_pb2.CreateJobRequest(job=job_pb2.Job(name=name), request_id=f"create-{name}")
    request.job.spec.action.handler = "build"
    request.job.spec.schedules.add().once.time.CopyFrom(timestamp(at_ms))
    return request


async def test_a_job_fires_is_leased_and_completed_and_every_node_knows(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        ear = Ear()
        session = leader.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(5)

        due_ms = leader.spec.wall_ms() + 50
        await leader.write(once("report", due_ms), "alice", 5)
        await until(lambda: ear.got)
        [lease] = ear.got
        assert leader.spec.wall_ms() >= due_ms
        session.report([success(lease)])
        await until(lambda: ear.acked)
        assert ear.acked[0].reason == ""

        await until(lambda: len({node.revision for node in nodes.values()}) == 1)
        for node in nodes.values():
            answer = await node.read(run_pb2.GetRunRequest(run=lease.run), STALE, 5)
            assert isinstance(answer.message, run_pb2.Run)
            assert answer.message.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_revision_that_is_not_reached_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        leader = await leader_of(nodes)
        for consistency in (common_pb2.CONSISTENCY_LINEARIZABLE, common_pb2.CONSISTENCY_STALE):
            options = common_pb2.ReadOptions(consistency=consistency)
            options.min_revision.change = 1_000_000
            with pytest.raises(Refused) as caught:
                await leader.read(job_pb2.GetJobRequest(job="report"), options, 0.5)
            assert caught.value.rejection.reason == Reason.ERROR_REASON_NO_QUORUM
            assert "did not reach 1000000" in caught.value.rejection.message
            assert f"is at revision {leader.revision}," in caught.value.rejection.message


async def test_a_token_that_is_used_at_a_follower_is_noted_by_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        token = access_pb2.AccessToken(name="ci", role=options_pb2.ROLE_EDITOR)
        request = access_pb2.CreateAccessTokenRequest(access_token=token)
        await leader.ask(CreateToken(request, bytes(32)), "", 5)
        follower = next(node for node in nodes.values() if not node.leads)
        await until(lambda: follower.revision == leader.revision)
        follower.leader.token_uses.note("ci")

        def noted() -> bool:
            # As each node does every second.
            for node in nodes.values():
                node.introduce()
            stores = [node.replica.store for node in nodes.values()]
            return all(access.last_use_ms(store, "ci") for store in stores)

        await until(noted)
        hour_ms = access.last_use_ms(leader.replica.store, "ci")
        assert (hour_ms % 3_600_000, leader.spec.wall_ms() - hour_ms < 7_200_000) == (0, True)


async def test_a_read_without_time_says_that_the_time_was_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 1) as nodes:
        leader = await leader_of(nodes)

        async def never(timeout: float) -> None:
            return None

        monkeypatch.setattr(leader.driver, "barrier", never)
        with pytest.raises(Refused) as caught:
            await leader.read(job_pb2.ListJobsRequest(), None, 0.001)
        assert caught.value.rejection.word == "DEADLINE_PASSED"


async def test_stale_reads_are_answered_without_a_leader_with_their_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = free_ports(3)
    async with cluster(tmp_path, 3, ports) as nodes:
        leader = await leader_of(nodes)
        await leader.write(once("report", leader.spec.wall_ms() + 3_600_000), "alice", 5)
        await until(lambda: len({node.revision for node in nodes.values()}) == 1)
        monkeypatch.setattr(type(leader.driver), "staleness", lambda self: 75.0)
        answer = await leader.read(job_pb2.GetJobRequest(job="report"), STALE, 5)
        assert answer.age_ms == 75_000

        # It has heard of no leader since it began: then its last change says how old it is.
        monkeypatch.setattr(type(leader.driver), "staleness", lambda self: math.inf)
        answer = await leader.read(job_pb2.GetJobRequest(job="report"), STALE, 5)
        assert 0 <= answer.age_ms < 60_000

        monkeypatch.setattr("raftsched.cluster.node.node_reads.STALE_READ_MAX", 10.0)
        monkeypatch.setattr(type(leader.driver), "staleness", lambda self: 75.0)
        with pytest.raises(Refused) as caught:
            await leader.read(job_pb2.GetJobRequest(job="report"), STALE, 5)
        assert caught.value.rejection.word == "NO_QUORUM"
        assert "is up to 75 s old" in caught.value.rejection.message


async def test_the_leader_goes_and_the_next_one_carries_on(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        ear = Ear()
        session = leader.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
        session.credit(1)
        await leader.write(once("report", leader.spec.wall_ms()), "", 5)
        await until(lambda: ear.got)
        [lease] = ear.got

        del nodes[leader.name]
        await leader.stop()
        assert ear.redirected == [""]
        heir = await leader_of(nodes)
        hello = worker_pb2.WorkerHello(worker="w1")
        hello.held.add(run=lease.run, token=lease.token)
        again = Ear()
        heir.sessions.open(hello, again, stream=True).report([success(lease)])

        await until(lambda: again.acked)
        assert (again.acked[0].reason, again.stopped) == ("", [])


async def test_what_is_sent_twice_happens_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await leader_of(nodes)
        request = once("report", node.spec.wall_ms() + 60_000)

        first = await node.write(request, "", 5)
        second = await node.write(request, "", 5)
        assert first == second

        request.request_id = "another"
        with pytest.raises(Refused) as refused:
            await node.write(request, "", 5)
        assert refused.value.rejection.word == "JOB_EXISTS"


async def test_a_node_that_is_alone_has_nobody_to_hand_over_to_and_does_not_complain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await leader_of(nodes)
        with caplog.at_level("INFO"):
            assert not await node.hand_over(1)
        with pytest.raises(NotNow, match="nobody is no connected voter; there is"):
            await node.driver.transfer(None, 1)

    assert not [line for line in caplog.messages if "keeps leading" in line]


async def test_a_follower_names_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        await until(lambda: follower.leader_address)

        with pytest.raises(Refused) as refused:
            await follower.write(once("report", 0), "", 5)
        assert refused.value.rejection.values == {"leader": f"{leader.name}.example:7400"}
        with pytest.raises(Refused) as refused:
            await follower.read(job_pb2.GetJobRequest(job="report"), None, 5)
        assert refused.value.rejection.word == "NOT_LEADER"


async def test_a_silent_worker_lapses_and_its_run_goes_to_another(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, heartbeat_ms=50) as nodes:
        node = await leader_of(nodes)
        silent, other = Ear(), Ear()
        node.sessions.open(worker_pb2.WorkerHello(worker="w1"), silent, stream=True).credit(1)
        await node.write(once("report", node.spec.wall_ms()), "", 5)
        await until(lambda: silent.got)

        await until(lambda: silent.gone)
        node.sessions.open(worker_pb2.WorkerHello(worker="w2"), other, stream=True).credit(1)
        await until(lambda: other.got)

        assert silent.gone[0].word == "SESSION_LOST"
        assert other.got[0].run == silent.got[0].run
        assert other.got[0].token > silent.got[0].token
        assert other.got[0].attempt == 2


async def test_a_restarted_cluster_has_everything(tmp_path: Path) -> None:
    ports = free_ports(3)
    async with cluster(tmp_path, 3, ports) as nodes:
        leader = await leader_of(nodes)
        for number in range(20):
            await leader.write(once(f"job-{number}", leader.spec.wall_ms() + 60_000), "", 5)
        revision = leader.revision

    async with cluster(tmp_path, 3, ports) as nodes:
        leader = await leader_of(nodes)
        answer = await leader.read(job_pb2.ListJobsRequest(), None, 5)
        assert isinstance(answer.message, job_pb2.ListJobsResponse)
        assert len(answer.message.jobs) == 20
        assert answer.revision >= revision


async def test_a_clock_far_from_the_others_does_not_fire(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        voters = list(nodes)
        await until(lambda: len(leader.directory.peer_infos) == 2)
        assert leader.directory.skew_ms(voters, 1_000, leader.spec.wall_ms()) == 0
        for name, about in list(leader.directory.peer_infos.items()):
            leader.directory.peer_infos[name] = type(about)(
                **{key: getattr(about, key) for key in about.__struct_fields__}
                | {"wall_ms": about.wall_ms + 5_000}
            )

        skew_ms = leader.directory.skew_ms(voters, 1_000, leader.spec.wall_ms())
        assert skew_ms == pytest.approx(5_000, abs=500)


async def test_a_node_that_comes_back_is_told_the_time_by_whomever_it_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be elected a moment later, and a leader decides nothing before it is sure."""
    ports = free_ports(3)
    async with cluster(tmp_path, 3, ports) as nodes:
        leader = await leader_of(nodes)
        await until(lambda: all(node.clock.sure for node in nodes.values()))
        name = next(name for name in nodes if name != leader.name)
        back = nodes[name]
        await back.stop()
        # From now on nobody tells of itself because it is time to.
        monkeypatch.setattr("raftsched.cluster.node.gossip.INTERVAL", 60.0)
        monkeypatch.setattr("raftsched.cluster.node.gossip.FAST_INTERVAL", 60.0)
        for node in nodes.values():
            assert node._ticker is not None
            node._ticker.cancel()

        nodes[name] = again = Node(back.spec)
        await again.start()

        await until(lambda: again.clock.sure)


async def test_a_call_whose_time_is_over_before_it_was_decided_never_is(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await leader_of(nodes)
        changes = node.leader.done.changes
        node.leader.clock_compared(0, is_sure=False)  # It decides nothing for now.

        with pytest.raises(Refused) as told:
            await node.write(once("a", 1), "", 0.05)
        [[waiting]] = node.leader._next.calls.lines.values()
        node.leader.clock_compared(0, is_sure=True)
        await node.write(once("b", 1), "", 5)

        assert told.value.rejection.word == "COMMIT_TIMEOUT"
        assert waiting.withdrawn
        assert node.leader.done.changes >= changes + 1
        with pytest.raises(Refused):
            await node.read(job_pb2.GetJobRequest(job="a"), None, 5)


async def test_a_read_that_is_not_done_in_time_says_so_and_is_finished_on_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = await leader_of(nodes)
        await node.write(once("a", 1), "", 5)
        where: list[str] = []

        def finish(answer: object) -> None:
            where.append(threading.current_thread().name)

        await node.read(job_pb2.ListJobsRequest(), None, 5, "tenant", finish)
        await node.read(job_pb2.GetJobRequest(job="a"), None, 5, "tenant", finish)
        assert [name.partition("_")[0] for name in where] == ["read", "MainThread"]
        gate = threading.Event()
        real = reads.read

        def slow(*how: Any) -> object:  # noqa: ANN401  # As the rules are called.
            assert gate.wait(20)
            return real(*how)

        monkeypatch.setattr(reads, "read", slow)
        asked = [
            asyncio.create_task(node.read(job_pb2.ListJobsRequest(), None, 0.3, "tenant"))
            for _ in range(3)
        ]
        await asyncio.wait(asked)
        gate.set()
        for one in asked:
            assert isinstance(error := one.exception(), Refused)
            assert (error.rejection.word, error.rejection.values["limit"]) == (
                "NODE_LIMIT", "reading",
            )  # fmt: skip
        await node.read(job_pb2.ListJobsRequest(), None, 5, "tenant")


async def test_steps_of_consensus_and_gossip_and_work_beside_the_loop_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, beside = set[str](), set[str]()

    class Noted(LoopSteps):
        def end(self, what: str, began: float, *of: object) -> None:
            ended.add(what)
            super().end(what, began, *of)

        def begin_beside(self, what: str) -> None:
            beside.add(what)
            super().begin_beside(what)

    monkeypatch.setattr(node_spec, "LoopSteps", Noted)
    async with cluster(tmp_path, 2) as nodes:
        node = await leader_of(nodes)
        await node.write(once("a", 1), "", 5)
        await node.read(job_pb2.ListJobsRequest(), None, 5)
        node.driver.core.make_snapshot()
        node.driver.wake()
        await until(lambda: node.driver.core.snapshots.latest is not None)
        await until(lambda: not node.steps._beside)

    assert beside >= {"checkpoint", "publish snapshot", "reads"}
    assert ended >= {
        "consensus and apply", "send to members and journal", "a message of a member", "gossip",
        "after: checkpoint", "after: publish snapshot", "gather", "prepare", "answer",
    }  # fmt: skip


async def test_a_drained_node_that_is_elected_hands_over_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        drained, other = (node for node in nodes.values() if node is not leader)
        drained.drain()

        assert await leader.driver.transfer(drained.name, 2.0)

        await until(lambda: leader.leads or other.leads)
        await until(lambda: not drained.leads)


async def test_leadership_does_not_go_round_among_nodes_that_all_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over = list[str]()

    async def note(node: Node, *_: object) -> bool:
        handed_over.append(node.name)
        return True

    async with cluster(tmp_path, 3) as nodes:
        leader = await leader_of(nodes)
        # A leader that is not heard for a while on a busy machine is another matter.
        for node in nodes.values():
            monkeypatch.setattr(node.driver, "transfer", partial(note, node))
        for node in nodes.values():
            node.drain()
            node.introduce()
        await until(lambda: not any(about.serving for about in leader.directory.fresh().values()))
        handed_over.clear()

        for _ in range(50):
            leader.turns._turn()
            await asyncio.sleep(0.002)

        assert handed_over == []
