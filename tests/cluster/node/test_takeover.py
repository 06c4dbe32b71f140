"""A worker that opens one stream after the other while changes are under way: what reaches its
handlers is what it holds, at every moment."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from raftsched.client.worker.protocol import Session as ClientSession
from raftsched.cluster.node.worker_session import WorkerSession
from raftsched.cluster.node.worker_sink import Messages
from raftsched.proto.v1 import run_pb2, worker_pb2
from raftsched.proto.v1.worker_pb2 import WorkResponse
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import RunRecord, parse

from .ear import Ear, success
from .test_leader_loop import START_MS, Bench, due


def standing(bench: Bench) -> dict[int, str]:
    """Leases by their tokens, with who holds them."""
    found = {}
    for key, value in bench.applied.store.scan(keys.RUN, keys.after(keys.RUN)):
        run = parse(key, value, RunRecord)
        if run.state == run_pb2.RUN_STATE_RUNNING:
            found[run.token] = run.worker
    return found


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.leader.gained()
    return bench


def test_a_lease_that_was_granted_to_an_old_stream_is_not_told_on_the_new_one(
    bench: Bench,
) -> None:
    """The hello did not list it, so it ends; told all the same, two workers would carry it out."""
    bench.worker("w1", 1)
    bench.run()
    bench.ask(due("a", START_MS - 1))
    bench.leader.step()
    bench.commit()
    bench.leader.step()
    # The lease is being granted while its worker has lost patience.
    _, second = bench.worker("w1", 0)
    bench.commit()
    _, other = bench.worker("w2", 1)
    bench.run()

    assert second.got == []
    assert [(lease.job, lease.attempt) for lease in other.got] == [("a", 1)]
    assert list(standing(bench)) == [lease.token for lease in other.got]


def test_the_end_of_an_older_hello_is_not_that_of_a_newer_one(bench: Bench) -> None:
    """Else the leases that the newer one does not list would stand for ever."""
    _, first = bench.worker("w1", 1)
    bench.ask(due("a", START_MS - 1))
    bench.run()
    [lease] = first.got
    hello = worker_pb2.WorkerHello(worker="w1")
    hello.held.add(run=lease.run, token=lease.token)
    bench.sessions.open(hello, Ear(), stream=True)
    bench.leader.step()
    _, third = bench.worker("w1", 0)
    bench.asked.pop()(bench.index)
    _, other = bench.worker("w2", 1)
    bench.run()

    assert third.got == []
    assert [found.job for found in other.got] == ["a"]


def test_a_unary_call_beside_a_hello_does_not_speak_for_it(bench: Bench) -> None:
    _, first = bench.worker("w1", 1)
    bench.ask(due("a", START_MS - 1))
    bench.run()
    [lease] = first.got
    hello = worker_pb2.WorkerHello(worker="w1")
    hello.held.add(run=lease.run, token=lease.token)
    bench.sessions.open(hello, Ear(), stream=True)
    session = bench.sessions.open(worker_pb2.WorkerHello(worker="w1"), Ear(), stream=False)
    bench.run()

    assert standing(bench) == {lease.token: "w1"}
    assert session.resume is None


class Wire:
    """One stream of a worker, from the server's side; frames may wait on it."""

    def __init__(self, bench: Bench) -> None:
        self.frames: list[WorkResponse] = []
        self.session: WorkerSession | None = None
        welcome = WorkResponse()
        welcome.welcome.heartbeat.FromMilliseconds(bench.sessions.heartbeat_ms)
        welcome.welcome.lapse.FromMilliseconds(bench.sessions.lapse_ms)
        self.frames.append(welcome)

    def pre_serialize(self, words: Messages) -> None: ...

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        self.frames.append(WorkResponse(leases=leases))

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        self.frames.append(WorkResponse(acks=acks))

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None:
        self.frames.append(WorkResponse(stops=stops))

    def drain(self, reason: str) -> None: ...
    def redirect(self, leader: str, reason: str) -> None: ...
    def lost(self, refusal: Rejection) -> None: ...


class Hand:
    """A worker: the SDK's own session, on wires of which it may leave each at any time."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        hello = worker_pb2.WorkerHello(worker=name, slots=3)
        self.session = ClientSession(hello, 0.0)
        self.working: dict[int, worker_pb2.Lease] = {}
        self.wire = Wire(bench)
        self.connect()

    @property
    def now(self) -> float:
        return (self.bench.now_ms - START_MS) / 1000

    def connect(self) -> None:
        """Leave the stream, with what is on it, and say hello on the next."""
        self.session.closed()
        self.session.opened(self.now)
        [first] = self.session.frames(self.now)
        self.wire = wire = Wire(self.bench)
        wire.session = self.bench.sessions.open(first.hello, wire, stream=True)
        wire.session.credit(first.credits)

    def hear(self) -> None:
        """One frame of those that wait."""
        if not self.wire.frames:
            return
        orders = self.session.received(self.wire.frames.pop(0), self.now)
        for lease in orders.start:
            holder = standing(self.bench).get(lease.token)
            assert holder == self.name, f"{self.name} begins {lease.run}, and {holder} holds it"
            self.working[lease.token] = lease
        for stop in orders.stop:
            self.working.pop(stop.token, None)

    def speak(self) -> None:
        assert self.wire.session is not None
        for frame in self.session.frames(self.now):
            self.wire.session.hear()
            self.wire.session.report(frame.results)
            self.wire.session.credit(frame.credits)

    def finish(self) -> None:
        if self.working:
            token, lease = self.working.popitem()
            self.session.ended(token, success(lease))


def act(bench: Bench, hands: list[Hand], chance: random.Random, number: int) -> None:
    hand = chance.choice(hands)
    match chance.randrange(8):
        case 0:
            hand.connect()
        case 1:
            hand.finish()
        case 2:
            hand.speak()
        case 3 | 4:
            hand.hear()
        case 5:
            bench.ask(due(f"j{number}", START_MS - 1))
        case _:
            move(bench)


def move(bench: Bench) -> None:
    bench.leader.step()
    if bench.sent:
        bench.commit()
    elif bench.asked:
        bench.asked.pop()(bench.index)


def begin(bench: Bench) -> None:
    """Decide a change and leave it on its way."""
    if not bench.sent and not bench.asked:
        bench.leader.step()


def settle(bench: Bench, hands: list[Hand]) -> None:
    for _ in range(400):
        for hand in hands:
            hand.hear()
            hand.speak()
        move(bench)


@pytest.mark.parametrize("seed", range(60))
def test_nobody_begins_what_they_do_not_hold(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    hands = [Hand(bench, "w1"), Hand(bench, "w2")]
    for number in range(300):
        act(bench, hands, chance, number)
        if chance.random() < 0.5:
            begin(bench)
    settle(bench, hands)

    assert standing(bench) == {token: hand.name for hand in hands for token in hand.working}
