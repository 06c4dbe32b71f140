"""`raftsched alert`: conditions to be notified of."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..lazy import ExampleGroup
from ..names import ALERT
from ..options import command
from ..render.clean import echo
from ..session import Invocation
from ..times import Length, duration

if TYPE_CHECKING:
    from ..messages import alert_pb2

NAME = click.argument("name", type=ALERT)
WHOSE = click.option(
    "--cluster", is_flag=True, help="It is about alerts of the cluster, not of a namespace."
)
# Conditions of which only the cluster as a whole can say whether they hold.
OF_CLUSTER = frozenset(
    {
        "no_margin", "clock_skew_above", "no_quorum", "long_step_above", "leader_changes_above",
        "members_differ", "set_aside_above",
    }
)  # fmt: skip


class QueueMinimum(click.ParamType[tuple[str, int]]):
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
        click.option("--members-differ", is_flag=True, help="Nodes differ in build or zone data."),
        click.option(
            "--leader-changes-above", type=click.IntRange(min=0),
            help="There were more elections within 10 minutes than this.",
        ),
        click.option(
            "--set-aside-above", type=click.IntRange(min=0),
            help="There was more work that failed and was set aside within 10 minutes than this.",
        ),
        click.option(
            "--long-step-above", type=Length(),
            help="The leader did nothing else for longer than this within 10 minutes.",
        ),
        click.option("--no-quorum", is_flag=True, help="A node hears from no leader."),
        click.option(
            "--clock-skew-above", type=Length(), help="A node's clock is off by more than this."
        ),
        click.option("--no-margin", is_flag=True, help="No node can be lost any more."),
        click.option(
            "--workers-below", type=QueueMinimum(), metavar="QUEUE:MINIMUM",
            help="A queue has fewer workers than this.",
        ),
        click.option(
            "--lateness-above", type=Length(), help="A run is ready for longer than this."
        ),
        click.option(
            "--broken-jobs-above", type=click.IntRange(min=0),
            help="There are more BROKEN jobs than this."
        ),
        click.option(
            "--dead-letters-above", type=click.IntRange(min=0),
            help="There are more dead letters than this."
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
    """Alerts: conditions to be notified of, by event, by metric, and by webhook if there is one.

    A cluster has some of its own from the start, which `alert list --cluster` shows. They can be
    changed and deleted like others; `alert put --help` says how to make them again.
    """


@command(
    alert, "put",
    "raftsched alert put stuck --lateness-above 5m --webhook https://example.org/hook",
    "raftsched alert put lonely --workers-below mail:2 --hold 10m",
    "raftsched alert put clocks --clock-skew-above 200ms --cluster",
    "raftsched alert put jobs-broken --cluster --broken-jobs-above 0 --webhook https://a.example/b",
    writes=True,
)  # fmt: skip
@NAME
@condition_options
@click.option("--hold", type=Length(), help="How long it must be so before it is raised.  [0s]")
@click.option(
    "--webhook",
    default="",
    metavar="URL",
    help="An address that is called when it is raised or cleared.",
)
@WHOSE
@click.option("--etag", default="", help="It is done only to this version of the alert.")
def put(
    session: Invocation, name: str, hold: int | None, webhook: str, cluster: bool, etag: str,
    **given: Any,
) -> None:  # fmt: skip
    """Create an alert, or replace it as a whole. It has one condition.

    Those that a cluster has of its own from the start are made again, or given a webhook, by:

    \b
      raftsched alert put dead-letters --cluster --dead-letters-above 0
      raftsched alert put jobs-broken --cluster --broken-jobs-above 0
      raftsched alert put leader-changes --cluster --leader-changes-above 5
      raftsched alert put long-steps --cluster --long-step-above 1s
      raftsched alert put members-differ --cluster --members-differ
      raftsched alert put runs-wait --cluster --lateness-above 5m
      raftsched alert put work-set-aside --cluster --set-aside-above 0
    """
    wanted = m.alert_pb2.Alert(
        namespace=whose(session, cluster), name=name, webhook=webhook, etag=etag,
        hold=duration(hold) if hold is not None else None,
        condition=condition_of(name, given, cluster=cluster),
    )  # fmt: skip
    request = session.write(m.alert_pb2.PutAlertRequest(alert=wanted))
    made = session.ask(request, m.alert_pb2.Alert, f"put alert {name}")
    from ..render.formats import condition, length

    hold_text = f" for {length(made.hold)}" if made.HasField("hold") else ""
    session.done(
        made, f"Alert {name} is raised when: {condition(made.condition)}{hold_text}.",
        then=f"raftsched alert get {name}{' --cluster' if cluster else ''}",
    )  # fmt: skip


def condition_of(name: str, given: dict[str, Any], *, cluster: bool) -> alert_pb2.AlertCondition:
    conditions = {
        kind: value for kind, value in given.items() if value is not None and value is not False
    }
    flags = [f"--{kind.replace('_', '-')}" for kind in conditions]
    if len(conditions) != 1:
        why = f"there are {len(conditions)}: {', '.join(flags)}" if conditions else "none is given"
        raise wrong_use(
            f"an alert has one condition, and for {name} {why}",
            "", f"raftsched alert put {name} --lateness-above 5m, and another alert for each other",
        )  # fmt: skip
    [(kind, value)] = conditions.items()
    if kind in OF_CLUSTER and not cluster:
        raise wrong_use(
            f"{flags[0]} is about the cluster, and alert {name} would be a namespace's",
            "", "the same with --cluster",
        )  # fmt: skip
    from ...sdk.ranges import put

    made = m.alert_pb2.AlertCondition()
    if kind in ("lateness_above", "clock_skew_above", "long_step_above"):
        getattr(made, kind).CopyFrom(duration(value))
    elif kind == "workers_below":
        made.workers_below.queue = value[0]
        put(made.workers_below, "minimum", value[1])
    else:
        put(made, kind, value)
    return made


def whose(session: Invocation, cluster: bool) -> str:
    return "" if cluster else session.namespace


@command(
    alert, "list",
    "raftsched alert list",
    "raftsched alert list --cluster -o wide",
    reads=True, lists=True,
)  # fmt: skip
@WHOSE
def list_(session: Invocation, cluster: bool) -> None:
    """List alerts, and which of them are raised."""
    request = m.alert_pb2.ListAlertsRequest(namespace=whose(session, cluster))
    none = "The cluster has no alerts." if cluster else "No alerts here; --cluster lists its own."
    kind = m.alert_pb2.ListAlertsResponse
    session.show_list(request, kind, "alerts", "list alerts", empty=none)


@command(alert, "get", "raftsched alert get stuck", reads=True)
@NAME
@WHOSE
def get(session: Invocation, name: str, cluster: bool) -> None:
    """Show an alert."""
    known = all_of(session, cluster, f"get alert {name}")
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
@click.option("--etag", default="", help="It is done only to this version of the alert.")
def delete(session: Invocation, name: str, cluster: bool, etag: str) -> None:
    """Delete an alert: no notification of its condition is sent any more.

    Nobody makes it again by itself, not even one that the cluster has had from the start; the
    command that does is printed.
    """
    before = all_of(session, cluster, f"delete alert {name}").get(name)
    session.confirm(f"Delete alert {name}? No notification of its condition is sent any more.")
    request = session.write(
        m.alert_pb2.DeleteAlertRequest(namespace=whose(session, cluster), alert=name, etag=etag)
    )
    kind = m.alert_pb2.DeleteAlertResponse
    answer = session.ask(request, kind, f"delete alert {name}")
    session.done(answer, f"Alert {name} deleted.")
    if before is not None and session.out.is_table:
        echo(f"  To make it again: {command_of(before, cluster)}", err=True)


def all_of(session: Invocation, cluster: bool, doing: str) -> dict[str, alert_pb2.Alert]:
    request = m.alert_pb2.ListAlertsRequest(namespace=whose(session, cluster))
    pages = session.pages(request, m.alert_pb2.ListAlertsResponse, doing, limit=0)
    return {one.name: one for page in pages for one in page.alerts}


def command_of(alert: alert_pb2.Alert, cluster: bool) -> str:
    """What to type to have an alert as it is."""
    from ..render.formats import condition_value, length

    kind = alert.condition.WhichOneof("kind") or ""
    words = ["raftsched", "alert", "put", alert.name]
    words += ["--cluster"] if cluster else ["-n", alert.namespace]
    words += [f"--{kind.replace('_', '-')}", *condition_value(alert.condition)]
    words += ["--hold", length(alert.hold)] if alert.HasField("hold") else []
    words += ["--webhook", alert.webhook] if alert.webhook else []
    return shlex.join(words)
