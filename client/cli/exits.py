"""How a command ends: exit codes, and errors that say what, why, and what to type next."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import click

from .render.clean import echo, notify

NAME = "raftsched"
# What a node says that knows of none.
NO_LEADER = "knows no leader that a majority follows"


def with_program(text: str) -> str:
    """Call the program as it was called, where a shell would not find it by its name alone."""
    called = sys.argv[0]
    if Path(called).name != NAME or shutil.which(NAME) == called:
        return text
    return re.sub(rf"(?<![\w/.-]){NAME}(?= [a-z])", lambda _: shlex.quote(called), text)


class Exit(IntEnum):
    """What scripts can rely on; `DESIGN.md` has the table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    FORBIDDEN = 5
    CONFLICT = 6
    OUTCOME_UNKNOWN = 7
    UNPROVED = 8
    INTERRUPTED = 130


class Trouble(click.ClickException):
    """Something did not work: what, why with the values, and what to type next."""

    def __init__(
        self, what: str, why: str | Sequence[str] = "", then: str = "", code: Exit = Exit.FAILED
    ) -> None:
        super().__init__(what)
        self.why = [why] if isinstance(why, str) else list(why)
        self.then = then
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return int(self.code)

    def format_message(self) -> str:
        lines = [self.message, *(f"  {line}" for line in self.why if line)]
        if self.then:
            first, *rest = self.then.splitlines()
            lines += [f"  Try: {first}", *(f"       {line}" for line in rest)]
        return "\n".join(lines)

    def show(self, file: IO[Any] | None = None) -> None:
        what, mark, then = f"Error: {self.format_message()}".partition("\n  Try: ")
        notify(what, 4)
        if mark:
            # What is to be typed stays in one piece.
            echo(with_program(f"{mark[1:]}{then}"), file=file, err=True)


def reason_of(error: Exception) -> str:
    """What went wrong, without the numbers of the operating system."""
    return getattr(error, "strerror", None) or str(error)


def wrong_use(what: str, why: str | Sequence[str] = "", then: str = "") -> Trouble:
    """What was typed cannot be understood, or makes no sense together."""
    return Trouble(what, why, then, Exit.USAGE)
