"""Deleting all jobs that fit a filter, those that wait for others before these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...sdk.imports import in_order
from .. import messages as m
from ..exits import Exit, Trouble
from ..session import Invocation, many
from . import change

if TYPE_CHECKING:
    from ..messages import common_pb2, job_pb2

HAS_DEPENDENTS = "HAS_DEPENDENTS"
DOING = "delete jobs by filter"


def delete_fitting(session: Invocation, text: str, request: job_pb2.ChangeJobsRequest) -> None:
    """Delete what fits, or on trial say what would be deleted and what would stay. In bulk go those
    that no other waits for, and one by one those that are waited for by what went before."""
    jobs = fitting(session, text)
    if not jobs:
        session.say(f"No job fits {text!r}.")
        return
    found = change.trial(session, request, DOING)
    kept = staying(session, jobs, found)
    gone = [job.name for job in jobs if job.name not in kept]
    shown = f" ({', '.join(gone[:3])}{', …' if len(gone) > len(gone[:3]) else ''})" if gone else ""
    if session.dry_run:
        session.done(found, f"{many(len(gone), 'job')} would be deleted, with history{shown}.")
        for line in kept_lines(kept):
            session.say(line)
        return
    if gone:
        session.confirm(f"Delete {many(len(gone), 'job')} with history{shown}?")
    done = change.steps(session, request, DOING)
    waited_for = {one.job for job in jobs for one in job.spec.upstream.jobs} & {*gone}
    for name in (name for name in gone if name in waited_for):
        done.changed += delete_one(session, name)
    session.done(done, f"{many(done.changed, 'job')} deleted, with history.")
    if kept:
        raise Trouble(f"{many(len(kept), 'job')} refused", kept_lines(kept))


def delete_one(session: Invocation, name: str) -> bool:
    """Delete a job that bulk may have deleted already; whether it was still there."""
    request = session.write(m.job_pb2.DeleteJobRequest(namespace=session.namespace, job=name))
    try:
        session.ask(request, m.job_pb2.DeleteJobResponse, f"delete job {name}")
    except Trouble as trouble:
        if trouble.code != Exit.NOT_FOUND:
            raise
        return False
    return True


def fitting(session: Invocation, text: str) -> list[job_pb2.Job]:
    """The jobs that fit and are not being deleted, downstream before upstream."""
    request = m.job_pb2.ListJobsRequest(namespace=session.namespace, filter=text)
    pages = session.pages(request, m.job_pb2.ListJobsResponse, "list jobs", limit=0)
    deleting = m.job_pb2.JobStatus.STATE_DELETING
    found = (job for page in pages for job in page.jobs if job.status.state != deleting)
    return list(in_order(found))[::-1]


def staying(
    session: Invocation, jobs: list[job_pb2.Job], found: common_pb2.BulkChange
) -> dict[str, str]:
    """Which of these cannot be deleted, and why: something waits for it that stays itself."""
    kept = {one.name: one.message for one in found.failures if one.reason != HAS_DEPENDENTS}
    among = {job.name for job in jobs}
    below: dict[str, set[str]] = {name: set() for name in among}
    for job in jobs:
        for one in job.spec.upstream.jobs:
            below.get(one.job, set()).add(job.name)
    asked = {one.name: one.message for one in found.failures if one.reason == HAS_DEPENDENTS}
    is_complete = len(found.failures) >= found.failed
    for job in jobs:
        name = job.name
        if (name in asked or not is_complete) and not waiters(session, name) <= among:
            kept.setdefault(name, asked.get(name, f"'{name}' has jobs that wait for it"))
        elif others := sorted(below[name] & kept.keys()):
            kept.setdefault(name, f"{others[0]}, which waits for it, stays")
    return kept


def waiters(session: Invocation, name: str) -> set[str]:
    """The jobs that wait for a job."""
    request = m.flow_pb2.GetGraphRequest(namespace=session.namespace, job=name)
    graph = session.ask(request, m.flow_pb2.Graph, f"see what waits for job {name}")
    return {one.downstream for one in graph.edges if one.upstream == name and not one.triggers}


def kept_lines(kept: dict[str, str]) -> list[str]:
    lines = [f"{name}: {why}" for name, why in list(kept.items())[: change.SHOWN]]
    rest = len(kept) - len(lines)
    return [*lines, f"and {rest:,} more"] if rest else lines
