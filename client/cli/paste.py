"""Makes commands that are shown such that they can be pasted: with the options that lead there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import click

from .exits import NAME
from .settings import BY_NAME, Value

_COMMAND = re.compile(rf"(?<![\w/.-]){NAME} ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
# What says where a command goes. The other settings change only how it looks.
WHERE = (
    "context", "endpoints", "namespace", "token_file", "insecure", "ca_file", "cert_file",
    "key_file",
)  # fmt: skip
# Commands that are about no single namespace.
OF_ALL = frozenset({"namespace", "cluster", "token", "doctor"})


def with_options(text: str, values: Mapping[str, Value]) -> str:
    """Put those options behind each command that were typed for the present one: variables and
    the current context hold for the next one by themselves."""
    typed = {name: values[name].value for name in WHERE if values[name].origin.startswith("--")}
    if not typed or NAME not in text:
        return text
    matches = list(_COMMAND.finditer(text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    for match, end in reversed(list(zip(matches, ends, strict=True))):
        at, known = _resolved(match)
        rest = text[at:end].split("\n")[0]
        added = "".join(
            f" {flag} {shlex.quote(value)}"
            for name, value in typed.items()
            if name in known and (flag := _flag(name)) not in rest.split()
            and not (name == "namespace" and match[1] in OF_ALL)
        )  # fmt: skip
        text = text[:at] + added + text[at:]
    return text


def _flag(name: str) -> str:
    return "--context" if name == "context" else BY_NAME[name].short or BY_NAME[name].flag


def _resolved(match: re.Match[str]) -> tuple[int, set[str | None]]:
    """Where the words of a command end, and the options it takes."""
    context = click.get_current_context().find_root()
    assert isinstance(context.command, click.Group), "the root has commands"
    found = context.command.get_command(context, match[1])
    at = match.end(1)
    if isinstance(found, click.Group):
        found = found.get_command(context, match[2] or "")
        at = match.end()
    return at, {param.name for param in found.params} if found is not None else set()
