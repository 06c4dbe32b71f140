"""Days of the rules: people, workers, leaders that forget, and outages, in one process.

The decisions are the real ones, made one after the other; agreement is not played here, only what
it may do to a decision: it is applied everywhere, it is lost with its leader, or it is applied and
nobody is answered. So a seed costs a twentieth of one with consensus, and days pass in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import cast

from google.protobuf.message import Message

from ...proto.v1 import job_pb2, namespace_pb2, queue_pb2, worker_pb2
from ...statemachine.core.budget import Budget, Share, Steps
from ...statemachine.core.rejection import Reason, Rejection
from ...statemachine.core.store import MemoryStore
from ...statemachine.machine import Decision, Request, apply, decide, read_meta
from ...statemachine.model import keys, timers
from ...statemachine.model.phases import LEASED, PARKED, READY
from ...statemachine.model.record import parse_change
from ...statemachine.model.request import (
    LEFT,
    FireTimers,
    Grant,
    Lapse,
    Note,
    Offer,
    Report,
    WorkDone,
)
from ...statemachine.model.view import Recall, View
from . import orders
from .lives import Lives
from .looks import SimWatcher, look
from .moves import People
from .settled import check_all
from .world import SimViolation

SETTLED_IN = 3_000  # Changes until nothing is due.
ASKED_MOST = 5  # Times, of a request whose answer is lost.
STOPS = 30  # Instants at which something is done while time goes on.
ROUNDS = 400  # In which workers take all there is, at the end.
CHECKED_EACH = 15  # Moves.
MINUTE_MS, DAY_MS = orders.MINUTE_MS, orders.DAY_MS
UNIT_MS = 10 * MINUTE_MS
FAULTS = ("lost", "unanswered", "twice", "outage", "lapse", "late", "fails", "gives back")
# Days on which clocks go forward or back somewhere, or on which nothing happens to them.
STARTS = (
    "2026-03-28", "2026-10-24", "2026-03-07", "2026-10-31", "2026-04-04", "2026-01-01", "2028-02-28"
)  # fmt: skip
TAKEN = frozenset({READY, PARKED, LEASED})  # What workers bring to an end.


@dataclass(frozen=True, kw_only=True)
class DaysOptions:
    """One history."""

    seed: int
    moves: frozenset[str]
    parts: frozenset[str]
    faults: frozenset[str]
    steps: int  # After so many pieces of work a decision has used up its time.
    length: int  # In moves.
    start_ms: int

    def describe(self) -> str:
        words = (
            f"{name}={','.join(sorted(getattr(self, name)))}"
            for name in ("moves", "parts", "faults")
        )
        return f"seed={self.seed} steps={self.steps} length={self.length} {' '.join(words)}"


class DaysWorld:
    """See the head of this file."""

    def __init__(self, options: DaysOptions) -> None:
        self.options = options
        self.dice = Random(f"days {options.seed}")
        self.now_ms = options.start_ms
        self.log: list[bytes] = []
        # Who leads comes first; the other one follows when it has to.
        self.stores = [MemoryStore(), MemoryStore()]
        self.lives = Lives(options.steps)
        self.counts: Counter[str] = self.lives.counts
        self.people = People(self.dice, lambda: self.now_ms, UNIT_MS, options.moves, options.parts)
        self.watcher = SimWatcher() if options.seed % 4 == 1 else None
        self.recall = Recall()
        self.fresh_from = b""
        self.leases: dict[int, tuple[str, worker_pb2.Lease]] = {}
        self.reported: list[tuple[str, worker_pb2.Result]] = []
        self.story: list[str] = []

    @property
    def store(self) -> MemoryStore:
        return self.stores[0]

    def chance(self, fault: str, often: float) -> bool:
        return fault in self.options.faults and self.dice.random() < often

    def note(self, text: str) -> None:
        self.story.append(f"{self.now_ms - self.options.start_ms:>10} {text}")

    # Decisions.

    def new_budget(self) -> Budget:
        return Steps(self.options.steps)

    def decided(self, view: View, bodies: tuple[object, ...]) -> Decision:
        requests = [Request(body, "", Share(self.new_budget)) for body in bodies]
        return decide(view, requests, new_budget=self.new_budget)

    def decide(self, *bodies: object) -> list[object] | None:
        """Decide some requests as one change; the replies, or None: nobody hears of them."""
        view = View(self.store, self.now_ms, self.recall)
        decision = self.decided(view, bodies)
        for failure in decision.failures:
            raise SimViolation(f"S10 {failure.what} failed: {failure.error!r}")
        if self.dice.random() < 0.1:
            again = self.decided(View(self.store, self.now_ms), bodies)
            if again.change != decision.change:
                raise SimViolation(f"A1 what is kept in memory changes {bodies!r}")
        if decision.change:
            if self.chance("lost", 0.01):
                self.note(f"lost: {[type(body).__name__ for body in bodies]}")
                self.new_leader()
                return None
            revision = len(self.log) + 1
            self.log.append(decision.change)
            apply(self.store, revision, decision.change)
            self.lives.changed(parse_change(decision.change, revision))
            if self.watcher is not None:
                self.watcher.hear(decision.change, revision, self.store)
        self.recall.keep(view)
        if decision.change and self.chance("unanswered", 0.02):
            self.note(f"unanswered: {[type(body).__name__ for body in bodies]}")
            self.new_leader()
            return None
        return decision.replies

    def new_leader(self) -> None:
        """The other one has all that was decided, and nothing in memory. Who led before goes on
        from its own state, or from a copy of the new one's."""
        self.follow()
        self.stores.reverse()
        if self.dice.random() < 0.3:
            self.stores[1] = MemoryStore(dict(self.store.items))
        self.recall, self.fresh_from = Recall(), b""
        self.counts["leaders"] += 1

    def follow(self) -> None:
        """The other one does what it has not yet, and is then the same."""
        other = self.stores[1]
        for index in range(read_meta(other).applied_index + 1, len(self.log) + 1):
            apply(other, index, self.log[index - 1])
        if other.items != self.store.items:
            raise SimViolation("A1 two nodes have two states")

    # People.

    def ask(self, what: str, body: Message) -> object:
        """Until there is an answer, under the same id."""
        for _ in range(ASKED_MOST):
            replies = self.decide(body)
            reply = replies[0] if replies else LEFT
            if reply is not LEFT:
                break
        if reply is LEFT:
            self.fire()
            replies = self.decide(body)
            reply = replies[0] if replies else LEFT
        refused = isinstance(reply, Rejection)
        if isinstance(reply, Rejection) and reply.reason == Reason.ERROR_REASON_RULE_FAILED:
            raise SimViolation(f"S10 {what} failed: {reply.message}")
        self.counts[f"{what}{' refused' if refused else ''}"] += 1
        if reply is not LEFT and not refused and self.chance("twice", 0.2):
            again = self.decide(body)
            if again and again[0] is not LEFT and again[0] != reply:
                raise SimViolation(f"S1 {what} is answered twice: {reply} and {again[0]}")
        return reply

    def make_a_move(self) -> None:
        self.now_ms += 1
        what, ask = self.people.next()
        reply = self.ask(what, ask.body)
        words = reply.message if isinstance(reply, Rejection) else "ok"
        self.note(f"{what}: {' '.join(str(ask.body).split())} -> {words}")
        if isinstance(reply, Message):
            ask.done(reply)

    # Time.

    def due_ms(self) -> int | None:
        meta = read_meta(self.store)
        found = timers.next_due_ms(self.store, meta), timers.next_later_ms(self.store, meta)
        return min((at for at in found if at is not None), default=None)

    def fire(self) -> None:
        """Do all that is due, change by change."""
        for _ in range(SETTLED_IN):
            if not self.fire_once():
                return
        raise SimViolation(f"S8 after {SETTLED_IN} changes something is still due")

    def fire_once(self) -> bool:
        meta, store = read_meta(self.store), self.store
        bodies: list[object] = []
        due_ms, later_ms = timers.next_due_ms(store, meta), timers.next_later_ms(store, meta)
        if due_ms is not None and due_ms <= self.now_ms:
            bodies.append(FireTimers(1_000, fresh_from=self.fresh_from))
        if later_ms is not None and later_ms <= self.now_ms:
            bodies.append(FireTimers(1_000, later=True))
        if not bodies:
            return False
        replies = self.decide(*bodies)
        if replies and isinstance(bodies[0], FireTimers) and not bodies[0].later:
            assert isinstance(replies[0], WorkDone)
            self.fresh_from = replies[0].fresh_from
        return True

    def pass_time(self, ms: int) -> None:
        """Time goes on, and what is due is done when it is; or somewhat later."""
        end_ms = self.now_ms + ms
        for _ in range(STOPS):
            due_ms = self.due_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms + self.dice.choice((0, 0, 0, 40, MINUTE_MS)))
            self.fire()
            if self.dice.random() < 0.6:
                self.work()
        self.now_ms = max(self.now_ms, end_ms)

    def outage(self) -> None:
        """Nobody leads for hours or days."""
        self.now_ms += self.dice.choice((3, 30, 100)) * 6 * UNIT_MS + self.dice.randrange(9_000)
        self.note("outage")
        self.counts["outages"] += 1
        self.new_leader()

    # Workers.

    def work(self) -> None:
        kind = self.dice.random()
        if kind < 0.5:
            self.take(self.dice.choice((1, 2, 10)))
        elif kind < 0.95:
            for token in sorted(self.leases)[: self.dice.choice((1, 2, 10))]:
                self.finish(token)
        elif self.chance("lapse", 0.5):
            self.lapse(self.dice.choice(("w1", "w2")))

    def take(self, most: int) -> int:
        workers = self.dice.sample(("w1", "w2"), 2)
        offers = tuple(
            Offer(worker, most, queues=orders.QUEUES, handlers=frozenset({"work"}))
            for worker in workers
        )
        replies = self.decide(Grant(offers, most))
        if not replies or replies[0] is LEFT:
            return 0
        given = cast("list[list[worker_pb2.Lease]]", replies[0])
        for worker, leases in zip(workers, given, strict=True):
            for lease in leases:
                self.leases[lease.token] = worker, lease
                self.people.learn(lease.run)
        return sum(map(len, given))

    def finish(self, token: int, *, well: bool = False) -> None:
        worker, lease = self.leases[token]
        result = worker_pb2.Result(run=lease.run, token=token)
        if not well and self.chance("fails", 0.4):
            result.failure.error.kind = "broken"
            result.failure.fatal = self.dice.random() < 0.3
        elif not well and self.chance("gives back", 0.2):
            result.given_back.SetInParent()
            if self.dice.random() < 0.5:
                result.given_back.delay.FromMilliseconds(UNIT_MS // 2)
        else:
            result.success.SetInParent()
            if self.dice.random() < 0.1:
                result.notes.warning = "it was slow"
        if self.dice.random() < 0.1:
            self.decide(Note(worker, (worker_pb2.ProgressReport(run=lease.run, token=token),)))
        if self.report(worker, result):
            del self.leases[token]
            self.reported.append((worker, result))
            if self.chance("late", 0.1):
                self.report(*self.dice.choice(self.reported))

    def report(self, worker: str, result: worker_pb2.Result) -> bool:
        """Whether it was answered."""
        replies = self.decide(Report(worker, (result,)))
        if not replies or replies[0] is LEFT:
            return False
        [ack] = cast("list[worker_pb2.ResultAck]", replies[0])
        if not ack.reason and result.HasField("success") and result.token not in self.lives.good:
            raise SimViolation(f"S6 the end of lease {result.token} is acknowledged, and none was")
        return True

    def lapse(self, worker: str) -> None:
        for _ in range(SETTLED_IN):
            replies = self.decide(Lapse(worker, 1_000))
            if replies and isinstance(replies[0], WorkDone) and not replies[0].more:
                break
        if not self.chance("late", 0.5):
            self.leases = {t: one for t, one in self.leases.items() if one[0] != worker}

    # A history.

    def run(self) -> None:
        for number in range(self.options.length):
            self.make_a_move()
            if self.dice.random() < 0.7:
                self.fire()
            kind = self.dice.random()
            if kind < 0.35:
                self.work()
            elif kind < 0.75:
                self.pass_time(self.dice.choice((1, 3, 10, 36)) * UNIT_MS // 2)
            elif self.chance("outage", 0.12):
                self.outage()
            if number % CHECKED_EACH == CHECKED_EACH - 1:
                self.fire()
                check_all(self.store, self.now_ms, self.lives)
            if self.dice.random() < 0.2:
                look(self.people, self.store)
        self.settle()

    def settle(self) -> None:
        """Nothing is in the way any more, and whoever works does all there is."""
        self.note("the end")
        default = namespace_pb2.Namespace(name="default")
        quota = namespace_pb2.UpdateNamespaceRequest(namespace=default)
        quota.update_mask.paths.append("quota")
        asks: list[Message] = [quota]
        for queue in orders.QUEUES:
            free = queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name=queue))
            free.update_mask.paths.extend(("concurrency", "rate"))
            asks += [free, queue_pb2.ResumeQueueRequest(queue=queue)]
        asks += [job_pb2.ResumeJobRequest(job=name) for name in sorted(self.people.jobs)]
        for number, ask in enumerate(asks):
            ask.request_id = f"end-{number}"  # type: ignore[attr-defined]  # Each has one.
            self.ask("in the end", ask)
        self.drain()
        self.follow()
        if self.options.seed % 4 == 0:
            self.replay()
        if self.watcher is not None:
            self.watcher.check(self.lives)
        check_all(self.store, self.now_ms, self.lives, at_rest=True)
        self.acknowledged()

    def drain(self) -> None:
        for worker in ("w1", "w2"):
            self.lapse(worker)
        self.leases.clear()
        for _ in range(ROUNDS):
            self.fire()
            if not self.take(1_000):
                # What was given, and nobody heard of.
                for worker in ("w1", "w2"):
                    self.lapse(worker)
            for token in sorted(self.leases):
                self.finish(token, well=True)
            self.leases.clear()
            due_ms = self.due_ms()
            if (due_ms is None or due_ms > self.now_ms) and not self.has_ready():
                return
        raise SimViolation(f"S8 after {ROUNDS} rounds of work there is still some")

    def has_ready(self) -> bool:
        return any(run.phase in TAKEN for run in self.lives.seen.runs.values())

    def replay(self) -> None:
        """The log alone makes the same state."""
        other = MemoryStore()
        for index, change in enumerate(self.log, 1):
            apply(other, index, change)
        if other.items != self.store.items:
            raise SimViolation("A1 the log makes another state")
        self.counts["replays"] += 1

    def acknowledged(self) -> None:
        """S1. Each run that was answered was there."""
        for job in self.people.jobs.values():
            for run in sorted(job.triggers):
                if keys.run_key(run) not in self.lives.fired:
                    raise SimViolation(f"S1 {run} was acknowledged, and never was")
