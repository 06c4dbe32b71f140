"""Where commands get their settings: flags, environment, the context, defaults, in this order.

A context that is named by a flag comes before the environment. When the endpoints are not those of
the context, what else it says of its cluster is left out: no cluster is shown another's token.

Contexts stand in a file of their own:

    current = "prod"

    [contexts.prod]
    endpoints = ["a.example:7400", "b.example:7400", "c.example:7400"]
    namespace = "billing"
    token_file = "/run/secrets/raftsched"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from .exits import Exit, Trouble, reason_of, wrong_use
from .times import Length, length_text

KEYS = ("current", "contexts")
MEND = (
    "mend the file, or name another by the variable RAFTSCHED_CONFIG; see raftsched config --help"
)
FORMATS = ("table", "wide", "csv", "json", "jsonl", "yaml", "name")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that every command needs to know."""

    name: str
    help: str
    default: str = ""
    type: click.ParamType[Any] | None = None
    short: str = ""
    metavar: str = ""

    @property
    def variable(self) -> str:
        return f"RAFTSCHED_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


SETTINGS = (
    Setting("endpoints", "The nodes to ask, with commas.", "127.0.0.1:7400", metavar="LIST"),
    Setting("namespace", "The namespace it is about.", "default", short="-n", metavar="NAME"),
    Setting("output", "How data is printed.", "table", click.Choice(FORMATS), "-o"),
    Setting("time", "How times are printed.", "local", click.Choice(("local", "utc", "relative"))),
    Setting("color", "When colours are used.", "auto", click.Choice(("auto", "always", "never"))),
    Setting("timeout", "A call is given up after this.", "30s", Length(), metavar="DURATION"),
    Setting("token_file", "A file with the access token.", metavar="FILE"),
    Setting(
        "insecure",
        "The token goes to other machines without TLS.",
        "no",
        click.Choice(("no", "yes")),
    ),
    Setting("ca_file", "Certificates to trust; turns TLS on.", metavar="FILE"),
    Setting("cert_file", "The client's own certificate.", metavar="FILE"),
    Setting("key_file", "The client certificate's key.", metavar="FILE"),
)
# What a context says of one cluster and of no other; `endpoints` above says which one.
OF_CLUSTER = ("namespace", "token_file", "insecure", "ca_file", "cert_file", "key_file")
BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value, and where it came from."""

    value: str
    origin: str


@dataclass(slots=True)
class Contexts:
    """The file of contexts."""

    path: Path
    current: str = ""
    contexts: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Contexts:
        path = config_path()
        try:
            document = tomllib.loads(path.read_text())
        except FileNotFoundError:
            return cls(path)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
            raise wrong_use(
                f"cannot read {path}", reason_of(wrong), MEND
            ) from wrong  # fmt: skip
        contexts = {name: _context(path, name, body) for name, body in _tables(path, document)}
        current = document.get("current", "")
        if not isinstance(current, str):
            raise _wrong_value(path, "`current`", current, "text")
        return cls(path, current, contexts)

    def chosen(self, name: str) -> tuple[str, Mapping[str, str]]:
        """The context to use; with no name the current one, or none."""
        name = name or self.current
        if not name:
            return "", {}
        if name not in self.contexts:
            near = get_close_matches(name, self.contexts, n=1)
            known = ", ".join(self.contexts) or "there are none yet"
            raise Trouble(
                f"there is no context {name!r} in {self.path}",
                f"did you mean {near[0]}?" if near else f"known: {known}",
                f"raftsched config add {name} --endpoints HOST:PORT",
                code=Exit.NOT_FOUND,
            )
        return name, self.contexts[name]

    def save(self) -> None:
        lines = [f"current = {quoted(self.current)}"] if self.current else []
        for name, values in self.contexts.items():
            lines += ["", f"[contexts.{quoted(name)}]"]
            lines += [f"{key} = {_toml(key, value)}" for key, value in values.items()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines).lstrip("\n") + "\n")
        fresh.replace(self.path)


def config_path() -> Path:
    if named := os.environ.get("RAFTSCHED_CONFIG"):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "raftsched" / "config.toml"


def quoted(text: str) -> str:
    """A TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _toml(key: str, value: str) -> str:
    if key == "endpoints":
        return "[" + ", ".join(quoted(part) for part in value.split(",")) + "]"
    return quoted(value)


def _tables(path: Path, document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    for key in document:
        if key not in KEYS:
            raise _unknown_key(path, key, "", KEYS)
    tables = document.get("contexts", {})
    if not isinstance(tables, Mapping):
        raise _wrong_value(path, "`contexts`", tables, "table")
    for name, body in tables.items():
        if not isinstance(body, Mapping):
            raise _wrong_value(path, f"[contexts.{name}]", body, "table")
    return list(tables.items())


def _wrong_value(path: Path, what: str, value: object, kind: str) -> Trouble:
    return wrong_use(f"{path} has a wrong {what}", f"it is {value!r}, and no {kind}", MEND)


def _unknown_key(path: Path, key: str, where: str, known: Collection[str]) -> Trouble:
    near = get_close_matches(key, known, n=1)
    why = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return wrong_use(f"{path} has an unknown key {key!r}{where}", why, MEND)


def _context(path: Path, name: str, body: Mapping[str, Any]) -> dict[str, str]:
    for key in body:
        if key not in BY_NAME:
            raise _unknown_key(path, key, f" in [contexts.{name}]", BY_NAME)
        value = body[key]
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in parts):
            raise _wrong_value(path, f"`{key}` in [contexts.{name}]", value, "text")
    return {
        key: ",".join(value) if isinstance(value, list) else str(value)
        for key, value in body.items()
    }


def resolve(given: Mapping[str, Any], context: str) -> dict[str, Value]:
    """Each setting with its origin. `given` holds what flags and environment say."""
    click_context = click.get_current_context()
    contexts = Contexts.load()
    name, chosen = contexts.chosen(context)
    by_flag = click.core.ParameterSource.COMMANDLINE
    named = bool(name) and click_context.get_parameter_source("context") == by_flag
    origin = "--context" if named else "RAFTSCHED_CONTEXT" if context else "`current` in the file"
    values = {"context": Value(name, origin if name else "not set")}
    for setting in SETTINGS:
        value = given.get(setting.name)
        flagged = click_context.get_parameter_source(setting.name) == by_flag
        in_context = setting.name in chosen and (
            setting.name not in OF_CLUSTER or named or same_cluster(values["endpoints"], chosen)
        )
        if value is not None and (flagged or not (named and in_context)):
            text = length_text(value) if isinstance(value, int) else str(value)
            values[setting.name] = Value(text, setting.flag if flagged else setting.variable)
        elif in_context:
            origin = f"context {name} in {contexts.path}"
            values[setting.name] = Value(_checked(setting, chosen[setting.name], origin), origin)
        else:
            values[setting.name] = Value(setting.default, "default")
    return values


def same_cluster(endpoints: Value, context: Mapping[str, str]) -> bool:
    """Whether the endpoints are some of the context's."""
    return {*endpoints.value.split(",")} <= {*context.get("endpoints", "").split(",")}


def _checked(setting: Setting, text: str, origin: str) -> str:
    if setting.type is None:
        return text
    try:
        setting.type.convert(text, None, None)
    except click.BadParameter as wrong:
        raise wrong_use(f"{setting.name} in {origin} is wrong", wrong.message) from wrong
    return text
