"""How commands are declared: the options that they share, and a session in front of their own.

@command(job, "pause", "raftsched job pause report --reason migration", writes=True)
@click.argument("name", type=JobName())
def pause(session: Invocation, name: str) -> None:
    \"\"\"Stop a job from firing.\"\"\"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from .exits import wrong_use
from .lazy import Helpful
from .session import Invocation
from .settings import SETTINGS, Setting

Body = Callable[..., None]
# Rarely typed: they belong into a context, and are named on the help page in one line.
QUIET = {"token_file", "ca_file", "cert_file", "key_file", "color"}
WRITE_OPTIONS = [
    click.Option(["--dry-run"], is_flag=True, envvar="RAFTSCHED_DRY_RUN",
                 help="Everything is checked, nothing changed (in HTTP: validateOnly)."),
    click.Option(["--request-id"], default="", metavar="ID", envvar="RAFTSCHED_REQUEST_ID",
                 help="The same ID does a write once, to repeat what has no known outcome."),
]  # fmt: skip
READ_OPTIONS = [
    click.Option(["--stale"], is_flag=True, envvar="RAFTSCHED_STALE",
                 help="Any node answers, with what it has."),
]  # fmt: skip
LIST_OPTIONS = [
    click.Option(["--limit"], type=click.IntRange(min=0), default=500, show_default=True,
                 envvar="RAFTSCHED_LIMIT", help="At most so many are printed; 0 is all."),
    click.Option(["--page-token"], default="", metavar="TOKEN", envvar="RAFTSCHED_PAGE_TOKEN",
                 help="It goes on where a list ended."),
]  # fmt: skip
YES = click.Option(["--yes", "-y"], is_flag=True, envvar="RAFTSCHED_YES", help="Nothing is asked.")


def described(setting: Setting) -> str:
    return f"{setting.help}  [{setting.default}]" if setting.default else setting.help


def setting_options() -> list[click.Option]:
    """A fresh option for each setting, and those that are no settings."""
    options = [
        click.Option(
            [setting.flag, *([setting.short] if setting.short else [])],
            type=setting.type, help=described(setting), envvar=setting.variable,
            metavar=setting.metavar or None, hidden=setting.name in QUIET,
        )
        for setting in SETTINGS
    ]  # fmt: skip
    return [
        *options,
        click.Option(["--context"], default="", metavar="NAME", envvar="RAFTSCHED_CONTEXT",
                     help="The cluster, see `raftsched config`."),
        click.Option(["--no-headers"], is_flag=True, envvar="RAFTSCHED_NO_HEADERS",
                     help="Tables have no first line."),
        click.Option(["--debug"], is_flag=True, envvar="RAFTSCHED_DEBUG", hidden=True,
                     help="Errors come with all that is known."),
    ]  # fmt: skip


class Command(Helpful, click.Command):
    """A command whose help shows examples, then its own options, then those that all share."""

    def __init__(self, *args: Any, shared: list[click.Parameter], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *shared]
        self.shared = shared

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_examples(formatter)
        own = [param for param in self.get_params(ctx) if param not in self.shared]
        for title, params in (("Options", own), ("Shared options", self.shared)):
            options = [param for param in params if isinstance(param, click.Option)]
            lines = [line for option in options if (line := option.get_help_record(ctx))]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
        if self.shared:
            formatter.write_paragraph()
            formatter.write_text(
                "Also --color and, better kept in a context, --token-file, --ca-file, --cert-file"
                " and --key-file. Each option can be a variable: RAFTSCHED_OUTPUT=json."
            )


def command(
    group: click.Group | None,
    name: str,
    *examples: str,
    writes: bool = False,
    reads: bool = False,
    lists: bool = False,
    destroys: bool = False,
) -> Callable[[Body], Command]:
    """Declare a command. What it is for decides which options it shares with others of its kind."""

    def declare(body: Body) -> Command:
        shared: list[click.Parameter] = [
            *(LIST_OPTIONS if lists else []),
            *(READ_OPTIONS if reads else []),
            *([YES] if destroys else []),
            *(WRITE_OPTIONS if writes else []),
            *setting_options(),
        ]
        own = list(reversed(getattr(body, "__click_params__", [])))
        made = Command(
            name, params=own, callback=_in_session(body), help=body.__doc__, shared=shared,
        )  # fmt: skip
        made.examples = examples
        if group is not None:
            group.add_command(made, name)
        return made

    return declare


def _in_session(body: Body) -> Body:
    @wraps(body)
    def run(**given: Any) -> None:
        own = {param.name for param in click.get_current_context().command.params} - SHARED
        mine = {name: value for name, value in given.items() if name in own}
        with Invocation.of(given) as session:
            try:
                body(session, **mine)
            except ValueError as wrong:
                from ..sdk.ranges import OutOfRange  # It loads protobuf, which --help does without.

                if not isinstance(wrong, OutOfRange):
                    raise
                raise wrong_use("a number is out of range", str(wrong)) from wrong

    return run


SHARED = {
    option.name
    for option in (*LIST_OPTIONS, *READ_OPTIONS, YES, *WRITE_OPTIONS, *setting_options())
}
