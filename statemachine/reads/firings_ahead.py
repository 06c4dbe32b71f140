"""What a namespace has due in the time to come, counted by minute and by second.

Of a namespace with few jobs each is looked at. Of many only those are that have a timer within that
time, in the order of their timers, so what nobody fires soon costs nothing. No job is due before
its timer stands, so all that lies before the timer that is looked at is counted for good: a count
that has not ended yet, or that was too much, says up to when it is whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ..core import limits
from ..core.budget import Budget, unlimited
from ..model import keys
from ..model.entities import job_with
from ..model.record import JobRecord, StateRecord, UsageRecord, parse
from ..model.view import View
from ..occurrences import next_time, upcoming
from ..schedule.plan import due, excluded, scheduled_times

# Of a namespace with no more jobs each is looked at.
FEW_JOBS = 2_000
# Firings that one count looks at, so that many jobs of each second cost no more than this.
FIRINGS_MAX = 1_000_000
# Timers that one count looks at: those of runs and of other namespaces are among them.
TIMERS_MAX = 4_000_000
# Jobs that are read at a time, and timers between two looks at the budget.
TOGETHER = 64
# Schedules that are kept while it is counted: many jobs have the same.
PLANS_MAX = 5_000


class FiringsAhead:
    """See the head of this file. One thread counts, and others may look meanwhile."""

    def __init__(self, number: int, now_ms: int, end_ms: int) -> None:
        """Of the namespace with this number, up to an instant. Nothing is counted yet."""
        self.number, self.now_ms, self.end_ms = number, now_ms, end_ms
        self.first_ms = now_ms // limits.MINUTE_MS * limits.MINUTE_MS
        minutes = -(-(end_ms - self.first_ms) // limits.MINUTE_MS)
        self._firings = array("Q", [0]) * minutes
        self._peaks = array("Q", [0]) * minutes
        self._seconds = array("Q", [0]) * (60 * minutes)
        # Before this instant all are counted; it reaches the end unless there was too much.
        self.whole_ms = now_ms
        self._left = FIRINGS_MAX
        self._may_be_excluded = True

    @property
    def is_whole(self) -> bool:
        return self.whole_ms >= self.end_ms

    def minutes(self, from_ms: int, to_ms: int) -> Iterator[tuple[int, int, int]]:
        """Of each minute from one instant to another when it begins, how much is due in it, and how
        much at most within a second."""
        first = max(0, (from_ms - self.first_ms) // limits.MINUTE_MS)
        for at in range(first, len(self._firings)):
            begin_ms = self.first_ms + at * limits.MINUTE_MS
            if begin_ms >= to_ms:
                return
            yield begin_ms, self._firings[at], self._peaks[at]

    def count(self, view: View, is_spent: Budget = unlimited) -> None:
        """Count all of them, or as many as the budget lets."""
        usage = view.get(keys.usage(self.number), UsageRecord)
        few = usage is None or usage.jobs <= FEW_JOBS
        calendars = keys.in_namespace(keys.CALENDAR, self.number)
        self._may_be_excluded = any(view.stored.scan(calendars, keys.after(calendars)))
        for from_ms, jids in self._each(view) if few else self._by_timer(view):
            self.whole_ms = max(self.whole_ms, min(from_ms, self.end_ms))
            for jid, state in self._active(view, jids):
                self._add(view, jid, state)
                if self._left < 0:
                    return
            if is_spent():
                return
            if len(view.restored) > PLANS_MAX:
                view.restored.clear()
        if self._left >= 0:
            self.whole_ms = self.end_ms

    def _each(self, view: View) -> Iterator[tuple[int, list[int]]]:
        """All jobs, some at a time; when they are due is not known before."""
        prefix, jids = keys.in_namespace(keys.NAME, self.number), list[int]()
        for _, value in view.stored.scan(prefix, keys.after(prefix)):
            jids.append(int.from_bytes(value, "big"))
            if len(jids) == TOGETHER:
                yield 0, jids
                jids = []
        yield 0, jids

    def _by_timer(self, view: View) -> Iterator[tuple[int, list[int]]]:
        """Jobs in the order of their timers, some at a time, each time with an instant before which
        none of them is due."""
        # The timer of one that is late and left out by a calendar stands a little behind its time.
        end = keys.timers_from(self.end_ms + next_time.LEFT_OUT_MS)
        from_ms, jids = 0, list[int]()
        timers = view.stored.scan(view.meta.timers_from or keys.TIMER, end)
        for looked, (key, _) in enumerate(timers, 1):
            if key[9:10] == keys.WAKE_JOB:
                jid = int.from_bytes(key[10:18], "big")
                if keys.namespace_of(jid) == self.number:
                    jids.append(jid)
            if looked % TOGETHER == 0:
                yield from_ms, jids
                from_ms, jids = keys.timer_at(key) - next_time.LEFT_OUT_MS, []
                if looked >= TIMERS_MAX:
                    self._left = -1
                    return
        yield from_ms, jids

    def _active(self, view: View, jids: list[int]) -> Iterator[tuple[int, StateRecord]]:
        found = view.stored.get_many([keys.state(jid) for jid in jids])
        for jid, value in zip(jids, found, strict=True):
            if value is not None:
                state = parse(keys.state(jid), value, StateRecord)
                if state.state == next_time.ACTIVE:
                    yield jid, state

    def _add(self, view: View, jid: int, state: StateRecord) -> None:
        try:
            dues = self._dues(view, jid, state)
        except next_time.UnreadableSchedule:
            # When it is due nobody can say here; its status says so.
            return
        for due_ms in dues:
            self._left -= 1
            if self._left < 0:
                return
            # What is overdue fires now.
            second = (max(due_ms, self.now_ms) - self.first_ms) // limits.SECOND_MS
            minute = second // 60
            self._seconds[second] = together = self._seconds[second] + 1
            self._firings[minute] += 1
            if together > self._peaks[minute]:
                self._peaks[minute] = together

    def _dues(self, view: View, jid: int, state: StateRecord) -> list[int]:
        """When a job will be due, as far as can be known, before the end."""
        end_ms, edits = self.end_ms, state.edits
        dues = [at for at in (next_time.edit_due(edit) for edit in edits) if 0 < at < end_ms]
        if not 0 < state.next_due_at_ms < end_ms:
            return dues
        if state.once and not edits and not self._may_be_excluded:
            # Its schedule would say the same, at ten times the price.
            return [state.next_due_at_ms]
        key = keys.job(jid)
        value = view.stored.get(key)
        assert value is not None, f"the state of job {jid} is there, but not the job"
        job = job_with(jid, parse(key, value, JobRecord), state)
        plan = next_time.plan_of(view, job)
        if plan.rests and not plan.repeats and not plan.onces:
            # What comes behind the next one follows from an end that nobody knows.
            return [*dues, state.next_due_at_ms]
        shift_ms, most = due(plan, 0), self._left + 1
        if most_runs := job.definition.template.max_runs:
            most = min(most, max(0, most_runs - state.fired))
        times = scheduled_times(plan, state.next_scheduled_at_ms, end_ms - shift_ms, most).times
        apart = {edit.scheduled_at_ms for edit in edits} | upcoming.ran_before(view, job)
        dues += [at + shift_ms for at in times if at not in apart and excluded(plan, at) is None]
        return dues
