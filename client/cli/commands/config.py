"""`raftsched config`: contexts, which say which cluster the commands talk to."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..exits import Trouble, wrong_use
from ..lazy import ExampleGroup
from ..options import command
from ..render.clean import echo
from ..session import Invocation
from ..settings import BY_NAME, Contexts, Value, same_cluster


class ContextName(click.ParamType[str]):
    """A context of the file."""

    name = "context"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            known = Contexts.load().contexts
        except Trouble:
            return []
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched config add prod --endpoints a.example:7400,b.example:7400,c.example:7400",
        "raftsched config use prod",
        "RAFTSCHED_CONTEXT=prod raftsched job list",
    ),
)
def config() -> None:
    """Contexts: named sets of settings, one for each cluster that you talk to.

    They are kept in ~/.config/raftsched/config.toml; RAFTSCHED_CONFIG names another file.
    """


@command(
    config, "add",
    "raftsched config add prod --endpoints a.example:7400,b.example:7400 -n billing",
    "raftsched config add prod --token-file /run/secrets/raftsched --ca-file ca.pem",
)  # fmt: skip
@click.argument("name")
def add(session: Invocation, name: str) -> None:
    """Keep the options of this command as a context; what is not given keeps its value."""
    contexts = Contexts.load()
    kept = contexts.contexts.setdefault(name, {})
    for setting in BY_NAME:
        value = session.values[setting]
        if value.origin == BY_NAME[setting].flag:
            # A context is used from other folders too.
            is_file = setting.endswith("_file")
            kept[setting] = os.path.abspath(value.value) if is_file else value.value
    if "endpoints" not in kept:
        raise wrong_use(
            f"context {name} needs endpoints",
            "",
            f"raftsched config add {name} --endpoints HOST:PORT",
        )
    contexts.current = contexts.current or name
    contexts.save()
    _done(session, contexts, name, f"Context {name} is kept in {contexts.path}.")


@command(config, "use", "raftsched config use prod")
@click.argument("name", type=ContextName())
def use(session: Invocation, name: str) -> None:
    """Take a context from now on, where none is named."""
    contexts = Contexts.load()
    contexts.chosen(name)
    contexts.current = name
    contexts.save()
    endpoints = contexts.contexts[name].get("endpoints", "its default")
    _done(session, contexts, name, f"Commands talk to {name} now: {endpoints}.")


def _done(session: Invocation, contexts: Contexts, name: str, text: str) -> None:
    """Say what was done, and which variable says otherwise: it comes before the file."""
    kept = contexts.contexts[name]
    endpoints = os.environ.get("RAFTSCHED_ENDPOINTS", "")
    other = os.environ.get("RAFTSCHED_CONTEXT", "")
    overruled = ""
    if contexts.current == name and other and other != name:
        overruled = f"RAFTSCHED_CONTEXT={other}"
    elif contexts.current == name and endpoints and not same_cluster(Value(endpoints, ""), kept):
        overruled = f"RAFTSCHED_ENDPOINTS={endpoints}"
    if overruled:
        text = (
            f"Context {name} is kept, but {overruled} comes before it, so commands do not use it."
            f"\n  Next: unset {overruled.partition('=')[0]}, or name it each time: --context {name}"
        )
    if overruled or session.out.is_table:
        echo(text, err=True)
    one = {"name": name, "current": name == contexts.current, **kept}
    if session.out.format in ("jsonl", "name"):
        session.out.piece(one)
    elif not session.out.is_table:
        session.out.document(one)


@command(config, "remove", "raftsched config remove old --yes", destroys=True)
@click.argument("name", type=ContextName())
def remove(session: Invocation, name: str) -> None:
    """Forget a context."""
    contexts = Contexts.load()
    contexts.chosen(name)
    session.confirm(f"Forget context {name}?")
    del contexts.contexts[name]
    contexts.current = "" if contexts.current == name else contexts.current
    contexts.save()
    echo(f"Context {name} is forgotten.", err=True)


@command(config, "list", "raftsched config list")
def list_(session: Invocation) -> None:
    """List the contexts; the star is the one that is used."""
    contexts = Contexts.load()
    rows = [
        ["*" if name == contexts.current else "", name, values.get("endpoints", ""),
         values.get("namespace", "default")]
        for name, values in contexts.contexts.items()
    ]  # fmt: skip
    if not session.out.is_table:
        known: list[dict[str, Any]] = [
            {"name": name, "current": name == contexts.current, **values}
            for name, values in contexts.contexts.items()
        ]
        session.out.records(known)
    elif rows:
        session.out.table(["", "NAME", "ENDPOINTS", "NAMESPACE"], rows)
    else:
        echo("No contexts.", err=True)
        echo("  Next: raftsched config add NAME --endpoints HOST:PORT", err=True)


@command(
    config, "show", "raftsched config show --origin", "raftsched config show --context prod -o json"
)
@click.option("--origin", is_flag=True, help="Each value is shown with where it comes from.")
def show(session: Invocation, origin: bool) -> None:
    """Show the settings that commands would use now."""
    if not session.out.is_table:
        known = [
            {"name": name, "value": value.value, **({"origin": value.origin} if origin else {})}
            for name, value in session.values.items()
        ]
        session.out.records(known)
        return
    titles = ["SETTING", "VALUE", *(["ORIGIN"] if origin else [])]
    rows = [
        [name, value.value, *([value.origin] if origin else [])]
        for name, value in session.values.items()
    ]
    session.out.table(titles, rows)
