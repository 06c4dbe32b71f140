"""Which job waits for which: the edges between jobs, and what may become one."""

from __future__ import annotations

from itertools import islice

from ..proto.v1 import job_pb2
from . import clockwork, keys, limits, rejection, validate
from .record import DependsRecord, JobRecord, StateRecord
from .view import View

Reason = rejection.Reason


def jid_named(view: View, namespace: int, name: str) -> int | None:
    """The job of a name. One that is being deleted has its name still, but nothing finds it."""
    value = view.get_raw(keys.job_name(namespace, name))
    if value is None:
        return None
    jid = int.from_bytes(value, "big")
    deleting = view.need(keys.state(jid), StateRecord).state == clockwork.DELETING
    return None if deleting else jid


def downstream_of(view: View, jid: int) -> list[int]:
    prefix = keys.of_job(keys.EDGE, jid)
    return [keys.run_of(key)[1] for key in view.scan(prefix, keys.after(prefix))]


def link(view: View, jid: int, job: JobRecord) -> None:
    """Let the upstream jobs know who depends on them."""
    depth = 0
    for dependency in job.form.spec.upstream.jobs:
        source = jid_named(view, keys.namespace_of(jid), dependency.job)
        assert source is not None, f"upstream {dependency.job} was checked and is not there"
        depends = _depends(view, source)
        depth = max(depth, depends.depth)
        edge = keys.edge(source, jid)
        if view.get_raw(edge) is None:
            view.put_raw(edge)
            depends.dependents += 1
            _keep(view, source, depends)
        key = keys.state(source)
        state = view.need(key, StateRecord)
        if not state.has_downstream:
            state.has_downstream = True
            # What others depend on is not deleted by itself.
            clockwork.settle(view, source, state)
            view.put(key, state)
    own = _depends(view, jid)
    own.depth = depth + 1
    _keep(view, jid, own)


def unlink(view: View, jid: int, job: JobRecord) -> None:
    """Let the upstream jobs know that this one depends on them no more."""
    for dependency in job.form.spec.upstream.jobs:
        source = jid_named(view, keys.namespace_of(jid), dependency.job)
        if source is None:
            continue
        edge = keys.edge(source, jid)
        if view.get_raw(edge) is not None:
            depends = _depends(view, source)
            depends.dependents -= 1
            _keep(view, source, depends)
        view.delete(edge)
        key = keys.state(source)
        state = view.need(key, StateRecord)
        prefix = keys.of_job(keys.EDGE, source)
        state.has_downstream = next(view.scan(prefix, keys.after(prefix)), None) is not None
        clockwork.settle(view, source, state)
        view.put(key, state)
    own = view.get(keys.depends(jid), DependsRecord)
    if own is not None:
        own.depth = 1
        _keep(view, jid, own)


def _keep(view: View, jid: int, depends: DependsRecord) -> None:
    """A job that waits for none, and that none waits for, needs no record."""
    if depends.dependents or depends.depth > 1:
        view.put(keys.depends(jid), depends)
    else:
        view.delete(keys.depends(jid))


def first_downstream(view: View, jid: int, most: int) -> tuple[list[int], int]:
    """Some of the jobs that wait for one, and how many do."""
    prefix = keys.of_job(keys.EDGE, jid)
    found = [keys.run_of(key)[1] for key in islice(view.scan(prefix, keys.after(prefix)), most)]
    return found, _depends(view, jid).dependents


def _depends(view: View, jid: int) -> DependsRecord:
    """How many jobs wait for one, and how many wait for each other up to it. A state from before
    this was counted has no record, and then its edges are counted once."""
    record = view.get(keys.depends(jid), DependsRecord)
    if record is None:
        prefix = keys.of_job(keys.EDGE, jid)
        waiting = sum(1 for _ in view.scan(prefix, keys.after(prefix)))
        record = DependsRecord(dependents=waiting, depth=1)
    return record


def missing(view: View, namespace: int, wanted: job_pb2.Job) -> list[rejection.Fault]:
    """Upstream jobs that are not there, to be named beside what else is wrong."""
    return [
        rejection.Fault(
            "spec.upstream.jobs",
            Reason.ERROR_REASON_JOB_NOT_FOUND,
            f"there is no job '{dependency.job}'; create it first",
        )
        for dependency in wanted.spec.upstream.jobs[: limits.UPSTREAM_JOBS]
        if dependency.job != wanted.name
        and not validate.name("", dependency.job)
        and jid_named(view, namespace, dependency.job) is None
    ]


def check(view: View, namespace: int, name: str, spec: job_pb2.JobSpec) -> None:
    """Refuse upstream jobs that are not there, that too many wait for, or that wait for this one.

    Only what a job is now to wait for in addition can close a circle, and only when another job
    waits for it already.
    """
    jid = jid_named(view, namespace, name)
    before = set[str]()
    if jid is not None:
        job = view.need(keys.job(jid), JobRecord)
        before = {dependency.job for dependency in job.form.spec.upstream.jobs}
    added = []
    for dependency in spec.upstream.jobs:
        source = jid_named(view, namespace, dependency.job)
        if source is None and dependency.job != name:
            raise rejection.Refused.because(
                Reason.ERROR_REASON_JOB_NOT_FOUND,
                f"spec.upstream.jobs: there is no job '{dependency.job}'; create it first",
                job=dependency.job, field="spec.upstream.jobs",
            )  # fmt: skip
        if dependency.job not in before:
            added.append(dependency.job)
            if source is not None:
                _check_room(view, name, dependency.job, source)
    waited_for = jid is not None and view.need(keys.state(jid), StateRecord).has_downstream
    if name in added or (added and waited_for):
        _check_circle(view, namespace, name, added)


def _check_room(view: View, name: str, upstream: str, source: int) -> None:
    depends = _depends(view, source)
    if depends.dependents >= limits.DEPENDENTS:
        raise rejection.Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"{depends.dependents} jobs wait for '{upstream}' already; that is the most. Let "
            f"'{name}' wait for another job that itself waits for '{upstream}'",
            limit="dependents", maximum=limits.DEPENDENTS, actual=depends.dependents + 1,
        )  # fmt: skip
    if depends.depth >= limits.FLOW_DEPTH:
        raise rejection.Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"'{upstream}' is the last of {depends.depth} jobs that wait one for the other; that "
            f"is the most. Let '{name}' wait for a job further up",
            limit="flow_depth", maximum=limits.FLOW_DEPTH, actual=depends.depth + 1,
        )  # fmt: skip


def _check_circle(view: View, namespace: int, name: str, added: list[str]) -> None:
    """Walk upstream from the jobs that are added, through each job once."""
    # By job, the one that it was met behind: the way back to the wanted one.
    behind = dict.fromkeys(added, name)
    waiting = added[::-1]
    while waiting:
        at = waiting.pop()
        if at == name:
            path = _path(behind, name)
            raise rejection.Refused.because(
                Reason.ERROR_REASON_CYCLE,
                f"the jobs would wait for each other: {path}; take one of these out",
                path=path,
            )
        if len(behind) > limits.GRAPH_JOBS:
            raise rejection.Refused.because(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"over {limits.GRAPH_JOBS} jobs lie upstream of '{name}', and no more are looked "
                "through for a circle; create it under another name instead of changing it",
                limit="graph_jobs", maximum=limits.GRAPH_JOBS, actual=len(behind),
            )  # fmt: skip
        jid = jid_named(view, namespace, at)
        job = view.get(keys.job(jid), JobRecord) if jid is not None else None
        if job is not None:
            found = [d.job for d in job.form.spec.upstream.jobs if d.job not in behind]
            behind.update(dict.fromkeys(found, at))
            waiting.extend(reversed(found))


def _path(behind: dict[str, str], name: str) -> str:
    path = [name, behind[name]]
    while path[-1] != name:
        path.append(behind[path[-1]])
    shown = path[::-1]
    if len(shown) > limits.PATH_JOBS:
        half = limits.PATH_JOBS // 2
        shown = [*shown[:half], "...", *shown[-half:]]
    return " -> ".join(shown)
