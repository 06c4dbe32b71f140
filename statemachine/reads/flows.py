"""Waves and the graph of jobs, for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...proto.v1 import flow_pb2, job_pb2, run_pb2
from ..calls.jobs import find
from ..core import filters, limits, pages
from ..core.instants import set_ms, to_ms
from ..core.rejection import Reason, Refused
from ..flows import graph, survey, waves
from ..flows.wave import Wave, find_wave
from ..model import keys
from ..model.entities import Job
from ..model.record import FlowRecord, JobRecord, RunRecord, StepRecord
from ..model.view import View
from ..model.workers import Workers
from ..tenants import namespaces

Flow = flow_pb2.Flow
Step = flow_pb2.FlowStep
FIELDS = {
    "state": filters.words(Flow.State.keys(), "STATE_"),
    "job": filters.TEXT,
    "create_time": filters.INSTANT,
    "end_time": filters.INSTANT,
}
SUCCESS = job_pb2.Dependency.CONDITION_SUCCESS
FAILURE = job_pb2.Dependency.CONDITION_FAILURE


def get(view: View, request: flow_pb2.GetFlowRequest, workers: Workers) -> Flow:
    number = namespaces.need(view, request.namespace).number
    place = keys.run_key(request.flow)
    if place is not None and keys.namespace_of(place[0]) == number:
        wave = find_wave(view, *place)
        if wave is not None:
            answer = _answer(view, wave, request.namespace or namespaces.DEFAULT)
            if answer.id == request.flow:
                return answer
    raise Refused.because(
        Reason.ERROR_REASON_FLOW_NOT_FOUND,
        f"there is no flow '{request.flow}', or its history was purged; list the flows",
        namespace=request.namespace or namespaces.DEFAULT, flow=request.flow,
    )  # fmt: skip


def list_flows(
    view: View, request: flow_pb2.ListFlowsRequest, workers: Workers
) -> flow_pb2.ListFlowsResponse:
    namespace = namespaces.need(view, request.namespace)
    wanted = filters.parse(request.filter, FIELDS)
    paging = pages.read(
        "flows", namespace.number, request.filter, request.page_size, request.page_token
    )
    prefix = keys.in_namespace(keys.FLOW_BY_AGE, namespace.number)
    end = keys.after(prefix)

    looked_at = 0

    def show(entry: tuple[bytes, bytes]) -> Flow | None:
        nonlocal looked_at
        wave = find_wave(view, *keys.run_of(entry[0]))
        assert wave is not None, f"{entry[0]!r} stands among the flows by age and is no wave"
        answer = _answer(view, wave, namespace.settings.name)
        looked_at += len(answer.steps)
        return answer if wanted.fits(lambda field: _value_of(answer, field)) else None

    found = view.stored.scan(pages.first_behind(paging, prefix, end), end)
    page = pages.fill(paging, found, pages.key_of, show, lambda: looked_at >= limits.LOOKED_AT)
    return flow_pb2.ListFlowsResponse(flows=page.items, next_page_token=page.next_token)


def _value_of(flow: Flow, field: str) -> filters.Value:
    """A wave has many jobs: one that is named is enough, one that is not named must be absent."""
    if field == "state":
        return Flow.State.Name(flow.state).removeprefix("STATE_")
    if field == "create_time":
        return to_ms(flow.create_time)
    if field == "end_time":
        return to_ms(flow.end_time) if flow.HasField("end_time") else ""
    return [step.job for step in flow.steps]


def _answer(view: View, wave: Wave, namespace: str) -> Flow:
    record, root = wave.flow, view.get(keys.job(wave.jid), JobRecord)
    name = root.name if root else "deleted"
    answer = Flow(namespace=namespace, id=keys.run_id(name, wave.jid, wave.occurrence))
    set_ms(answer.scheduled_time, keys.scheduled_of(wave.occurrence))
    set_ms(answer.create_time, record.created_at_ms)
    if record.ended_at_ms:
        set_ms(answer.end_time, record.ended_at_ms)
    jids = _jids(view, wave)
    answer.more_steps = len(jids) > limits.FLOW_STEPS
    jobs = {number: view.get(keys.job(number), JobRecord) for number in jids[: limits.FLOW_STEPS]}
    cannot = set[int]()
    for number in _sorted(view, jobs):
        answer.steps.append(_step(view, wave, number, jobs[number], cannot))
    answer.state = _state(record, answer, jobs.values())
    return answer


def _jids(view: View, wave: Wave) -> list[int]:
    """The jobs that a wave has reached, one more than are shown at most."""
    found = [wave.jid]
    prefix = keys.steps_of(wave.jid, wave.occurrence)
    for key in view.scan(prefix, keys.after(prefix)):
        jid = int.from_bytes(key[-8:], "big")
        if jid != wave.jid and wave.step(view, jid) is not None:
            found.append(jid)
            if len(found) > limits.FLOW_STEPS:
                break
    return found


def _state(
    record: FlowRecord, flow: Flow, jobs: Iterable[JobRecord | None]
) -> Flow.State.ValueType:
    if not record.ended_at_ms:
        return Flow.STATE_STUCK if record.stuck else Flow.STATE_LIVE
    if flow.more_steps:
        # Whose business a failure was is known from all steps only.
        well = not record.failed and not record.cannot_run
        return Flow.STATE_SUCCEEDED if well else Flow.STATE_FAILED
    steps = flow.steps
    fired = {step.job for step in steps if step.state == Step.STATE_FIRED}
    handled = {
        dependency.job
        for job in jobs
        if job is not None and job.name in fired
        for dependency in job.template.spec.upstream.jobs
        if run_pb2.RUN_STATE_FAILED in waves.MET[dependency.condition]
    }
    # A failure for which another job ran is that job's business; any other is not.
    failed = (step for step in steps if step.run_state == run_pb2.RUN_STATE_FAILED)
    lost = any(step.job not in handled for step in failed)
    return Flow.STATE_FAILED if lost or _did_harm(steps) else Flow.STATE_SUCCEEDED


def _did_harm(steps: Sequence[Step]) -> bool:
    """A failure keeps a step from running. One that waited for a failure in vain is as it was
    asked for, and so is what depends on it."""
    well = dict[str, bool]()
    for step in steps:  # Upstream before downstream.
        well[step.job] = step.run_state == run_pb2.RUN_STATE_SUCCEEDED
        if step.state == Step.STATE_CANNOT_RUN:
            well[step.job] = all(well.get(job, False) for job in step.because)
    return any(step.state == Step.STATE_CANNOT_RUN and not well[step.job] for step in steps)


def _step(view: View, wave: Wave, jid: int, job: JobRecord | None, cannot: set[int]) -> Step:
    """A job of a wave; what is before it and cannot run is known."""
    name = job.name if job else "deleted"
    record = wave.step(view, jid)
    if record is None:
        # The job the wave began with has no step, since it waited for nothing.
        record = StepRecord(state=Step.STATE_FIRED, occurrence=wave.occurrence)
    step = Step(job=name, state=record.state)
    if record.occurrence:
        step.run = keys.run_id(name, jid, record.occurrence)
        run = view.get(keys.run(jid, record.occurrence), RunRecord)
        run = run or view.get(keys.ended(jid, record.occurrence), RunRecord)
        step.run_state = run.state if run else run_pb2.RUN_STATE_UNSPECIFIED
    elif job is not None:
        lost, awaited = _upstream(view, wave, jid, job, record, cannot)
        is_any = job.template.spec.upstream.join == job_pb2.Upstream.JOIN_ANY
        may_come = [name for name, is_in_wave in awaited.items() if is_in_wave]
        if step.state == Step.STATE_CANNOT_RUN and may_come and (is_any or not lost):
            # One before it was requeued and runs anew, and it decides when that ends.
            step.state = Step.STATE_WAITING
        if step.state == Step.STATE_CANNOT_RUN:
            cannot.add(jid)
        step.because.extend(lost or awaited if step.state == Step.STATE_CANNOT_RUN else awaited)
    return step


def _upstream(
    view: View, wave: Wave, jid: int, job: JobRecord, step: StepRecord, cannot: set[int]
) -> tuple[list[str], dict[str, bool]]:
    """The upstream jobs that ended otherwise than a step wants or cannot run, and those that it
    still waits for, with whether they are in the wave."""
    lost: list[str] = []
    awaited: dict[str, bool] = {}
    sources: dict[str, int] = {}
    ends = {item.jid: item.state for item in step.ended if not waves.runs_again(view, item)}
    for dependency in job.template.spec.upstream.jobs:
        source = graph.jid_named(view, keys.namespace_of(jid), dependency.job)
        if source is not None and source in ends:
            if ends[source] not in waves.MET[dependency.condition]:
                lost.append(dependency.job)
        elif source is None or source in cannot:
            lost.append(dependency.job)
        else:
            awaited[dependency.job] = source == wave.jid or wave.step(view, source) is not None
            sources[dependency.job] = source
    if awaited and wave.is_middle(view):
        inside = survey.seen(view, wave, sources.values())
        awaited = {name: is_in for name, is_in in awaited.items() if sources[name] in inside}
    return lost, awaited


def _sorted(view: View, jobs: Mapping[int, JobRecord | None]) -> list[int]:
    """Upstream before downstream; otherwise in the order given."""
    waits: dict[int, int] = {}
    behind: dict[int, list[int]] = {jid: [] for jid in jobs}
    for jid, job in jobs.items():
        sources = {
            graph.jid_named(view, keys.namespace_of(jid), dependency.job)
            for dependency in (job.template.spec.upstream.jobs if job is not None else ())
        }
        inside = [source for source in sources if source is not None and source in jobs]
        waits[jid] = len(inside)
        for source in inside:
            behind[source].append(jid)
    order = {jid: place for place, jid in enumerate(jobs)}
    done: dict[int, None] = {}
    free = [jid for jid in jobs if not waits[jid]]
    while free:
        done.update(dict.fromkeys(free))
        freed = []
        for jid in free:
            for other in behind[jid]:
                waits[other] -= 1
                if not waits[other]:
                    freed.append(other)
        free = sorted(freed, key=order.__getitem__)
    # There is no cycle of jobs, but a job may have been changed since the wave began.
    return [*done, *(jid for jid in jobs if jid not in done)]


def get_graph(view: View, request: flow_pb2.GetGraphRequest, workers: Workers) -> flow_pb2.Graph:
    """All that a job depends on, and all that depends on it."""
    around = _Surroundings(view, find(view, request.namespace, request.job))
    around.gather(_upstream_of)
    around.gather(lambda view, other, _: graph.downstream_of(view, other))
    answer = flow_pb2.Graph()
    jobs = around.jobs
    present = dict[int, JobRecord | None](jobs)
    for number in _sorted(view, {number: present[number] for number in sorted(jobs)}):
        record = jobs[number]
        answer.jobs.append(record.name)
        for dependency in record.template.spec.upstream.jobs:
            source = graph.jid_named(view, keys.namespace_of(number), dependency.job)
            if source in jobs:
                answer.edges.add(
                    upstream=dependency.job, downstream=record.name,
                    condition=dependency.condition or SUCCESS,
                )  # fmt: skip
    around.gather_triggered()
    for record in jobs.values():
        name = record.template.on_failure
        if name in around.triggered:
            answer.edges.add(
                upstream=record.name, downstream=name, condition=FAILURE, triggers=True
            )
    answer.jobs.extend(name for name in sorted(around.triggered) if name not in answer.jobs)
    return answer


def _upstream_of(view: View, jid: int, job: JobRecord) -> list[int]:
    names = [dependency.job for dependency in job.template.spec.upstream.jobs]
    found = [graph.jid_named(view, keys.namespace_of(jid), name) for name in names]
    return [source for source in found if source is not None]


class _Surroundings:
    """The jobs around one job, with a bound on them and on what they are linked by."""

    def __init__(self, view: View, job: Job) -> None:
        self.view, self.start = view, job.jid
        self.jobs = {job.jid: job.definition}
        self.links = len(job.definition.template.spec.upstream.jobs)
        self.triggered: set[str] = set()

    def gather(self, step: Callable[[View, int, JobRecord], list[int]]) -> None:
        """Walk one way from the job, through each job once."""
        seen, waiting = {self.start}, [self.start]
        while waiting:
            at = waiting.pop()
            for other in step(self.view, at, self.jobs[at]):
                if other not in seen:
                    seen.add(other)
                    self._add(other)
                    waiting.append(other)

    def gather_triggered(self) -> None:
        """The jobs that failures of these trigger; what those lead to is left to their graphs."""
        known = {record.name for record in self.jobs.values()}
        for record in self.jobs.values():
            name = record.template.on_failure
            number = keys.namespace_of(self.start)
            if name and graph.jid_named(self.view, number, name) is not None:
                self.links += 1
                self.triggered.add(name)
                others = len(self.triggered - known)
                self._need_room("graph_jobs", "jobs lie", len(self.jobs) + others,
                                limits.GRAPH_JOBS)  # fmt: skip
                self._need_room("graph_links", "links lie", self.links, limits.GRAPH_LINKS)

    def _add(self, jid: int) -> None:
        record = self.view.need(keys.job(jid), JobRecord)
        self.jobs[jid] = record
        self.links += len(record.template.spec.upstream.jobs)
        self._need_room("graph_jobs", "jobs lie", len(self.jobs), limits.GRAPH_JOBS)
        self._need_room("graph_links", "links lie", self.links, limits.GRAPH_LINKS)

    def _need_room(self, limit: str, what: str, actual: int, maximum: int) -> None:
        if actual > maximum:
            raise Refused.because(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"over {maximum} {what} around '{self.jobs[self.start].name}', and a graph shows "
                f"{maximum} at most; ask for one with fewer around it, or read its own links "
                "with GetJob",
                limit=limit, maximum=maximum, actual=actual,
            )  # fmt: skip
