"""The file that says what a node is set to."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from ..node.limits import CallerLimits
from .config import KEYS, Config, Files, GatewaySection, MemberSection, SecretsSection


def text_of(config: Config, origins: Mapping[str, str] | None = None) -> str:
    """The file that says this; with `origins`, where each value came from, else its comment."""
    lines: list[str] = []
    section = ""
    for path, key in KEYS.items():
        above, _, name = path.rpartition(".")
        if above not in ("", section):
            section = above
            doc = _section_comment(section) if origins is None else ""
            lines += ["", *([f"# {doc}"] if doc else []), f"[{section}]"]
        note = origins[path] if origins is not None else ""
        if origins is None:
            lines += ["", *(f"# {line}" for line in textwrap.wrap(key.comment, 94))]
        if path == "members":
            lines += [*(["", f"# {note}"] if note else []), *_member_lines(config)]
        else:
            line = f"{name} = {_toml(_value(config, path))}"
            lines.append(f"{line}  # {note}" if note else line)
    return "\n".join(lines).lstrip("\n") + "\n"


def _member_lines(config: Config) -> Iterator[str]:
    for index, (name, member) in enumerate(config.members.items()):
        if index:
            yield ""
        yield f"[members.{name}]"
        yield f"peer = {_toml(member.peer)}"
        yield f"client = {_toml(member.client)}"


def _section_comment(section: str) -> str:
    kind: Any = Config
    for name in section.split("."):
        kind = get_type_hints(kind)[name]
    shown = issubclass(kind, Files | CallerLimits | GatewaySection | SecretsSection)
    return (kind.__doc__ or "").strip() if shown else ""


def _value(config: Config, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


EXAMPLE = Config(
    name="n1",
    members={
        f"n{i}": MemberSection(peer=f"127.0.0.1:741{i - 1}", client=f"127.0.0.1:740{i - 1}")
        for i in (1, 2, 3)
    },
)
