"""What the command says about itself."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from raftsched.client.cli import COMMANDS, main
from raftsched.client.cli.lazy import CommandEntry, Root, broken_up

from ...rows import each
from .conftest import Cli

SRC = Path(__file__).parents[3] / ".src"


def commands(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        made = group.get_command(context, name)
        assert made is not None
        yield (*path, name), made
        if isinstance(made, click.Group):
            yield from commands(made, (*path, name))


# Those of the server and the proof as well, which are installed where tests run.
EVERYWHERE = list(commands())
EVERY = [(path, made) for path, made in EVERYWHERE if COMMANDS[path[0]].target.startswith(".")]
SENTENCE = r"[A-Z`-][^\[]*\w\S* [^\[]*[.)](  \[[^\]]+\])?"
ORDERS = frozenset((
    "Ask", "Be", "Begin", "Believe", "Call", "Change", "Check", "Delete", "Do", "Give", "Go",
    "Keep", "Let", "List", "Listen", "Log", "Make", "Measure", "Mend", "Name", "Print", "Put",
    "Read", "Replace", "Restart", "Run", "Say", "Send", "Serve", "Set", "Show", "Start", "Stop",
    "Take", "Try", "Unset", "Wait", "Write",
))  # fmt: skip
EXAMPLES = [(path, example) for path, made in EVERY for example in getattr(made, "examples", ())]


@each(("path", "made"), EVERYWHERE)
def test_every_command_explains_itself_with_an_example(
    path: tuple[str, ...], made: click.Command, cli: Cli
) -> None:
    said = cli.ok(*path, "--help", COLUMNS="80").stdout

    assert "Examples:" in said
    assert f"raftsched {path[0]}" in said
    assert made.help
    assert [line for line in said.splitlines() if len(line) > 80] == []


@each(("path", "example"), EXAMPLES)
def test_an_example_can_be_typed(path: tuple[str, ...], example: str, cli: Cli) -> None:
    words = shlex.split(example.split(" | ")[0].split(" > ")[0].split(" &&")[0].split(" ||")[0])
    if words[0] != "raftsched" or "$(" in example:
        return

    made: click.Command = main
    context = click.Context(main, info_name="raftsched")
    while words := words[1:]:
        assert isinstance(made, click.Group)
        below = made.get_command(context, words[0])
        assert below is not None, words[0]
        made = below
        if not isinstance(made, click.Group):
            break

    shown = " ".join(broken_up(example, 60))
    assert shlex.split(shown.replace("\\ ", "")) == shlex.split(example)
    # Raises a UsageError for what the command does not know.
    understood = made.make_context(made.name, words[1:], parent=context)
    # `-n 5` names a namespace, whatever its writer had in mind.
    assert not str(understood.params.get("namespace")).isdecimal()


@each(("path", "made"), EVERY)
def test_a_default_is_what_may_be_typed(path: tuple[str, ...], made: click.Command) -> None:
    for option in made.params:
        if isinstance(option, click.Option) and isinstance(option.default, str | int | float):
            # Raises BadParameter for what is out of its range.
            option.type.convert(option.default, option, None)


def test_no_help_page_loads_grpc_or_protobuf() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from raftsched.client.cli import main\n"
        f"for path in {[path for path, _ in EVERY]!r}:\n"
        "    assert CliRunner().invoke(main, [*path, '--help']).exit_code == 0, path\n"
        "print([m for m in ('grpc', 'google.protobuf', 'rich', 'yaml') if m in sys.modules])\n"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [(["jbo"], "job"), (["job", "trriger"], "trigger"), (["runn"], "run")]
)
def test_a_near_miss_is_answered_with_the_right_word(
    typed: list[str], meant: str, cli: Cli
) -> None:
    said = cli(*typed)

    assert said.exit_code == 2
    assert f"No such command '{typed[-1]}'. Did you mean '{meant}'?" in said.stderr
    assert "--help" in said.stderr
    assert said.stdout == ""


def test_an_option_before_the_command_is_said_to_stand_behind_it(cli: Cli) -> None:
    said = cli("--endpoints", "a:1", "job", "list")

    assert said.exit_code == 2
    assert "Options stand behind the command: raftsched COMMAND --endpoints" in said.stderr


def test_a_wrong_option_is_answered_with_the_right_one(cli: Cli) -> None:
    said = cli("job", "list", "--stat", "paused")

    assert said.exit_code == 2
    assert "--state" in said.stderr


def test_what_people_type_for_a_command_is_understood(cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "work")

    assert cli.ok("jobs", "show", "a").stdout == cli.ok("job", "get", "a").stdout
    assert "Run a." in cli.ok("job", "run", "a").stderr
    assert cli.ok("job", "ls", "-o", "name").stdout == "a\n"
    assert "deleted" in cli.ok("job", "rm", "a", "--yes").stderr
    assert cli("run", "run").exit_code == 2
    # What stands in groups is found from the root.
    assert "Did you mean 'job backfill'?" in cli("backfill", "a").stderr
    assert "'run logs'" in cli("logs").stderr
    assert "Did you mean" not in cli("no-such-thing-at-all").stderr


def test_each_option_is_a_sentence(cli: Cli) -> None:
    """With a subject, and the default where there is one that is not shown by itself; what an
    option does is no order to whoever reads it."""
    wrong = [
        f"{' '.join(path)} {option.opts[0]}: {option.help}"
        for path, made in EVERY
        for option in made.params
        if isinstance(option, click.Option)
        and option.name != "help"
        and (
            (option.help or "").split(" ")[0] in ORDERS
            or not re.fullmatch(SENTENCE, " ".join([option.help or ""]))
        )
    ]

    assert wrong == []


def test_what_is_not_installed_is_not_offered() -> None:
    table = {
        "there": CommandEntry(".run:run", "Is here."),
        "gone": CommandEntry("raftsched.nowhere.main:gone", "Is not."),
    }
    root = Root("raftsched", table=table)
    context = click.Context(root)

    assert root.list_commands(context) == ["there"]
    assert root.get_command(context, "gone") is None


def test_every_option_has_an_environment_variable(cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "work")
    cli.ok("job", "create", "b", "--handler", "work")
    cli.ok("job", "pause", "a")

    said = cli.ok("job", "list", RAFTSCHED_OUTPUT="name", RAFTSCHED_JOB_LIST_STATE="paused")

    assert said.stdout == "a\n"
