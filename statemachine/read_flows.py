"""Waves and the graph of jobs, for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..proto.v1 import flow_pb2, job_pb2, run_pb2
from . import filters, flows, keys, limits, namespaces, pages, runs
from .instants import set_ms
from .jobs import find
from .read_jobs import Terms, check_word, word
from .record import FlowRecord, JobRecord, RunRecord, StepRecord
from .rejection import Reason, Refused
from .view import View
from .workers import Workers

Flow = flow_pb2.Flow
Step = flow_pb2.FlowStep
FIELDS = ("state", "job")
SUCCESS = job_pb2.Dependency.CONDITION_SUCCESS


def get(view: View, request: flow_pb2.GetFlowRequest, workers: Workers) -> Flow:
    number = namespaces.need(view, request.namespace).number
    place = keys.run_key(request.flow)
    if place is not None and keys.namespace_of(place[0]) == number:
        record = view.get(keys.flow(*place), FlowRecord)
        if record is not None:
            answer = _answer(view, *place, record, request.namespace or namespaces.DEFAULT)
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
    terms = filters.parse(request.filter, FIELDS)
    check_word(terms, "state", Flow.State.keys(), "STATE_")
    wish = pages.read(
        "flows", namespace.number, request.filter, request.page_size, request.page_token
    )
    prefix = keys.in_namespace(keys.FLOW_LINE, namespace.number)
    end = keys.after(prefix)

    def show(entry: tuple[bytes, bytes]) -> Flow | None:
        jid, occasion = keys.run_of(entry[0])
        record = view.need(keys.flow(jid, occasion), FlowRecord)
        answer = _answer(view, jid, occasion, record, namespace.settings.name)
        return answer if _fits(answer, terms) else None

    found = view.stored.scan(pages.first_behind(wish, prefix, end), end)
    page = pages.fill(wish, found, pages.key_of, show)
    return flow_pb2.ListFlowsResponse(flows=page.items, next_page_token=page.next_token)


def _fits(flow: Flow, terms: Terms) -> bool:
    state = word(Flow.State.Name(flow.state), "STATE_")
    names = [step.job for step in flow.steps]
    for term in terms:
        values = [state] if term.field == "state" else names
        fitting = (filters.matches([term], {term.field: value}) for value in values)
        # A wave has many jobs: one that is named is enough, one that is not named must be absent.
        if not (all(fitting) if term.sign == "!=" else any(fitting)):
            return False
    return True


def _answer(view: View, jid: int, occasion: int, record: FlowRecord, namespace: str) -> Flow:
    root = view.get(keys.job(jid), JobRecord)
    answer = Flow(
        namespace=namespace, id=keys.run_id(root.name if root else "deleted", jid, occasion)
    )
    set_ms(answer.nominal_time, keys.nominal_of(occasion))
    set_ms(answer.create_time, record.created_at_ms)
    if record.ended_at_ms:
        set_ms(answer.end_time, record.ended_at_ms)
    jobs = {number: view.get(keys.job(number), JobRecord) for number in record.jids}
    for number in _sorted(view, record.jids, jobs):
        answer.steps.append(_step(view, jid, occasion, number, jobs[number]))
    answer.state = _state(record, answer.steps, jobs.values())
    return answer


def _state(
    record: FlowRecord, steps: Sequence[Step], jobs: Iterable[JobRecord | None]
) -> Flow.State.ValueType:
    if not record.ended_at_ms:
        return Flow.STATE_STUCK if record.stuck else Flow.STATE_LIVE
    waited_for = {
        dependency.job
        for job in jobs
        if job is not None
        for dependency in job.form.spec.upstream.jobs
    }
    # A failure that another job waits for is that job's business; a failure at the end is not.
    lost = any(step.run_state == runs.FAILED and step.job not in waited_for for step in steps)
    return Flow.STATE_FAILED if lost or _did_harm(steps) else Flow.STATE_SUCCEEDED


def _did_harm(steps: Sequence[Step]) -> bool:
    """A failure keeps a step from running. One that waited for a failure in vain is as it was
    asked for, and so is what depends on it."""
    well = dict[str, bool]()
    for step in steps:  # Upstream before downstream.
        well[step.job] = step.run_state == runs.SUCCEEDED
        if step.state == Step.STATE_CANNOT_RUN:
            well[step.job] = all(well.get(job, False) for job in step.because)
    return any(step.state == Step.STATE_CANNOT_RUN and not well[step.job] for step in steps)


def _step(view: View, flow_jid: int, flow_occasion: int, jid: int, job: JobRecord | None) -> Step:
    name = job.name if job else "deleted"
    record = view.get(keys.step(flow_jid, flow_occasion, jid), StepRecord)
    if record is None:
        # The job the wave began with has no step, since it waited for nothing.
        record = StepRecord(state=Step.STATE_FIRED, occasion=flow_occasion)
    step = Step(job=name, state=record.state)
    if record.occasion:
        step.run = keys.run_id(name, jid, record.occasion)
        run = view.get(keys.run(jid, record.occasion), RunRecord)
        run = run or view.get(keys.ended(jid, record.occasion), RunRecord)
        step.run_state = run.state if run else run_pb2.RUN_STATE_UNSPECIFIED
    elif job is not None:
        step.because.extend(_because(view, flow_jid, flow_occasion, jid, job, record))
    return step


def _because(
    view: View, flow_jid: int, flow_occasion: int, jid: int, job: JobRecord, step: StepRecord
) -> Iterator[str]:
    """The upstream jobs that a step waits for, or that ended otherwise than it wants."""
    ends = {item.jid: item.state for item in step.ended}
    for dependency in job.form.spec.upstream.jobs:
        source = flows.jid_named(view, keys.namespace_of(jid), dependency.job)
        lost = source is None
        if source is not None and source in ends:
            lost = ends[source] not in flows.MET[dependency.condition]
        elif source is not None:
            other = view.get(keys.step(flow_jid, flow_occasion, source), StepRecord)
            lost = other is not None and other.state == Step.STATE_CANNOT_RUN
        if lost == (step.state == Step.STATE_CANNOT_RUN) and (lost or source not in ends):
            yield dependency.job


def _sorted(view: View, jids: Iterable[int], jobs: dict[int, JobRecord | None]) -> list[int]:
    """Upstream before downstream; otherwise in the order given."""
    waiting: dict[int, set[int]] = {}
    for jid in jids:
        job = jobs[jid]
        sources = {
            flows.jid_named(view, keys.namespace_of(jid), dependency.job)
            for dependency in (job.form.spec.upstream.jobs if job is not None else ())
        }
        waiting[jid] = {source for source in sources if source is not None and source in jobs}
    done: dict[int, None] = {}
    while waiting:
        free = [jid for jid, sources in waiting.items() if sources <= done.keys()]
        # Jobs form no cycle, but a job may have been changed since the wave began.
        for jid in free or list(waiting):
            done[jid] = None
            del waiting[jid]
    return list(done)


def get_graph(view: View, request: flow_pb2.GetGraphRequest, workers: Workers) -> flow_pb2.Graph:
    """All that a job depends on, and all that depends on it."""
    jid, job, _ = find(view, request.namespace, request.job)
    around = {jid: job}
    _gather(view, jid, around, _upstream_of)
    _gather(view, jid, around, lambda view, other, _: flows.downstream_of(view, other))
    answer = flow_pb2.Graph()
    present = dict[int, JobRecord | None](around)
    for number in _sorted(view, sorted(around), present):
        record = around[number]
        answer.jobs.append(record.name)
        for dependency in record.form.spec.upstream.jobs:
            source = flows.jid_named(view, keys.namespace_of(number), dependency.job)
            if source in around:
                answer.edges.add(
                    upstream=dependency.job, downstream=record.name,
                    condition=dependency.condition or SUCCESS,
                )  # fmt: skip
    return answer


def _upstream_of(view: View, jid: int, job: JobRecord) -> list[int]:
    names = [dependency.job for dependency in job.form.spec.upstream.jobs]
    found = [flows.jid_named(view, keys.namespace_of(jid), name) for name in names]
    return [source for source in found if source is not None]


def _gather(
    view: View, jid: int, around: dict[int, JobRecord], step: Callable[..., list[int]]
) -> None:
    """Walk one way from a job, through each job once."""
    seen, waiting = {jid}, [jid]
    while waiting:
        at = waiting.pop()
        for other in step(view, at, around[at]):
            if other in seen:
                continue
            seen.add(other)
            around[other] = view.need(keys.job(other), JobRecord)
            waiting.append(other)
            if len(around) > limits.GRAPH_JOBS:
                raise Refused.because(
                    Reason.ERROR_REASON_LIMIT_EXCEEDED,
                    f"over {limits.GRAPH_JOBS} jobs lie around this one; that is the most",
                    limit="graph_jobs", maximum=limits.GRAPH_JOBS, actual=len(around),
                )  # fmt: skip
