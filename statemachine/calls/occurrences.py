"""What a person does to single occurrences of a job: trigger, backfill, skip, move, add."""

from __future__ import annotations

from ...proto.v1 import job_pb2, run_pb2, schedule_pb2
from ..core import limits
from ..core.instants import iso_text, ms_or, to_ms
from ..core.rejection import Fault, Reason, Refused
from ..firing import backlog, effects
from ..flows import waves
from ..model import answers, carried, concurrency_key, keys, validate
from ..model.entities import Job, Run
from ..model.phases import HELD, LATER, READY
from ..model.record import (
    EditRecord,
    JobRecord,
    LedgerRecord,
    ProofRecord,
    RunRecord,
    UsageRecord,
)
from ..model.view import View
from ..occurrences import ledger, next_time, upcoming
from ..runs import lanes, overlap, runs, set_aside, unique_keys
from ..runs.move import move
from ..schedule.plan import names, next_scheduled, scheduled_times
from ..tenants import namespaces, quota
from . import runs as run_calls
from .jobs import find, note

Edit = schedule_pb2.OccurrenceEdit
Trigger = job_pb2.TriggerJobRequest
# They have the same fields.
Asked = job_pb2.TriggerJobRequest | job_pb2.Trigger
Unique = run_pb2.UniqueKey
INVALID = Reason.ERROR_REASON_FIELD_INVALID
# As the audit log says it.
KINDS = {Edit.KIND_SKIP: "skip", Edit.KIND_MOVE: "move", Edit.KIND_ADD: "add"}


def trigger(view: View, request: job_pb2.TriggerJobRequest, actor: str) -> run_pb2.Run:
    """Start a run by hand. It waits where the overlap policy says no, unless it is forced."""
    job = find(view, request.namespace, request.job)
    run, taken = begin(view, request, job)
    if run is None:
        return _show(view, job, taken)
    note(view, actor, "TriggerJob", job, request)
    return answers.run(view, run)


def begin(view: View, request: Asked, job: Job) -> tuple[Run | None, int]:
    """Start a run as somebody asked; or None, and the run that holds the wanted business key."""
    _check_trigger(request)
    _check_key(request, job.definition)
    taken = _holder(view, job.jid, request)
    if taken is not None and request.unique.policy != Unique.POLICY_REPLACE:
        # Whether one more could begin now does not matter to who asks for the same again.
        return None, taken
    set_aside.refuse(view, job)
    _check_may_begin(view, request, job)
    due_ms = max(view.now_ms, ms_or(request, "due_time", 0))
    later = due_ms > view.now_ms
    verdict = _verdict(view, request, job)
    if not later and taken is None:
        _check_beside(request, job, verdict)
    if taken is not None:
        held = view.find_run((job.jid, taken))
        if held is not None:
            runs.cancel_now(view, held, "a newer run took its unique key")
            # One that was held goes before the new one.
            effects.carry_out(view)
            verdict = _verdict(view, request, job)
    occurrence = runs.free_occurrence(view, job, due_ms if later else view.now_ms)
    run = _triggered(view, request, job, occurrence, due_ms)
    waits = not later and overlap.make_room(view, job, verdict, occurrence)
    if run.record.unique_key:
        unique_keys.take(view, run, run.record.unique_key)
    if job.state.has_downstream:
        waves.start(view, run)
    move(view, run, LATER if later else HELD if waits else READY)
    return run, 0


def _verdict(view: View, request: Asked, job: Job) -> overlap.Verdict:
    return overlap.GO if request.force else overlap.judge_wanted(view, job)


def _check_beside(request: Asked, job: Job, verdict: overlap.Verdict) -> None:
    """Refuse what would have to wait, where that is not wanted or too much waits already."""
    if verdict is overlap.GO or verdict is overlap.REPLACE:
        return
    waiting, live = job.state.held - job.state.later, job.state.live - job.state.held
    name = job.definition.name
    if request.if_running == Trigger.IF_RUNNING_REFUSE:
        raise Refused.because(
            Reason.ERROR_REASON_OVERLAP_REFUSED,
            f"'{name}' has {_runs(live)} under way, and its overlap policy allows no more "
            "beside; let this one wait for them (if_running), cancel them, or trigger with force",
            job=name, live=live,
        )  # fmt: skip
    if waiting >= limits.WAITING_RUNS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"{waiting} runs of '{name}' wait for those under way already; that is the most. "
            "Wait for some to end, or let its overlap policy allow more at once",
            limit="waiting_runs", maximum=limits.WAITING_RUNS, actual=waiting + 1,
        )  # fmt: skip


def _check_trigger(request: Asked) -> None:
    faults = validate.enum("priority", request, "priority")
    faults += validate.enum("if_running", request, "if_running")
    faults += validate.instant("due_time", request, "due_time")
    if request.if_running == Trigger.IF_RUNNING_REFUSE and request.HasField("due_time"):
        message = "a run for later is not refused at the call; leave if_running or due_time unset"
        faults.append(Fault("if_running", INVALID, message))
    if request.HasField("unique"):
        faults += validate.text("unique.key", request.unique.key, limits.UNIQUE_KEY_CHARS)
        faults += validate.enum("unique.policy", request.unique, "policy")
        faults += validate.span("unique.hold", request.unique, "hold", 0)
    faults += validate.text("concurrency_key", request.concurrency_key, limits.LIMIT_KEY_CHARS)
    if request.HasField("payload"):
        faults += validate.payload("payload", request.payload)
    faults += carried.faults(_trace(request), request.labels)
    if request.queue:
        faults += validate.name("queue", request.queue)
    if faults:
        raise Refused.of(faults)


def _check_key(request: Asked, job: JobRecord) -> None:
    """Refuse a run whose concurrency key cannot be read."""
    limit = job.template.spec.concurrency
    key, field = request.concurrency_key or limit.key, "concurrency_key"
    if not key:
        return
    why = ""
    if not limit.key_limit:
        why = (
            f"'{job.name}' has no limit for a key; set concurrency.key and concurrency.key_limit "
            "of the job first"
        )
    elif request.concurrency_key:
        why = concurrency_key.fault(key)
    if not why and concurrency_key.is_path(key):
        try:
            _read_key(key, request, job)
        except concurrency_key.UnreadableKey as unreadable:
            field = "payload"
            why = f"{unreadable}, and the concurrency key is {key}; set it in the payload"
            if not request.concurrency_key:
                why += ", or name another key with the trigger (concurrency_key)"
    if why:
        raise Refused.of([Fault(field, INVALID, why)])


def _read_key(key: str, request: Asked, job: JobRecord) -> str:
    if not concurrency_key.is_path(key):
        return key
    if request.HasField("payload"):
        return concurrency_key.read(key, request.payload.data, request.payload.content_type)
    return concurrency_key.read(key, *concurrency_key.of_job(job.payload))


def _check_may_begin(view: View, request: Asked, job: Job) -> None:
    definition, reason = job.definition, job.state.pause_reason
    if job.state.state == next_time.PAUSED and not request.force:
        raise Refused.because(
            Reason.ERROR_REASON_JOB_PAUSED,
            f"'{definition.name}' is paused ({reason or 'no reason given'}); resume it, or trigger "
            "with force",
            job=definition.name, pause_reason=reason,
        )  # fmt: skip
    namespace = namespaces.need(view, definition.namespace)
    usage = view.get(keys.usage(namespace.number), UsageRecord)
    is_later = ms_or(request, "due_time", 0) > view.now_ms
    if not is_later and usage is not None and quota.is_full(view, usage, definition.namespace):
        most = namespaces.live_runs(view, definition.namespace)
        raise Refused.because(
            Reason.ERROR_REASON_QUOTA_EXCEEDED,
            f"the namespace '{definition.namespace}' has {_runs(quota.used(usage))} under way, and "
            f"its quota is {most}; wait, or raise the quota",
            quota="live_runs", maximum=most,
        )  # fmt: skip


def _holder(view: View, jid: int, request: Asked) -> int | None:
    """The run that holds the wanted business key, if any."""
    if not request.HasField("unique") or not (unique := request.unique).key:
        return None
    taken = unique_keys.holder(view, jid, unique.key)
    if taken is not None and unique.policy == Unique.POLICY_REJECT:
        raise unique_keys.taken(jid, request.job, taken, unique.key)
    return taken


def _show(view: View, job: Job, occurrence: int) -> run_pb2.Run:
    place = job.jid, occurrence
    run = view.find_run(place) or run_calls.ended(view, place)
    if run is not None:
        return answers.run(view, run)
    # The key is held longer than the history is kept.
    namespace, name = job.definition.namespace, job.definition.name
    return run_pb2.Run(namespace=namespace, job=name, id=keys.run_id(name, *place))


def _triggered(view: View, request: Asked, job: Job, occurrence: int, due_ms: int) -> Run:
    spec = job.definition.template.spec
    outcome = run_pb2.OUTCOME_TRIGGERED
    run = runs.new(job, occurrence, run_pb2.CAUSE_TRIGGER, outcome, due_ms)
    record = view.change_run(run)
    record.made_in = view.base + 1
    record.exempt = RunRecord.EXEMPT_OVERLAP if request.force else 0
    if request.HasField("payload"):
        record.payload = request.payload
        view.weigh(record.weight())
    if request.priority or request.queue:
        record.priority = request.priority or spec.priority
        queue = request.queue or spec.queue or "default"
        record.lane = lanes.lane_for(view, job.namespace, spec, queue, record.priority)
    if request.concurrency_key:
        record.limit_key = _read_key(request.concurrency_key, request, job.definition)
        record.exempt |= RunRecord.KEY_OF_TRIGGER
    if request.HasField("unique") and request.unique.key:
        record.unique_key = request.unique.key
        record.unique_hold_ms = ms_or(request.unique, "hold", 0)
    carried.put(view, run, _trace(request), request.labels)
    return run


def _trace(request: Asked) -> run_pb2.TraceContext | None:
    return request.trace_context if request.HasField("trace_context") else None


def _or_not(ms: int) -> str:
    return "not given" if ms == -1 else iso_text(ms)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def backfill(
    view: View, request: job_pb2.BackfillJobRequest, actor: str
) -> job_pb2.BackfillJobResponse:
    """Plan past scheduled times to run, at a pace; those that ran are left alone."""
    job = find(view, request.namespace, request.job)
    first, end = ms_or(request, "from_time", -1), ms_or(request, "to_time", -1)
    faults = validate.between("runs_per_minute", request.runs_per_minute, 0, 60_000)
    if not 0 <= first < end <= view.now_ms:
        now = iso_text(view.now_ms)
        actual = f"it is {_or_not(end)}, from_time is {_or_not(first)} and now is {now}"
        message = f"{actual}; give from_time before to_time, and to_time not in the future"
        faults.append(Fault("to_time", INVALID, message))
    if faults:
        raise Refused.of(faults)
    set_aside.refuse(view, job)
    plan = next_time.plan_of(view, job)
    # A range before the present schedules is computed by them all the same: that is what is asked.
    found = scheduled_times(plan, first, end, limits.BACKFILL_RUNS, ever=True)
    if len(job.state.backlog) >= limits.SCHEDULES:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"{limits.SCHEDULES} backlogs of the job are under way; wait for one to end",
            limit="backlogs", maximum=limits.SCHEDULES, actual=len(job.state.backlog),
        )  # fmt: skip
    if found.cut:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"the range has over {limits.BACKFILL_RUNS} scheduled times; take a shorter one, such "
            f"as up to {iso_text(found.times[-1])}",
            limit="backfill_runs", maximum=limits.BACKFILL_RUNS, actual=len(found.times),
        )  # fmt: skip
    planned = backlog.backfillable(view, job, plan, found.times)
    if planned:
        pace_ms = max(1, limits.MINUTE_MS // (request.runs_per_minute or 60))
        backlog.add_backfill(view, job, planned, pace_ms)
        next_time.reschedule(view, job)
        span = f"{iso_text(planned[0])} to {iso_text(planned[-1])}"
        detail = f"{len(planned)} scheduled times from {span}"
        note(view, actor, "BackfillJob", job, request, detail)
    left_alone = len(found.times) - len(planned)
    return job_pb2.BackfillJobResponse(planned=len(planned), left_alone=left_alone)


def drop_backlog(
    view: View, request: job_pb2.DropBacklogRequest, actor: str
) -> job_pb2.DropBacklogResponse:
    """Give up the missed scheduled times that still wait for their run."""
    job = find(view, request.namespace, request.job)
    if not job.state.backlog:
        return job_pb2.DropBacklogResponse()
    dropped = backlog.drop(view, job)
    next_time.reschedule(view, job)
    detail = f"{dropped} scheduled times"
    note(view, actor, "DropBacklog", job, request, detail)
    return job_pb2.DropBacklogResponse(dropped=dropped)


def edit(view: View, request: job_pb2.EditOccurrenceRequest, actor: str) -> job_pb2.Job:
    """Skip, move or add one occurrence that lies ahead."""
    job = find(view, request.namespace, request.job)
    wanted = request.edit
    scheduled_ms = to_ms(wanted.scheduled_time)
    _check_edit(view, wanted, scheduled_ms)
    plan = next_time.plan_of(view, job)
    _check_outcome(view, job, scheduled_ms)
    named = next_scheduled(plan, scheduled_ms - 1) == scheduled_ms
    name = job.definition.name
    if named and wanted.kind == Edit.KIND_ADD:
        message = (
            f"'{name}' has an occurrence at {iso_text(scheduled_ms)} already; add another time"
        )
        raise Refused.of([Fault("edit.scheduled_time", INVALID, message)])
    if not named and wanted.kind != Edit.KIND_ADD:
        raise Refused.because(
            Reason.ERROR_REASON_OCCURRENCE_NOT_FOUND,
            f"'{name}' has no occurrence at that instant; look at its next ones",
            job=name, scheduled_time=scheduled_ms,
        )  # fmt: skip
    kept = [item for item in job.state.edits if item.scheduled_at_ms != scheduled_ms]
    if len(kept) >= limits.EDITS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"'{name}' has {len(kept)} changed occurrences ahead, the most; revert one",
            limit="edits", maximum=limits.EDITS, actual=len(kept) + 1,
        )  # fmt: skip
    kept.append(EditRecord(scheduled_ms, wanted.kind, to_ms(wanted.moved_to)))
    view.change_state(job).edits = tuple(sorted(kept, key=lambda item: item.scheduled_at_ms))
    detail = f"{KINDS[wanted.kind]} {iso_text(scheduled_ms)}"
    if wanted.kind == Edit.KIND_MOVE:
        detail += f" to {iso_text(to_ms(wanted.moved_to))}"
    return _edited(view, job, request, actor, "EditOccurrence", detail)


def _check_edit(view: View, wanted: Edit, scheduled_ms: int) -> None:
    faults = validate.enum("edit.kind", wanted, "kind")
    faults += validate.instant("edit.scheduled_time", wanted, "scheduled_time")
    faults += validate.instant("edit.moved_to", wanted, "moved_to")
    if not wanted.kind:
        faults.append(Fault("edit.kind", Reason.ERROR_REASON_FIELD_REQUIRED, "say what to do"))
    if scheduled_ms <= view.now_ms:
        faults.append(Fault("edit.scheduled_time", INVALID, "it has passed; take one ahead"))
    if wanted.kind == Edit.KIND_MOVE and to_ms(wanted.moved_to) <= view.now_ms:
        faults.append(Fault("edit.moved_to", INVALID, "it has passed, or is not set"))
    if faults:
        raise Refused.of(faults)


def _check_outcome(view: View, job: Job, scheduled_ms: int) -> None:
    """What was moved to before its time may have run by then."""
    entry = view.get(keys.ledger(job.jid, scheduled_ms), LedgerRecord)
    if entry is None:
        return
    at, word = iso_text(scheduled_ms), run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
    name = job.definition.name
    message = f"the occurrence of '{name}' at {at} has the outcome {word} already; take another"
    if entry.outcome in ledger.WITH_RUN:
        run = keys.run_id(name, job.jid, keys.occurrence_of(scheduled_ms))
        message = (
            f"the occurrence of '{name}' at {at} ran before its time, as the run {run}; cancel "
            "that one, or take another occurrence"
        )
    raise Refused.of([Fault("edit.scheduled_time", INVALID, message)])


def revert(view: View, request: job_pb2.RevertOccurrenceRequest, actor: str) -> job_pb2.Job:
    job = find(view, request.namespace, request.job)
    scheduled_ms = to_ms(request.scheduled_time)
    undone = [item for item in job.state.edits if item.scheduled_at_ms == scheduled_ms]
    name = job.definition.name
    if not undone:
        raise Refused.because(
            Reason.ERROR_REASON_OCCURRENCE_NOT_FOUND,
            f"no occurrence of '{name}' at that instant was changed; get the job to see which",
            job=name, scheduled_time=scheduled_ms,
        )  # fmt: skip
    view.change_state(job).edits = tuple(
        item for item in job.state.edits if item.scheduled_at_ms != scheduled_ms
    )
    if undone[0].kind != Edit.KIND_MOVE or not _is_over(view, job, scheduled_ms):
        pass
    elif backlog.spans(job.state, scheduled_ms):
        backlog.add(view, job, backlog.alone(scheduled_ms, view.now_ms))
    else:
        proof = ProofRecord(dropped_at_ms=view.now_ms)
        ledger.record(view, job, scheduled_ms, run_pb2.OUTCOME_MISSED, proof=proof)
        next_time.advance_if_idle(view, job)
    detail = f"revert {iso_text(scheduled_ms)}"
    return _edited(view, job, request, actor, "RevertOccurrence", detail)


def _is_over(view: View, job: Job, scheduled_ms: int) -> bool:
    """Whether the job has gone past a scheduled time without an outcome, since it was moved."""
    decided_ms = max(view.now_ms, next_time.decided_ahead(view, job.state))
    if scheduled_ms > decided_ms or next_time.awaits(job.state, scheduled_ms):
        return False
    plan = next_time.plan_of(view, job)
    # The schedules of its time may be gone, or it followed from the end of a run.
    known = (
        scheduled_ms <= job.definition.schedules_since_ms
        or bool(plan.rests)
        or names(plan, scheduled_ms)
    )
    return known and ledger.covering(view, job.jid, scheduled_ms) is None


def _edited(
    view: View, job: Job,
    request: job_pb2.EditOccurrenceRequest | job_pb2.RevertOccurrenceRequest,
    actor: str, method: str, detail: str,
) -> job_pb2.Job:  # fmt: skip
    next_time.reschedule(view, job)
    note(view, actor, method, job, request, detail)
    answer = answers.job(job)
    upcoming.show(view, job, answer.status)
    return answer
