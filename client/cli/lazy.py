"""Commands that are loaded when they are called, and the way every command ends."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any

import click
from click.shell_completion import CompletionItem

from .exits import Exit, Trouble
from .render.clean import echo

NEAR_MAX = 3  # Names in a hint.
# What people type for the name that a command has, in groups that have no such command.
ALIASES = {
    "show": "get", "describe": "get", "inspect": "get", "ls": "list", "rm": "delete",
    "remove": "delete", "new": "create", "run": "trigger", "log": "logs", "unpause": "resume",
    "jobs": "job", "runs": "run", "queues": "queue", "flows": "flow", "workers": "worker",
    "alerts": "alert", "tokens": "token", "secrets": "secret", "namespaces": "namespace",
    "calendars": "calendar", "events": "watch",
}  # fmt: skip
SIGPIPE_EXIT = 141  # As a shell says it: 128 and the signal's number.


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is, and what the help page says about it without loading it."""

    # "module:name"; a leading dot is the package of the commands.
    target: str
    help: str

    @property
    def module(self) -> str:
        module = self.target.split(":")[0]
        return f"{__package__}.commands{module}" if module.startswith(".") else module

    def is_installed(self) -> bool:
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def load(self) -> click.Command | None:
        return getattr(import_module(self.module), self.target.split(":")[1], None)


class Helpful:
    """Puts examples in front of the options, since they are what people look for."""

    examples: Sequence[str] = ()

    def write_examples(self, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                indent = formatter.current_indent
                for example in self.examples:
                    for line in broken_up(example, formatter.width - indent):
                        formatter.write(f"{'':>{indent}}{line}\n")


def broken_up(example: str, width: int) -> list[str]:
    """A command on as many lines as it takes, as a shell reads them: broken before options."""
    parts: list[str] = []
    for word in re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", example):
        if not parts or word[0] in "->|":
            parts.append(word)
        else:
            parts[-1] += f" {word}"
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) + len(" \\ ") > width:
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return lines


def first_sentence(command: click.Command) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".") + "."


class ExampleCommand(Helpful, click.Command):
    """A command with examples and options of its own only."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_examples(formatter)
        super().format_options(ctx, formatter)


class ExampleGroup(Helpful, click.Group):
    """A group whose wrong words are answered with near ones."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_examples(formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(one)) for name, one in commands if one])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were declared, which is the order in which they are used."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            if (meant_by := ALIASES.get(args[0], "")) in self.list_commands(ctx):
                return super().resolve_command(ctx, [meant_by, *args[1:]])
            near = get_close_matches(args[0], self.list_commands(ctx), n=NEAR_MAX)
            near = near or list(islice(self.below(ctx, args[0]), NEAR_MAX))
            meant = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def below(self, ctx: click.Context, name: str) -> Iterator[str]:
        """Commands of this name in groups, as they are typed; only the root looks for them."""
        yield from ()


class Root(ExampleGroup):
    """The command itself: its sub-commands come from a table of names and places."""

    def __init__(self, *args: Any, table: Mapping[str, CommandEntry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            behind = f"Options stand behind the command: raftsched COMMAND {wrong.option_name}"
            raise click.NoSuchOption(
                wrong.option_name, f"{wrong.message} {behind}.", wrong.possibilities, ctx
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in self.table.items() if entry.is_installed()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return entry.load() if entry and entry.is_installed() else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its two options are named above, so that all commands fit on a screen."""
        self.write_examples(formatter)
        self.format_commands(ctx, formatter)

    def below(self, ctx: click.Context, name: str) -> Iterator[str]:
        # Those of other packages take long to load, and are not what somebody types first.
        ours = (one for one in self.list_commands(ctx) if self.table[one].target[0] == ".")
        for group_name in ours:
            group = self.get_command(ctx, group_name)
            if isinstance(group, ExampleGroup) and name in group.list_commands(ctx):
                yield f"{group_name} {name}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name].help) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=self.table[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has left. Nothing may be flushed into the pipe at the interpreter's end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(SIGPIPE_EXIT)

    def main(self, *args: Any, **kwargs: Any) -> Any:  # As click has it.
        """As click's, with exit codes of our own: see exits.py."""
        prepare_streams()
        try:
            kwargs["standalone_mode"] = False
            sys.exit(super().main(*args, **kwargs) or Exit.OK)
        except Trouble as trouble:
            trouble.show()
            sys.exit(trouble.exit_code)
        except click.ClickException as wrong:
            wrong.show()
            sys.exit(wrong.exit_code)
        except (KeyboardInterrupt, EOFError, click.Abort):
            echo("\nInterrupted.", err=True)
            sys.exit(Exit.INTERRUPTED)
        except Exception as fault:
            # A fault of our own: nobody is helped by its traceback but those who can mend it.
            if os.environ.get("RAFTSCHED_DEBUG"):
                raise
            broken(fault).show()
            sys.exit(Exit.FAILED)


def broken(fault: Exception) -> Trouble:
    return Trouble(
        "raftsched itself is at fault", f"{type(fault).__name__}: {fault}",
        "the same with RAFTSCHED_DEBUG=1, and report what it prints",
    )  # fmt: skip


def prepare_streams() -> None:
    """Keep gRPC's log off stderr; and when stderr is closed, keep sockets from taking its place."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        os.fstat(2)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
