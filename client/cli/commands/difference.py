"""What jobs in files would change, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .. import messages as m
from ..exits import Trouble
from ..render.clean import echo, notify
from ..session import Invocation, many

if TYPE_CHECKING:
    from ...sdk.imports import ImportProgress
    from ..messages import job_pb2

HIDDEN = "(hidden)"
MARKS = {"+": "green", "~": "yellow", "!": "red", "-": "red"}


def compared(
    session: Invocation, jobs: Sequence[job_pb2.Job], progress: ImportProgress
) -> job_pb2.ImportJobsResponse:
    """What would become of each job. Only an editor may ask that of the cluster; for others it is
    seen here, from what is there."""
    from ...sdk.errors import Forbidden
    from . import bulk

    try:
        results = bulk.send(session, jobs, progress, update=True)
        return m.job_pb2.ImportJobsResponse(results=results)
    except Trouble as trouble:
        if not isinstance(trouble.__cause__, Forbidden):
            raise
    answer = m.job_pb2.ImportJobsResponse()
    unseen = 0
    for job in jobs:
        result, hidden = _seen(session, job)
        answer.results.append(result)
        progress.tally.add(result)
        unseen += hidden
    also = f"; {many(unseen, 'value')} hidden from you, not compared" if unseen else ""
    notify(f"Note: only an editor may ask whether the cluster would take them{also}.")
    return answer


def _seen(session: Invocation, job: job_pb2.Job) -> tuple[job_pb2.ImportResult, int]:
    """What would become of a job, and how many of its values could not be compared."""
    kinds = m.job_pb2.ImportResult
    present = find(session, job)
    if present is None:
        return kinds(job=job.name, verdict=kinds.VERDICT_CREATED), 0
    found, hidden = differences(present, job)
    paths = [f"spec.{path}" for path in found]
    verdict = kinds.VERDICT_UPDATED if paths else kinds.VERDICT_UNCHANGED
    return kinds(job=job.name, verdict=verdict, changed_paths=paths), hidden


def find(session: Invocation, job: job_pb2.Job) -> job_pb2.Job | None:
    """The job of this name that is there; None if there is none."""
    from ...sdk.errors import NotFound
    from ..refused import refusals

    request = m.job_pb2.GetJobRequest(namespace=job.namespace, job=job.name)
    with refusals(session, f"get job {job.name}"):
        try:
            answer = session.client.call(request, timeout=session.timeout_s)
        except NotFound as missing:
            if missing.reason != "JOB_NOT_FOUND":
                raise
            return None
    assert isinstance(answer, m.job_pb2.Job), answer
    return answer


def show(
    session: Invocation, jobs: Iterable[job_pb2.Job], results: Iterable[job_pb2.ImportResult]
) -> None:
    kinds = m.job_pb2.ImportResult
    for job, result in zip(jobs, results, strict=True):
        if result.verdict == kinds.VERDICT_CREATED:
            mark(session, "+", job.name)
        elif result.verdict == kinds.VERDICT_REFUSED:
            mark(session, "!", job.name, f"  {result.reason}: {result.message}")
        elif result.verdict == kinds.VERDICT_UPDATED and (present := find(session, job)):
            mark(session, "~", job.name)
            for path, (old, new) in differences(present, job)[0].items():
                echo(f"    {path}: {old} -> {new}")


def mark(session: Invocation, sign: str, name: str, more: str = "") -> None:
    session.out.paint(f"{sign} {name}{more}", MARKS[sign])


def differences(
    present: job_pb2.Job, wanted: job_pb2.Job
) -> tuple[dict[str, tuple[str, str]], int]:
    """What differs, by its path; and how many values are hidden from whoever compares."""
    before, after = flat_spec(present), flat_spec(wanted)
    found, hidden = dict[str, tuple[str, str]](), 0
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, "(unset)"), after.get(path, "(unset)")
        if HIDDEN in old and path in after:
            hidden += 1
        elif old != new:
            found[path] = old, new
    return found, hidden


def flat_spec(job: job_pb2.Job) -> dict[str, str]:
    """Each value of the spec by its path."""
    from ..render.describe import lines
    from ..render.formats import ValueFormats

    formats = ValueFormats("utc", exact=True)
    return {".".join(line.path): line.value for line in lines(job.spec, formats) if line.value}
