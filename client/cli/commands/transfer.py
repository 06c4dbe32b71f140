"""`raftsched job import, export`: many jobs into a cluster and out of it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import Trouble, wrong_use
from ..input.filters import condition
from ..options import command
from ..render.clean import echo, json_of, notify, yaml_of
from ..render.progress import bar
from ..session import Invocation, many
from .files import SHOWN, Warned, fail_if_refused, is_changed, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...sdk.imports import ImportProgress
    from ..messages import job_pb2

# By the name of the file.
FORMS = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


@command(
    None, "import",
    "raftsched job import jobs.jsonl",
    "raftsched job import jobs.csv --update",
    "raftsched job export --context old | raftsched job import - --context new",
    writes=True,
)  # fmt: skip
@click.argument("path", metavar="FILE")
@click.option("--update", is_flag=True, help="Jobs that are there are replaced, not kept.")
@click.option("--restart", is_flag=True, help="It does not go on where the last one stopped.")
@click.option("--csv", "is_table", is_flag=True, help="FILE is CSV.  [if its name ends so]")
def import_(session: Invocation, path: str, update: bool, restart: bool, is_table: bool) -> None:
    """Create many jobs. What was stopped goes on from there when it is typed again.

    FILE is as for `job apply`, see `job init`, or CSV: its first line names a word of `job init`
    for each column, and labels.team is a column for the label team.
    """
    from ...sdk.imports import in_order
    from . import bulk

    if path != "-" and not os.path.isfile(path):
        raise wrong_use(f"there is no file {path}", "", "raftsched job import FILE, or - for stdin")
    progress = resumed(session, path, update, restart)
    if progress.done:
        echo(f"Going on after {progress.done:,} jobs: {progress.tally}.", err=True)
    total = count_jobs(path)
    refused, warned = RefusedJobs(), Warned()
    try:
        with bar("Importing", total, progress.done) as step:
            jobs = in_order(jobs_of(session, path, is_table))
            results = bulk.send(session, jobs, progress, update=update)
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
    "raftsched job export -l team=billing --to jobs.yaml",
    reads=True,
)  # fmt: skip
@click.option("--to", "path", metavar="FILE", help="The file to write.  [stdout]")
@click.option(
    "--label",
    "-l",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only jobs with this label; can be repeated.",
)
@click.option(
    "--filter", "text", default="", help="Only what fits, such as 'owner=ann AND NOT state=PAUSED'."
)
def export(session: Invocation, path: str | None, label: tuple[str, ...], text: str) -> None:
    """Write jobs in a form that can be imported and applied: JSON lines, or as -o says.

    YAML (-o yaml, or a FILE that ends so) has the words of `job init`; the others the API's form.
    """

    form = export_form(session, path)
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
                write_job(out, bare(job, form), form, first=not count)
                count += 1
                step(1)
        if form == "json":
            out.write("\n]\n" if count else "[]\n")
    echo(f"{many(count, 'job')} exported{f' to {path}' if path else ''}.", err=True)
    if hidden:
        notify(
            f"Note: values of {many(hidden, 'job')} are hidden from you, so this cannot be "
            "imported; export with a token that may see payloads."
        )


def export_form(session: Invocation, path: str | None) -> str:
    """JSON lines, if neither -o nor the name of the file says otherwise."""
    form = session.out.format
    if form in ("name", "csv"):
        raise wrong_use(
            f"-o {form} does not export jobs", "", f"raftsched job list -o {form} --limit 0"
        )
    if not session.out.is_table:
        return form
    return FORMS.get(Path(path or "").suffix, "jsonl")


def jobs_of(session: Invocation, path: str, is_table: bool) -> Iterator[job_pb2.Job]:
    from ..input.documents import documents
    from ..input.specfile import complain, read_job

    for number, document in enumerate(documents(path, is_table=is_table), 1):
        faults: list[str] = []
        job = read_job(document, f"{path}: job {number}", faults)
        place(session, job, path, faults)
        complain(faults)
        yield job


def resumed(session: Invocation, path: str, update: bool, restart: bool) -> ImportProgress:
    from ...sdk.imports import ImportProgress
    from . import bulk

    if path == "-" or session.dry_run:
        return ImportProgress()
    status = session.ask(
        m.cluster_pb2.GetClusterStatusRequest(), m.cluster_pb2.ClusterStatus, "import jobs"
    )
    progress = bulk.kept(session, path, status.cluster_id, update=update)
    if restart:
        progress.forget()
        progress = bulk.kept(session, path, status.cluster_id, update=update)
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
            notify(line)
        others = self.reasons.total() - len(self.first)
        if others:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items())
            notify(f"and {others:,} others ({counts} in all); -o jsonl prints each")


def report(
    session: Invocation, results: Iterator[job_pb2.ImportResult], seen: RefusedJobs, warned: Warned
) -> None:
    """Note for people what was refused or has warnings, and give programs all of it."""
    refused = m.job_pb2.ImportResult.VERDICT_REFUSED
    if session.out.is_table:
        for result in results:
            warned.add(result)
            if result.verdict == refused:
                seen.add(result)
    elif session.out.format == "name":
        changed = (one for one in results if is_changed(one))
        session.out.items(changed, m.job_pb2.ImportJobsResponse())
    elif session.out.format == "jsonl":
        session.out.items(results, m.job_pb2.ImportJobsResponse())
    else:
        answer = m.job_pb2.ImportJobsResponse(results=results)
        session.out.items(answer.results, answer)


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


def bare(job: job_pb2.Job, form: str) -> dict[str, Any]:
    """What the user ordered, without what the cluster knows about it."""
    from ..payloads import readable
    from ..render.output import plain

    if form == "yaml":
        from ..input import flat

        if (words := flat.written(job)) is not None:
            return words
    document = readable(plain(job))
    return {key: document[key] for key in ("namespace", "name", "spec") if key in document}


def write_job(out: IO[str], document: dict[str, Any], form: str, *, first: bool) -> None:
    match form:
        case "yaml":
            out.write(("" if first else "---\n") + yaml_of(document))
        case "json":
            out.write(("[\n" if first else ",\n") + json_of(document))
        case _:
            out.write(json_of(document, separators=(",", ":")) + "\n")
