"""Jobs: the standing orders, and what a person does to them as a whole.

Each rule asks everything that may be refused first, and writes only then.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from ...proto import secret_text
from ...proto.v1 import job_pb2
from ..core import limits, masks
from ..core.field_fault import FieldFault
from ..core.instants import iso_text, ms_or
from ..core.rejection import Fault, Reason, Refused
from ..firing import (
    backlog,
    bring_back,
    catch_up,
    dispatch,
    job_deletion,
    on_failure,
    other_schedules,
    scheduled_time,
)
from ..firing import pause as pause_
from ..firing import resume as resume_
from ..flows import graph, waves
from ..model import answers, former_specs, keys, specs, validate
from ..model.entities import Job, job_with
from ..model.record import (
    EditRecord,
    JobRecord,
    NamespaceRecord,
    StateRecord,
    UsageRecord,
    encode,
    payload_of,
)
from ..model.specs import SpecParts
from ..model.view import JobBatch, View
from ..occurrences import ledger, next_time
from ..runs import admission, lanes, runs, set_aside, timeouts
from ..schedule.compiler import compile_plan, shape_of
from ..schedule.plan import Plan, count_scheduled, due, names
from ..tenants import audit_log, namespaces, target_secrets
from . import job_warnings, templates
from .templates import CheckedTemplate

CHANGEABLE = frozenset({"spec"})
NAMED = 10  # Dependents that a refusal names.


def find(view: View, namespace: str, name: str) -> Job:
    """A job. One that is being deleted is not there any more."""
    number = namespaces.need(view, namespace).number
    jid = graph.jid_named(view, number, name)
    if jid is None:
        namespace = namespace or namespaces.DEFAULT
        raise Refused.because(
            Reason.ERROR_REASON_JOB_NOT_FOUND,
            f"there is no job '{name}' in the namespace '{namespace}'; list what there is",
            namespace=namespace, job=name,
        )  # fmt: skip
    return view.job(jid)


def create(view: View, request: job_pb2.CreateJobRequest, actor: str) -> job_pb2.Job:
    job = job_with(*add(view, request.job, actor))
    note(view, actor, "CreateJob", job, request)
    return _with_warnings(view, job)


def _with_warnings(view: View, job: Job) -> job_pb2.Job:
    answer = answers.job(job)
    answer.status.warnings.extend(job_warnings.warnings(view, job))
    return answer


def add(view: View, wanted: job_pb2.Job, actor: str) -> tuple[int, JobRecord, StateRecord]:
    namespace = namespaces.need(view, wanted.namespace)
    number, name, spec = namespace.number, wanted.name, wanted.spec
    parts = specs.of(spec)
    template, schedules, notes = parts
    batch = view.job_batches.get((number, template, schedules))
    if batch is None:
        known = templates.check(template)
        plan = check(view, namespace, wanted, parts, known, view.now_ms, view.now_ms)
    elif faults := _faults(name, spec, notes, ()):
        raise Refused.of(faults)
    name_key = keys.job_name(number, name)
    if view.get_raw(name_key) is not None:
        raise _taken(view, namespace, name)
    payload = payload_of(spec)
    size = len(spec.payload.data) if payload else 0
    _check_quota(view, namespace, 1, size)
    now_ms, meta = view.now_ms, view.meta
    meta.job_serial += 1
    jid = keys.jid_of(number, meta.job_serial)
    job = JobRecord(
        name=name, namespace=namespace.settings.name, template=template, schedules=schedules,
        notes=notes,
        payload=payload, version=1, created_at_ms=now_ms, updated_at_ms=now_ms,
        creator=actor, schedules_since_ms=now_ms,
    )  # fmt: skip
    view.put_raw(name_key, jid.to_bytes(8, "big"))
    usage = view.usages.get(number) or namespaces.usage_of(view, jid)
    usage.jobs += 1
    usage.payload_bytes += size
    if batch is None:
        new = job_with(jid, job, StateRecord(state=next_time.ACTIVE))
        batch = _batch(view, namespace, new, known, plan)
    elif batch.state.timer_at_ms:
        view.put_timer(keys.job_timer(batch.state.timer_at_ms, jid))
    job.lane = batch.lane
    # Not as records: those that come with a big import would push others out of the memory.
    view.put_unseen(keys.job(jid), encode(job))
    view.put_unseen(keys.state(jid), batch.encoded)
    return jid, job, batch.state


def _taken(view: View, namespace: NamespaceRecord, name: str) -> Refused:
    going = graph.jid_named(view, namespace.number, name) is None
    hint = "it is being deleted, wait for its end" if going else "update it"
    return Refused.because(
        Reason.ERROR_REASON_JOB_EXISTS,
        f"there is a job '{name}' already; {hint}, or take another name",
        namespace=namespace.settings.name, job=name,
    )  # fmt: skip


def _batch(
    view: View, namespace: NamespaceRecord, job: Job, known: CheckedTemplate, plan: Plan
) -> JobBatch:
    """Set a new job going, and keep what others like it need not be asked again."""
    state = job.state
    lane = _wire(view, namespace, job, known, plan)
    next_time.start(view, job, plan)
    next_time.reschedule(view, job)
    definition = job.definition
    batch = JobBatch(lane, state, encode(state))
    template, schedules = definition.template, definition.schedules
    names_others = known.has_upstream or template.on_failure or known.secrets
    if specs.shape(template, schedules).is_common and not names_others:
        view.job_batches[namespace.number, template, schedules] = batch
    return batch


def _wire(
    view: View, namespace: NamespaceRecord, job: Job, known: CheckedTemplate, plan: Plan
) -> int:
    """Derive from a job's spec what firing and ending look at; the lane of its runs."""
    definition, state = job.definition, view.change_state(job)
    template = definition.template
    lane = view.lanes_of_templates.get((namespace.number, template))
    if lane is None:
        spec = template.spec
        queue = spec.queue or "default"
        lane = lanes.lane_for(view, namespace.number, spec, queue, spec.priority)
        view.lanes_of_templates[namespace.number, template] = lane
    state.keep_ms = known.keep_ms
    state.after_end = bool(plan.rests)
    state.once = specs.shape(template, definition.schedules).is_once
    state.may_finish = bool(definition.schedules) and not state.after_end and not known.has_upstream
    state.delete_after_ms = known.delete_after_ms
    if known.has_upstream:
        graph.link(view, job)
    if template.calendars:
        namespaces.use_calendars(view, namespace.number, template.calendars, 1)
    target_secrets.use(view, job.jid, known.secrets)
    return lane


def check(
    view: View, namespace: NamespaceRecord, wanted: job_pb2.Job, parts: SpecParts,
    known: CheckedTemplate, since_ms: int, created_ms: int,
) -> Plan:  # fmt: skip
    """Refuse a wrong job with all its faults at once; otherwise its schedules, compiled."""
    faults = _faults(wanted.name, wanted.spec, parts.notes, known.faults)
    plan = _plan(view, namespace, wanted, parts, since_ms, created_ms)
    if not isinstance(plan, Plan):
        faults += [Fault(f"spec.{fault.path}", fault.reason, fault.message) for fault in plan]
    if faults:
        raise Refused.of(faults + graph.missing(view, namespace.number, wanted))
    assert isinstance(plan, Plan)
    if view.lacking:
        _check_members(view, wanted)
    if known.has_upstream:
        graph.check(view, namespace.number, wanted.name, wanted.spec)
    if parts.template.on_failure:
        on_failure.check(view, namespace.number, wanted.name, wanted.spec)
    return plan


def _check_members(view: View, wanted: job_pb2.Job) -> None:
    """Refuse what a member could not go on with, if it led next."""
    zone = wanted.spec.timing.zone
    member = view.lacking.get(zone)
    if member is not None:
        raise Refused.because(
            Reason.ERROR_REASON_MEMBER_LACKS,
            f"spec.timing.zone: {member} does not know the zone {zone}, so it could not fire "
            f"'{wanted.name}' if it led; bring its time zone data up to date, or take another zone",
            member=member, lacks=zone, field="spec.timing.zone",
        )  # fmt: skip


def _faults(
    name: str, spec: job_pb2.JobSpec, notes: bytes, of_template: tuple[Fault, ...]
) -> list[Fault]:
    """What is wrong with a job, schedules apart."""
    faults = validate.name("name", name)
    if notes:
        faults += validate.notes(spec)
    faults += of_template
    return faults + validate.payload("spec.payload", spec.payload)


def _plan(
    view: View, namespace: NamespaceRecord, wanted: job_pb2.Job, parts: SpecParts, since_ms: int,
    created_ms: int,
) -> Plan | list[FieldFault]:  # fmt: skip
    """The plan of a job, or what is wrong with its schedules. What has nothing of the job's own in
    it is compiled once in a decision for all jobs that have the same."""
    place = (parts.schedules, parts.template.timing, since_ms)
    plan: Plan | list[FieldFault] | None = view.plans.get(place)
    if plan is None:
        shape = specs.shape(parts.template, parts.schedules)
        plan = compile_plan(
            wanted.spec.schedules, wanted.spec.timing,
            seed=f"{namespace.settings.name}/{wanted.name}", shape=shape,
            created_at_ms=created_ms, since_ms=since_ms,
            calendars=next_time.calendars_of(view, namespace.number, parts.template.calendars),
        )  # fmt: skip
        if shape.is_common and isinstance(plan, Plan):
            # Its job is there in a moment, and has warnings: its plan is the same.
            view.plans[place] = view.restored[place] = plan
    return plan


def _check_quota(view: View, namespace: NamespaceRecord, jobs: int, size: int) -> None:
    quota = namespace.settings.quota
    if not quota.jobs and not quota.payload_bytes:
        return
    usage = view.get(keys.usage(namespace.number), UsageRecord)
    for name, used, more, most in (
        ("jobs", usage.jobs if usage else 0, jobs, quota.jobs),
        ("payload_bytes", usage.payload_bytes if usage else 0, size, quota.payload_bytes),
    ):
        if most and more > 0 and used + more > most:
            raise Refused.because(
                Reason.ERROR_REASON_QUOTA_EXCEEDED,
                f"the namespace '{namespace.settings.name}' has used {used} of its quota of {most} "
                f"{name}, and this needs {more} more; delete some, or raise the quota",
                quota=name, maximum=most, used=used,
            )  # fmt: skip


def update(view: View, request: job_pb2.UpdateJobRequest, actor: str) -> job_pb2.Job:
    sent = request.job
    job = find(view, sent.namespace, sent.name)
    namespaces.check_etag(sent.etag, job.definition.version)
    before = job.definition.full_spec()
    merged = job_pb2.Job(name=job.definition.name, spec=before)
    if request.update_mask.paths:
        masks.merge(sent, merged, request.update_mask, CHANGEABLE)
    else:
        for field, _ in sent.spec.ListFields():
            merged.spec.ClearField(field.name)  # type: ignore[arg-type]
        merged.spec.MergeFrom(sent.spec)
    if merged.spec == before and job.state.state != next_time.BROKEN:
        return _with_warnings(view, job)
    changed = audit_log.difference(before, merged.spec, "spec.")
    notes = replace_spec(view, job, merged)
    note(view, actor, "UpdateJob", job, request, changed)
    answer = _with_warnings(view, job)
    answer.status.warnings.extend(notes)
    return answer


def _gone(edit: EditRecord) -> str:
    at = iso_text(edit.scheduled_at_ms)
    if edit.kind == next_time.MOVE:
        moved = iso_text(edit.moved_to_ms)
        return f"the new schedules do not name {at}, which was moved to {moved}: it is MISSED"
    return f"the new schedules do not name {at}, which was to be skipped"


def _unwire(
    view: View, namespace: NamespaceRecord, job: Job, old: job_pb2.JobSpec, new: job_pb2.JobSpec
) -> None:
    """What hangs on the spec that a job had goes."""
    graph.unlink(view, job)
    namespaces.use_calendars(view, namespace.number, old.timing.exclude_calendars, -1)
    target_secrets.unuse(view, job.jid, secret_text.names_in(old.action))
    if old.pause_on_failure != new.pause_on_failure:
        pause_.forget(view, job.jid)


def replace_spec(view: View, job: Job, merged: job_pb2.Job) -> list[str]:
    """Give a job another spec, after asking whether it is right. The answer says what becomes of
    what was changed by hand and is not named any more, and of single times that have passed."""
    namespace = namespaces.need(view, job.definition.namespace)
    old, new = job.definition.full_spec(), merged.spec
    rescheduled = _are_others(old, new)
    retimed = old.timing != new.timing
    # A job that has had all its runs and may have more begins anew: it catches up with nothing.
    used_up = 0 < old.timing.max_runs <= job.state.fired and not next_time.missed(job.state)
    anew = rescheduled or (used_up and old.timing.max_runs != new.timing.max_runs)
    since_ms = _begin(view, job) if anew else job.definition.schedules_since_ms
    parts = specs.of(new)
    known = templates.check(parts.template)
    created_ms = job.definition.created_at_ms
    plan = check(view, namespace, merged, parts, known, since_ms, created_ms)
    grown = len(new.payload.data) - len(old.payload.data)
    _check_quota(view, namespace, 0, grown)
    reordered = old.action != new.action or job.definition.payload != payload_of(new)
    if reordered:
        former_specs.check_room(view, job)
    if rescheduled and job.state.state == next_time.ACTIVE:
        _check_books(view, job)
    record = set_aside.find(view, job.jid) if job.state.state == next_time.BROKEN else None
    former, notes = None, list[str]()
    if rescheduled and (record is None or next_time.is_readable(view, job)):
        # Of schedules that cannot be read nobody knows which times they had.
        former = next_time.plan_of(view, job)
        _fire_due(view, job)
    stood_at_ms = next_time.stands_at(job)
    if former is not None:
        since_ms, notes = _close_books(view, job, former, plan, since_ms)
    comes_back = anew and since_ms == view.now_ms and next_time.decided_ahead(view, job.state) > 0
    if comes_back:
        bring_back.free(view, job)
    if record is not None:
        set_aside.bring_back(view, job, record)
    _unwire(view, namespace, job, old, new)
    namespaces.usage_of(view, job.jid).payload_bytes += grown
    if reordered:
        former_specs.keep(view, job)
    definition = view.change_definition(job)
    definition.template, definition.schedules, definition.notes = parts
    definition.payload = payload_of(new)
    view.weigh(max(0, grown))
    definition.version += 1
    definition.updated_at_ms = view.now_ms
    definition.schedules_since_ms = since_ms
    if _decides(old) != _decides(new):
        definition.policies_since_ms = view.now_ms
    definition.lane = _wire(view, namespace, job, known, plan)
    if anew:
        notes += _go_on(view, job, since_ms) if rescheduled or comes_back else ()
        _advance(view, job, since_ms, stood_at_ms)
        notes += _run_passed(view, job, former, since_ms) if rescheduled else ()
    elif retimed:
        next_time.apply_timing(view, job)
    elif record is not None:
        next_time.advance_if_idle(view, job)
    next_time.reschedule(view, job)
    if old.upstream != new.upstream:
        waves.look_again(view, job.jid)
    if rescheduled or old.overlap != new.overlap:
        runs.look_at_held(view, job)
    if old.concurrency != new.concurrency:
        admission.limits_changed(view, job, old.concurrency, new.concurrency)
    if _time_limits(old) != _time_limits(new):
        timeouts.limits_changed(view, job)
    return notes


def _advance(view: View, job: Job, since_ms: int, stood_at_ms: int) -> None:
    """Set the next time of a job whose schedules count from an instant. One that has had all its
    runs, and has no more now, passes by nothing up to now: what was moved from there to later finds
    no place, as before."""
    state = job.state
    is_open = since_ms < state.next_scheduled_at_ms <= view.now_ms
    after_ms = state.next_scheduled_at_ms - 1 if is_open else max(since_ms, view.now_ms)
    if since_ms < view.now_ms:
        # It goes on where it is, and may have had its last time just now.
        stood_at_ms = next_time.stands_at(job)
    next_time.advance_behind(view, job, after_ms)
    if stood_at_ms and next_time.stands_at(job):
        # What the other schedules name to come is still to be decided on.
        view.change_state(job).decided_ms = min(stood_at_ms, view.now_ms)


def _time_limits(spec: job_pb2.JobSpec) -> tuple[object, ...]:
    return spec.timeouts, spec.misfire.start_deadline, spec.retry.total


def _go_on(view: View, job: Job, since_ms: int) -> Iterator[str]:
    """Look at what was changed by hand, or has run before its time, by other schedules."""
    plan = next_time.plan_of(view, job)
    yield from map(_gone, scheduled_time.drop_unnamed(view, job, plan))
    if since_ms <= view.now_ms < job.state.last_scheduled_at_ms:
        ledger.mark_ahead(view, job, plan, view.now_ms)


def _run_passed(view: View, job: Job, former: Plan | None, since_ms: int) -> Iterator[str]:
    """A single time that is new and has passed runs at once, as it does at creation."""
    plan, max_runs = next_time.plan_of(view, job), job.definition.template.max_runs
    for at_ms in sorted({once.at_ms for once in plan.onces if once.at_ms <= since_ms}):
        if not names(plan, at_ms) or (former is not None and names(former, at_ms, ever=True)):
            continue
        at = iso_text(at_ms)
        if ledger.knows(view, job.jid, at_ms) or not ledger.may_backfill(view, job, at_ms):
            yield f"{at} has passed, and the job has decided on it already: it does not run again"
        elif max_runs and next_time.places_left(job) <= 0:
            yield f"{at} has passed, and max_runs leaves no run for it: it does not run"
        else:
            due_ms, state = max(view.now_ms, due(plan, at_ms)), view.change_state(job)
            edit = EditRecord(at_ms, next_time.MOVE, due_ms)
            kept = (other for other in state.edits if other.scheduled_at_ms != at_ms)
            state.edits = tuple(sorted((*kept, edit), key=lambda one: one.scheduled_at_ms))
            when = "at once" if due_ms == view.now_ms else f"at {iso_text(due_ms)}, by its jitter"
            if state.state == next_time.PAUSED:
                when = "after the resume, as its misfire policy says"
            yield f"{at} has passed: it runs {when}"


def _decides(spec: job_pb2.JobSpec) -> tuple[object, ...]:
    """What of a spec decides on the outcomes of scheduled times, or how long they can be proved."""
    timing = spec.timing.jitter, list(spec.timing.exclude_calendars)
    return (*timing, spec.misfire, spec.overlap, spec.keep_history)


def _begin(view: View, job: Job) -> int:
    """From when on other schedules count: now, or behind what was decided on ahead if a job cannot
    be brought back."""
    ahead_ms = next_time.decided_ahead(view, job.state)
    if ahead_ms and not bring_back.can_free(view, job, keys.LEDGER):
        return ahead_ms
    return view.now_ms


def _are_others(old: job_pb2.JobSpec, new: job_pb2.JobSpec) -> bool:
    """Whether the schedules of a job name other instants than before, however they are written."""
    if list(old.schedules) == list(new.schedules) and old.timing == new.timing:
        return False
    before, after = (shape_of(spec.schedules, spec.timing) for spec in (old, new))
    return bool(before.faults or after.faults) or before.meaning != after.meaning


def _check_books(view: View, job: Job) -> None:
    """What is due fires under the old schedules, in one change; so it must not be much."""
    if not 0 < job.state.next_due_at_ms <= view.now_ms:
        return
    old = next_time.plan_of(view, job)
    end = view.now_ms - due(old, 0) + 1
    first = max(job.state.next_scheduled_at_ms, end - 1 - job.definition.template.grace_ms)
    count = count_scheduled(old, first, end).number
    name = job.definition.name
    if count > limits.STEP:
        raise Refused.because(
            Reason.ERROR_REASON_BACKLOG_FULL,
            f"{count} scheduled times of '{name}' are due and not decided on yet, and one "
            f"change takes {limits.STEP}; nothing was done, try again in a moment",
            job=name,
        )  # fmt: skip


def _fire_due(view: View, job: Job) -> None:
    """What is due under the old schedules fires before they are gone."""
    if job.state.state != next_time.ACTIVE:
        return
    for _ in range(limits.STEP):
        if not job.state.next_scheduled_at_ms or job.state.next_due_at_ms > view.now_ms:
            break
        dispatch.fire_due(view, job)
    if job.state.backlog:
        backlog.release(view, job, backfills=False)


def _close_books(
    view: View, job: Job, old: Plan, new: Plan, since_ms: int
) -> tuple[int, list[str]]:
    """See to what has come under the old schedules and waits for its turn, its jitter or a resume,
    before they are gone: it waits on if the new ones name it as well, and is missed else. The
    answer is from when on the new ones count, and what is given up."""
    may_stay = since_ms == view.now_ms and not next_time.decided_ahead(view, job.state)
    if may_stay and (first_ms := other_schedules.stays(view, job.state, old, new)):
        return max(first_ms - 1, job.definition.schedules_since_ms), []
    given_up, skipped = 0, job.state.skipped
    if job.state.backlog:
        if since_ms == view.now_ms:
            backlog.cut(view, job, old, view.now_ms)
        given_up = other_schedules.keep_waiting(view, job, old, new)
        next_time.advance_if_idle(view, job)
    missed = job.state.skipped - skipped
    first_ms = job.state.next_scheduled_at_ms
    if 0 < first_ms <= view.now_ms:
        if may_stay and other_schedules.are_same(old, new, first_ms, view.now_ms + 1):
            return first_ms - 1, list(_given_up(missed, given_up))
        other_schedules.keep_undecided(view, job, old, new)
        missed += catch_up.give_up(view, job)
    return since_ms, list(_given_up(missed, given_up))


def _given_up(missed: int, planned: int) -> Iterator[str]:
    """What an update says of what waited."""
    if missed:
        number = (
            "1 scheduled time that has passed and waits is" if missed == 1
            else f"{missed} scheduled times that have passed and wait are"
        )  # fmt: skip
        yield f"{number} MISSED, since the new schedules do not name what was to run"
    if planned:
        yield (
            f"{planned} times of a backfill do not run: of those that the new schedules name "
            f"otherwise {limits.STEP} wait on; let it end first, or run the others by a trigger"
        )


def delete(view: View, request: job_pb2.DeleteJobRequest, actor: str) -> job_pb2.DeleteJobResponse:
    job = find(view, request.namespace, request.job)
    namespaces.check_etag(request.etag, job.definition.version)
    some, count = graph.first_downstream(view, job.jid, NAMED)
    if some:
        shown = ", ".join(sorted(view.need(keys.job(other), JobRecord).name for other in some))
        waiting = "1 job waits" if count == 1 else f"{count} jobs wait"
        raise Refused.because(
            Reason.ERROR_REASON_HAS_DEPENDENTS,
            f"'{job.definition.name}' cannot be deleted, since {waiting} for it: {shown}; take "
            "it out of their upstream first",
            job=job.definition.name, dependents=shown,
        )  # fmt: skip
    live = job.state.live
    if job.state.state == next_time.BROKEN:
        view.delete(keys.broken(job.jid))
    job_deletion.begin(view, job)
    next_time.reschedule(view, job)
    note(view, actor, "DeleteJob", job, request)
    return job_pb2.DeleteJobResponse(cancelled_runs=live)


def pause(view: View, request: job_pb2.PauseJobRequest, actor: str) -> job_pb2.Job:
    job = find(view, request.namespace, request.job)
    namespaces.check_etag(request.etag, job.definition.version)
    set_aside.refuse(view, job)
    faults = validate.text("reason", request.reason, limits.REASON_CHARS)
    faults += validate.instant("until", request, "until")
    until_ms = ms_or(request, "until", 0)
    if until_ms and until_ms <= view.now_ms:
        message = "it has passed already; give an instant to come, or none"
        faults.append(Fault("until", Reason.ERROR_REASON_FIELD_INVALID, message))
    if faults:
        raise Refused.of(faults)
    pause_.forget(view, job.jid)
    pause_.pause(view, job, request, until_ms, actor)
    return answers.job(job)


def resume(view: View, request: job_pb2.ResumeJobRequest, actor: str) -> job_pb2.Job:
    job = find(view, request.namespace, request.job)
    namespaces.check_etag(request.etag, job.definition.version)
    if job.state.state == next_time.PAUSED:
        state = view.change_state(job)
        state.state = next_time.ACTIVE
        state.pause_reason = ""
        state.pause_until_ms = 0
        resume_.begin(view, job)
    elif job.state.state == next_time.BROKEN or not bring_back.stands_until(view, job):
        return answers.job(job)
    elif why := bring_back.why_not(view, job):
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"'{job.definition.name}' stands still until "
            f"{iso_text(bring_back.stands_until(view, job))} and cannot be brought back, "
            f"since {why}; wait until then, or delete it and create it anew",
            limit="ledger_ahead", maximum=ledger.AHEAD, job=job.definition.name,
        )  # fmt: skip
    bring_back.bring_back(view, job)
    _changed(view, job)
    note(view, actor, "ResumeJob", job, request)
    return answers.job(job)


def _changed(view: View, job: Job) -> None:
    definition = view.change_definition(job)
    definition.version += 1
    definition.updated_at_ms = view.now_ms
    next_time.reschedule(view, job)


def note(view: View, actor: str, method: str, job: Job, request: Message, change: str = "") -> None:
    """Write into the audit log who changed a job."""
    definition = job.definition
    subject = f"job/{definition.name}"
    audit_log.add(view, actor, method, definition.namespace, subject, request, change)
