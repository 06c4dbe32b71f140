"""`raftsched job apply, diff, import, export`: jobs in files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..options import command
from ..render.clean import echo, json_of, tell
from ..session import Invocation, many

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..messages import job_pb2
    from .bulk import Progress, Tally

FILES = click.option(
    "--file", "-f", "paths", multiple=True, required=True, metavar="FILE|DIR",
    help="TOML, YAML, JSON or JSON lines; - is stdin.",
)  # fmt: skip
PRUNE = click.option(
    "--prune", metavar="KEY=VALUE",
    help="Delete jobs with this label that are in none of the files.",
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
    from .bulk import Progress

    jobs = wanted(session, paths)
    surplus = to_prune(session, prune, jobs)
    if surplus:
        session.confirm(
            f"Delete {many(len(surplus), 'job')} in none of the files: {some(surplus)}?"
        )
    progress = Progress.unkept(session.request_id())
    answer = upsert(session, jobs, progress)
    by_name = session.out.format == "name"
    session.out.items([one for one in answer.results if _changed(one) or not by_name], answer)
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
@click.option("--exit-code", is_flag=True, help="End with 1 when there is a difference.")
def diff(session: Invocation, paths: tuple[str, ...], prune: str | None, exit_code: bool) -> None:
    """Show what `job apply` would change, field by field. A viewer may do this, too."""
    from . import difference
    from .bulk import Progress

    session.dry_run = True
    jobs = wanted(session, paths)
    progress = Progress.unkept()
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


@command(
    None, "import",
    "raftsched job import jobs.jsonl",
    "raftsched job import jobs.jsonl --update",
    "raftsched job export --context old | raftsched job import - --context new",
    writes=True,
)  # fmt: skip
@click.argument("path", metavar="FILE")
@click.option("--update", is_flag=True, help="Replace jobs that are there; without it they stay.")
@click.option("--restart", is_flag=True, help="Do not go on where the last import stopped.")
def import_(session: Invocation, path: str, update: bool, restart: bool) -> None:
    """Create many jobs. What was stopped goes on from there when it is typed again."""
    from . import bulk

    if path != "-" and not os.path.isfile(path):
        raise wrong_use(f"there is no file {path}", "", "raftsched job import FILE, or - for stdin")
    modes = m.job_pb2.ImportJobsRequest
    mode = modes.MODE_UPSERT if update else modes.MODE_CREATE_ONLY
    progress = resumed(session, path, mode, restart)
    if progress.done:
        echo(f"Going on after {progress.done:,} jobs: {progress.tally}.", err=True)
    total = count_jobs(path)
    refused, warned = RefusedJobs(), Warned()
    try:
        with bar("Importing", total, progress.done) as step:
            results = bulk.send(session, bulk.in_order(jobs_of(session, path)), mode, progress)
            report(session, stepped(results, step), refused, warned)
    except (Trouble, KeyboardInterrupt) as stopped:
        again = f"the same command again: it goes on after {progress.done:,} jobs"
        if progress.path and progress.done:
            if isinstance(stopped, Trouble):
                stopped.then = again
            else:
                echo(f"\n{progress.tally}.\n  Next: {again}", err=True)
        raise
    finally:
        # The bar has left the line by now.
        warned.show()
        refused.show()
    progress.forget()
    session.say(f"{progress.tally}.")
    are_there = refused.reasons.keys() == {"JOB_EXISTS"}
    fail_if_refused(
        session, progress.tally, "the same with --update, to replace them" if are_there else ""
    )


@command(
    None, "export",
    "raftsched job export --to jobs.jsonl",
    "raftsched job export -l team=billing -o yaml > jobs.yaml",
    reads=True,
)  # fmt: skip
@click.option("--to", "path", metavar="FILE", help="Write here instead of to stdout.")
@click.option("--label", "-l", multiple=True, metavar="KEY=VALUE", help="Only with this label.")
@click.option("--filter", "text", default="", help="Such as 'owner=ann AND NOT state=PAUSED'.")
def export(session: Invocation, path: str | None, label: tuple[str, ...], text: str) -> None:
    """Write jobs in a form that can be imported and applied: JSON lines, or as -o says."""
    from .job import condition

    form = session.out.format if not session.out.is_table else "jsonl"
    if form == "name":
        raise wrong_use("-o name does not export jobs", "", "raftsched job list -o name --limit 0")
    request = m.job_pb2.ListJobsRequest(namespace=session.namespace, filter=condition(text, label))
    pages = session.pages(request, m.job_pb2.ListJobsResponse, "export jobs", limit=0)
    count = hidden = 0
    with (
        sink(path) as out,
        bar("Exporting", None if label or text else total_jobs(session)) as step,
    ):
        for page in pages:
            for job in page.jobs:
                hidden += job.spec.payload.hidden or "(hidden)" in str(job.spec)
                write_job(out, bare(job), form, first=not count)
                count += 1
                step(1)
        if form == "json":
            out.write("\n]\n" if count else "[]\n")
    echo(f"{many(count, 'job')} exported{f' to {path}' if path else ''}.", err=True)
    if hidden:
        tell(
            f"Note: values of {many(hidden, 'job')} are hidden from you, so this cannot be "
            "imported; export with a token that may see payloads."
        )


# What these commands share.


def wanted(session: Invocation, paths: Iterable[str]) -> list[job_pb2.Job]:
    """The jobs of the files, in an order in which they can be created."""
    from ..input.specfile import complain, load
    from .bulk import in_order

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


def jobs_of(session: Invocation, path: str) -> Iterator[job_pb2.Job]:
    from ..input.specfile import complain, documents, read_job

    for number, said in enumerate(documents(path), 1):
        faults: list[str] = []
        job = read_job(said, f"{path}: job {number}", faults)
        place(session, job, path, faults)
        complain(faults)
        yield job


def upsert(
    session: Invocation, jobs: list[job_pb2.Job], progress: Progress
) -> job_pb2.ImportJobsResponse:
    from . import bulk

    mode = m.job_pb2.ImportJobsRequest.MODE_UPSERT
    return m.job_pb2.ImportJobsResponse(results=bulk.send(session, jobs, mode, progress))


def to_prune(session: Invocation, label: str | None, jobs: list[job_pb2.Job]) -> list[str]:
    """Jobs with the label that are in none of the files."""
    if not label:
        return []
    kept = {job.name for job in jobs if job.namespace == session.namespace}
    return [name for name in names_with(session, (label,)) if name not in kept]


def names_with(session: Invocation, labels: tuple[str, ...]) -> list[str]:
    """The jobs that have these labels and are not being deleted, downstream before upstream."""
    from .bulk import in_order
    from .job import condition

    for label in labels:
        if "=" not in label:
            raise wrong_use(f"cannot read the label {label!r}", "", "KEY=VALUE")
    request = m.job_pb2.ListJobsRequest(namespace=session.namespace, filter=condition("", labels))
    pages = session.pages(request, m.job_pb2.ListJobsResponse, "list jobs", limit=0)
    deleting = m.job_pb2.JobStatus.STATE_DELETING
    found = (job for page in pages for job in page.jobs if job.status.state != deleting)
    return [job.name for job in in_order(found)][::-1]


def _changed(result: job_pb2.ImportResult) -> bool:
    kinds = m.job_pb2.ImportResult
    return result.verdict in (kinds.VERDICT_CREATED, kinds.VERDICT_UPDATED)


def fail_if_refused(session: Invocation, tally: Tally, then: str = "") -> None:
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
# Less than this is done before a bar could be read.
BAR_FROM = 50


def resumed(session: Invocation, path: str, mode: int, restart: bool) -> Progress:
    from .bulk import Progress, key_of

    if path == "-" or session.dry_run:
        return Progress.unkept()
    status = session.ask(
        m.cluster_pb2.GetClusterStatusRequest(), m.cluster_pb2.ClusterStatus, "import jobs"
    )
    progress = Progress.of(key_of(session, path, status.cluster_id, mode))
    if restart:
        progress.forget()
        progress = Progress.of(key_of(session, path, status.cluster_id, mode))
    # The id has to be on disk before the first chunk leaves.
    progress.save()
    return progress


def count_jobs(path: str) -> int | None:
    """For the bar; only where it costs little."""
    if not path.endswith((".jsonl", ".ndjson")):
        return None
    with open(path, "rb") as lines:
        return sum(1 for line in lines if line.strip())


def total_jobs(session: Invocation) -> int:
    request = m.namespace_pb2.GetNamespaceRequest(namespace=session.namespace)
    return int(session.read(request, m.namespace_pb2.Namespace, "export jobs").usage.jobs)


def stepped(
    results: Iterable[job_pb2.ImportResult], step: Callable[[int], None]
) -> Iterator[job_pb2.ImportResult]:
    for result in results:
        step(1)
        yield result


class RefusedJobs:
    """Jobs of an import that were refused: the first of them, and how many for which reason."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.first: list[str] = []

    def add(self, result: job_pb2.ImportResult) -> None:
        self.reasons[result.reason] += 1
        if len(self.first) < SHOWN:
            self.first.append(f"refused {result.job}: {result.reason}: {result.message}")

    def show(self) -> None:
        for line in self.first:
            tell(line)
        others = self.reasons.total() - len(self.first)
        if others:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items())
            tell(f"and {others:,} others ({counts} in all); -o jsonl prints each")


class Warned:
    """What may not mean what it seems to in the jobs of an import: the first lines of it."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.others = 0

    def add(self, result: job_pb2.ImportResult) -> None:
        lines = [f"Note on {result.job}: {warning}" for warning in result.warnings]
        room = SHOWN - len(self.first)
        self.first += lines[:room]
        self.others += len(lines[room:])

    def show(self) -> None:
        for line in self.first:
            tell(line)
        if self.others:
            tell(f"and {many(self.others, 'other note')}; -o jsonl prints each")


def report(
    session: Invocation, results: Iterator[job_pb2.ImportResult], seen: RefusedJobs, warned: Warned
) -> None:
    """Note for people what was refused or has warnings, and tell programs all of it."""
    refused = m.job_pb2.ImportResult.VERDICT_REFUSED
    if session.out.is_table:
        for result in results:
            warned.add(result)
            if result.verdict == refused:
                seen.add(result)
    elif session.out.format == "name":
        session.out.items((one for one in results if _changed(one)), m.job_pb2.ImportJobsResponse())
    elif session.out.format == "jsonl":
        session.out.items(results, m.job_pb2.ImportJobsResponse())
    else:
        answer = m.job_pb2.ImportJobsResponse(results=results)
        session.out.items(answer.results, answer)


@contextmanager
def bar(title: str, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr when a person sits there; silence otherwise."""
    if not (sys.stderr and sys.stderr.isatty()) or (total is not None and total < BAR_FROM):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


@contextmanager
def sink(path: str | None) -> Iterator[IO[str]]:
    """Stdout, or a file that is there only when it is complete."""
    if not path:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = Path(f"{path}.part")
    try:
        with part.open("w", encoding="utf-8") as out:
            yield out
        part.replace(path)
    except OSError as wrong:
        raise wrong_use(f"cannot write {path}", str(wrong), "--to FILE") from wrong
    finally:
        part.unlink(missing_ok=True)


def bare(job: job_pb2.Job) -> dict[str, Any]:
    """What the user ordered, without what the cluster knows about it."""
    from ..payloads import readable
    from ..render.output import plain

    said = readable(plain(job))
    return {key: said[key] for key in ("namespace", "name", "spec") if key in said}


def write_job(out: IO[str], said: dict[str, Any], form: str, *, first: bool) -> None:
    match form:
        case "yaml":
            from ..render.output import yaml_of

            out.write(("" if first else "---\n") + yaml_of(said))
        case "json":
            out.write(("[\n" if first else ",\n") + json_of(said))
        case _:
            out.write(json_of(said, separators=(",", ":")) + "\n")
