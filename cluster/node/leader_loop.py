"""The leader's loop: it gathers what is to be done, decides it as one change, and answers.

    gather (reports, lapses, what is due, calls, a grant) -> decide -> replicate -> answer -> gather

One change is in flight at a time; what arrives meanwhile goes into the next one. So a busy
leader makes few large changes, an idle one makes small ones at once, and neither needs a timer for
it. There is no clock, task or socket in here: its owner calls `step` when something has happened,
and again at `next_ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from google.protobuf.message import Message

from ...statemachine import piecewise
from ...statemachine.core import budget
from ...statemachine.core.budget import Share
from ...statemachine.machine import Decision, Request, decide
from ...statemachine.model.request import Grant
from ...statemachine.model.view import Recall, View
from ...statemachine.piecewise import FATAL
from ...statemachine.runs import leases
from ..raft import faults
from ..raft.port import Reply
from . import importing, refusals
from .alert_work import AlertWork, NodeHealth
from .applier import Applied
from .due_times import DueTimes, first
from .loop_steps import LoopSteps, LoopTotals
from .next_change import NextChange
from .pending import PendingRequest
from .time_shares import WorkKind, kind_of
from .token_uses import TokenUses
from .troubles import Troubles
from .worker_sessions import WorkerSessions

logger = logging.getLogger(__name__)

# What is decided carefully asks for the end of its time between two pieces of work, of which the
# longest takes some 10 ms more.
DECIDE_SECONDS = 0.030
AGAIN_MS = 5  # After which a change that consensus did not take is tried again.
BATCHING_THRESHOLD = 4  # Calls in a change above which there are many.


class Consensus(Protocol):
    """What the loop needs of it. Both may raise faults.CallRefused."""

    def submit(self, data: bytes, reply: Reply) -> None: ...

    def confirm(self, reply: Reply) -> None: ...


class Leader:
    """Decides while this node leads."""

    def __init__(
        self, name: str, applied: Applied, consensus: Consensus, sessions: WorkerSessions,
        now_ms: Callable[[], int], seconds: Callable[[], float],
        new_budget: Callable[[], budget.Budget] | None = None, steps: LoopSteps | None = None,
        troubles: Troubles | None = None, leader_address: Callable[[], str] = str, *,
        clock_is_sure: bool = True, clock_stands_still: bool = False,
    ) -> None:  # fmt: skip
        """`leader_address`: where clients find the leader, as far as this node knows. A clock that
        stands still goes on only when somebody moves it, who then calls `step`."""
        self.steps = steps or LoopSteps(name, now_ms, seconds)
        # Zones that a member does not know, with its name.
        self._lacking: Mapping[str, str] = {}
        # How long one kind of work in a decision may take; None: by the clock (time_shares.py).
        self.new_budget = new_budget
        self.name, self.applied, self.consensus = name, applied, consensus
        self.sessions, self.now_ms, self.seconds = sessions, now_ms, seconds
        self.leading = False
        self._leader_address = leader_address
        # How far those of a majority are from this clock, when that is too far to fire.
        self.skew_ms = 0
        # It was compared with others since the start; until then nothing is decided.
        self.clock_is_sure = clock_is_sure
        self._clock_stands_still = clock_stands_still
        self.done = LoopTotals()
        # Something failed in the last decision, so what it left behind is decided carefully too.
        self._careful = False
        # What failed while this node led.
        self.troubles = troubles or Troubles(name, now_ms, seconds)
        self._alerts = AlertWork(
            applied, sessions, self.steps, self.troubles, sessions.wake,
            clock_stands_still=clock_stands_still,
        )  # fmt: skip
        self._due = DueTimes(applied)
        self.token_uses = TokenUses(applied, now_ms, seconds, sessions.wake)
        self._next = NextChange(sessions, self._due, self._alerts, self.token_uses, seconds)
        # What an earlier term left in flight may be answered later than this.
        self._turn = object()
        self._busy = False
        # Whoever wants nothing to be in flight, and is called once that is so.
        self._alone: Callable[[], None] | None = None
        self._recall = Recall()
        # What is on its way, and will be answered so.
        self._under_way: list[tuple[PendingRequest, object]] = []
        # When the last change was begun, and when it was decided, on the clock of `seconds`.
        self.began_at = self.decided_at = float("-inf")
        # How many calls went into it.
        self._calls_in_change = 0
        # Before this nothing is begun, on the clock of the sessions.
        self._again_ms = 0

    # Leadership.

    def gained(self) -> None:
        """This node leads, and has applied what was committed before."""
        self.leading = True
        self._busy, self._alone = False, None
        self._next.clear()
        self._under_way = []
        self._alerts.clear()
        self._recall = Recall()
        self._again_ms = 0
        self.sessions.takeover(worker for worker, _ in leases.holders(self.applied.store))
        self._due.begin()
        self.sessions.wake()

    def lost(self, why: str = "leads no more") -> None:
        """It does not any more. What is under way is answered by consensus; the rest is here."""
        self.leading = False
        leader = self._leader_address()
        for part in self._next.clear():
            part.unknown()
        refusal = refusals.not_leader(self.name, leader).rejection
        while self._next.calls.turns:
            self._next.calls.pop().answer(refusal)
        self.sessions.dismiss(leader, f"{self.name} {why}")

    def alone(self, begin: Callable[[], None]) -> None:
        """Call this when no change is in flight. None begins from then on until `go_on_anew`."""
        self._alone = begin
        self.sessions.wake()

    def go_on_anew(self) -> None:
        """The state may be another one: forget all that was known of the one before."""
        if self.leading:
            self.lost("goes on from another state")
            self.gained()

    def clock_compared(self, skew_ms: int, *, is_sure: bool) -> None:
        """This clock was compared with those of a majority: how far it is from them, when that is
        too far to fire, and whether that is known by now."""
        self.skew_ms, self.clock_is_sure = skew_ms, is_sure

    # Calls.

    def ask(
        self, body: object, actor: str, answer: Callable[[object], None],
        unknown: Callable[[], None], tenant: str = "",
    ) -> PendingRequest:  # fmt: skip
        """Have a request decided. Raises CallRefused, or calls exactly one of the two once.

        Whoever waits no longer sets `part.withdrawn`.
        """
        if not self.leading:
            raise refusals.not_leader(self.name, self._leader_address())
        size = body.ByteSize() if isinstance(body, Message) else 0
        items = importing.items_of(body)
        self._next.calls.check_room(self.name, tenant, items, size)
        part = PendingRequest(
            body, answer, unknown, actor, tenant, items, size, asked=True, sure=True
        )
        if isinstance(body, importing.DIVIDED):
            importing.divide(part, self._go_on)
        self._next.calls.add(part)
        self.sessions.wake()
        return part

    def _go_on(self, part: PendingRequest, rest: object) -> None:
        """Some of what a call asked for is done; the rest waits behind its caller's other calls."""
        if self.leading:
            part.body = rest
            self._next.calls.add(part)
        else:
            part.unknown()

    def watch(self, seen: NodeHealth, lacking: Mapping[str, str] = MappingProxyType({})) -> None:
        """Look at the alerts, with what only this node sees, and keep in mind which zones a member
        does not know, with its name. To be called now and then."""
        self._lacking = lacking
        if self.leading:
            self._alerts.look(seen)

    def make_alerts(self) -> None:
        """Have the cluster's own alerts made, if they were not yet."""
        if self.leading:
            self._alerts.make_own()

    @property
    def is_urgent(self) -> bool:
        """A few callers wait for an answer, and nothing stands in the way of giving it. When there
        are many, a change that begins at once finds fewer of them each time."""
        are_few = self._calls_in_change <= BATCHING_THRESHOLD
        return bool(self._next.calls.turns) and not self._busy and are_few

    @property
    def is_busy(self) -> bool:
        """A change is on its way."""
        return self._busy

    @property
    def rests(self) -> bool:
        """It leads, and all that was there to do is done and known."""
        return self.leading and self.clock_is_sure and not self._busy and self._next.is_empty

    # Turns.

    def step(self) -> None:
        """Begin the next change, if there is something to do and none is in flight."""
        if not self.leading or self._busy or not self.clock_is_sure or self._pause_ms() > 0:
            return
        if self._alone is not None:
            begin, self._alone, self._busy = self._alone, None, True
            begin()
            return
        if self._waits_for_due():
            return
        began = self.seconds()
        parts = self._next.gather(self.now_ms(), fires=not self.skew_ms)
        self.steps.end("gather", began)
        if parts:
            self._busy = True
            self._decide(parts)

    def prepare(self) -> None:
        """Use the time in which a change is on its way: to be called soon after `step`, when what
        that sent has left."""
        began = self.seconds()
        self.applied.prepare()
        self.steps.end("prepare", began)
        under_way, self._under_way = self._under_way, []
        for part, reply in under_way:
            part.pre_serialize(reply)

    def next_ms(self) -> int | None:
        """When `step` is to be called at the latest, on the clock of `now_ms`."""
        if not self.leading or self._busy or not self.clock_is_sure:
            return None
        if (pause_ms := self._pause_ms()) > 0:
            return self.now_ms() + pause_ms
        lapse_ms = self.sessions.next_lapse_ms()
        if lapse_ms is not None:
            lapse_ms += self.now_ms() - self.sessions.clock_ms()
        if self.skew_ms or self._clock_stands_still:
            return lapse_ms
        if self._waits_for_due():
            return self._due.timer_ms
        return first(lapse_ms, self.next_due_ms())

    def _waits_for_due(self) -> bool:
        if self.skew_ms or self._clock_stands_still:
            return False
        return self._next.waits_for_due(self.now_ms())

    def _pause_ms(self) -> int:
        return self._again_ms - self.sessions.clock_ms()

    def next_due_ms(self) -> int | None:
        """When the state has something to do again, whatever workers and callers do."""
        return self._due.next_ms()

    def _shares(self, parts: list[PendingRequest]) -> list[Share]:
        """The time that each part has, with the others of its kind."""
        if self.new_budget is not None:
            of = {kind: Share(self.new_budget) for kind in WorkKind}.__getitem__
        else:
            of = self._next.shares(parts, self.now_ms()).of
        return [of(kind_of(part)) for part in parts]

    def _decide(self, parts: list[PendingRequest]) -> None:
        began = self.began_at = self.seconds()
        self._calls_in_change = sum(part.asked for part in parts)
        # The state's time never goes back, so a clock that is wrong must not move it.
        view = View(self.applied.store, self.now_ms() + self.skew_ms, self._recall)
        if self._lacking:
            view.lacking = self._lacking
        shares = self._shares(parts)
        requests = [
            Request(part.body, part.actor, share) for part, share in zip(parts, shares, strict=True)
        ]
        try:
            decision = decide(
                view, requests, careful=self._careful, where=self.name,
                new_budget=self.new_budget or self._whole,
            )  # fmt: skip
        except FATAL:
            raise
        except Exception as error:
            self._failed(parts, error)
            return
        # What it has left over may be what failed.
        self._careful = decision.careful and len(decision.replies) < len(parts)
        if decision.failures:
            self.troubles.add(decision.failures)
        ended = self.decided_at = self.seconds()
        parts, replies = self._next.decided(parts, decision.replies, ended - began)
        if ended - began > self.steps.long_s:
            self.steps.end("decide", began, *(part.body for part in parts))
        self.done.decide_s += ended - began
        self.done.parts += len(parts)
        self._replicate(parts, replies, view, decision, ended)

    def _whole(self) -> budget.Budget:
        return budget.until(self.seconds, self.seconds() + DECIDE_SECONDS)

    def _replicate(
        self, parts: list[PendingRequest], replies: list[object], view: View, decision: Decision,
        at: float,
    ) -> None:  # fmt: skip
        """Answer once the change is applied; or, without one, once it is sure that this node led
        when it was decided."""

        turn = self._turn = object()

        def reply(index: int | None) -> None:
            is_newest = self._turn is turn
            if is_newest:
                self._under_way = []
            self.done.commit_s += self.seconds() - at
            if index is None or (decision.change and self.applied.changed_at != index):
                for part in parts:
                    part.unknown()
            else:
                notify()
            if is_newest:
                self._next.ended(self.seconds() - self.began_at)
                # Not before: what is to be sent leaves before the next change is decided.
                self._busy = False
            # Whatever the answers set off comes into the next change.
            self.sessions.wake()

        def notify() -> None:
            began = self.seconds()
            self._recall.keep(view)
            self.sessions.notify(decision.stops)
            for part, answer in zip(parts, replies, strict=True):
                self._answer(part, answer)
            self.steps.end("answer", began)
            self._due.look()
            if any(isinstance(part.body, Grant) for part in parts):
                self._due.allowance_ms = decision.allowance_ms or None

        try:
            if decision.change:
                self.done.changes += 1
                self.done.bytes += len(decision.change)
                self.applied.expect(decision.change, decision.sealed)
                self.consensus.submit(decision.change, reply)
                self._under_way = list(zip(parts, replies, strict=True))
            elif any(part.sure for part in parts):
                self.consensus.confirm(reply)
            else:
                reply(self.applied.changed_at)
        except faults.CallRefused as refused:
            self._busy = False
            self._turned_down(parts, str(refused))

    def _turned_down(self, parts: list[PendingRequest], why: str) -> None:
        """Consensus took nothing: leadership is being handed over, or the disk is full. Callers may
        go elsewhere; what is the loop's own waits, since this node may lead on."""
        own = [part for part in parts if not part.asked]
        self._next.put_back(own)
        # At once it would be turned down again, and again.
        self._again_ms = self.sessions.clock_ms() + AGAIN_MS
        for part in parts:
            if part.asked:
                part.answer(refusals.not_now(self.name, why).rejection)
        if own:
            self.sessions.wake()

    def _failed(self, parts: list[PendingRequest], error: Exception) -> None:
        """Not even the careful way went well. Who asked is answered; what is the loop's own comes
        again by itself, since the state still wants it."""
        self._busy = False
        for part in parts:
            name = type(part.body).__name__
            self.troubles.failed(name, error)
            if part.asked:
                self._answer(part, piecewise.failed(name, error))
            else:
                part.unknown()
        self.sessions.wake()

    def _answer(self, part: PendingRequest, reply: object) -> None:
        """Whoever waits for it is answered. What fails there is its own, and keeps nobody else."""
        try:
            part.answer(reply)
        except FATAL:
            raise
        except Exception as error:
            self.troubles.failed(f"the answer to {type(part.body).__name__}", error)
