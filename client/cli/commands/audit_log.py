"""`raftsched audit-log`: the audit log, which says who changed what."""

from __future__ import annotations

import click

from .. import messages as m
from ..options import command
from ..session import Invocation
from .job import condition


@command(
    None, "audit-log",
    "raftsched audit-log --subject job/report",
    "raftsched audit-log --actor ci --method DeleteJob --all-namespaces",
    "raftsched audit-log --limit 0 -o jsonl > audit.jsonl",
    reads=True, lists=True,
)  # fmt: skip
@click.option("--actor", help="Only what this access token did.")
@click.option("--method", help="Only this call, such as UpdateJob.")
@click.option("--subject", metavar="KIND/NAME", help="Only about this, such as job/report.")
@click.option("--filter", "text", default="", help="Such as 'actor=ci OR method:Delete'.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only those of one namespace.")
def audit_log(session: Invocation, text: str, all_namespaces: bool, **given: str | None) -> None:
    """List who changed what, newest first. Without access tokens nobody knows who it was."""
    namespace = "" if all_namespaces else session.namespace
    request = m.access_pb2.ListAuditRecordsRequest(
        namespace=namespace, filter=condition(text, **given)
    )
    session.show_list(
        request, m.access_pb2.ListAuditRecordsResponse, "records", "list who changed what",
        empty="No such changes are kept." if all_namespaces else
        f"No such changes of namespace {namespace} are kept; --all-namespaces lists all.",
    )  # fmt: skip
