"""`raftsched flow`: runs through jobs that depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble
from ..input.filters import all_of, between, condition, window
from ..lazy import ExampleGroup
from ..names import FLOW, JOB
from ..options import command
from ..render.clean import echo
from ..session import Invocation

if TYPE_CHECKING:
    from ..messages import flow_pb2

INDENTED = 10  # Levels of a tree.
STATES = ("live", "stuck", "succeeded", "failed")


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched flow list --state stuck",
        "raftsched flow graph nightly",
        "raftsched job apply -f nightly.yaml",
    ),
)
def flow() -> None:
    """Flow runs: passes through jobs that depend on each other.

    A flow is made of jobs with --after, or of one file for `job apply`:

    \b
      flow: nightly
      cron: 0 2 * * *
      jobs:
        extract: {handler: extract}
        report: {handler: report, after: extract}
    """


@command(flow, "list", "raftsched flow list --job nightly --since 24h", reads=True, lists=True)
@click.option("--state", type=click.Choice(STATES), help="Only flow runs in this state.")
@click.option("--job", type=JOB, help="Only flow runs that reach this job.")
@click.option(
    "--filter", "text", default="", help="Only what fits, such as 'state=STUCK OR job=report'."
)
@window("that began")
def list_(
    session: Invocation, text: str, since: int | None, until: int | None, **given: str | None
) -> None:
    """List flow runs, newest first."""
    spans = " AND ".join(between("create_time", since, until))
    request = m.flow_pb2.ListFlowsRequest(
        namespace=session.namespace, filter=all_of(condition(text, **given), spans)
    )
    session.show_list(request, m.flow_pb2.ListFlowsResponse, "flows", "list flows")


@command(flow, "get", "raftsched flow get nightly.3.1763456400000", reads=True)
@click.argument("flow_id", type=FLOW, metavar="FLOW")
def get(session: Invocation, flow_id: str) -> None:
    """Show a flow run: where each of its jobs stands, and what it waits for."""
    request = m.flow_pb2.GetFlowRequest(namespace=session.namespace, flow=flow_id)
    wave = session.read(request, m.flow_pb2.Flow, f"get flow {flow_id}")
    if session.out.is_table:
        from ..render.formats import enum_word

        session.say(f"Flow {flow_id} is {enum_word(wave, 'state')}.")
        session.out.items(wave.steps, wave)
    else:
        session.out.one(wave)


@command(flow, "graph", "raftsched flow graph nightly", reads=True)
@click.argument("name", type=JOB, metavar="JOB|FLOW")
def graph(session: Invocation, name: str) -> None:
    """Show the jobs around a job, or of a flow by the name that its file has: what each depends on
    and what depends on it."""
    found = around(session, name)
    if session.out.is_table and session.out.for_person:
        for line in drawn(found, name):
            echo(line)
    elif session.out.is_table:
        session.out.items(found.edges, found)
    else:
        session.out.one(found)


def around(session: Invocation, name: str) -> flow_pb2.Graph:
    """The graph around a job; where there is none of this name, of the flow that is called so."""

    def of(job: str) -> flow_pb2.Graph:
        request = m.flow_pb2.GetGraphRequest(namespace=session.namespace, job=job)
        return session.read(request, m.flow_pb2.Graph, f"show the graph of job {job}")

    try:
        return of(name)
    except Trouble as trouble:
        if trouble.code != Exit.NOT_FOUND:
            raise
        request = m.job_pb2.ListJobsRequest(
            namespace=session.namespace, filter=condition("", **{"labels.flow": name})
        )
        doing = f"look for the flow {name}"
        whole = m.flow_pb2.Graph()
        for page in session.pages(request, m.job_pb2.ListJobsResponse, doing, limit=0):
            for job in page.jobs:
                if job.name not in whole.jobs:
                    whole.MergeFrom(of(job.name))
        if not whole.jobs:
            raise
        return whole


def drawn(found: flow_pb2.Graph, name: str) -> Iterator[str]:
    """A tree from the first jobs down; a job that is reached twice is drawn once. In a long chain
    the level is a number, since no terminal is as wide as that."""
    from ..render.formats import enum_word

    below: dict[str, list[tuple[str, str]]] = {job: [] for job in found.jobs}
    for edge in found.edges:
        on = enum_word(edge, "condition") or "success"
        note = " (triggered)" if edge.triggers else "" if on == "success" else f" (on {on})"
        below[edge.upstream].append((edge.downstream, note))
    fed = {edge.downstream for edge in found.edges}
    seen: set[str] = set()
    stack = [(job, 0, "") for job in reversed(found.jobs) if job not in fed]
    while stack:
        job, depth, on = stack.pop()
        again = " …" if job in seen and below[job] else ""
        here = "  <--" if job == name and job not in seen else ""
        level = f"({depth}) " if depth > INDENTED else ""
        indent = "   " * (min(depth, INDENTED) - 1) + ("└─ " if depth else "")
        yield indent + level + job + on + again + here
        if job not in seen:
            stack += [(one, depth + 1, why) for one, why in reversed(below[job])]
        seen.add(job)
