"""`raftsched audit-log`: the audit log, which says who changed what."""

from __future__ import annotations

import click

from .. import messages as m
from ..input.filters import all_of, between, condition, window
from ..options import command
from ..session import Invocation


@command(
    None, "audit-log",
    "raftsched audit-log --subject job/report",
    "raftsched audit-log --actor ci --method DeleteJob --all-namespaces",
    "raftsched audit-log --since 24h --no-triggers",
    "raftsched audit-log --limit 0 -o jsonl > audit.jsonl",
    reads=True, lists=True,
)  # fmt: skip
@click.option("--actor", help="Only what this access token did.")
@click.option("--method", help="Only what this call did, such as UpdateJob.")
@click.option(
    "--subject", metavar="KIND/NAME", help="Only what was done to this, such as job/report."
)
@click.option(
    "--filter", "text", default="", help="Only what fits, such as 'actor=ci OR method:Delete'."
)
@window("that were made")
@click.option("--no-triggers", is_flag=True, help="Runs that were triggered are left out.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Those of all namespaces.")
def audit_log(
    session: Invocation, text: str, since: int | None, until: int | None, no_triggers: bool,
    all_namespaces: bool, **given: str | None,
) -> None:  # fmt: skip
    """List who changed what, newest first. Without access tokens nobody knows who it was."""
    namespace = "" if all_namespaces else session.namespace
    spans = " AND ".join(between("time", since, until))
    triggers = "method!=TriggerJob" if no_triggers else ""
    request = m.access_pb2.ListAuditRecordsRequest(
        namespace=namespace, filter=all_of(condition(text, **given), spans, triggers)
    )
    session.show_list(
        request, m.access_pb2.ListAuditRecordsResponse, "records", "list who changed what",
        empty="No such changes are kept." if all_namespaces else
        f"No such changes of namespace {namespace} are kept; --all-namespaces lists all.",
    )  # fmt: skip
