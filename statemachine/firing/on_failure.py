"""The failure of a run triggers another job (JobSpec.on_failure).

A job names one other job at most, so from each there is one way on. A circle is refused where it
would close, and a way longer than `ON_FAILURE_DEPTH` where a job is put before it. Jobs that wait
for others may close a circle between, and multiply in it, as many may wait for one and each of them
trigger that; so a run carries of how many failures it comes, and what came of too many triggers
nothing, nor does anything where too much is under way. Where nothing is triggered the run that
failed says why, and all else goes on.
"""

from __future__ import annotations

import msgspec

from ...proto.v1 import common_pb2, job_pb2, run_pb2
from ..core import limits
from ..core.instants import timestamp
from ..core.rejection import Reason, Refused
from ..flows import waves
from ..flows.graph import jid_named
from ..model import answers, carried, keys
from ..model.entities import Job, Run
from ..model.phases import FAILED, HALTED, HELD, READY
from ..model.record import FailureRecord, JobRecord, StepRecord, UpstreamRecord
from ..model.view import View
from ..occurrences import next_time
from ..runs import overlap, runs, unique_keys
from ..runs.move import move
from ..tenants import namespaces, quota

JSON = "application/json"


def check(view: View, namespace: int, name: str, spec: job_pb2.JobSpec) -> None:
    """Refuse a job whose failure would come back to it, or go too far."""
    at, path = spec.on_failure.job, [name]
    while at:
        path.append(at)
        shown = " -> ".join(path)
        if at == name:
            raise Refused.because(
                Reason.ERROR_REASON_CYCLE,
                f"spec.on_failure: the failures of these jobs would trigger each other: {shown}; "
                "take one of these out",
                path=shown,
            )
        if len(path) > limits.ON_FAILURE_DEPTH:
            raise Refused.because(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"spec.on_failure: over {limits.ON_FAILURE_DEPTH} jobs would trigger one another, "
                f"which is the most: {shown}; name a job further on",
                limit="on_failure_depth", maximum=limits.ON_FAILURE_DEPTH, actual=len(path),
            )  # fmt: skip
        jid = jid_named(view, namespace, at)
        at = "" if jid is None else view.need(keys.job(jid), JobRecord).template.on_failure


def is_missing(view: View, job: Job) -> bool:
    """Whether the job that the failures of one are to trigger is not there."""
    name = job.definition.template.on_failure
    return bool(name) and jid_named(view, job.namespace, name) is None


def run_failed(view: View, run: Run) -> None:
    """A run has failed for good: trigger the job that is named for that, or note why not."""
    name = run.job.definition.template.on_failure
    jid = jid_named(view, run.job.namespace, name)
    failure = FailureRecord(job=name)
    if jid is None:
        failure.why_not = f"there is no job '{name}'; create it, or name another one"
    elif why_not := _why_not(view, run, view.job(jid)):
        failure.why_not = why_not
    else:
        # Should that fail, it is the fault of the other job.
        before, view.subject = view.subject, keys.job(jid)
        failure.jid, failure.occurrence = jid, _trigger(view, run, view.job(jid))
        view.subject = before
    carried.note_failure(view, run, failure)


def explained(view: View, run: Run) -> str:
    """What came of the failure of a run that has ended, for people; empty if nothing was to."""
    record = carried.of(view, run) if run.record.phase == FAILED else None
    if record is None or record.failure is None:
        return ""
    failure = record.failure
    if failure.why_not:
        return f"; on_failure triggered nothing: {failure.why_not}"
    triggered = keys.run_id(failure.job, failure.jid, failure.occurrence)
    return f"; on_failure triggered '{failure.job}': {triggered}"


def _why_not(view: View, run: Run, job: Job) -> str:
    if carried.failures_of(view, run) >= limits.ON_FAILURE_DEPTH:
        return (
            f"it came of {limits.ON_FAILURE_DEPTH} failures one behind the other, which is the "
            "most; see whether jobs trigger each other in a circle"
        )
    live = job.state.live
    if live >= limits.ON_FAILURE_LIVE:
        return (
            f"{live} runs of '{job.definition.name}' are under way or wait already, which is the "
            "most; see why they do not end, or resume it"
        )
    return ""


def _trigger(view: View, failed: Run, job: Job) -> int:
    """Where the run stands that a failure brings; that of the failure before while it goes on."""
    key, hold_ms = _key(view, failed, job)
    holder = unique_keys.holder(view, job.jid, key)
    if holder is not None:
        return holder
    occurrence = runs.free_occurrence(view, job, view.now_ms)
    cause, outcome = run_pb2.CAUSE_FAILURE, run_pb2.OUTCOME_TRIGGERED
    run = runs.new(job, occurrence, cause, outcome, view.now_ms)
    record = view.change_run(run)
    record.made_in = view.base + 1
    record.upstream = (
        UpstreamRecord(failed.jid, failed.occurrence, run_pb2.RUN_STATE_FAILED),
    )  # fmt: skip
    record.payload = _payload(failed)
    view.weigh(record.weight())
    record.unique_key, record.unique_hold_ms = key, hold_ms
    trace = carried.trace_of(view, failed.jid, failed.occurrence)
    carried.put_failures(view, run, trace, carried.failures_of(view, failed) + 1)
    to = _where(view, job, occurrence)
    unique_keys.take(view, run, key)
    if job.state.has_downstream:
        waves.start(view, run)
    move(view, run, to)
    return occurrence


def _key(view: View, failed: Run, job: Job) -> tuple[str, int]:
    """Under what key the run is known that a failure brings, and how long beyond its end."""
    record = failed.record
    if record.flow_jid and _may_come_back(view, failed, job):
        key = f"failed-in:{record.flow_jid}.{record.flow_occurrence}"
        return key, limits.ON_FAILURE_SHARED_MS
    return f"failed:{answers.id_of(failed)}", 0


def _may_come_back(view: View, failed: Run, job: Job) -> bool:
    if carried.failures_of(view, failed):
        return True
    record = failed.record
    step = keys.step(record.flow_jid, record.flow_occurrence, job.jid)
    return job.jid == record.flow_jid or view.get(step, StepRecord) is not None


def _where(view: View, job: Job, occurrence: int) -> int:
    """As a step of a flow, it waits where it may not begin."""
    if job.state.state == next_time.PAUSED:
        return HALTED
    usage = namespaces.usage_of(view, job.jid)
    verdict = overlap.judge_wanted(view, job)
    if overlap.make_room(view, job, verdict, occurrence):
        return HELD
    if quota.is_taken(view, usage, job.definition.namespace):
        quota.wait(view, job, usage)
        return HELD
    return READY


def _payload(failed: Run) -> common_pb2.Payload:
    record, definition = failed.record, failed.job.definition
    error = record.error or run_pb2.RunError()
    body = {
        "namespace": definition.namespace,
        "job": definition.name,
        "run": answers.id_of(failed),
        "scheduled_time": timestamp(keys.scheduled_of(failed.occurrence)).ToJsonString(),
        "attempts": record.attempt,
        "error": {"kind": error.kind, "message": error.message[: limits.ON_FAILURE_CHARS]},
    }
    return common_pb2.Payload(data=msgspec.json.encode(body), content_type=JSON)
