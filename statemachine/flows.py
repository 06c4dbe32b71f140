"""Waves through jobs that depend on each other.

A wave begins with a run of a job that others depend on, and carries that run's id and nominal time
along. When a run of the wave ends, each job downstream looks at its own step of the wave: its
condition is met (then it fires, once), can no longer be met (then it is marked, and so is what
depends on it), or still waits. A step that waits too long is reported as stuck, with what it waits
for; it still fires if that comes.
"""

from __future__ import annotations

from ..proto.v1 import flow_pb2, job_pb2, run_pb2
from . import clockwork, keys, limits, namespaces, overlap, rejection, runs, timers
from .instants import ms_or
from .record import FlowRecord, JobRecord, RunRecord, StateRecord, StepRecord, UpstreamRecord
from .view import View

Step = flow_pb2.FlowStep
Dependency = job_pb2.Dependency
Join = job_pb2.Upstream
Reason = rejection.Reason

MET = {
    Dependency.CONDITION_UNSPECIFIED: frozenset({run_pb2.RUN_STATE_SUCCEEDED}),
    Dependency.CONDITION_SUCCESS: frozenset({run_pb2.RUN_STATE_SUCCEEDED}),
    Dependency.CONDITION_FAILURE: frozenset({run_pb2.RUN_STATE_FAILED}),
    Dependency.CONDITION_ANY_END: frozenset(
        {run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CANCELLED}
    ),
}


def start(view: View, jid: int, occasion: int, run: RunRecord) -> None:
    """A run that others wait for begins a wave. The caller puts the run."""
    run.flow_jid, run.flow_occasion = jid, occasion
    flow = FlowRecord(live=1, created_at_ms=view.now_ms, jids=(jid,))
    view.put(keys.flow(jid, occasion), flow)
    view.put_raw(keys.flow_line(keys.namespace_of(jid), view.now_ms, jid, occasion))


def begin_anew(view: View, jid: int, occasion: int) -> None:
    """The run a wave began with is made once more: nothing stays of what it was before."""
    flow = view.get(keys.flow(jid, occasion), FlowRecord)
    if flow is not None:
        _set_timer(view, jid, occasion, flow, 0)
        forget(view, jid, occasion, flow)


def run_ended(view: View, jid: int, occasion: int, run: RunRecord, state: StateRecord) -> None:
    """A run of a wave has ended: tell the jobs downstream."""
    if not run.flow_jid:
        # It began before anything depended on its job, so there is no wave to tell.
        return
    flow_key = keys.flow(run.flow_jid, run.flow_occasion)
    flow = view.need(flow_key, FlowRecord)
    flow.live -= 1
    flow.failed |= run.state == run_pb2.RUN_STATE_FAILED
    view.put(flow_key, flow)
    ended = UpstreamRecord(jid=jid, occasion=occasion, state=run.state)
    for downstream in downstream_of(view, jid):
        _look(view, run.flow_jid, run.flow_occasion, flow, downstream, ended)
    _settle(view, run.flow_jid, run.flow_occasion, flow)


def downstream_of(view: View, jid: int) -> list[int]:
    prefix = keys.of_job(keys.EDGE, jid)
    return [keys.run_of(key)[1] for key in view.scan(prefix, keys.after(prefix))]


def _look(
    view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord, jid: int,
    ended: UpstreamRecord | None,
) -> None:  # fmt: skip
    """One upstream of a step has ended, or (None) can no longer run: see what that means."""
    key = keys.step(flow_jid, flow_occasion, jid)
    step = view.get(key, StepRecord)
    job = view.need(keys.job(jid), JobRecord)
    if step is None:
        stuck_ms = ms_or(job.form.spec.upstream, "stuck_after", limits.STUCK_AFTER_MS)
        step = StepRecord(
            state=Step.STATE_WAITING, waiting_since_ms=view.now_ms,
            stuck_at_ms=view.now_ms + stuck_ms,
        )  # fmt: skip
        flow.waiting += 1
        flow.stuck_since_ms = 0
        flow.jids = (*flow.jids, jid)
        _set_timer(view, flow_jid, flow_occasion, flow, step.stuck_at_ms)
    if ended is not None:
        step.ended = (*step.ended, ended)
    view.put(key, step)
    if step.state != Step.STATE_WAITING:
        return
    verdict = _verdict(view, flow_jid, flow_occasion, jid, job, step)
    if verdict == Step.STATE_WAITING:
        return
    step.state = verdict
    flow.waiting -= 1
    if verdict == Step.STATE_FIRED:
        flow.live += 1
        step.occasion = _fire(view, flow_jid, flow_occasion, jid, job, step)
    else:
        flow.cannot_run += 1
        for downstream in downstream_of(view, jid):
            _look(view, flow_jid, flow_occasion, flow, downstream, None)


def _verdict(
    view: View, flow_jid: int, flow_occasion: int, jid: int, job: JobRecord, step: StepRecord
) -> Step.State.ValueType:
    met = lost = 0
    ends = {item.jid: item.state for item in step.ended}
    upstream = job.form.spec.upstream
    for dependency in upstream.jobs:
        source = jid_named(view, keys.namespace_of(jid), dependency.job)
        if source in ends:
            if ends[source] in MET[dependency.condition]:
                met += 1
            else:
                lost += 1
        elif source is None or _cannot_run(view, flow_jid, flow_occasion, source):
            lost += 1
    if upstream.join == Join.JOIN_ANY:
        if met:
            return Step.STATE_FIRED
        return Step.STATE_CANNOT_RUN if lost == len(upstream.jobs) else Step.STATE_WAITING
    if lost:
        return Step.STATE_CANNOT_RUN
    return Step.STATE_FIRED if met == len(upstream.jobs) else Step.STATE_WAITING


def _cannot_run(view: View, flow_jid: int, flow_occasion: int, jid: int) -> bool:
    step = view.get(keys.step(flow_jid, flow_occasion, jid), StepRecord)
    return step is not None and step.state == Step.STATE_CANNOT_RUN


def _fire(
    view: View, flow_jid: int, flow_occasion: int, jid: int, job: JobRecord, step: StepRecord
) -> int:
    """A step's condition is met: its run begins, at the wave's nominal time."""
    state_key = keys.state(jid)
    state = view.need(state_key, StateRecord)
    occasion = runs.free_occasion(view, jid, state, keys.nominal_of(flow_occasion))
    run = runs.new(job, run_pb2.CAUSE_UPSTREAM, run_pb2.OUTCOME_RAN, view.now_ms)
    run.flow_jid, run.flow_occasion = flow_jid, flow_occasion
    run.upstream = step.ended
    run.made_in = view.base + 1
    verdict = overlap.judge(view, jid, state, job.form.spec)
    if verdict is overlap.SKIP:
        # Each wave has its own run of the job; one that comes while another is under way waits.
        verdict = overlap.HOLD
    run.held = overlap.make_room(view, jid, state, verdict)
    runs.begin(view, jid, occasion, run, job.form, state)
    view.put(state_key, state)
    return occasion


def _settle(view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord) -> None:
    """A wave with nothing under way and nothing to wait for has ended."""
    if not flow.live and not flow.waiting:
        flow.ended_at_ms = view.now_ms
        flow.stuck = False
        flow.stuck_since_ms = 0
        _set_timer(view, flow_jid, flow_occasion, flow, 0)
        _set_timer(view, flow_jid, flow_occasion, flow, _kept_until(view, flow_jid, flow))
    elif flow.stuck_since_ms and not flow.live:
        # What its last run did not free, nothing will; it goes as a failure does.
        _set_timer(view, flow_jid, flow_occasion, flow, _kept_until(view, flow_jid, flow))
    view.put(keys.flow(flow_jid, flow_occasion), flow)


def _kept_until(view: View, flow_jid: int, flow: FlowRecord) -> int:
    """When a wave that has ended, or waits for ever, is forgotten."""
    if view.get(keys.job(flow_jid), JobRecord) is None:
        return view.now_ms
    well_ms, failed_ms = namespaces.keep_times(view, flow_jid)
    if flow.ended_at_ms:
        return flow.ended_at_ms + (failed_ms if flow.failed else well_ms)
    return flow.stuck_since_ms + failed_ms


def _set_timer(view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord, at_ms: int) -> None:
    if flow.timer_at_ms and (not at_ms or at_ms < flow.timer_at_ms):
        view.delete(keys.flow_timer(flow.timer_at_ms, flow_jid, flow_occasion))
        flow.timer_at_ms = 0
    if at_ms and not flow.timer_at_ms:
        view.put_timer(keys.flow_timer(at_ms, flow_jid, flow_occasion))
        flow.timer_at_ms = at_ms


def ring(view: View, flow_jid: int, flow_occasion: int) -> None:
    """A step may be stuck, or the memory of a wave has had its time."""
    key = keys.flow(flow_jid, flow_occasion)
    flow = view.need(key, FlowRecord)
    flow.timer_at_ms = 0
    if flow.ended_at_ms:
        _let_go(view, flow_jid, flow_occasion, flow)
        return
    ahead = _look_for_stuck(view, flow_jid, flow_occasion, flow)
    if flow.waiting and not ahead:
        flow.stuck_since_ms = flow.stuck_since_ms or view.now_ms
        if not flow.live:
            _let_go(view, flow_jid, flow_occasion, flow)
            return
    _set_timer(view, flow_jid, flow_occasion, flow, ahead)
    _settle(view, flow_jid, flow_occasion, flow)


def _let_go(view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord) -> None:
    """Forget a wave, unless it is to be kept for longer."""
    until_ms = _kept_until(view, flow_jid, flow)
    if until_ms <= view.now_ms:
        forget(view, flow_jid, flow_occasion, flow)
        return
    _set_timer(view, flow_jid, flow_occasion, flow, until_ms)
    view.put(keys.flow(flow_jid, flow_occasion), flow)


def _look_for_stuck(view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord) -> int:
    """Mark a wave some step of which waits for too long; the next instant to look, 0 for none."""
    ahead = 0
    for jid in flow.jids:
        step = view.get(keys.step(flow_jid, flow_occasion, jid), StepRecord)
        if step is not None and step.state == Step.STATE_WAITING:
            if view.get(keys.job(jid), JobRecord) is None:
                step.state = Step.STATE_CANNOT_RUN
                view.put(keys.step(flow_jid, flow_occasion, jid), step)
                flow.waiting -= 1
                flow.cannot_run += 1
            elif step.stuck_at_ms <= view.now_ms:
                flow.stuck = True
            else:
                ahead = timers.earliest(ahead, step.stuck_at_ms)
    return ahead


def forget(view: View, flow_jid: int, flow_occasion: int, flow: FlowRecord) -> None:
    for jid in flow.jids:
        view.delete(keys.step(flow_jid, flow_occasion, jid))
    number = keys.namespace_of(flow_jid)
    view.delete(keys.flow_line(number, flow.created_at_ms, flow_jid, flow_occasion))
    view.delete(keys.flow(flow_jid, flow_occasion))


def jid_named(view: View, namespace: int, name: str) -> int | None:
    """The job of a name. One that is being deleted has its name still, but nothing finds it."""
    value = view.get_raw(keys.job_name(namespace, name))
    if value is None:
        return None
    jid = int.from_bytes(value, "big")
    deleting = view.need(keys.state(jid), StateRecord).state == clockwork.DELETING
    return None if deleting else jid


def link(view: View, jid: int, job: JobRecord) -> None:
    """Let the upstream jobs know who depends on them."""
    for dependency in job.form.spec.upstream.jobs:
        source = jid_named(view, keys.namespace_of(jid), dependency.job)
        assert source is not None, f"upstream {dependency.job} was checked and is not there"
        view.put_raw(keys.edge(source, jid))
        key = keys.state(source)
        state = view.need(key, StateRecord)
        state.has_downstream = True
        # What others depend on is not deleted by itself.
        clockwork.settle(view, source, state)
        view.put(key, state)


def unlink(view: View, jid: int, job: JobRecord) -> None:
    """Let the upstream jobs know that this one depends on them no more."""
    for dependency in job.form.spec.upstream.jobs:
        source = jid_named(view, keys.namespace_of(jid), dependency.job)
        if source is None:
            continue
        view.delete(keys.edge(source, jid))
        key = keys.state(source)
        state = view.need(key, StateRecord)
        state.has_downstream = bool(downstream_of(view, source))
        clockwork.settle(view, source, state)
        view.put(key, state)


def check_upstream(view: View, namespace: int, name: str, spec: job_pb2.JobSpec) -> None:
    """Refuse upstream jobs that are not there, or that come back to this one."""
    sources = []
    for dependency in spec.upstream.jobs:
        source = jid_named(view, namespace, dependency.job)
        if source is None and dependency.job != name:
            raise rejection.Refused.because(
                Reason.ERROR_REASON_JOB_NOT_FOUND,
                f"spec.upstream.jobs: there is no job '{dependency.job}'; create it first",
                job=dependency.job, field="spec.upstream.jobs",
            )  # fmt: skip
        sources.append((dependency.job, source))
    path = _path_back(view, namespace, name, sources)
    if path:
        raise rejection.Refused.because(
            Reason.ERROR_REASON_CYCLE,
            f"the jobs would wait for each other: {path}; take one of these out",
            path=path,
        )


def _path_back(view: View, namespace: int, name: str, sources: list[tuple[str, int | None]]) -> str:
    """Walk upstream from the sources; the path, if it comes back to the name."""
    # Each entry: a job's name, and the path from the wanted job to it.
    waiting = [(source, [name, source]) for source, _ in reversed(sources)]
    seen: set[str] = set()
    while waiting:
        at, path = waiting.pop()
        if at == name:
            return " -> ".join(path)
        if at in seen:
            continue
        seen.add(at)
        if len(seen) > limits.GRAPH_JOBS:
            raise rejection.Refused.because(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"over {limits.GRAPH_JOBS} jobs lie upstream of '{name}'; that is the most",
                limit="graph_jobs", maximum=limits.GRAPH_JOBS, actual=len(seen),
            )  # fmt: skip
        jid = jid_named(view, namespace, at)
        job = view.get(keys.job(jid), JobRecord) if jid is not None else None
        if job is not None:
            waiting.extend((d.job, [*path, d.job]) for d in reversed(job.form.spec.upstream.jobs))
    return ""
