"""What workers send of how far they are takes a bounded part of a change: what is due and what
frees capacity go ahead of it. Time passes where bytes are agreed on, 10 MB of them a second."""

from __future__ import annotations

from raftsched.cluster.node.progress_queue import PROGRESS_BYTES
from raftsched.cluster.node.worker_session import WorkerSession
from raftsched.proto.v1 import worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import to_ms
from raftsched.statemachine.model.request import Note

from .ear import Ear, success
from .test_leader_loop import START_MS, Bench, due

FULL = b"x" * limits.CHECKPOINT_BYTES
BYTES_A_SECOND = 10e6
COMMIT_S = 0.003


class Flooded:
    """A leader with workers that report progress whenever a change is over."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.flooding: list[tuple[WorkerSession, list[worker_pb2.Lease]]] = []
        self.changes: list[int] = []
        self.bench = bench = Bench()
        bench.leader.gained()
        bench.seconds = lambda: self.seconds
        bench.leader.now_ms = bench.sessions.wall_ms = bench.sessions.clock_ms = self.now_ms

    def now_ms(self) -> int:
        return START_MS + int(1_000 * self.seconds)

    def leases(self, worker: str, runs: int) -> tuple[WorkerSession, Ear]:
        """A worker that holds leases of so many runs."""
        for number in range(runs):
            self.bench.ask(due(f"{worker.replace('/', '-')}-{number}", START_MS))
        session, ear = self.bench.worker(worker, runs)
        session.heard_ms = START_MS + limits.HOUR_MS
        self.bench.run()
        assert len(ear.got) == runs
        return session, ear

    def flood(self, worker: str, runs: int) -> tuple[WorkerSession, Ear]:
        session, ear = self.leases(worker, runs)
        self.flooding.append((session, list(ear.got)))
        return session, ear

    def turn(self) -> None:
        for session, leases in self.flooding:
            session.note(report(lease, FULL, FULL) for lease in leases)
        self.bench.leader.step()
        if self.bench.sent:
            size = len(self.bench.sent[0][0])
            self.changes.append(size)
            self.seconds += COMMIT_S + size / BYTES_A_SECOND
            self.bench.commit()
        else:
            self.seconds += 0.001
            while self.bench.asked:
                self.bench.asked.pop()(self.bench.index)


def report(
    lease: worker_pb2.Lease, checkpoint: bytes, log_tail: bytes = b""
) -> worker_pb2.ProgressReport:
    return worker_pb2.ProgressReport(
        run=lease.run, token=lease.token, checkpoint=checkpoint, log_tail=log_tail
    )


def test_a_firing_waits_for_one_change_of_bounded_size_beside_a_flood() -> None:
    world = Flooded()
    world.flood("red", 300)
    _, ear = world.leases("w1", 0)
    world.bench.sessions.by_worker["w1"].credit(100)
    began = world.now_ms() + 500
    for number in range(20):
        world.bench.ask(due(f"d{number}", began + 100 * number))
    late_ms: list[int] = []

    while world.seconds < 3.0:
        world.turn()
        late_ms += [world.now_ms() - to_ms(lease.due_time) for lease in ear.got]
        ear.got.clear()

    change_ms = 1_000 * (COMMIT_S + PROGRESS_BYTES * 1.1 / BYTES_A_SECOND)
    assert len(late_ms) == 20
    assert max(late_ms) <= 2 * change_ms, late_ms
    assert max(world.changes[50:]) <= PROGRESS_BYTES * 1.1
    # Nor does the flood stand still.
    assert sum(world.changes) > 0.5 * 3.0 * BYTES_A_SECOND


def test_a_result_takes_its_own_progress_along_and_waits_for_no_other() -> None:
    world = Flooded()
    session, ear = world.flood("red", 100)
    world.turn()
    ending = ear.got[-1]
    world.flooding[0][1].remove(ending)
    failure = worker_pb2.Result(run=ending.run, token=ending.token)
    failure.failure.error.kind = "busy"

    session.note([report(ending, b"page 7")])
    session.report([failure])
    world.turn()

    assert [ack.token for ack in ear.acked] == [ending.token]
    assert ear.acked[0].reason == ""
    assert ending.token not in session.notes
    assert ear.stopped == []


def test_tenants_and_their_workers_take_turns() -> None:
    world = Flooded()
    for number in range(10):
        world.flood(f"red/{number}", 20)
    own, ear = world.leases("blue/w", 10)
    for _ in range(3):
        world.turn()

    own.note(report(lease, b"half", b"") for lease in ear.got)
    world.turn()

    assert not own.notes
    for _ in range(5):
        world.turn()
    # Of ten workers none has waited for all the reports of another.
    assert all(session.notes for session, _ in world.flooding)


def test_small_reports_of_large_runs_leave_others_their_turn() -> None:
    """Each writes the whole record of its run."""
    world = Flooded()
    world.flood("red/w", 100)
    own, ear = world.leases("blue/w", 10)
    for _ in range(60):
        world.turn()
    [(session, leases)] = world.flooding
    world.flooding.clear()
    while session.notes:
        world.turn()

    for _ in range(10):
        session.note(report(lease, b"", b"y") for lease in leases)
        own.note(report(lease, b"half") for lease in ear.got)
        world.turn()
        assert world.changes[-1] <= PROGRESS_BYTES * 1.2
        world.turn()
        assert not own.notes


def test_progress_in_calls_and_on_streams_goes_forward_beside_the_other() -> None:
    world = Flooded()
    world.flood("red", 100)
    _, ear = world.leases("w1", 10)
    acks: list[object] = []
    body = Note("w1", tuple(report(lease, b"half") for lease in ear.got))

    world.bench.leader.ask(body, "", acks.append, lambda: None)
    world.turn()
    world.turn()

    assert len(acks) == 1


def test_what_was_replaced_while_it_waited_is_never_written() -> None:
    world = Flooded()
    session, ear = world.leases("w1", 1)
    for number in range(100):
        session.note([report(ear.got[0], FULL[:-3] + b"%03d" % number)])
    session.report([success(ear.got[0])])
    before = len(world.changes)
    world.turn()

    assert len(world.changes) == before + 1
    assert world.changes[-1] < 2 * len(FULL)
    assert [ack.reason for ack in ear.acked] == [""]
