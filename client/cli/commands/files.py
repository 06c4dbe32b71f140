"""`raftsched job apply, diff, import, export`: jobs in files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..options import command
from ..render.clean import echo, notify
from ..session import Invocation, many

if TYPE_CHECKING:
    from ...sdk.imports import ImportProgress, ImportTally
    from ..messages import job_pb2

FILES = click.option(
    "--file", "-f", "paths", multiple=True, required=True, metavar="FILE|DIR",
    help="The jobs, as YAML, TOML, JSON, JSON lines or CSV; - is stdin.",
)  # fmt: skip
PRUNE = click.option(
    "--prune", metavar="KEY=VALUE",
    help="Jobs with this label that are in none of the files are deleted.",
)  # fmt: skip


@command(
    None, "apply",
    "raftsched job apply -f jobs/ --dry-run",
    "raftsched job apply -f jobs/ --prune team=billing --yes",
    writes=True, destroys=True,
)  # fmt: skip
@FILES
@PRUNE
def apply(session: Invocation, paths: tuple[str, ...], prune: str | None) -> None:
    """Make the jobs of some files be there as the files say. Doing it twice changes nothing."""
    from ...sdk.imports import ImportProgress

    jobs = wanted(session, paths)
    surplus = to_prune(session, prune, jobs)
    if surplus:
        session.confirm(
            f"Delete {many(len(surplus), 'job')} in none of the files: {some(surplus)}?"
        )
    progress = ImportProgress(session.request_id())
    answer = upsert(session, jobs, progress)
    by_name = session.out.format == "name"
    session.out.items([one for one in answer.results if is_changed(one) or not by_name], answer)
    warned = Warned()
    if session.out.is_table:
        for one in answer.results:
            warned.add(one)
    for name in surplus:
        request = session.write(m.job_pb2.DeleteJobRequest(namespace=session.namespace, job=name))
        session.ask(request, m.job_pb2.DeleteJobResponse, f"delete job {name}")
        session.say(f"Job {name} deleted.")
    warned.show()
    session.say(f"{progress.tally}" + (f", {len(surplus)} deleted" if prune else ""))
    fail_if_refused(session, progress.tally)


@command(
    None, "diff",
    "raftsched job diff -f jobs/",
    "raftsched job diff -f jobs/ --exit-code || echo 'not applied yet'",
)  # fmt: skip
@FILES
@PRUNE
@click.option("--exit-code", is_flag=True, help="It ends with 1 when there is a difference.")
def diff(session: Invocation, paths: tuple[str, ...], prune: str | None, exit_code: bool) -> None:
    """Show what `job apply` would change, field by field. A viewer may do this, too."""
    from ...sdk.imports import ImportProgress
    from . import difference

    session.dry_run = True
    jobs = wanted(session, paths)
    progress = ImportProgress()
    answer = difference.compared(session, jobs, progress)
    surplus = to_prune(session, prune, jobs)
    if session.out.is_table:
        difference.show(session, jobs, answer.results)
        for name in surplus:
            difference.mark(session, "-", name)
    else:
        session.out.items(answer.results, answer)
    fail_if_refused(session, progress.tally)
    different = progress.tally.created + progress.tally.updated + len(surplus)
    if not different and session.out.is_table:
        echo(f"No difference in {many(len(jobs), 'job')}.", err=True)
    if different and exit_code:
        raise click.exceptions.Exit(Exit.FAILED)


# What these commands share.


def wanted(session: Invocation, paths: Iterable[str]) -> list[job_pb2.Job]:
    """The jobs of the files, in an order in which they can be created."""
    from ...sdk.imports import in_order
    from ..input.specfile import complain, load

    faults: list[str] = []
    jobs = []
    for found in load(paths):
        place(session, found.job, found.origin, faults)
        jobs.append(found.job)
    complain(faults)
    return list(in_order(jobs))


def place(session: Invocation, job: job_pb2.Job, origin: str, faults: list[str]) -> None:
    """Put a job into its namespace: its own, or that of the command."""
    if session.namespace_is_given and job.namespace not in ("", session.namespace):
        faults.append(
            f"{origin}: job {job.name} belongs to namespace {job.namespace}, the command says"
            f" {session.namespace}; drop one of the two"
        )
    job.namespace = job.namespace or session.namespace


def upsert(
    session: Invocation, jobs: list[job_pb2.Job], progress: ImportProgress
) -> job_pb2.ImportJobsResponse:
    from . import bulk

    results = bulk.send(session, jobs, progress, update=True)
    return m.job_pb2.ImportJobsResponse(results=results)


def to_prune(session: Invocation, label: str | None, jobs: list[job_pb2.Job]) -> list[str]:
    """Jobs with the label that are in none of the files."""
    if not label:
        return []
    kept = {job.name for job in jobs if job.namespace == session.namespace}
    return [name for name in names_with(session, (label,)) if name not in kept]


def names_with(session: Invocation, labels: tuple[str, ...]) -> list[str]:
    """The jobs that have these labels and are not being deleted, downstream before upstream."""
    from ...sdk.imports import in_order
    from ..input.filters import condition

    for label in labels:
        if "=" not in label:
            raise wrong_use(f"cannot read the label {label!r}", "", "KEY=VALUE")
    request = m.job_pb2.ListJobsRequest(namespace=session.namespace, filter=condition("", labels))
    pages = session.pages(request, m.job_pb2.ListJobsResponse, "list jobs", limit=0)
    deleting = m.job_pb2.JobStatus.STATE_DELETING
    found = (job for page in pages for job in page.jobs if job.status.state != deleting)
    return [job.name for job in in_order(found)][::-1]


def is_changed(result: job_pb2.ImportResult) -> bool:
    kinds = m.job_pb2.ImportResult
    return result.verdict in (kinds.VERDICT_CREATED, kinds.VERDICT_UPDATED)


def fail_if_refused(session: Invocation, tally: ImportTally, then: str = "") -> None:
    if tally.refused:
        others = tally.created + tally.updated + tally.unchanged
        dry = "this was a dry run: nothing was done"
        raise Trouble(
            f"{many(tally.refused, 'job')} refused",
            dry if session.dry_run else "the others are done" if others else "",
            then or "mend those that the output names, then the same command again",
        )  # fmt: skip


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


SHOWN = 10  # Lines about jobs of an import, for people.
DIGITS = re.compile(r"\d[\d,]*")


class Warned:
    """What may not mean what it seems to in the jobs of an import: of each kind the first."""

    def __init__(self) -> None:
        # By what is the same in notes that differ in figures alone: the first, and how many.
        self.kinds: dict[str, tuple[str, int]] = {}
        self.others = 0

    def add(self, result: job_pb2.ImportResult) -> None:
        for warning in result.warnings:
            kind = DIGITS.sub("0", warning)
            if kind not in self.kinds and len(self.kinds) == SHOWN:
                self.others += 1
                continue
            first, count = self.kinds.get(kind, (f"Note on {result.job}: {warning}", 0))
            self.kinds[kind] = first, count + 1

    def show(self) -> None:
        for first, count in self.kinds.values():
            also = f" (and {many(count - 1, 'job')} alike; -o jsonl prints each)"
            notify(first + (also if count > 1 else ""))
        if self.others:
            notify(f"and {many(self.others, 'other note')}; -o jsonl prints each")
