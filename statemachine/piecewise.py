"""The careful way to decide: after something in a decision failed, it is taken out and tried alone.

A decision usually works on one view, in which all requests share what they read and write. When one
of them raises, is refused after it may have touched memory, or makes the change too large, nothing
of that view is kept. Those before it, which went well, are decided anew together; then that one, on
a view of its own over what they wrote (`layer.py`), so one that fails leaves nothing behind; then
those behind it, together until the next one fails. So each request is decided twice at most, and
once more if it fails. Each kind of work has the time that it has otherwise.

What somebody asked for and fails is refused. What the leader does by itself is divided: firing
timers into its timers, a report into its results. What still fails alone is set aside with its job,
and tried again, since it may go on without that job; if it still fails, with other jobs at fault up
to five times, it is given up, whatever it is.

A view says what it works on where a request is about many (`View.subject`), so it is known whose
fault a failure was. What fails behind others and not alone is done, and noted with its job ("done
alone"). What is given up: the timer or ready entry is dropped, the result refused, the lease or
alert left out. Each kind of work has its time once more behind a refusal, so refusals neither make
a change long nor keep leases out of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, cast

from ..proto.v1 import worker_pb2
from .core import limits
from .core.budget import Budget, Share
from .core.rejection import Reason, Refused, Rejection
from .core.store import Corrupt
from .firing import dispatch
from .model import keys
from .model.layer import Layer
from .model.record import Change, UnknownFormat, encode
from .model.request import (
    LEFT,
    Called,
    DropEntry,
    FireTimer,
    FireTimers,
    Grant,
    Lapse,
    Note,
    Observe,
    Observed,
    Report,
    Request,
    Resume,
    Resumed,
    SetAside,
    WorkDone,
)
from .model.view import NO_TIMER, View
from .occurrences import next_time

Rule = Callable[[View, Any, str], object]
Ack = worker_pb2.ResultAck
TRIES = 5  # Jobs that are set aside for one piece of work before it is given up.
# Where fewer than FEW went well before one that did not, so many are tried alone.
FEW, ALONE = 4, 8
SKIPPED = 64  # Leases or alerts that one request leaves out before it is given up.


# What no other order of work mends: the node must end.
FATAL = (UnknownFormat, Corrupt, OSError, MemoryError)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that failed, for the log and for `cluster status`."""

    # What it was, such as "FireTimer of the job 17".
    what: str
    error: Exception
    # What became of it: "refused", "set aside", "given up".
    fate: str
    # The job that was set aside, or 0.
    jid: int = 0


@dataclass(slots=True)
class CarefulOutcome:
    """What came of deciding carefully."""

    replies: list[object] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stops: list[tuple[str, worker_pb2.Stop]] = field(default_factory=list)
    # See View.allowance_ms.
    allowance_ms: int = 0
    change: bytes = b""
    sealed: Change | None = None


class TooLarge(Exception):
    """A piece of work alone would be a change that the log does not take."""


class Broke(Exception):
    """A piece of work failed."""

    def __init__(self, error: Exception, subject: bytes) -> None:
        super().__init__(str(error))
        self.error, self.subject = error, subject


class Full(Exception):
    """It finds no room in this change any more."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """One of some requests was refused, or failed (None), behind those with these replies."""

    replies: list[object]
    refusal: Rejection | None = None
    # What failed, where something did; without its trace, which would hold all of the view.
    broke: Broke | None = None


class Careful:
    """One decision, in pieces."""

    def __init__(
        self,
        view: View,
        rule: Callable[[View, Request], object],
        rule_all: Callable[[View, Sequence[Request]], list[object] | Stopped],
        where: str,
        is_spent: Budget,
    ) -> None:
        self.base, self.now_ms, self.is_spent = view.base, view.now_ms, is_spent
        self.layer, self.lacking = Layer(view.stored), view.lacking
        # Decides a request; and some, as far as there is room.
        self.rule, self.rule_all, self.where = rule, rule_all, where
        self.outcome = CarefulOutcome()
        # The first of the timers that this decision has set, and of those of what can wait.
        self.first_timer = self.first_later = NO_TIMER
        # So many are tried alone before others are tried together again.
        self.alone = 0
        # How many pieces have failed that were tried alone.
        self.failed_alone = 0

    def decide(self, requests: Sequence[Request], stopped: Stopped | None) -> CarefulOutcome:
        """`stopped` says how far they went well on a view that was dropped."""
        outcome, rest = self.outcome, requests
        while rest and not (outcome.replies and self._has_bytes):
            stopped = stopped or self._together(rest)
            if stopped is None:
                break
            place, failed_alone = len(stopped.replies), self.failed_alone
            try:
                self._again(rest[:place], stopped.replies, rest[place].share)
                outcome.replies.append(stopped.refusal or self._one(rest[place]))
            except Full:
                break
            if stopped.broke is not None and self.failed_alone == failed_alone:
                self._note_together(rest, place, stopped.broke)
            rest, stopped = self._leave(rest[place + 1 :]), None
            if 0 < place < FEW:
                # What the leader does by itself is large, and refused never.
                calls = takewhile(lambda request: type(request.body) not in LEADER_RULES, rest)
                self.alone = sum(1 for _ in islice(calls, ALONE))
        while outcome.replies[-1:] == [LEFT]:
            outcome.replies.pop()
        change = self.layer.seal(self.base, self.now_ms)
        if change is not None:
            outcome.change, outcome.sealed = encode(change), change
        return outcome

    def _together(self, requests: Sequence[Request]) -> Stopped | None:
        """Decide requests on one view, as far as there is room; or which of them is in the way, and
        then nothing was done."""
        if self.alone:
            self.alone -= 1
            return Stopped([])
        view = self._view()
        try:
            replies = self.rule_all(view, requests)
            if isinstance(replies, Stopped):
                return replies
            size = len(view.seal())
        except FATAL:
            raise
        except Exception as error:
            # The bytes of it cannot be made: who is at fault fails so alone as well.
            self.alone = len(requests)
            return Stopped([], broke=Broke(error.with_traceback(None), b""))
        if self.layer.size + size > limits.ENTRY_BYTES:
            # They end when their view is full, so it is the last one that is large.
            return Stopped(replies[:-1])
        self._keep(view)
        self.outcome.replies += replies
        return None

    def _again(
        self, requests: Sequence[Request], before: list[object], share: Share | None
    ) -> None:
        """Decide those that went well once more, but none of those that had no room then. Other
        kinds than the one with this share have their time once more; of that one, all is done."""
        both = list(zip(requests, before, strict=True))
        went_well = []
        for one, reply in both:
            if one.share is not None and one.share is not share:
                one.share.restart()
            if reply is not LEFT:
                is_other = one.share is not share
                went_well.append(one if is_other else Request(one.body, one.actor))
        known, self.outcome.replies = self.outcome.replies, []
        if went_well and self._together(went_well) is not None:
            for request in went_well:
                self.outcome.replies.append(self._one(request))
        replies, self.outcome.replies = deque(self.outcome.replies), known
        replies += [LEFT] * (len(went_well) - len(replies))
        for _, reply in both:
            if reply is not LEFT and not replies:
                raise Full
            known.append(reply if reply is LEFT else replies.popleft())

    def _view(self) -> View:
        """Over what this decision has written so far."""
        view = View(self.layer, self.now_ms, is_spent=self.is_spent)
        if self.lacking:
            view.lacking = self.lacking
        view.first_timer, view.first_later = self.first_timer, self.first_later
        return view

    def _keep(self, view: View) -> None:
        """What was decided on a view belongs to this decision."""
        self.layer.absorb(view)
        self.first_timer, self.first_later = view.first_timer, view.first_later
        self.outcome.stops += view.stops
        self.outcome.allowance_ms = view.allowance_ms or self.outcome.allowance_ms

    def _leave(self, rest: Sequence[Request]) -> Sequence[Request]:
        """What has had its time waits for the next change; those behind it have their own."""
        for place, request in enumerate(rest):
            if not (request.share.is_spent if request.share is not None else self.is_spent()):
                return rest[place:]
            self.outcome.replies.append(LEFT)
        return ()

    @property
    def _has_bytes(self) -> bool:
        return self.layer.size >= limits.CHANGE_BYTES

    def _is_full(self) -> bool:
        return self._has_bytes or self.is_spent()

    def _one(self, request: Request) -> object:
        own = LEADER_RULES.get(type(request.body))
        if own is not None:
            return own(self, request)
        try:
            return self._attempt(request)
        except Broke as broke:
            return self._refusal(request.body, broke)

    def _attempt(self, request: Request) -> object:
        """Decide one request on a view of its own; what it wrote is kept if it went well."""
        view = self._view()
        try:
            reply = self.rule(view, request)
            size = len(view.seal())
        except Refused as refused:
            return refused.rejection
        except FATAL:
            raise
        except Exception as error:
            self.failed_alone += 1
            raise Broke(error, view.subject) from error
        if size > limits.ENTRY_BYTES:
            why = f"it alone is a change of {size} bytes; the most is {limits.ENTRY_BYTES}"
            raise Broke(TooLarge(why), view.subject)
        if self.layer.size and self.layer.size + size > limits.ENTRY_BYTES:
            raise Full
        self._keep(view)
        return reply

    def _refusal(self, body: object, broke: Broke) -> Rejection:
        error, name = broke.error, type(body).__name__
        if isinstance(error, next_time.UnreadableSchedule):
            job = str(getattr(body, "job", ""))
            return Rejection(
                Reason.ERROR_REASON_JOB_BROKEN,
                f"'{job}' cannot be computed: {error}; mend that, or change its schedules",
                {"job": job, "broken_reason": str(error)},
            )
        if isinstance(error, TooLarge):
            return Rejection(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"{name} was not done: {error}. Do it in smaller pieces",
                {"limit": "change_bytes", "maximum": str(limits.ENTRY_BYTES)},
            )
        self._note(name, broke, "refused")
        return failed(name, error)

    # What the leader does by itself.

    def _own(self, request: Request, jid: int = 0) -> object:
        """Do a piece; each time it fails, the job that it failed at is set aside."""
        for _ in range(TRIES):
            try:
                return self._attempt(request)
            except Broke as broke:
                blamed = self._jid_of(broke.subject) or jid
                if not (blamed and self._set_aside(blamed, request.body, broke)):
                    raise
        raise Broke(RuntimeError(f"it failed {TRIES} times"), b"")

    def _set_aside(self, jid: int, body: object, broke: Broke) -> bool:
        try:
            done = bool(self._attempt(Request(SetAside(jid, self._reason(body, broke.error)))))
        except Broke as worse:
            self._note(f"setting aside the job {jid}", worse, "given up")
            return False
        if done:
            self._note(_name(body), broke, "set aside", jid)
        return done

    def _reason(self, body: object, error: Exception) -> str:
        where = f" of {self.where}" if self.where else ""
        if isinstance(error, next_time.UnreadableSchedule):
            return f"{error}{where}"
        return (
            f"{_name(body)} failed{where and f' on {self.where}'}: {type(error).__name__}: {error}"
        )

    def _note(self, what: str, broke: Broke, fate: str, jid: int = 0) -> None:
        self.outcome.failures.append(Failure(what, broke.error, fate, jid))

    def _note_together(self, requests: Sequence[Request], place: int, broke: Broke) -> None:
        """It failed among others and did not fail alone: what they have written is in its way, or
        what was left in memory, or the bytes of all cannot be made."""
        body = requests[place].body
        about = getattr(body, "job", "")
        name = getattr(about, "name", about)
        what = f"{type(body).__name__}{name and f' of {name}'}"
        what += f", {place} before and {len(requests) - place - 1} behind it in one change,"
        self._note(what, broke, "done alone", self._jid_of(broke.subject))

    def _jid_of(self, key: bytes) -> int:
        """The job that a key is about; 0 for none."""
        table = key[:1]
        if table == keys.LEASE:
            value = self.layer.get(key)
            return keys.run_of(value)[0] if value is not None else 0
        if table in (keys.READY, keys.RUN):
            return keys.run_of(key)[0]
        if table in (keys.JOB, keys.STATE):
            return int.from_bytes(key[1:9], "big")
        if table == keys.TIMER and key[9:10] != keys.WAKE_DELETION:
            return int.from_bytes(key[10:18], "big")
        return 0

    def _fire_timers(self, request: Request) -> WorkDone:
        asked = cast(FireTimers, request.body)
        due, more, _ = dispatch.due_now(self._view(), asked.most, later=asked.later)
        for done, key in enumerate(due):
            if done and self._is_full():
                return WorkDone(done, more=True)
            try:
                self._own(Request(FireTimer(key)), self._jid_of(key))
            except Full:
                return WorkDone(done, more=True)
            except Broke as broke:
                self._note(f"the timer {key!r}", broke, "given up")
                self._attempt(Request(DropEntry(key)))
        return WorkDone(len(due), more)

    def _words(
        self, request: Request, words: Sequence[Any], one: Callable[[Any], object]
    ) -> list[Ack]:
        """Judge each word of a worker alone."""
        acks: list[Ack] = []
        for word in words:
            if acks and self._is_full():
                break
            place = keys.run_key(word.run)
            try:
                reply = self._own(Request(one(word)), place[0] if place else 0)
            except Full:
                if not acks:
                    raise
                break
            except Broke as broke:
                self._note(f"what a worker reported of the run {word.run}", broke, "given up")
                refusal = failed(type(request.body).__name__, broke.error)
                acks.append(Ack(token=word.token, reason=refusal.word, message=refusal.message))
                continue
            acks += cast("list[Ack]", reply)
        return acks

    def _report(self, request: Request) -> list[Ack]:
        body = cast(Report, request.body)
        return self._words(request, body.results, lambda one: Report(body.worker, (one,)))

    def _note_words(self, request: Request) -> list[Ack]:
        body = cast(Note, request.body)
        return self._words(request, body.reports, lambda one: Note(body.worker, (one,)))

    def _but(self, request: Request, given_up: object) -> object:
        """Do a request that is about many without those at which it fails."""
        body = cast(Any, request.body)
        for _ in range(SKIPPED):
            try:
                return self._own(Request(body))
            except Broke as broke:
                if not broke.subject or broke.subject in body.but:
                    self._note(_name(body), broke, "given up")
                    return given_up
                self._note(f"{_name(body)} at {broke.subject!r}", broke, "left out")
                body = replace(body, but=body.but | {broke.subject})
        return given_up

    def _grant(self, request: Request) -> object:
        for _ in range(SKIPPED):
            try:
                return self._own(request)
            except Broke as broke:
                self._note("granting leases", broke, "given up")
                if broke.subject[:1] != keys.READY:
                    break
                self._attempt(Request(DropEntry(broke.subject)))
        return [[] for _ in cast(Grant, request.body).offers]

    def _called(self, request: Request) -> object:
        try:
            return self._attempt(request)
        except Broke as broke:
            self._note("noting that a webhook was called", broke, "given up")
            return None


def _name(body: object) -> str:
    return {"FireTimer": "firing", "Report": "taking its result", "Grant": "leasing its run"}.get(
        type(body).__name__, type(body).__name__.lower()
    )


def failed(name: str, error: Exception) -> Rejection:
    """The answer to whoever asked."""
    return Rejection(
        Reason.ERROR_REASON_RULE_FAILED,
        f"deciding {name} failed: {type(error).__name__}: {str(error)[:200]}; nothing was done. "
        "It is a defect, and the log of the leader has it in full",
        {"request": name},
    )


LeaderRule = Callable[[Careful, Any], object]
LEADER_RULES: dict[type, LeaderRule] = {
    FireTimers: Careful._fire_timers,
    Report: Careful._report,
    Note: Careful._note_words,
    Lapse: lambda careful, request: careful._but(request, WorkDone(0, more=False)),
    Resume: lambda careful, request: careful._but(request, Resumed((), None)),
    Observe: lambda careful, request: careful._but(request, Observed(b"")),
    Grant: Careful._grant,
    Called: Careful._called,
}
__all__ = ["FATAL", "Broke", "Careful", "CarefulOutcome", "Failure", "Stopped", "failed"]
