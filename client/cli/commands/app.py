"""`raftsched app`: programs that declare their jobs in Python."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..exits import Trouble
from ..input.modules import find
from ..lazy import ExampleGroup
from ..options import command
from ..render.clean import echo
from ..session import Invocation, credentials, many
from .worker import log_to_stderr

if TYPE_CHECKING:
    from ...app.app import App
    from ...app.sync import Changes

WHERE = click.argument("where", metavar="MODULE[:NAME]")
CHDIR = click.option("--chdir", default=".", metavar="DIR", help="Where the module is.  [here]")


@click.group(cls=ExampleGroup, examples=("raftsched app sync shop:app", "raftsched app run shop"))
def app() -> None:
    """Apps: Python programs that declare their jobs where the functions stand."""


@command(app, "diff", "raftsched app diff shop:app")
@WHERE
@CHDIR
def diff(session: Invocation, where: str, chdir: str) -> None:
    """Show what `app sync` would change, and change nothing."""
    found = named(session, where, chdir, "diff")
    _show(session, _synced(session, found, dry_run=True))


@command(app, "sync", "raftsched app sync shop:app", "raftsched app sync shop --yes", destroys=True)
@WHERE
@CHDIR
def sync(session: Invocation, where: str, chdir: str) -> None:
    """Declare the jobs of an app to the cluster, and show what that changes.

    Jobs that the app of this name declared before, and no longer does, are deleted if you agree.
    """
    found = named(session, where, chdir, "sync")
    changes = _synced(session, found, yes=session.yes)
    _show(session, changes)
    if changes.done:
        left = f", but {many(len(changes.left), 'job')} not deleted" if changes.left else ""
        session.say(f"Declared{left}.")


@command(
    app, "run", "raftsched app run shop:app", "raftsched app run shop --queue mail --slots 50"
)  # fmt: skip
@WHERE
@CHDIR
@click.option("--queue", "queues", multiple=True, help="Only from this queue; can be repeated.")
@click.option(
    "--slots", type=click.IntRange(min=1), default=32, show_default=True, help="Runs at once."
)
@click.option("--quiet", is_flag=True, help="It logs only what is wrong.")
def run(session: Invocation, where: str, chdir: str, quiet: bool, **given: Any) -> None:
    """Carry out the tasks of an app until SIGTERM or Ctrl-C.

    The first signal drains the worker, the second stops it at once.
    """
    found = named(session, where, chdir, "run")
    log_to_stderr(quiet=quiet)
    try:
        worker = found.worker(**given)
    except (TypeError, ValueError) as wrong:
        raise Trouble(f"app {where} cannot run", str(wrong), "mend the module") from wrong
    if not quiet:
        session.say(f"Tasks: {', '.join(worker.handlers)}. Ctrl-C drains, twice stops.")
    from ..refused import refusals

    with refusals(session, "run this app"):
        worker.run()


def named(session: Invocation, where: str, folder: str, verb: str) -> App:
    """The app that the words mean, at the nodes that the command or its context names."""
    from ...app.app import App

    found = find(where, folder, App, f"raftsched app {verb}")
    if session.values["endpoints"].origin != "default":
        found.connect_to(session.endpoints, **credentials(session.values))
    if session.values["namespace"].origin != "default":
        found.work_in(session.namespace)
    return found


def _synced(session: Invocation, found: App, **how: bool) -> Changes:
    from ..refused import refusals

    # What is asked before something is deleted goes to the person, and so does what would go.
    show = echo if session.out.is_table else _nothing
    with refusals(session, "declare the jobs of this app"):
        return found.sync(say=show, **how)


def _nothing(_: str) -> None:
    """Programs read the whole answer."""


def _show(session: Invocation, changes: Changes) -> None:
    if not session.out.is_table:
        echo(json.dumps(asdict(changes)))
