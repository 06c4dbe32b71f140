"""What happens when a job's turn comes while runs of it are under way."""

from __future__ import annotations

from enum import Enum
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2
from ..core import limits
from ..model import keys
from ..model.entities import Job, Run
from ..model.phases import SKIPPED, WAITING
from ..model.record import JobRecord, RoomRecord, RunRecord
from ..model.view import View
from ..occurrences import ledger
from . import runs

Policy = job_pb2.OverlapPolicy


class Verdict(Enum):
    """What the overlap policy says to one more run."""

    GO = "go"
    HOLD = "hold"
    HOLD_NEWEST = "hold the newest"
    REPLACE = "replace"
    SKIP = "skip"


GO, HOLD, HOLD_NEWEST, REPLACE, SKIP = Verdict


def judge(view: View, job: Job) -> Verdict:
    """Runs that are held do not stand in the way of others."""
    state = job.state
    under_way = state.live - state.held
    if not under_way and not (state.held and waits_for_room(view, job)):
        return GO
    policy = job.definition.template.spec.overlap
    rule = policy.rule
    if rule == Policy.RULE_QUEUE_ONE:
        return HOLD_NEWEST
    if rule == Policy.RULE_QUEUE:
        return SKIP if state.held - state.later >= (policy.limit or 1) else HOLD
    if rule == Policy.RULE_REPLACE:
        return REPLACE
    return GO if runs.is_room(job) else SKIP


def judge_wanted(view: View, job: Job) -> Verdict:
    """What somebody asked for, or a wave brings, is not skipped: it waits."""
    verdict = judge(view, job)
    return HOLD if verdict is SKIP else verdict


def room(job: Job) -> int | None:
    """How many more runs may begin now, or be held back. None: as many as come."""
    policy, state = job.definition.template.spec.overlap, job.state
    limit, rule = policy.limit or 1, policy.rule
    under_way = state.live - state.held
    if rule == Policy.RULE_REPLACE:
        return 1
    if rule == Policy.RULE_QUEUE_ONE:
        return 1 if under_way else 2
    if rule == Policy.RULE_QUEUE:
        return max(0, limit - state.held + state.later) + (not under_way)
    if rule == Policy.RULE_SKIP or (rule == Policy.RULE_UNSPECIFIED and job.definition.schedules):
        return max(0, limit - under_way)
    return max(0, policy.limit - under_way) if policy.limit else None


def keeps_order(job: JobRecord) -> bool:
    """Whether what comes later takes the place of what came before, or stands behind it."""
    rule = job.template.spec.overlap.rule
    return rule in (Policy.RULE_REPLACE, Policy.RULE_QUEUE_ONE, Policy.RULE_QUEUE)


def make_room(view: View, job: Job, verdict: Verdict, occurrence: int) -> bool:
    """Carry a verdict on a new run out on the others; True if it must be held back. What does not
    fit into this change goes in the next ones, and the run waits for it."""
    if verdict is GO:
        return False
    if verdict is HOLD_NEWEST or verdict is REPLACE:
        # A newer one takes the place of a run for which room is being made.
        forget(view, job.jid)
        room = RoomRecord(
            occurrence=occurrence, came_at_ms=view.now_ms, came_in=view.base + 1,
            replaces=verdict is REPLACE, timer_at_ms=keys.LATER | view.now_ms,
        )  # fmt: skip
        if not _clear(view, job, room):
            view.put(keys.room(job.jid), room)
            view.put_later(keys.room_timer(room.timer_at_ms, job.jid))
            return True
    if verdict is HOLD:
        return True
    return job.state.live > job.state.held


def waits_for_room(view: View, job: Job) -> bool:
    """Whether a run of a job is held back until others have gone. What comes next is decided on
    only then, as if they had gone at once."""
    return bool(job.state.held) and view.get(keys.room(job.jid), RoomRecord) is not None


def pauses(view: View, job: Job) -> bool:
    """Whether what more is to be decided on of a job is left to the next change."""
    return view.is_full or waits_for_room(view, job)


def forget(view: View, jid: int) -> None:
    """Make no more room, for the run has gone, or a newer one has come."""
    room = view.get(keys.room(jid), RoomRecord)
    if room is not None:
        view.delete_raw(keys.room_timer(room.timer_at_ms, jid))
        view.delete(keys.room(jid))


def make_more_room(view: View, jid: int) -> None:
    """Make more room for a run; at last it is ready, unless others have come to run meanwhile."""
    key, job = keys.room(jid), view.job(jid)
    room, state = view.need(key, RoomRecord), view.change_state(job)
    # Its timer has fired, or another one did before it.
    view.delete_raw(keys.room_timer(room.timer_at_ms, jid))
    if _clear(view, job, room):
        view.delete(key)
        if state.held > state.later and runs.is_room(job):
            runs.release_held(view, job, first=room.occurrence)
    else:
        room.timer_at_ms = keys.LATER | view.now_ms
        view.put(key, room)
        view.put_later(keys.room_timer(room.timer_at_ms, jid))


def _clear(view: View, job: Job, room: RoomRecord) -> bool:
    """One step of making room; True when there is no more to do."""
    if not job.state.live:
        return True
    first = keys.run(job.jid, max(room.next_occurrence, job.state.live_from))
    scanned = view.scan(first, keys.run(job.jid, keys.OCCURRENCE_MAX))
    for count, key in enumerate(list(islice(scanned, limits.STEP + 1))):
        occurrence = keys.run_of(key)[1]
        if count and (count == limits.STEP or view.is_full):
            room.next_occurrence = occurrence
            break
        if occurrence != room.occurrence:
            _give_way(view, view.run(keys.run_of(key)), room)
    else:
        room.next_occurrence = keys.OCCURRENCE_MAX
    return room.next_occurrence == keys.OCCURRENCE_MAX


def _give_way(view: View, run: Run, room: RoomRecord) -> None:
    record = run.record
    if record.made_in > room.came_in:
        # Somebody forced it since.
        return
    is_wanted = bool(run.occurrence & 0xFFFF) and not room.replaces
    if record.cause == run_pb2.CAUSE_BACKFILL or is_wanted:
        # Somebody asked for it, or a wave brought it: it waits until it has run.
        return
    if record.phase in WAITING and record.exempt & RunRecord.EXEMPT_DEADLINE:
        # It was requeued, and may have run before.
        return
    if record.phase in WAITING and record.due_at_ms <= room.came_at_ms:
        message = "a newer run took its place while it was held back"
        drop(view, run, run_pb2.OUTCOME_REPLACED, "replaced", message)
    elif room.replaces and record.phase not in WAITING:
        message = "a newer run replaces it"
        runs.cancel(view, run, message, limits.CANCEL_GRACE_MS)


def drop(
    view: View, run: Run,
    outcome: run_pb2.Outcome.ValueType, kind: str, message: str,
) -> None:  # fmt: skip
    """A policy ends a run before it began; the ledger says so in place of what stood there."""
    record = view.end_run(run)
    record.outcome = outcome
    record.error = run_pb2.RunError(kind=kind, message=message)
    if not run.occurrence & 0xFFFF:
        ledger.correct(view, run.jid, keys.scheduled_of(run.occurrence), outcome)
    runs.end_as(view, run, record, SKIPPED)
