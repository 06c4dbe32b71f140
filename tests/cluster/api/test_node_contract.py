"""What the services may rely on of a node, held against the fake of the tests and a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.message import Message

from raftsched.cluster.api.node_port import NodePort
from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.rejection import Refused

from ..node import test_node
from ..node.ear import Ear, success
from .fake import FakeNode, World
from .talk import create, until

# One cluster serves all tests of a kind, so each test has jobs of its own.
pytestmark = pytest.mark.asyncio(loop_scope="module")
STALE = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)
LONG_S = 60.0
Pair = tuple[NodePort, NodePort]


@asynccontextmanager
async def fakes(folder: Path) -> AsyncIterator[Pair]:
    world = World()
    leader, follower = FakeNode("n1", world), FakeNode("n2", world)
    leader.address, follower.address = "n1.example:7400", "n2.example:7400"
    world.lead(leader)
    yield leader, follower
    leader.stop()
    follower.stop()


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Pair]:
    async with test_node.cluster(folder, 3) as nodes:
        await until(lambda: any(node.leads for node in nodes.values()))
        leader = next(node for node in nodes.values() if node.leads)
        follower = next(node for node in nodes.values() if node is not leader)
        await until(lambda: follower.leader_address)
        yield leader, follower


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=[fakes, real])
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    """A leader, and a node that follows it."""
    async with request.param(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


async def word_of(refused: Any) -> str:  # noqa: ANN401  # What is awaited differs.
    """The reason for which a call is refused."""
    with pytest.raises(Refused) as found:
        await refused
    return found.value.rejection.word


def get(name: str) -> job_pb2.GetJobRequest:
    return job_pb2.GetJobRequest(job=name)


async def test_each_knows_who_leads_and_where(pair: Pair) -> None:
    leader, follower = pair
    assert (leader.leads, follower.leads) == (True, False)
    for node in pair:
        assert node.serves
        assert node.leader_name == leader.name
        assert node.leader_address == f"{leader.name}.example:7400"
        assert node.term >= 1
        await until(lambda node=node: node.staleness() < LONG_S)  # type: ignore[misc]


async def test_what_was_written_is_read_at_its_revision(pair: Pair) -> None:
    leader, _ = pair
    before = leader.revision
    made = await leader.write(create("written"), "alice", LONG_S)
    answer = await leader.read(get("written"), None, LONG_S)
    assert answer.message == made
    # A leader also makes changes of its own.
    assert before < answer.revision <= leader.revision
    assert answer.age_ms == 0


async def test_the_same_request_is_done_once(pair: Pair) -> None:
    leader, _ = pair
    request = create("once", request_id="once")
    made = await leader.write(request, "", LONG_S)
    assert await leader.write(request, "", LONG_S) == made


async def test_what_the_rules_refuse_is_raised(pair: Pair) -> None:
    leader, _ = pair
    assert await word_of(leader.write(job_pb2.PauseJobRequest(job="nope"), "", LONG_S)) \
        == "JOB_NOT_FOUND"  # fmt: skip
    assert await word_of(leader.read(get("nope"), None, LONG_S)) == "JOB_NOT_FOUND"


async def test_an_answer_is_finished_before_it_is_given(pair: Pair) -> None:
    leader, _ = pair
    await leader.write(create("finished"), "", LONG_S)

    def finish(answer: Message) -> None:
        assert isinstance(answer, job_pb2.Job)
        answer.name = "changed"

    answer = await leader.read(get("finished"), None, LONG_S, "alice", finish)
    assert isinstance(answer.message, job_pb2.Job)
    assert answer.message.name == "changed"


async def test_behind_a_barrier_all_that_was_answered_is_there(pair: Pair) -> None:
    leader, follower = pair
    await leader.write(create("barred"), "", LONG_S)
    await leader.barrier(LONG_S)
    answer = await leader.read(get("barred"), STALE, LONG_S)
    assert isinstance(answer.message, job_pb2.Job)
    assert await word_of(follower.barrier(LONG_S)) == "NOT_LEADER"


async def test_a_follower_says_who_leads_and_reads_what_may_be_old(pair: Pair) -> None:
    leader, follower = pair
    made = await leader.write(create("followed"), "", LONG_S)
    for call in (
        follower.write(create("other"), "", LONG_S),
        follower.read(get("followed"), None, LONG_S),
    ):
        with pytest.raises(Refused) as found:
            await call
        assert found.value.rejection.word == "NOT_LEADER"
        assert found.value.rejection.values["leader"] == leader.leader_address
    await until(lambda: follower.revision == leader.revision)
    answer = await follower.read(get("followed"), STALE, LONG_S)
    assert answer.message == made
    assert answer.age_ms >= 0


async def test_listeners_hear_of_each_change_and_the_journal_has_it(pair: Pair) -> None:
    leader, _ = pair
    heard = list[int]()

    def note(index: int, *_: object) -> None:
        heard.append(index)

    leader.replica.on_change(note)
    try:
        await leader.write(create("heard"), "", LONG_S)
        entries = leader.journal.entries(heard[0], heard[-1], 1 << 20)
        assert [entry.index for entry in entries] == heard
        assert any(b"heard" in entry.data for entry in entries)
    finally:
        leader.replica.forget(note)


async def test_a_worker_gets_leases_and_acknowledgements(pair: Pair) -> None:
    leader, _ = pair
    ear = Ear()
    session = leader.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
    session.credit(1)
    await leader.write(create("leased"), "", LONG_S)
    await leader.write(job_pb2.TriggerJobRequest(job="leased"), "", LONG_S)
    await until(lambda: ear.got)
    [lease] = ear.got
    session.report([success(lease)])
    await until(lambda: ear.acked)
    assert [(ack.token, ack.reason) for ack in ear.acked] == [(lease.token, "")]
    answer = await leader.read(run_pb2.GetRunRequest(run=lease.run), None, LONG_S)
    assert isinstance(answer.message, run_pb2.Run)
    assert answer.message.state == run_pb2.RUN_STATE_SUCCEEDED
    session.close()


async def test_a_node_that_drains_takes_no_call(pair: Pair) -> None:
    """It comes last: nobody takes that back."""
    _, follower = pair
    follower.drain()
    assert (follower.draining, follower.serves) == (True, False)

    async def write() -> object:
        return await follower.write(create("late"), "", LONG_S)

    async def read() -> object:
        return await follower.read(get("followed"), STALE, LONG_S)

    assert await word_of(write()) == "DRAINING"
    assert await word_of(read()) == "DRAINING"
