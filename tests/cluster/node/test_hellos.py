"""What workers hold that come to a leader is looked at a piece at a time, each caller in turn."""

from __future__ import annotations

import random

import pytest

from raftsched.cluster.node.hello import HELD_MAX
from raftsched.cluster.node.leader_loop import AGAIN_MS
from raftsched.cluster.node.worker_session import WorkerSession
from raftsched.proto.v1 import worker_pb2
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.workers import WorkerCounts

from .ear import Ear, success
from .test_leader_loop import START_MS, Bench, due
from .test_takeover import standing

PIECE = 100  # Questions after which a kind of work in a change has used up its time.


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.leader.gained()
    bench.leader.new_budget = lambda: Steps(PIECE)
    return bench


def hello(
    bench: Bench, worker: str, held: int, caller: str = "", *more: worker_pb2.Lease
) -> tuple[WorkerSession, Ear]:
    """It lists so many leases that nobody knows, and some more."""
    ear, said = Ear(), worker_pb2.WorkerHello(worker=worker)
    for token in range(held):
        said.held.add(run=f"work.7.{START_MS}.{token}", token=1_000_000 + token)
    for lease in more:
        said.held.add(run=lease.run, token=lease.token)
    return bench.sessions.open(said, ear, stream=True, caller=caller), ear


def turn(bench: Bench) -> None:
    """One change, or none."""
    bench.leader.step()
    if bench.sent:
        bench.commit()
    elif bench.asked:
        bench.asked.pop()(bench.index)


def leased(bench: Bench, worker: str, count: int = 1) -> list[worker_pb2.Lease]:
    _, ear = bench.worker(worker, count)
    for number in range(count):
        bench.ask(due(f"{worker}-{number}", START_MS - 1))
    bench.run()
    assert len(ear.got) == count
    return ear.got


def looked(session: WorkerSession) -> int:
    assert session.resume is not None
    return session.resume.looked


def test_no_change_looks_at_more_than_a_piece_of_what_workers_hold(bench: Bench) -> None:
    found = [hello(bench, f"w{number}", HELD_MAX) for number in range(4)]
    turns = 0

    while any(session.resume for session, _ in found):
        before = sum(looked(session) for session, _ in found if session.resume)
        turn(bench)
        turns += 1
        after = sum(looked(session) for session, _ in found if session.resume)
        assert after - before <= PIECE + 1

    assert turns >= 4 * HELD_MAX // (PIECE + 1)
    for _, ear in found:
        assert {stop.token for stop in ear.stopped} == set(range(1_000_000, 1_000_000 + HELD_MAX))
        assert len(ear.stopped) == HELD_MAX


def test_what_others_say_does_not_wait_for_it(bench: Bench) -> None:
    [lease] = leased(bench, "other")
    found = [hello(bench, f"w{number}", HELD_MAX) for number in range(50)]
    turn(bench)
    session = bench.sessions.by_worker["other"]
    session.report([success(lease)])
    bench.ask(due("asked", START_MS + 1_000))
    turn(bench)

    assert isinstance(session.sink, Ear)
    assert [ack.token for ack in session.sink.acked] == [lease.token]
    assert len(bench.replies) == 2
    assert all(session.resume for session, _ in found)


def test_callers_take_turns(bench: Bench) -> None:
    for number in range(50):
        hello(bench, f"w{number}", HELD_MAX, "large")
    mine, ear = hello(bench, "mine", 10, "small")

    for _ in range(3):
        turn(bench)

    assert mine.resume is None
    assert len(ear.stopped) == 10


def test_hellos_under_one_name_wait_once(bench: Bench) -> None:
    for _ in range(100):
        hello(bench, "w1", HELD_MAX)
    assert len(bench.sessions.hellos(1_000_000)) == 1


def test_nobody_is_told_what_a_stream_that_is_gone_may_not_keep(bench: Bench) -> None:
    [lease] = leased(bench, "w1")
    session, ear = hello(bench, "w1", HELD_MAX)
    turn(bench)
    session.close()

    for _ in range(3):
        turn(bench)

    assert session.resume is None
    assert len(ear.stopped) <= 2 * PIECE
    # What it does not list ends all the same.
    assert lease.token not in standing(bench)


def test_a_result_of_a_lease_that_is_listed_waits_until_it_was_looked_at(bench: Bench) -> None:
    """Else the worker were told that a lease is lost which it has just ended."""
    [lease] = leased(bench, "w1")
    session, ear = hello(bench, "w1", 1_000, "", lease)
    session.report([success(lease)])
    turn(bench)
    assert ear.acked == []
    bench.run()

    assert [(ack.token, ack.reason) for ack in ear.acked] == [(lease.token, "")]
    assert lease.token not in {stop.token for stop in ear.stopped}


def test_a_grant_that_waits_gives_a_new_stream_nothing_of_which_it_does_not_hear(
    bench: Bench,
) -> None:
    """It stood for ever: the hello was looked at before the grant, in one change with it."""
    bench.worker("w1", 1)
    bench.ask(due("a", START_MS + 1_000))
    bench.run()
    bench.now_ms = START_MS + 1_000
    bench.refusal = "leadership is handed over"
    bench.leader.step()
    bench.refusal = ""
    bench.now_ms += AGAIN_MS
    _, second = bench.worker("w1", 0)
    bench.run()
    assert standing(bench) == {}

    _, other = bench.worker("w2", 1)
    bench.run()
    assert second.got == []
    assert [lease.job for lease in other.got] == ["a"]


def test_a_session_keeps_nothing_of_what_its_hello_listed(bench: Bench) -> None:
    session, _ = hello(bench, "w1", HELD_MAX)
    bench.run(2 * HELD_MAX // PIECE)

    assert not session.hello.held
    assert session.hello.worker == "w1"
    assert session.resume is None


def test_a_run_id_in_a_hello_is_no_longer_than_one_may_be(bench: Bench) -> None:
    said = worker_pb2.WorkerHello(worker="w1")
    said.held.add(run="x" * (keys.RUN_ID_CHARS + 1), token=1)
    with pytest.raises(Refused) as refused:
        bench.sessions.open(said, Ear(), stream=True)
    assert "has 201 characters" in refused.value.rejection.message
    assert bench.sessions.by_worker == {}


def test_a_tenant_leaves_room_for_the_workers_of_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids cost nothing, and a session stands for three periods after its only word."""
    monkeypatch.setattr(bench.sessions.room, "maximum", 6)

    def come(*workers: str) -> None:
        for worker in workers:
            bench.sessions.open(worker_pb2.WorkerHello(worker=worker), Ear(), stream=True)

    for _ in range(2):
        come("red/w1", "red/w2")
        # Who is there is no further one.
        come("red/w1")
        with pytest.raises(Refused, match="2 workers of red are connected already"):
            come("red/w3")
        come("blue/w1")
        # Two tenants together leave room for others.
        with pytest.raises(Refused, match="1 workers of blue are connected already and 3 places"):
            come("blue/w2")
        come("green/w1", "w1", "w2")
        with pytest.raises(Refused, match="6 workers are connected already"):
            come("white/w1")
        bench.now_ms += bench.sessions.lapse_ms + 1
        bench.run()
        assert bench.sessions.by_worker == {}
    # A new leader knows some by their leases, and counts them too.
    bench.sessions.takeover(["red/w1", "red/w2", "red/w3"])
    with pytest.raises(Refused, match="3 workers of red"):
        come("red/w4")
    bench.sessions.dismiss("", "over")
    come("red/w4")


def test_who_is_connected_is_counted_as_they_come_and_go(bench: Bench) -> None:
    """A look at the alerts costs the same however many there are. Held against a count of all."""
    chance = random.Random(5)
    names = [f"{owner}w{number}" for owner in ("", "red/") for number in range(6)]
    for _ in range(600):
        sessions = bench.sessions
        worker = chance.choice(names)
        session = sessions.by_worker.get(worker)
        what = chance.randrange(12)
        if what == 0:
            sessions.dismiss("", "over")
            sessions.takeover(chance.sample(names, 4))
        elif what == 1:
            bench.now_ms += sessions.lapse_ms + 100_000
            bench.run()
        elif what < 6 and session is not None:
            session.close()
        elif session is None or not session.lapsing:
            hello = worker_pb2.WorkerHello(
                worker=worker, namespaces=chance.choices(("red", "blue"), k=2),
                queues=chance.choices(("", "q", "r"), k=2),
            )  # fmt: skip
            sessions.open(hello, Ear(), stream=chance.random() < 0.5)
        expected = WorkerCounts(sessions.workers())
        assert sessions.connected._of == expected._of
        # Who was dismissed says so later, and counts no more.
        if session is not None and worker not in sessions.by_worker:
            session.close()
            assert sessions.connected._of == expected._of
