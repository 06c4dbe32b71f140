"""`raftsched namespace`: the tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import wrong_use
from ..lazy import ExampleGroup
from ..names import NAMESPACE
from ..options import command
from ..session import Invocation
from ..times import Length, duration

if TYPE_CHECKING:
    from ..messages import namespace_pb2

NUMBER = click.IntRange(min=0)
# Option -> (field, type, help).
FIELDS = {
    "description": ("description", str, "What it is for, for people."),
    "max_jobs": ("quota.jobs", NUMBER, "The maximum of jobs; 0 is no limit.  [no limit]"),
    "max_live_runs": ("quota.live_runs", NUMBER, "The maximum of runs under way."),
    "max_leases": ("quota.leases", NUMBER, "The maximum of runs carried out at once."),
    "calls_per_second": ("quota.calls_per_second", NUMBER, "The maximum of calls a second."),
    "max_payload_bytes": (
        "quota.payload_bytes",
        NUMBER,
        "The maximum of bytes in payloads of jobs.",
    ),
    "keep_succeeded": ("keep_succeeded", Length(), "How long runs that ended well are kept.  [7d]"),
    "keep_failed": ("keep_failed", Length(), "How long dead letters are kept.  [30d]"),
    "keep_ledger": ("keep_ledger", Length(), "How long the firing ledger is kept.  [90d]"),
    "keep_audit": ("keep_audit", Length(), "How long audit records are kept.  [365d]"),
    "weight": ("weight", NUMBER, "Its share of leases.  [100]"),
    "backlog_rate": ("backlog_rate", NUMBER, "How many missed runs begin in a second.  [1000]"),
}
NAME = click.argument("name", type=NAMESPACE)


def field_options(body: Any) -> Any:  # A click callback.
    for option, (_, kind, help_text) in reversed(FIELDS.items()):
        flag = f"--{option.replace('_', '-')}"
        body = click.option(flag, option, type=kind, help=help_text)(body)
    return body


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched namespace create billing --max-jobs 10000",
        "raftsched job list -n billing",
    ),
)
def namespace() -> None:
    """Namespaces: owners of jobs, quotas and rights."""


@command(
    namespace, "create", "raftsched namespace create billing --max-jobs 10000", writes=True
)  # fmt: skip
@click.argument("name")
@field_options
def create(session: Invocation, name: str, **given: Any) -> None:
    """Create a namespace."""
    wanted, _ = build(name, given)
    request = session.write(m.namespace_pb2.CreateNamespaceRequest(namespace=wanted))
    made = session.ask(request, m.namespace_pb2.Namespace, f"create namespace {name}")
    session.done(made, f"Namespace {name} created.", then=f"raftsched job list -n {name}")


@command(
    namespace, "update", "raftsched namespace update billing --keep-failed 90d", writes=True
)  # fmt: skip
@NAME
@field_options
@click.option("--etag", default="", help="It is done only to this version of the namespace.")
def update(session: Invocation, name: str, etag: str, **given: Any) -> None:
    """Change what a namespace may use and how long it keeps what was."""
    wanted, paths = build(name, given)
    if not paths:
        raise wrong_use(
            f"nothing to change in namespace {name}", "",
            f"raftsched namespace update {name} --max-jobs 10000",
        )  # fmt: skip
    wanted.etag = etag
    request = session.write(m.namespace_pb2.UpdateNamespaceRequest(namespace=wanted))
    request.update_mask.paths.extend(paths)
    changed = session.ask(request, m.namespace_pb2.Namespace, f"update namespace {name}")
    session.done(changed, f"Namespace {name} updated: {', '.join(paths)}.")


@command(namespace, "list", "raftsched namespace list", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List namespaces with what they use."""
    kind = m.namespace_pb2.ListNamespacesResponse
    request = m.namespace_pb2.ListNamespacesRequest()
    session.show_list(request, kind, "namespaces", "list namespaces")


@command(namespace, "get", "raftsched namespace get billing", reads=True)
@click.argument("name", type=NAMESPACE, default="", metavar="[NAME]")
def get(session: Invocation, name: str) -> None:
    """Show a namespace; without a name the one that commands use."""
    name = name or session.namespace
    request = m.namespace_pb2.GetNamespaceRequest(namespace=name)
    session.out.one(session.read(request, m.namespace_pb2.Namespace, f"get namespace {name}"))


@command(
    namespace, "delete", "raftsched namespace delete billing --yes", writes=True, destroys=True
)  # fmt: skip
@NAME
@click.option("--etag", default="", help="It is done only to this version of the namespace.")
def delete(session: Invocation, name: str, etag: str) -> None:
    """Delete a namespace that has no jobs."""
    session.confirm(f"Delete namespace {name}?")
    request = session.write(m.namespace_pb2.DeleteNamespaceRequest(namespace=name, etag=etag))
    kind = m.namespace_pb2.DeleteNamespaceResponse
    session.done(
        session.ask(request, kind, f"delete namespace {name}"), f"Namespace {name} deleted."
    )


def build(name: str, given: dict[str, Any]) -> tuple[namespace_pb2.Namespace, list[str]]:
    """The namespace, and the paths that were given."""
    from ...sdk.ranges import put

    made = m.namespace_pb2.Namespace(name=name)
    paths = []
    for option, (path, kind, _) in FIELDS.items():
        value = given[option]
        if value is None:
            continue
        paths.append(path)
        owner: Any = made.quota if path.startswith("quota.") else made
        last = path.rsplit(".", 1)[-1]
        if isinstance(kind, Length):
            getattr(owner, last).CopyFrom(duration(value))
        else:
            put(owner, last, value)
    return made, paths
