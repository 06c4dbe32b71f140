"""Which job waits for which: the edges between jobs, and what may become one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from ...proto.v1 import job_pb2
from ..core import limits, rejection
from ..model import keys, validate
from ..model.entities import Job
from ..model.graph_memory import GraphMemory
from ..model.record import DependsRecord, JobRecord
from ..model.view import View
from ..occurrences import next_time

Reason = rejection.Reason


def jid_named(view: View, namespace: int, name: str) -> int | None:
    """The job of a name. One that is being deleted has its name still, but nothing finds it."""
    value = view.get_raw(keys.job_name(namespace, name))
    if value is None:
        return None
    jid = int.from_bytes(value, "big")
    deleting = view.job(jid).state.state == next_time.DELETING
    return None if deleting else jid


def downstream_of(view: View, jid: int) -> list[int]:
    return list(downstream_from(view, jid, 0))


def downstream_from(view: View, jid: int, first: int) -> Iterator[int]:
    """Those that wait for a job, by their numbers, without those before one."""
    end = keys.after(keys.of_job(keys.EDGE, jid))
    return (keys.run_of(key)[1] for key in view.scan(keys.edge(jid, first), end))


def link(view: View, job: Job) -> None:
    """Let the upstream jobs know who depends on them."""
    view.graph = GraphMemory()
    depth = 0
    for dependency in job.definition.template.spec.upstream.jobs:
        source = jid_named(view, keys.namespace_of(job.jid), dependency.job)
        assert source is not None, f"upstream {dependency.job} was checked and is not there"
        depends = _depends(view, source)
        depth = max(depth, depends.depth)
        edge = keys.edge(source, job.jid)
        if view.get_raw(edge) is None:
            view.put_raw(edge)
            depends.dependents += 1
            _keep(view, source, depends)
        upstream = view.job(source)
        if not upstream.state.has_downstream:
            view.change_state(upstream).has_downstream = True
            # What others depend on is not deleted by itself.
            next_time.reschedule(view, upstream)
    own = _depends(view, job.jid)
    own.depth = depth + 1
    _keep(view, job.jid, own)


def unlink(view: View, job: Job) -> None:
    """Let the upstream jobs know that this one depends on them no more."""
    dependencies = job.definition.template.spec.upstream.jobs
    if dependencies:
        view.graph = GraphMemory()
    for dependency in dependencies:
        source = jid_named(view, keys.namespace_of(job.jid), dependency.job)
        if source is None:
            continue
        edge = keys.edge(source, job.jid)
        if view.get_raw(edge) is not None:
            depends = _depends(view, source)
            depends.dependents -= 1
            _keep(view, source, depends)
        view.delete(edge)
        upstream, prefix = view.job(source), keys.of_job(keys.EDGE, source)
        others = next(view.scan(prefix, keys.after(prefix)), None)
        view.change_state(upstream).has_downstream = others is not None
        next_time.reschedule(view, upstream)
    own = view.get(keys.depends(job.jid), DependsRecord)
    if own is not None:
        own.depth = 1
        _keep(view, job.jid, own)


def led_to(view: View, root: int) -> set[int] | None:
    """A job and those that a wave which begins with it may come to; None: too many to look for in
    one go."""
    known = view.graph.led
    if root not in known:
        if len(known) >= limits.LED_ROOTS:
            known.clear()
        above = _all_below(view, root, (), limits.LED_JOBS, limits.LED_LINKS)
        known[root] = None if above is None else set(above)
    return known[root]


def sources_of(view: View, job: Job) -> list[int | None]:
    """Those that a job waits for, as its spec lists them. None of them goes while it does."""
    known = view.graph.sources
    found = known.get(job.jid)
    if found is None:
        if len(known) >= limits.SOURCES_OF:
            known.clear()
        namespace = keys.namespace_of(job.jid)
        upstream = job.definition.template.spec.upstream
        found = known[job.jid] = [jid_named(view, namespace, one.job) for one in upstream.jobs]
    return found


def _all_below(
    view: View, root: int, wanted: Collection[int | None], most_jobs: int, most_links: int
) -> dict[int, int] | None:
    """A job and those that wait for it, up to one that is wanted, each with the one that it was met
    behind; None where there are too many."""
    above = {root: root}
    left, links = [root], 0
    while left:
        at = left.pop()
        if at in wanted:
            break
        found = _links_down(view, at, most_links + 1 - links)
        links += len(found)
        new = [below for below in found if below not in above]
        above.update(dict.fromkeys(new, at))
        if len(above) > most_jobs or links > most_links:
            return None
        left.extend(new)
    return above


def _links_down(view: View, jid: int, most: int) -> list[int]:
    return list(islice(downstream_from(view, jid, 0), most))


def apart(view: View, namespace: int, upstream: job_pb2.Upstream) -> str:
    """Why a job that waits for all of these would never run, if so: a wave begins with one job,
    which must come before them all."""
    if upstream.join == job_pb2.Upstream.JOIN_ANY or len(upstream.jobs) < 2:
        return ""
    names = [dependency.job for dependency in upstream.jobs]
    roots = _roots_of(view, namespace, names)
    if roots is None:
        return ""
    common = roots[names[0]]
    for place, name in enumerate(names):
        common &= roots[name]
        if not common:
            others = names[:place]
            shown = others[0] if place == 1 else f"all of {', '.join(others)}"
            return (
                f"no job comes before both {name} and {shown}, so no flow has a run of both and "
                "this job never runs, also where their schedules name the same instants; let one "
                "run after the other, or both after a third that has the schedule, or join by ANY"
            )
    return ""


def _roots_of(view: View, namespace: int, names: list[str]) -> dict[str, int] | None:
    """By job, which jobs without upstream come before it, or are it, as bits; None where so much
    comes before them that nobody looks."""
    roots: dict[str, int] = {}
    known: dict[str, list[str]] = {}
    left, links, first = names[:], 0, 1
    while left:
        at = left[-1]
        if at not in known:
            known[at] = _upstream_names(view, namespace, at)
            links += len(known[at])
            if links > limits.COMMON_LINKS:
                return None
        unknown = [name for name in known[at] if name not in roots]
        if unknown:
            left += unknown
            continue
        left.pop()
        if at in roots:
            continue
        roots[at] = first if not known[at] else 0
        first <<= not known[at]
        for name in known[at]:
            roots[at] |= roots[name]
    return roots


def _upstream_names(view: View, namespace: int, name: str) -> list[str]:
    jid = jid_named(view, namespace, name)
    job = view.get(keys.job(jid), JobRecord) if jid is not None else None
    return (
        [dependency.job for dependency in job.template.spec.upstream.jobs]
        if job is not None
        else []
    )


def _keep(view: View, jid: int, depends: DependsRecord) -> None:
    """A job that waits for none, and that none waits for, needs no record."""
    if depends.dependents or depends.depth > 1:
        view.put(keys.depends(jid), depends)
    else:
        view.delete(keys.depends(jid))


def first_downstream(view: View, jid: int, most: int) -> tuple[list[int], int]:
    """Some of the jobs that wait for one, and how many do."""
    return _links_down(view, jid, most), _depends(view, jid).dependents


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
    """Refuse upstream jobs that are not there, that too many wait for, that wait for this one, or
    that are never all in one flow.

    Only what a job is now to wait for in addition can close a circle, and only when another job
    waits for it already.
    """
    jid = jid_named(view, namespace, name)
    former = job_pb2.Upstream()
    if jid is not None:
        former = view.need(keys.job(jid), JobRecord).template.spec.upstream
    before = {dependency.job for dependency in former.jobs}
    added = []
    gone: list[str] = []
    for dependency in spec.upstream.jobs:
        source = jid_named(view, namespace, dependency.job)
        if source is None and dependency.job != name:
            gone.append(dependency.job)
        elif dependency.job not in before:
            added.append(dependency.job)
            if source is not None:
                _check_room(view, name, dependency.job, source)
    if gone:
        shown = ", ".join(f"'{job}'" for job in gone)
        none = (
            f"there is no job {shown}; create it"
            if len(gone) == 1
            else f"there are no jobs {shown}; create them"
        )
        raise rejection.Refused.because(
            Reason.ERROR_REASON_JOB_NOT_FOUND, f"spec.upstream.jobs: {none} first",
            job=gone[0], field="spec.upstream.jobs",
        )  # fmt: skip
    waited_for = jid is not None and view.job(jid).state.has_downstream
    if name in added or (added and waited_for):
        _check_circle(view, namespace, name, added)
    if added or former.join != spec.upstream.join:
        why = apart(view, namespace, spec.upstream)
        if why:
            fault = rejection.Fault("spec.upstream.jobs", Reason.ERROR_REASON_FIELD_INVALID, why)
            raise rejection.Refused.of([fault])


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
    """Refuse a job that is to wait for one that waits for it.

    It is looked for down from the job, where most find their end soon, and up from what is added
    only where too many wait for the job.
    """
    path = [name, name] if name in added else _path_down(view, namespace, name, added)
    if path is None:
        most = limits.CIRCLE_JOBS, limits.CIRCLE_LINKS
        path = _path_up(view, namespace, name, added, *most)
    if path is None:
        raise rejection.Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"over {limits.CIRCLE_JOBS} jobs wait for '{name}', and as many come before what it is "
            "now to wait for; no more are looked through for a circle. Create it under another "
            "name instead of changing it",
            limit="circle_jobs", maximum=limits.CIRCLE_JOBS, actual=limits.CIRCLE_JOBS + 1,
        )  # fmt: skip
    if path:
        shown = " -> ".join(_shortened(path))
        raise rejection.Refused.because(
            Reason.ERROR_REASON_CYCLE,
            f"the jobs would wait for each other: {shown}; take one of these out",
            path=shown,
        )


def _path_down(view: View, namespace: int, name: str, added: list[str]) -> list[str] | None:
    """The circle that one of the added would close, found among those that wait for the job: []
    where there is none, None where too many wait."""
    root = jid_named(view, namespace, name)
    assert root is not None, f"nobody can wait for {name}, which is not there"
    wanted = {jid_named(view, namespace, other) for other in added}
    above = _all_below(view, root, wanted, limits.CIRCLE_JOBS, limits.CIRCLE_LINKS)
    if above is None:
        return None
    path = [jid for jid in above if jid in wanted][:1]
    while path and path[-1] != root:
        path.append(above[path[-1]])
    return [name, *(view.job(jid).definition.name for jid in path)] if path else []


def comes_before(view: View, namespace: int, name: str, spec: job_pb2.JobSpec, most: int) -> bool:
    """Whether a job that waits for others comes behind another one, as far as a look at so many
    shows."""
    upstream = [dependency.job for dependency in spec.upstream.jobs]
    return bool(_path_up(view, namespace, name, upstream, most, most))


def _path_up(
    view: View, namespace: int, name: str, added: list[str], most_jobs: int, most_links: int
) -> list[str] | None:
    """The same, found among those that come before the added ones."""
    # By job, the one that it was met behind: the way back to the wanted one.
    behind = dict.fromkeys(added, name)
    left, links = added[::-1], 0
    while left:
        at = left.pop()
        if at == name:
            path = [name, behind[name]]
            while path[-1] != name:
                path.append(behind[path[-1]])
            return path[::-1]
        names = _upstream_names(view, namespace, at)
        links += len(names)
        if len(behind) > most_jobs or links > most_links:
            return None
        found = [other for other in names if other not in behind]
        behind.update(dict.fromkeys(found, at))
        left.extend(reversed(found))
    return []


def _shortened(path: list[str]) -> list[str]:
    half = limits.PATH_JOBS // 2
    return path if len(path) <= limits.PATH_JOBS else [*path[:half], "...", *path[-half:]]
