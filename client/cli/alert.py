"""`raftsched alert`: conditions to be told about."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from . import messages as m
from .exits import Exit, Trouble, wrong_use
from .lazy import ExampleGroup
from .names import ALERT
from .options import command
from .session import Session
from .times import Length, duration

if TYPE_CHECKING:
    from .messages import alert_pb2

NAME = click.argument("name", type=ALERT)
WHOSE = click.option("--cluster", is_flag=True, help="The cluster's own, not a namespace's.")
# Conditions of which only the cluster as a whole can say whether they hold.
OF_CLUSTER = frozenset({"no_margin", "clock_skew_above", "no_quorum"})


class Workers(click.ParamType[tuple[str, int]]):
    """A queue and how many workers it must have."""

    name = "queue:minimum"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        queue, colon, minimum = value.rpartition(":")
        if not colon or not queue or not minimum.isdecimal():
            self.fail(f"{value!r} is no queue with a minimum; write it as mail:2", param, ctx)
        return queue, int(minimum)


def condition_options(body: Any) -> Any:  # A click callback.
    for option in (
        click.option("--no-quorum", is_flag=True, help="A node hears from no leader."),
        click.option(
            "--clock-skew-above", type=Length(), help="A node's clock is off by more than this."
        ),
        click.option("--no-margin", is_flag=True, help="No node can be lost any more."),
        click.option(
            "--workers-below", type=Workers(), metavar="QUEUE:MINIMUM",
            help="Fewer workers on a queue than this.",
        ),
        click.option(
            "--lateness-above", type=Length(), help="A run is ready for longer than this."
        ),
        click.option(
            "--dead-letters-above", type=click.IntRange(min=0), help="More dead letters than this."
        ),
    ):  # fmt: skip
        body = option(body)
    return body


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched alert put stuck --lateness-above 5m --webhook https://example.org/hook",
        "raftsched alert put fragile --no-margin --cluster",
        "raftsched alert list",
    ),
)
def alert() -> None:
    """Alerts: conditions to be told about, by event, by metric, and by webhook if there is one."""


@command(
    alert, "put",
    "raftsched alert put stuck --lateness-above 5m --webhook https://example.org/hook",
    "raftsched alert put lonely --workers-below mail:2 --hold 10m",
    "raftsched alert put clocks --clock-skew-above 200ms --cluster",
    writes=True,
)  # fmt: skip
@NAME
@condition_options
@click.option("--hold", type=Length(), help="It must hold for so long before.  [0s]")
@click.option("--webhook", default="", metavar="URL", help="Called when it is raised or cleared.")
@WHOSE
@click.option("--etag", default="", help="Only this version of the alert.")
def put(
    session: Session, name: str, hold: int | None, webhook: str, cluster: bool, etag: str,
    **given: Any,
) -> None:  # fmt: skip
    """Create an alert, or replace it as a whole. Its condition is one of the first six options."""
    wanted = m.alert_pb2.Alert(
        namespace=whose(session, cluster), name=name, webhook=webhook, etag=etag,
        hold=duration(hold) if hold is not None else None,
        condition=condition_of(name, given, cluster=cluster),
    )  # fmt: skip
    request = session.write(m.alert_pb2.PutAlertRequest(alert=wanted))
    made = session.ask(request, m.alert_pb2.Alert, f"put alert {name}")
    from .look import condition, length

    hold_text = f" for {length(made.hold)}" if made.HasField("hold") else ""
    session.done(
        made, f"Alert {name} is raised when: {condition(made.condition)}{hold_text}.",
        then=f"raftsched alert get {name}{' --cluster' if cluster else ''}",
    )  # fmt: skip


def condition_of(name: str, given: dict[str, Any], *, cluster: bool) -> alert_pb2.AlertCondition:
    said = {
        kind: value for kind, value in given.items() if value is not None and value is not False
    }
    flags = [f"--{kind.replace('_', '-')}" for kind in said]
    if len(said) != 1:
        why = f"there are {len(said)}: {', '.join(flags)}" if said else "none is given"
        raise wrong_use(
            f"an alert has one condition, and for {name} {why}",
            "", f"raftsched alert put {name} --lateness-above 5m, and another alert for each other",
        )  # fmt: skip
    [(kind, value)] = said.items()
    if kind in OF_CLUSTER and not cluster:
        raise wrong_use(
            f"{flags[0]} is about the cluster, and alert {name} would be a namespace's",
            "", "the same with --cluster",
        )  # fmt: skip
    from ..ranges import put

    made = m.alert_pb2.AlertCondition()
    if kind in ("lateness_above", "clock_skew_above"):
        getattr(made, kind).CopyFrom(duration(value))
    elif kind == "workers_below":
        made.workers_below.queue = value[0]
        put(made.workers_below, "minimum", value[1])
    else:
        put(made, kind, value)
    return made


def whose(session: Session, cluster: bool) -> str:
    return "" if cluster else session.namespace


@command(
    alert, "list",
    "raftsched alert list",
    "raftsched alert list --cluster -o wide",
    reads=True, lists=True,
)  # fmt: skip
@WHOSE
def list_(session: Session, cluster: bool) -> None:
    """List alerts, and which of them are raised."""
    request = m.alert_pb2.ListAlertsRequest(namespace=whose(session, cluster))
    none = "The cluster has no alerts." if cluster else "No alerts here; --cluster lists its own."
    kind = m.alert_pb2.ListAlertsResponse
    session.show_list(request, kind, "alerts", "list alerts", empty=none)


@command(alert, "get", "raftsched alert get stuck", reads=True)
@NAME
@WHOSE
def get(session: Session, name: str, cluster: bool) -> None:
    """Show an alert."""
    request = m.alert_pb2.ListAlertsRequest(namespace=whose(session, cluster))
    kind = m.alert_pb2.ListAlertsResponse
    pages = session.pages(request, kind, f"get alert {name}", limit=0)
    known = {one.name: one for page in pages for one in page.alerts}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        where = "of the cluster" if cluster else f"in namespace {session.namespace}"
        raise Trouble(
            f"there is no alert {name} {where}",
            f"did you mean {near[0]}?" if near else "",
            f"raftsched alert list{' --cluster' if cluster else ''}", Exit.NOT_FOUND,
        )  # fmt: skip
    session.out.one(known[name])


@command(alert, "delete", "raftsched alert delete stuck --yes", writes=True, destroys=True)
@NAME
@WHOSE
@click.option("--etag", default="", help="Only this version of the alert.")
def delete(session: Session, name: str, cluster: bool, etag: str) -> None:
    """Delete an alert: nobody is told of its condition any more."""
    session.confirm(f"Delete alert {name}?")
    request = session.write(
        m.alert_pb2.DeleteAlertRequest(namespace=whose(session, cluster), alert=name, etag=etag)
    )
    kind = m.alert_pb2.DeleteAlertResponse
    session.done(session.ask(request, kind, f"delete alert {name}"), f"Alert {name} deleted.")
