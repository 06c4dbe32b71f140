"""The leader's loop: it gathers what is to be done, decides it as one change, and answers.

    gather (words, lapses, due timers, calls, offers) -> decide -> replicate -> answer -> gather

One change is in flight at a time; what arrives meanwhile goes into the next one. So a busy
leader makes few large changes, an idle one makes small ones at once, and neither needs a timer for
it. There is no clock, task or socket in here: its owner calls `step` when something has happened,
and again at `next_ms`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Protocol

from google.protobuf.message import Message

from ...proto.v1 import job_pb2
from ...statemachine import piecewise
from ...statemachine.core import budget
from ...statemachine.core.budget import Share
from ...statemachine.core.limits import CHANGE_ITEMS
from ...statemachine.machine import Decision, Request, decide
from ...statemachine.model import keys, timers
from ...statemachine.model.request import (
    LEFT,
    FireTimers,
    Grant,
    MakeAlerts,
    Observe,
    Observed,
    WorkDone,
)
from ...statemachine.model.view import Recall, View
from ...statemachine.piecewise import FATAL
from ...statemachine.runs import leases
from ...statemachine.tenants import own_alerts
from ..raft import faults
from ..raft.port import Reply
from . import importing, refusals
from .applier import Applied
from .loop_steps import LoopSteps
from .pending import PendingRequest
from .time_shares import OTHERS, Haste, TimeShares, WorkKind, kind_of
from .troubles import Troubles
from .worker_sessions import Sessions

logger = logging.getLogger(__name__)

ALERTS = 100  # Looked at in a change.
CALLS_ITEMS = 3_000  # Jobs in calls that go into a change; creating one costs a third of a run.
CALLS_SIZE = 1 << 20  # Bytes of calls that go into a change: what they write may be more.
# What is decided carefully asks for the end of its time between two pieces of work, of which the
# longest takes some 10 ms more.
DECIDE_SECONDS = 0.030
# What is due so soon is not to wait for a change that is filled with other work: the longest, and
# agreeing on it.
NEAR_MS = 45
# What is due waits for no more than that in its own change.
QUICK_S = 0.003
# Where changes last so long, up to so long, the last one before somebody is due waits for him.
WAIT_LEAST_MS = 3
WAIT_S = 0.020
AGAIN_MS = 5  # After which a change that consensus did not take is tried again.
BATCHING_THRESHOLD = 4  # Calls in a change above which there are many.
WAITING_ITEMS = 100_000  # Jobs and other things asked for that wait for a change.
WAITING_BYTES = 64 << 20


class Consensus(Protocol):
    """What the loop needs of it. Both may raise faults.Refused."""

    def submit(self, data: bytes, reply: Reply) -> None: ...

    def confirm(self, reply: Reply) -> None: ...


@dataclass(slots=True)
class LoopTotals:
    """Figures, counted from the start of the process."""

    changes: int = 0
    bytes: int = 0
    parts: int = 0
    decide_s: float = 0.0
    # From the proposal to the answer.
    commit_s: float = 0.0


@dataclass(slots=True)
class CallQueue:
    """Calls that wait for a change, first come first served."""

    line: deque[PendingRequest] = field(default_factory=deque)
    items: int = 0
    bytes: int = 0

    def add(self, part: PendingRequest) -> None:
        self.line.append(part)
        self.items += part.items
        self.bytes += part.size

    def add_first(self, part: PendingRequest) -> None:
        self.line.appendleft(part)
        self.items += part.items
        self.bytes += part.size

    def pop(self) -> PendingRequest:
        part = self.line.popleft()
        self.items -= part.items
        self.bytes -= part.size
        return part


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """What only the node of the leader sees, for alerts."""

    # A node of the cluster can be lost.
    margin: bool = True
    # By how much the clock of a node is off at most.
    skew_ms: int = 0
    # Elections of late.
    leader_changes: int = 0
    # Members differ in what they compute with.
    differ: bool = False


class Leader:
    """Decides while this node leads."""

    def __init__(
        self,
        name: str,
        applied: Applied,
        consensus: Consensus,
        sessions: Sessions,
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
        new_budget: Callable[[], budget.Budget] | None = None,
        steps: LoopSteps | None = None,
        troubles: Troubles | None = None,
        leader_address: Callable[[], str] = str,
        *,
        clock_is_sure: bool = True,
        clock_stands_still: bool = False,
    ) -> None:
        """`leader_address`: where clients find the leader, as far as this node knows. A clock that
        stands still goes on only when somebody moves it, who then calls `step`."""
        self.steps = steps or LoopSteps(name, now_ms, seconds)
        # Zones that a member does not know, with its name.
        self._lacking: Mapping[str, str] = {}
        # How long one kind of work in a decision may take; None: as the clock says (shares.py).
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
        self._waiting = CallQueue()
        # Parts that the last change had no room for: they come first of their kind.
        self._carried: deque[PendingRequest] = deque()
        # Something failed in the last decision, so what it left behind is decided carefully too.
        self._careful = False
        # What failed while this node led.
        self.troubles = troubles or Troubles(name, now_ms, seconds)
        # The cluster's own alerts, if they are to be made.
        self._made: PendingRequest | None = None
        # What comes next of looking at the alerts.
        self._look: PendingRequest | None = None
        self._looking = False
        # What an earlier term left in flight may be answered later than this.
        self._turn = object()
        self._busy = False
        self._recall = Recall()
        # What is on its way, and will be answered so.
        self._under_way: list[tuple[PendingRequest, object]] = []
        # When the last change was begun, on the clock of `seconds`.
        self.began_at = float("-inf")
        # The last one was without what others ask for, to be quick; or it held some of that. How
        # long the last one of these took to decide, and to its end.
        self._goes_ahead = False
        self._others_s = self._lasts_s = 0.0
        self._held_others = False
        # How many calls went into it.
        self._calls_in_change = 0
        self._next_timer_ms: int | None = None
        # Of what falls due behind what is left over from a herd.
        self._next_other_ms: int | None = None
        # Where these begin; b"": nothing is left over.
        self._fresh_from = b""
        self._next_later_ms: int | None = None
        self._next_allowance_ms: int | None = None
        # Before this nothing is begun, on the clock of the sessions.
        self._again_ms = 0

    # Leadership.

    def gained(self) -> None:
        """This node leads, and has applied what was committed before."""
        self.leading = True
        self._busy = False
        self._carried.clear()
        self._under_way = []
        self._look, self._looking, self._made = None, False, None
        self._recall = Recall()
        self._fresh_from, self._again_ms = b"", 0
        self.sessions.takeover(worker for worker, _ in leases.holders(self.applied.store))
        self._look_for_timers()
        self._next_allowance_ms = None
        self.sessions.wake()

    def lost(self) -> None:
        """It does not any more. What is under way is answered by consensus; the rest is here."""
        self.leading = False
        leader = self._leader_address()
        carried, self._carried = self._carried, deque()
        for part in carried:
            part.unknown()
        refusal = refusals.not_leader(self.name, leader).rejection
        while self._waiting.line:
            self._waiting.pop().answer(refusal)
        self.sessions.dismiss(leader, f"{self.name} leads no more")

    def clock_compared(self, skew_ms: int, *, is_sure: bool) -> None:
        """This clock was compared with those of a majority: how far it is from them, when that is
        too far to fire, and whether that is known by now."""
        self.skew_ms, self.clock_is_sure = skew_ms, is_sure

    # Calls.

    def ask(
        self,
        body: object,
        actor: str,
        answer: Callable[[object], None],
        unknown: Callable[[], None],
    ) -> PendingRequest:
        """Have a request decided. Exactly one of the two is called, once; or this raises Refused.

        Whoever waits no longer sets `part.withdrawn`.
        """
        if not self.leading:
            raise refusals.not_leader(self.name, self._leader_address())
        size = body.ByteSize() if isinstance(body, Message) else 0
        items = len(body.jobs) if isinstance(body, job_pb2.ImportJobsRequest) else 1
        waiting = self._waiting
        if waiting.items + items > WAITING_ITEMS or waiting.bytes + size > WAITING_BYTES:
            raise refusals.backlog_full(
                f"{waiting.items} requests of {waiting.bytes} bytes wait for {self.name} already"
            )
        part = PendingRequest(body, answer, unknown, actor, items, size, asked=True, sure=True)
        if isinstance(body, importing.DIVIDED):
            importing.divide(part, self._go_on)
        waiting.add(part)
        self.sessions.wake()
        return part

    def _go_on(self, part: PendingRequest, rest: object) -> None:
        """Some of what a call asked for is done; the rest comes first in the next change."""
        if self.leading:
            part.body = rest
            self._waiting.add_first(part)
        else:
            part.unknown()

    def watch(self, seen: NodeHealth, lacking: Mapping[str, str] = MappingProxyType({})) -> None:
        """Look at the alerts, with what only this node sees, and keep in mind which zones a member
        does not know, with its name. To be called now and then."""
        self._lacking = lacking
        first = next(self.applied.store.scan(keys.ALERT, keys.after(keys.ALERT)), None)
        if self.leading and not self._looking and first is not None:
            self._looking = True
            self._look_at(b"", seen)

    def _look_at(self, after: bytes, seen: NodeHealth) -> None:
        def answer(observed: object) -> None:
            if isinstance(observed, Observed) and observed.after:
                self._look_at(observed.after, seen)
            else:
                self._looking = False

        body = Observe(
            self.sessions.workers(), seen.margin, seen.skew_ms, ALERTS, after,
            step_ms=self.steps.recent_ms(), leader_changes=seen.leader_changes,
            set_aside=self.troubles.recent(), differ=seen.differ,
        )  # fmt: skip
        self._look = PendingRequest(body, answer, _nobody, items=ALERTS)
        self.sessions.wake()

    def make_alerts(self) -> None:
        """Have the cluster's own alerts made, if they were not yet."""
        if self.leading and own_alerts.wanted(self.applied.meta.alerts_made):
            self._made = PendingRequest(MakeAlerts(), _nothing, _nobody)
            self.sessions.wake()

    @property
    def is_urgent(self) -> bool:
        """A few callers wait for an answer, and nothing stands in the way of giving it. When there
        are many, a change that begins at once finds fewer of them each time."""
        return (
            bool(self._waiting.line)
            and not self._busy
            and self._calls_in_change <= BATCHING_THRESHOLD
        )

    @property
    def is_busy(self) -> bool:
        """A change is on its way."""
        return self._busy

    @property
    def rests(self) -> bool:
        """It leads, and all that was there to do is done and known."""
        under_way = self._busy or self._carried or self._waiting.line or self._look is not None
        return self.leading and self.clock_is_sure and not under_way

    # Turns.

    def step(self) -> None:
        """Begin the next change, if there is something to do and none is in flight."""
        if not self.leading or self._busy or not self.clock_is_sure or self._pause_ms() > 0:
            return
        if self._waits_for_due():
            return
        began = self.seconds()
        parts = self._gather()
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
            return self._next_timer_ms
        return _first(lapse_ms, self.next_due_ms())

    def _waits_for_due(self) -> bool:
        """Whether a change that begins now would be on its way still when somebody is due, who
        would wait for it. So the next one waits for him, unless the last one did."""
        due_ms, lasts_ms = self._next_timer_ms, int(1000 * min(self._lasts_s, WAIT_S))
        if due_ms is None or not self._held_others or lasts_ms < WAIT_LEAST_MS:
            return False
        if self.skew_ms or self._clock_stands_still:
            return False
        return 0 < due_ms - self.now_ms() <= lasts_ms

    def _pause_ms(self) -> int:
        return self._again_ms - self.sessions.clock_ms()

    def next_due_ms(self) -> int | None:
        """When the state has something to do again, whatever workers and callers do."""
        return _first(self._next_timer_ms, self._next_later_ms, self._next_allowance_ms)

    def _look_for_timers(self) -> None:
        store, meta = self.applied.store, self.applied.meta
        first_ms = self._next_timer_ms = self._next_other_ms = timers.next_due_ms(store, meta)
        if first_ms is not None and first_ms <= meta.now_ms:
            self._next_other_ms = timers.next_due_ms(store, meta, self._fresh_from)
        self._next_later_ms = timers.next_later_ms(store, meta)

    def _gather(self) -> list[PendingRequest]:
        """Completions first, since they free capacity; each kind is bounded, so none starves."""
        carried, self._carried = list(self._carried), deque()
        parts = [part for part in carried if kind_of(part) is WorkKind.WORDS]
        grant = next((part for part in carried if kind_of(part) is WorkKind.GRANT), None)
        if not parts:
            parts = self.sessions.words(CHANGE_ITEMS) + self.sessions.lapses(10)
        now_ms = -1 if self.skew_ms else self.now_ms()
        if self._next_timer_ms is not None and self._next_timer_ms <= now_ms:
            parts.append(self._ring())
        parts += self._gather_others([part for part in carried if kind_of(part) in OTHERS], now_ms)
        if self.skew_ms:
            return parts if grant is None else [*parts, grant]
        allowed = self._next_allowance_ms is not None and self._next_allowance_ms <= now_ms
        if grant is None and (parts or allowed or self.sessions.fresh):
            grant = self.sessions.grant(CHANGE_ITEMS, anew=bool(parts) or allowed)
            if grant is None and allowed:
                # Nobody would take what it allows; whoever comes asks anew.
                self._next_allowance_ms = None
        return parts if grant is None else [*parts, grant]

    def _gather_others(self, carried: list[PendingRequest], now_ms: int) -> list[PendingRequest]:
        """What neither frees what others wait for nor is due. If it lasts long, somebody who is due
        now goes ahead of it, in a change without it; the next one has it again."""
        other_ms, went_ahead = self._next_other_ms, self._goes_ahead
        is_due = other_ms is not None and other_ms <= now_ms
        self._goes_ahead = is_due and not went_ahead and self._others_s > QUICK_S
        if self._goes_ahead:
            self._carried.extend(carried)
            return []
        hellos = [part for part in carried if kind_of(part) is WorkKind.HELLOS]
        parts = hellos or self.sessions.hellos(CHANGE_ITEMS)
        parts += self._calls()
        if self._next_later_ms is not None and self._next_later_ms <= now_ms:
            parts.append(
                PendingRequest(
                    FireTimers(CHANGE_ITEMS, True), _nothing, _nobody, items=CHANGE_ITEMS
                )
            )
        parts += [part for part in carried if kind_of(part) is WorkKind.LATER]
        return parts + self._looks()

    def _ring(self) -> PendingRequest:
        """What is due goes on where the last one ended."""

        def answer(rung: object) -> None:
            self._fresh_from = rung.fresh_from if isinstance(rung, WorkDone) else b""

        body = FireTimers(CHANGE_ITEMS, later=False, fresh_from=self._fresh_from)
        return PendingRequest(body, answer, _nobody, items=CHANGE_ITEMS)

    def _looks(self) -> list[PendingRequest]:
        """The cluster's own work with alerts."""
        parts = [part for part in (self._look, self._made) if part is not None]
        self._look = self._made = None
        return parts

    def _shares(self, parts: list[PendingRequest]) -> list[Share | None]:
        """The time that each part has, with the others of its kind."""
        if self.new_budget is not None:
            of = {kind: Share(self.new_budget) for kind in WorkKind}.__getitem__
        else:
            other_ms = self._next_other_ms
            left_s = inf if other_ms is None else (other_ms - self.now_ms()) / 1000
            of = TimeShares(self.seconds, self._haste(parts), left_s).of
        return [of(kind_of(part)) for part in parts]

    def _haste(self, parts: list[PendingRequest]) -> Haste:
        near_ms = self.now_ms() + NEAR_MS
        if self._next_other_ms is not None and self._next_other_ms <= near_ms:
            return Haste.OTHERS
        is_due = self._next_timer_ms is not None and self._next_timer_ms <= near_ms
        if is_due or any(kind_of(part) is WorkKind.WORDS for part in parts):
            return Haste.HERD
        return Haste.NOBODY

    def _calls(self) -> list[PendingRequest]:
        parts: list[PendingRequest] = []
        items = size = 0
        line = self._waiting.line
        while line and items < CALLS_ITEMS and (not parts or size + line[0].size <= CALLS_SIZE):
            part = self._waiting.pop()
            if not part.withdrawn:
                parts.append(part)
                items += part.items
                size += part.size
        return parts

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
        parts, replies = self._keep_left(parts, decision.replies)
        ended = self.seconds()
        self._held_others = any(kind_of(part) in OTHERS for part in parts)
        if self._held_others:
            self._others_s = ended - began
        if ended - began > self.steps.long_s:
            self.steps.end("decide", began, *(part.body for part in parts))
        self.done.decide_s += ended - began
        self.done.parts += len(parts)
        self._replicate(parts, replies, view, decision, ended)

    def _whole(self) -> budget.Budget:
        return budget.until(self.seconds, self.seconds() + DECIDE_SECONDS)

    def _keep_left(
        self, parts: list[PendingRequest], replies: list[object]
    ) -> tuple[list[PendingRequest], list[object]]:
        """Those that were decided, with their replies. The others come first in the next change,
        each among its kind; timers are found in the state."""
        if len(replies) == len(parts) and all(reply is not LEFT for reply in replies):
            return parts, replies
        replies = replies + [LEFT] * (len(parts) - len(replies))
        both = list(zip(parts, replies, strict=True))
        for part, reply in reversed(both):
            if reply is not LEFT or isinstance(part.body, FireTimers):
                continue
            if part.asked:
                self._waiting.add_first(part)
            else:
                self._carried.appendleft(part)
        both = [(part, reply) for part, reply in both if reply is not LEFT]
        return [part for part, _ in both], [reply for _, reply in both]

    def _replicate(
        self,
        parts: list[PendingRequest],
        replies: list[object],
        view: View,
        decision: Decision,
        at: float,
    ) -> None:
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
                tell()
            if is_newest:
                if self._held_others:
                    self._lasts_s = self.seconds() - self.began_at
                # Not before: what was said leaves before the next change is decided.
                self._busy = False
            # Whatever the answers set off comes into the next change.
            self.sessions.wake()

        def tell() -> None:
            began = self.seconds()
            self._recall.keep(view)
            self.sessions.tell(decision.stops)
            for part, answer in zip(parts, replies, strict=True):
                self._answer(part, answer)
            self.steps.end("answer", began)
            self._look_for_timers()
            if any(isinstance(part.body, Grant) for part in parts):
                self._next_allowance_ms = decision.allowance_ms or None

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
        except faults.Refused as refused:
            self._busy = False
            self._turned_down(parts, str(refused))

    def _turned_down(self, parts: list[PendingRequest], why: str) -> None:
        """Consensus took nothing: leadership is being handed over, or the disk is full. Callers may
        go elsewhere; what is the loop's own waits, since this node may lead on."""
        own = [part for part in parts if not part.asked]
        self._carried.extendleft(reversed(own))
        # At once it would be turned down again, and again.
        self._again_ms = self.sessions.clock_ms() + AGAIN_MS
        for part in parts:
            if part.asked:
                part.answer(refusals.not_now(self.name, why).rejection)
        if own:
            self.sessions.wake()

    def _failed(self, parts: list[PendingRequest], error: Exception) -> None:
        """Not even the careful way went well. Whoever asked is told; what is the loop's own comes
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
        """Whoever waits for it is told. What fails there is its own, and keeps nobody else."""
        try:
            part.answer(reply)
        except FATAL:
            raise
        except Exception as error:
            self.troubles.failed(f"the answer to {type(part.body).__name__}", error)


def _first(*instants_ms: int | None) -> int | None:
    return min((ms for ms in instants_ms if ms is not None), default=None)


def _nothing(_: object) -> None:
    """The loop looks at the state for what comes next."""


def _nobody() -> None:
    """The next leader finds the same timers."""
