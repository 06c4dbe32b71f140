"""Workers that pull leases, and do with them what workers do at their worst.

A good one reports what it did once, sends it again until it is acknowledged, and holds no lease it
must stop. Chance lets it stall past its lease, report late or twice, forget everything, or go on
with what it must leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Refused, Rejection
from .oracle import HEARTBEAT_MS, LAPSE_MS
from .orders import QUEUES
from .scheduler import SchedulerNode

if TYPE_CHECKING:
    from ...cluster.node.worker_session import WorkerSession
    from .rules import SchedulerCluster

BEAT = HEARTBEAT_MS / 1000
LAPSE = LAPSE_MS / 1000


class SimStream:
    """What a node says to a worker on one stream; it arrives later, or not at all."""

    def __init__(self, worker: SimWorker, node: SchedulerNode) -> None:
        self.worker, self.node, self.life = worker, node, node.life
        self.open = True

    def _say(self, what: Callable[[], None]) -> None:
        def arrive() -> None:
            if self.open and self.worker.line is self:
                what()

        self.worker.world.after(self.worker.delay(), arrive)

    def pre_serialize(self, words: Sequence[object]) -> None:
        """Nothing is made ready in here."""

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        self._say(lambda: self.worker.take(leases))

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        self._say(lambda: self.worker.acknowledged(acks))

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None:
        self._say(lambda: self.worker.stop(stops))

    def drain(self, reason: str) -> None:
        """Nobody drains workers here."""

    def redirect(self, leader: str, reason: str) -> None:
        self._say(self.worker.leave)

    def lost(self, refusal: Rejection) -> None:
        self._say(self.worker.leave)


class SimWorker:
    """See the head of this file."""

    def __init__(self, number: int, cluster: SchedulerCluster, habits: frozenset[str]) -> None:
        self.cluster, self.world, self.habits = cluster, cluster.world, habits
        self.name = f"w{number}"
        self.slots = self.world.dice.choice((1, 2, 4))
        self.line: SimStream | None = None
        self.session: WorkerSession | None = None
        self.working: dict[int, worker_pb2.Lease] = {}
        self.unacknowledged: dict[
            int, worker_pb2.Result
        ] = {}  # Reported, and not acknowledged yet.
        self.asleep_until = 0.0
        self.life = 0

    def chance(self, habit: str, often: float) -> bool:
        return habit in self.habits and self.world.dice.random() < often

    def delay(self) -> float:
        wire = self.cluster.options.wire
        return wire.delay + wire.jitter * self.world.dice.random()

    # Its life.

    def beat(self) -> None:
        """Several times in a heartbeat: say something, or find somebody to say it to."""
        life = self.life
        self.world.after(BEAT * (0.3 + 0.3 * self.world.dice.random()), lambda: self._beat(life))

    def _beat(self, life: int) -> None:
        if life != self.life:
            return
        self.beat()
        if self.chance("die", 0.01):
            self.die()
        elif self.chance("stall", 0.02):
            self.asleep_until = self.world.now + LAPSE * self.world.dice.uniform(0.5, 3)
        if self.world.now < self.asleep_until:
            return
        if self.line is None:
            self.connect()
        elif self.line.node.life != self.line.life:
            self.leave()
        elif not self.chance("silent", 0.5):
            self.with_session(lambda session: self.say(session))

    def die(self) -> None:
        """The process ends with all it knew; another one comes under the same name."""
        self.life += 1
        self.leave()
        self.working, self.unacknowledged = {}, {}
        self.beat()

    def leave(self) -> None:
        if self.line is not None:
            self.line.open = False
        self.line = self.session = None

    # What it says.

    def connect(self) -> None:
        node = self.cluster.guess_leader()
        assert isinstance(node, SchedulerNode)
        line = self.line = SimStream(self, node)
        hello = worker_pb2.WorkerHello(worker=self.name, handlers=["work"], slots=self.slots)
        if self.cluster.options.moves:
            hello.queues.extend(QUEUES)
        for token, lease in self.working.items():
            hello.held.add(run=lease.run, token=token)
        for token, result in self.unacknowledged.items():
            hello.held.add(run=result.run, token=token)

        def arrive() -> None:
            if not node.leader.leading or self.line is not line:
                line.redirect("", "it does not lead")
                return
            try:
                self.session = node.sessions.open(hello, line, stream=True)
            except Refused as refused:
                line.lost(refused.rejection)
                return
            node.oracle.heard_of(node, self.name)
            self.session.credit(self.slots - len(self.working))
            self.say(self.session)

        self.world.after(self.delay(), lambda: self.reach(node, arrive))

    def reach(self, node: SchedulerNode, what: Callable[[], None]) -> None:
        """Do something at a node, unless the line is cut on the way."""
        if node.core is not None:
            node.do(what)

    def with_session(self, what: Callable[[WorkerSession], None]) -> None:
        line, session = self.line, self.session
        if line is None or session is None or self.world.now < self.asleep_until:
            return

        def arrive() -> None:
            node = line.node
            if node.life == line.life and node.sessions.by_worker.get(self.name) is session:
                session.hear()
                node.oracle.heard_of(node, self.name)
                what(session)

        self.world.after(self.delay(), lambda: self.reach(line.node, arrive))

    def say(self, session: WorkerSession) -> None:
        """Send what was not acknowledged again."""
        if self.unacknowledged:
            session.report(list(self.unacknowledged.values()))

    # What it does.

    def take(self, leases: Sequence[worker_pb2.Lease]) -> None:
        for lease in leases:
            self.working[lease.token] = lease
            seconds = self.world.dice.choice((0.005, 0.03, 0.2))
            if self.chance("slow", 0.3):
                seconds = self.world.dice.uniform(0.3, 2.0)
            self.finish_later(lease, seconds)

    def finish_later(self, lease: worker_pb2.Lease, seconds: float) -> None:
        life = self.life

        def finish() -> None:
            if life != self.life or lease.token not in self.working:
                return
            if self.world.now < self.asleep_until:
                self.world.at(self.asleep_until + 0.001, finish)
                return
            del self.working[lease.token]
            self.report(lease)

        self.world.after(seconds, finish)

    def report(self, lease: worker_pb2.Lease) -> None:
        result = worker_pb2.Result(run=lease.run, token=lease.token)
        if self.chance("fails", 0.3):
            result.failure.error.kind = "broken"
        else:
            result.success.SetInParent()
        self.unacknowledged[lease.token] = result
        self.with_session(lambda session: session.report([result]))
        self.with_session(lambda session: session.credit(1))
        if self.chance("twice", 0.5):
            self.world.after(
                self.world.dice.uniform(0.0, 2.0),
                lambda: self.with_session(lambda session: session.report([result])),
            )

    def acknowledged(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        for ack in acks:
            result = self.unacknowledged.pop(ack.token, None)
            if result is not None:
                self.cluster.oracle.acknowledged(ack, result.HasField("success"))

    def stop(self, stops: Sequence[worker_pb2.Stop]) -> None:
        for stop in stops:
            lease = self.working.get(stop.token)
            if lease is not None and not self.chance("stubborn", 0.5):
                del self.working[stop.token]
                self.with_session(lambda session: session.credit(1))
            self.unacknowledged.pop(stop.token, None)
