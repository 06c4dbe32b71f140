"""A job's own clock: its next scheduled time, and the one timer that wakes it."""

from __future__ import annotations

from collections.abc import Iterable

from ...proto.v1 import job_pb2, run_pb2, schedule_pb2
from ..core import limits
from ..core.field_fault import FieldFault
from ..core.rejection import Reason, Rejection
from ..model import keys, specs, timers
from ..model.entities import Job
from ..model.record import BacklogRecord, CalendarRecord, EditRecord, StateRecord
from ..model.view import View
from ..schedule import zones
from ..schedule.calendar_days import CalendarDays, read_calendar
from ..schedule.compiler import restore_plan
from ..schedule.plan import Plan, due, next_scheduled
from . import ledger

Status = job_pb2.JobStatus
Edit = schedule_pb2.OccurrenceEdit
MOVE, SKIP = Edit.KIND_MOVE, Edit.KIND_SKIP
ACTIVE = Status.STATE_ACTIVE
PAUSED = Status.STATE_PAUSED
FINISHED = Status.STATE_FINISHED
DELETING = Status.STATE_DELETING
BROKEN = Status.STATE_BROKEN
# A job that is late and left out by its calendars is looked at so soon again at the latest, as they
# may be changed.
LEFT_OUT_MS = 15 * limits.SECOND_MS


class UnreadableSchedule(Exception):
    """A job that was accepted cannot be computed here: this build has other zones, or reads
    schedules otherwise than the one that accepted it."""

    def rejection(self, job: str) -> Rejection:
        """What a read of that job answers."""
        return Rejection(
            Reason.ERROR_REASON_JOB_BROKEN,
            f"'{job}' cannot be computed by this node: {self}; bring all nodes to one build",
            {"job": job, "broken_reason": str(self)},
        )


def plan_of(view: View, job: Job) -> Plan:
    definition = job.definition
    template = definition.template
    place = (definition.schedules, template.timing, definition.schedules_since_ms)
    known = view.restored.get(place)
    if known is not None:
        return known
    try:
        shape = specs.shape(template, definition.schedules)
        plan = restore_plan(
            shape,
            seed=f"{definition.namespace}/{definition.name}",
            created_at_ms=definition.created_at_ms,
            since_ms=definition.schedules_since_ms,
            calendars=calendars_of(view, keys.namespace_of(job.jid), template.calendars),
        )
    except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
        why = f"its schedule cannot be read here: {type(error).__name__}: {error}"
        raise UnreadableSchedule(why) from error
    if not isinstance(plan, Plan):
        raise UnreadableSchedule(f"its schedule cannot be read here: {_in_words(plan[0])}")
    if shape.is_common:
        view.restored[place] = plan
    return plan


def _in_words(fault: FieldFault) -> str:
    if fault.reason == Reason.ERROR_REASON_ZONE_UNKNOWN:
        return f"zone {fault.value} is not in the time zone data {zones.edition()}"
    return fault.message


def is_readable(view: View, job: Job) -> bool:
    """Whether its schedules can be computed here."""
    try:
        plan_of(view, job)
    except UnreadableSchedule:
        return False
    return True


def calendars_of(view: View, namespace: int, names: Iterable[str]) -> dict[str, CalendarDays]:
    """The calendars that a job names and that exist."""
    found = {}
    for name in names:
        key = keys.calendar(namespace, name)
        record = view.get(key, CalendarRecord)
        if record is not None:
            found[name] = _days_of(view, key, record)
    return found


def _days_of(view: View, key: bytes, record: CalendarRecord) -> CalendarDays:
    """What a calendar says. One decision asks for it thousands of times, and may change it."""
    known = view.calendars = view.calendars or {}
    seen = known.get(key)
    if seen is not None and seen[0] is record and seen[1] == record.version:
        return seen[2]
    try:
        days = read_calendar(record.settings)
    except ValueError as error:
        raise UnreadableSchedule(f"the calendar {record.settings.name}: {error}") from error
    known[key] = (record, record.version, days)
    return days


def advance(view: View, job: Job, after_ms: int) -> None:
    """Go on from a scheduled time to the next one. The caller sets the timer."""
    state = job.state
    if state.once:
        # The plan would say the same, at ten times the price, and many of these are due at once.
        state = view.change_state(job)
        state.next_scheduled_at_ms = state.next_due_at_ms = 0
        if state.edits:
            # It was moved to later, and nothing else says that it has passed.
            state.decided_ms = after_ms
    else:
        advance_behind(view, job, after_ms)


def advance_behind(view: View, job: Job, after_ms: int, rests_after_ms: int = 0) -> None:
    """Set the next time behind an instant, which counts from the end of a run behind another one.
    The caller sets the timer."""
    state = view.change_state(job)
    state.next_scheduled_at_ms = state.next_due_at_ms = 0
    state.decided_ms = after_ms
    if not job.definition.schedules or (
        job.definition.template.max_runs and runs_left(job, after_ms + 1) <= 0
    ):
        return
    plan = plan_of(view, job)
    if plan.rests:
        scheduled_ms = next_scheduled(
            plan, after_ms, last_end_ms=last_end(view, state), is_resting=_is_resting(state),
            rests_after_ms=rests_after_ms,
        )  # fmt: skip
    else:
        scheduled_ms = next_scheduled(plan, after_ms)
    if scheduled_ms is not None and scheduled_ms <= limits.INSTANT_MAX_MS:
        state.next_scheduled_at_ms = scheduled_ms
        state.next_due_at_ms = due(plan, scheduled_ms)
        state.decided_ms = 0


def missed(state: StateRecord) -> list[BacklogRecord]:
    """What waits in the backlog after an outage."""
    return [part for part in state.backlog if part.cause == run_pb2.CAUSE_SCHEDULE]


def waiting_alone(state: StateRecord) -> list[int]:
    """What waits in the backlog by itself, as it was moved or added."""
    mine = run_pb2.CAUSE_SCHEDULE
    return [part.next_at_ms for part in state.backlog if part.due_at_ms and part.cause == mine]


def awaits(state: StateRecord, scheduled_ms: int) -> bool:
    """Whether a job is still to decide on a past scheduled time of its own."""
    if 0 < state.next_scheduled_at_ms <= scheduled_ms:
        return True
    if any(part.next_at_ms <= scheduled_ms < part.to_ms for part in missed(state)):
        return True
    return any(edit.scheduled_at_ms == scheduled_ms for edit in state.edits)


def apply_timing(view: View, job: Job) -> None:
    """Another jitter or max_runs changes no scheduled time: what lies ahead or waits stays. The
    caller reschedules."""
    state = job.state
    scheduled_ms = state.next_scheduled_at_ms
    if not scheduled_ms:
        # None was left behind what waits, or was moved to later; now there may be one.
        advance_behind(view, job, decided(state) or view.now_ms)
    elif job.definition.template.max_runs and runs_left(job, scheduled_ms) <= 0:
        _stop(view, job)
    elif state.next_due_at_ms > view.now_ms:
        view.change_state(job).next_due_at_ms = max(
            view.now_ms, due(plan_of(view, job), scheduled_ms)
        )


def decided_ahead(view: View, state: StateRecord) -> int:
    """Up to when a job had decided on its times when the state's time was set back; 0 where that
    has come again. What somebody moved to an earlier instant is none of these."""
    if state.last_scheduled_at_ms <= view.now_ms:
        return 0
    until = int.from_bytes(view.get_raw(keys.SET_BACK) or b"", "big")
    return state.last_scheduled_at_ms if until > view.now_ms else 0


def _go_on_from_end(view: View, job: Job) -> None:
    """Set the next time after the end of a run. Times that count from an end are none of those that
    were decided on ahead."""
    state = job.state
    ahead = decided_ahead(view, state)
    is_free = ahead and not _waiting(state)
    if is_free and ledger.few_ahead(view, job.jid, view.now_ms, keys.STRETCH):
        ledger.cut(view, job, plan_of(view, job), view.now_ms)
        advance_behind(view, job, view.now_ms - 1)
        return
    last_ms = state.last_scheduled_at_ms
    # What somebody had run before its time hides no other time; only rests are counted behind it.
    after_ms = last_ms if ahead else max(min(last_ms, view.now_ms), view.now_ms - 1)
    advance_behind(view, job, after_ms, last_ms)


def runs_left(job: Job, from_ms: int) -> int:
    """How many scheduled times from an instant on a job with max_runs may have. What waits in
    the backlog, or was moved from before to later, will have been fired by then."""
    state = job.state
    moved = sum(
        1 for edit in state.edits if edit.kind == Edit.KIND_MOVE and edit.scheduled_at_ms < from_ms
    )
    return job.definition.template.max_runs - state.fired - _waiting(state) - moved


def places_left(job: Job) -> int:
    """How many of what was moved or added a job with max_runs may still have, beside what
    waits and what was moved to later from a time that it has passed."""
    return runs_left(job, decided(job.state) + 1)


def stands_at(job: Job) -> int:
    """Up to when a job has decided that has no next time, since it has had all of its max_runs, or
    they wait; 0 for any other."""
    state, may_have = job.state, job.definition.template.max_runs
    is_used_up = may_have > 0 and not state.next_scheduled_at_ms and places_left(job) <= 0
    return decided(state) if is_used_up else 0


def has_place(job: Job, edit: EditRecord) -> bool:
    """Whether one that was moved or added may run: what the job has passed by keeps its place."""
    if not job.definition.template.max_runs:
        return True
    is_passed = edit.kind == MOVE and edit.scheduled_at_ms <= decided(job.state)
    return is_passed or places_left(job) > 0


def advance_if_idle(view: View, job: Job) -> None:
    """What was moved or waited became no run, so no end will set the next time of a job that goes
    on from an end, and one with max_runs has some left after all. The caller reschedules."""
    state = job.state
    if state.next_scheduled_at_ms or _waiting(state):
        return
    if state.after_end and state.live == state.held:
        if not stands_at(job):
            _go_on_from_end(view, job)
    elif state.fired < job.definition.template.max_runs:
        advance_behind(view, job, decided(state))


def used_up(view: View, job: Job) -> None:
    """One that was moved or added may be the last of all, though the schedules name more."""
    first_ms = job.state.next_scheduled_at_ms
    if first_ms and job.definition.template.max_runs and runs_left(job, first_ms) <= 0:
        _stop(view, job)


def _stop(view: View, job: Job) -> None:
    """It has no next time, though its schedules have one."""
    state = view.change_state(job)
    state.decided_ms = state.next_scheduled_at_ms - 1
    state.next_scheduled_at_ms = state.next_due_at_ms = 0


def decided(state: StateRecord) -> int:
    """Up to which instant a job has decided on the times of its schedules. What ran before its time
    may lie behind."""
    if state.next_scheduled_at_ms:
        return state.next_scheduled_at_ms - 1
    waiting = (part.to_ms - 1 for part in missed(state))
    return state.decided_ms or max((state.last_scheduled_at_ms, *waiting))


def _waiting(state: StateRecord) -> int:
    """How many missed times of the schedules are still to run."""
    return sum(part.left for part in missed(state))


def _is_resting(state: StateRecord) -> bool:
    """Whether a rest counts: not while a run is under way or missed times are still to run, from
    whose end it will."""
    return state.live <= state.held and not (state.backlog and _waiting(state))


def last_end(view: View, state: StateRecord) -> int | None:
    """From when a rest counts; None while there is none, and before the first."""
    if not _is_resting(state):
        return None
    if state.last_scheduled_at_ms > state.last_end_at_ms:
        # Nothing ran at the last scheduled time, on which was decided only now: it is not caught up
        # with in steps of the rest, which after a long outage would be very many.
        return view.now_ms
    return state.last_end_at_ms or None


def start(view: View, job: Job, plan: Plan) -> None:
    """Set a new job's first scheduled time. An instant that has passed already is due at once."""
    scheduled_ms = plan.first_ms
    if scheduled_ms is not None and scheduled_ms <= limits.INSTANT_MAX_MS:
        state = view.change_state(job)
        state.next_scheduled_at_ms = scheduled_ms
        state.next_due_at_ms = max(due(plan, scheduled_ms), view.now_ms)


def left_out_until(view: View, job: Job, due_ms: int) -> int:
    """Until when a job whose first time was due at an instant is not looked at; 0: until its next
    time. One that is late and left out by a calendar rests for twice as long as it was late, so
    thousands of them cost a leader little that had no time for them."""
    state, late_ms = job.state, view.now_ms - due_ms
    is_next = view.now_ms < state.next_due_at_ms < view.now_ms + LEFT_OUT_MS
    if not due_ms or late_ms < limits.SECOND_MS or not is_next or state.after_end:
        return 0
    plan, at_ms = plan_of(view, job), state.next_scheduled_at_ms
    ends = [
        calendar.day_end(at_ms, plan.zone)
        for _, calendar in plan.calendars
        if calendar.leaves_out(at_ms, plan.zone)
    ]
    return min(view.now_ms + min(2 * late_ms, LEFT_OUT_MS), due(plan, max(ends, default=0)))


def reschedule(view: View, job: Job, left_out_ms: int = 0) -> None:
    """Set a job's state and timer to what lies ahead of it. `left_out_ms`: until when none of its
    scheduled times may run."""
    state = job.state
    if state.state == ACTIVE:
        # Most have a next time, and are not asked.
        if (
            not state.next_scheduled_at_ms
            and not ahead(state)
            and (state.may_finish or (state.after_end and _is_used_up(view, job)))
        ):
            view.change_state(job).state = FINISHED
    elif state.state == FINISHED and ahead(state):
        view.change_state(job).state = ACTIVE
    if state.delete_after_ms is not None and over(state):
        if not state.delete_at_ms:
            view.change_state(job).delete_at_ms = view.now_ms + state.delete_after_ms
    elif state.delete_at_ms:
        view.change_state(job).delete_at_ms = 0
    at_ms = next_wake(view, state, max(state.next_due_at_ms, left_out_ms))
    if at_ms != state.timer_at_ms:
        if 0 < keys.instant(at_ms) < view.now_ms or at_ms == keys.LATER | view.now_ms:
            at_ms = _behind_due(view, state, at_ms)
        timers.set_job(view, job, at_ms)
    if state.backlog and state.state == ACTIVE:
        timers.set_backlog(view, job)


def _behind_due(view: View, state: StateRecord, at_ms: int) -> int:
    """Where the timer of a job stands that is behind its time: where it stood if that is due, else
    behind all that is due now. What is left over takes turns with what others have to do."""
    later_bit = at_ms & keys.LATER
    if later_bit < state.timer_at_ms <= later_bit | view.now_ms:
        return max(at_ms, state.timer_at_ms) if not later_bit else state.timer_at_ms
    return later_bit | view.now_ms


def _is_used_up(view: View, job: Job) -> bool:
    """Whether a job that goes on from the ends of its runs has had all that it may have: as many as
    its most, or no end of a run brings another before its end time."""
    state = job.state
    if not state.fired or job.definition.template.spec.upstream.jobs:
        return False
    if 0 < job.definition.template.max_runs <= state.fired:
        return True
    if state.live > state.held:
        return False
    after_ms = max(state.last_scheduled_at_ms, view.now_ms - 1)
    return next_scheduled(plan_of(view, job), after_ms, last_end_ms=view.now_ms) is None


def over(state: StateRecord) -> bool:
    """Whether a job may go: nothing is left to happen, and no other job depends on it."""
    return state.state == FINISHED and not state.live and not state.has_downstream


def ahead(state: StateRecord) -> bool:
    """Whether something is to come: of what was changed by hand, what is skipped is not."""
    if state.next_scheduled_at_ms or state.backlog:
        return True
    return bool(state.edits) and any(edit.kind != SKIP for edit in state.edits)


def next_wake(view: View, state: StateRecord, due_ms: int) -> int:
    """When something is to be done about a job, save for its backlog, whose next time is looked at
    at an instant; 0 for never."""
    if state.state == DELETING:
        return keys.LATER | view.now_ms
    if state.state == BROKEN:
        return 0
    purge_at_ms = state.ledger_purge_at_ms
    if state.state == PAUSED:
        return timers.earliest(state.pause_until_ms, purge_at_ms)
    if not state.edits:
        if not state.delete_at_ms and not purge_at_ms:
            return due_ms
        return _or_deletion(state, timers.earliest(due_ms, purge_at_ms))
    edited = [
        edit.moved_to_ms if edit.kind == MOVE else edit.scheduled_at_ms
        for edit in state.edits
        if edit.kind != SKIP
    ]
    return _or_deletion(state, timers.earliest(due_ms, purge_at_ms, min(edited, default=0)))


def _or_deletion(state: StateRecord, at_ms: int) -> int:
    """The earlier of an instant and the deletion of a job, which stands among what can wait: no
    firing stands behind ten thousand of them."""
    delete_at_ms = state.delete_at_ms
    is_first = delete_at_ms and (not at_ms or delete_at_ms < at_ms)
    return keys.LATER | delete_at_ms if is_first else at_ms


def edit_due(edit: EditRecord) -> int:
    """When an edited occurrence is due by itself; 0 for a skipped one, which is only left out."""
    if edit.kind == MOVE:
        return edit.moved_to_ms
    return 0 if edit.kind == SKIP else edit.scheduled_at_ms


def run_ended(view: View, job: Job) -> None:
    """A run has ended, which some schedules and backlogs wait for."""
    state = job.state
    waits = False
    if state.backlog:
        waits = not state.backlog[0].release_at_ms
        if waits:
            view.change_state(job).backlog[0].release_at_ms = view.now_ms
    is_known = state.state in (ACTIVE, PAUSED, FINISHED)
    if state.after_end and state.live == state.held and is_known:
        # A time that has come, and waits for its turn or for the job to go on, is decided first.
        # Who has had all runs decides on no more.
        if not (0 < state.next_scheduled_at_ms <= view.now_ms or stands_at(job)):
            _go_on_from_end(view, job)
    elif not waits and (state.live or state.delete_after_ms is None):
        return
    reschedule(view, job)
