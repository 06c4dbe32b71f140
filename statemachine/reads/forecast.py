"""What lies ahead, for readers: the next times of a job, and the firings of a namespace."""

from __future__ import annotations

from ...proto.v1 import job_pb2, schedule_pb2
from ..calls.jobs import find
from ..core import limits
from ..core.instants import iso_text, ms_or, set_ms, timestamp, to_ms
from ..core.rejection import Fault, Refused
from ..firing import bring_back
from ..flows import graph
from ..model import keys, validate
from ..model.record import JobRecord, UsageRecord
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import next_time, upcoming
from ..runs import slots
from ..schedule import describe
from ..schedule.compiler import compile_plan
from ..schedule.plan import Plan, count_scheduled
from ..schedule.preview import PREVIEW_MAX, PreviewedTime, preview
from ..tenants import namespaces
from .firings_ahead import FiringsAhead

Preview = job_pb2.PreviewScheduleRequest
Edit = schedule_pb2.OccurrenceEdit
Forecast = job_pb2.ForecastFiringsRequest
PREVIEW_DEFAULT = 5
# How old a count may be that a forecast is made of, if whoever asks says that this will do.
MAX_AGE_MS = 10 * limits.MINUTE_MS
HALTED = {next_time.PAUSED: ("paused", "resumed"), next_time.BROKEN: ("BROKEN", "repaired")}


def preview_schedule(
    view: View, request: Preview, workers: Workers
) -> job_pb2.PreviewScheduleResponse:
    faults = validate.instant("from_time", request, "from_time")
    faults += validate.between("count", request.count, 0, (1 << 31) - 1)
    if faults:
        raise Refused.of(faults)
    count = min(request.count or PREVIEW_DEFAULT, PREVIEW_MAX)
    from_ms = ms_or(request, "from_time", view.now_ms)
    if request.schedules or request.HasField("timing"):
        return _preview_new(view, request, from_ms, count)
    job = find(view, request.namespace, request.job)
    state, spec = job.state, job.definition.full_spec()
    edits = [
        Edit(
            scheduled_time=timestamp(edit.scheduled_at_ms), kind=edit.kind,
            moved_to=timestamp(edit.moved_to_ms) if edit.moved_to_ms else None,
        )
        for edit in state.edits
    ]  # fmt: skip
    plan = next_time.plan_of(view, job)
    last_end_ms = next_time.last_end(view, state)
    left = None
    if spec.timing.max_runs:
        # Those before the next one are decided on already.
        next_ms = state.next_scheduled_at_ms or state.last_scheduled_at_ms + 1
        left = _left(plan, spec.timing.max_runs - state.fired, next_ms, from_ms)
    ran = upcoming.ran_before(view, job)
    seen = preview(plan, from_ms, count, edits=edits, last_end_ms=last_end_ms, left=left, ran=ran)
    seed = f"{job.definition.namespace}/{job.definition.name}"
    shown = _shown(seen, plan, from_ms, spec.schedules, spec.timing.zone, seed)
    if state.state in HALTED and seen:
        word, then = HALTED[state.state]
        shown.warnings.append(
            f"the job is {word}: none of these happens at its time until it is {then}"
        )
    if seen and (until_ms := bring_back.stands_until(view, job)):
        shown.warnings.append(
            f"the job stands still until {iso_text(until_ms)}, since it decided on all times up to "
            "then by a clock that was ahead: of these none up to then happens unless it is resumed"
        )
    return shown


def _preview_new(
    view: View, request: Preview, from_ms: int, count: int
) -> job_pb2.PreviewScheduleResponse:
    """The times of schedules that are not stored; what the request leaves out is the job's own."""
    namespace = namespaces.need(view, request.namespace)
    schedules, timing = list(request.schedules), request.timing
    created_ms = view.now_ms
    jid = graph.jid_named(view, namespace.number, request.job) if request.job else None
    if jid is not None:
        job = view.need(keys.job(jid), JobRecord)
        created_ms = job.created_at_ms
        schedules = schedules or list(job.full_spec().schedules)
        timing = timing if request.HasField("timing") else job.template.spec.timing
    seed = f"{namespace.settings.name}/{request.job}"
    # As if they were stored at the instant that is asked for, if that has passed.
    since_ms = from_ms - 1 if from_ms < view.now_ms else view.now_ms
    plan = compile_plan(
        schedules, timing, seed=seed, created_at_ms=created_ms, since_ms=since_ms,
        calendars=next_time.calendars_of(view, namespace.number, timing.exclude_calendars),
    )  # fmt: skip
    if not isinstance(plan, Plan):
        raise Refused.of([Fault(fault.path, fault.reason, fault.message) for fault in plan])
    begin_ms = min(view.now_ms, from_ms)
    left = _left(plan, timing.max_runs, begin_ms, from_ms) if timing.max_runs else None
    return _shown(
        preview(plan, from_ms, count, left=left), plan, from_ms, schedules, timing.zone, seed
    )


def _left(plan: Plan, left: int, next_ms: int, from_ms: int) -> int:
    """How many of the times from an instant on may run, when so many may from the next one on."""
    if from_ms > next_ms:
        return left - count_scheduled(plan, next_ms, from_ms).number
    return left + count_scheduled(plan, from_ms, next_ms).number


def _shown(
    seen: list[PreviewedTime], plan: Plan, from_ms: int, schedules: object, zone: str, seed: str
) -> job_pb2.PreviewScheduleResponse:
    answer = job_pb2.PreviewScheduleResponse(warnings=plan.warnings)
    if from_ms < plan.since_ms - limits.MINUTE_MS:
        answer.warnings.append(
            f"the schedule counts from {iso_text(plan.since_ms)}; nothing is before"
        )
    for schedule in schedules:  # type: ignore[attr-defined]
        answer.descriptions.append(describe.describe(schedule, zone, seed=seed))
    for item in seen:
        answer.occurrences.add(
            scheduled_time=timestamp(item.scheduled_ms), due_time=timestamp(item.due_ms),
            local_time=item.local_time, note=item.note, excluded=item.excluded,
        )  # fmt: skip
    return answer


def forecast(view: View, request: Forecast, workers: Workers) -> job_pb2.ForecastFiringsResponse:
    """Firings of the coming minutes, and how many of each come within one second."""
    number, ahead_ms = asked(view, request)
    found = FiringsAhead(number, view.now_ms, view.now_ms + ahead_ms)
    found.count(view)
    return shown(view, request, workers, found)


def asked(view: View, request: Forecast) -> tuple[int, int]:
    """The number of the namespace that a forecast is asked for, and how far ahead. Raises Refused
    if there is none."""
    namespace = namespaces.need(view, request.namespace)
    faults = validate.span("ahead", request, "ahead", 0, limits.DAY_MS)
    faults += validate.span("max_age", request, "max_age", 0, MAX_AGE_MS)
    if faults:
        raise Refused.of(faults)
    ahead_ms = to_ms(request.ahead) if request.HasField("ahead") else 0
    return namespace.number, ahead_ms or limits.HOUR_MS


def shown(
    view: View, request: Forecast, workers: Workers, found: FiringsAhead
) -> job_pb2.ForecastFiringsResponse:
    """What was counted, now or a while ago, against what the workers can do now."""
    number, ahead_ms = asked(view, request)
    end_ms = view.now_ms + ahead_ms
    answer = job_pb2.ForecastFiringsResponse(partial=found.whole_ms < min(end_ms, found.end_ms))
    set_ms(answer.counted_time, found.now_ms)
    set_ms(answer.complete_time, min(end_ms, found.whole_ms))
    first_ms = view.now_ms // limits.MINUTE_MS * limits.MINUTE_MS
    for minute_ms, firings, peak in found.minutes(first_ms, end_ms):
        minute = answer.minutes.add(firings=firings, peak=peak)
        set_ms(minute.start_time, minute_ms)
    name = namespaces.need(view, request.namespace).settings.name
    answer.slots = sum(worker.slots for worker in workers if name in worker.offer.namespaces)
    usage = view.get(keys.usage(number), UsageRecord)
    if usage is not None:
        ended, took_ms = slots.mean_times(usage, view.now_ms)
        answer.capacity = answer.slots * limits.MINUTE_MS * ended // took_ms if ended else 0
    return answer
