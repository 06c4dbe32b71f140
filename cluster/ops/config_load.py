"""Reads the settings of a node: a TOML file, the environment, flags."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from .config import FILE_MAX, KEYS, Config, ConfigWrong, Key
from .config_checks import wrong


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each value came from."""

    config: Config
    origins: dict[str, str]


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> Loaded:
    """Flags over environment over file over defaults; `flags` goes by path. Raises ConfigWrong."""
    values: dict[str, Any] = {path: key.default for path, key in KEYS.items()}
    origins = dict.fromkeys(KEYS, "default")
    faults: list[str] = []
    if file is not None:
        for path, value in _flat(_read(file), faults, str(file)):
            values[path], origins[path] = value, f"file {file}"
    given = {p: (environment[k.variable], k.variable) for p, k in KEYS.items()
            if k.variable in environment}  # fmt: skip
    given |= {path: (text, KEYS[path].flag) for path, text in flags.items()}
    for path, (text, source) in given.items():
        try:
            values[path], origins[path] = KEYS[path].read(text), source
        except ValueError as error:
            faults.append(f"{source}={text!r}: {_plain(error)}{_remedy(KEYS[path])}")
    config = _convert(values, origins, faults)
    if config is None or faults:
        raise ConfigWrong(faults)
    mistakes = list(wrong(config))
    if mistakes:
        raise ConfigWrong(mistakes)
    return Loaded(config, origins)


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > FILE_MAX:
            raise ConfigWrong([f"{file} is larger than {FILE_MAX} bytes, so it is not a config"])
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigWrong(
            [f"{file} cannot be read: {reason}; `raftsched node config init` writes one"]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigWrong([f"{file} is not TOML: {error}"]) from error


def _flat(
    table: Mapping[str, Any], faults: list[str], file: str, above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each key of a file; what is unknown becomes a fault."""
    sections = {path.rpartition(".")[0] for path in KEYS} | {"tls"}
    for name, value in table.items():
        path = above + name
        if path in KEYS:
            yield path, value
        elif path in sections and isinstance(value, dict):
            yield from _flat(value, faults, file, path + ".")
        elif path in sections:
            faults.append(f"{file}: {path} is a section; write [{path}] and its keys below")
        else:
            faults.append(f"{file}: there is no key `{path}`{_near(path)}")


def _near(path: str) -> str:
    """A suggestion: a key spelled like this one, or one of this name in another section."""
    last = path.rpartition(".")[2]
    near = [known for known in KEYS if known.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(path, KEYS, 1, 0.6)
    return f"; did you mean `{near[0]}`?" if near else "; `raftsched node config init` lists them"


def _convert(values: dict[str, Any], origins: dict[str, str], faults: list[str]) -> Config | None:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        try:
            checked = msgspec.convert(msgspec.to_builtins(value), KEYS[path].type)
        except msgspec.ValidationError as error:
            why = _plain(error) + _remedy(KEYS[path])
            faults.append(f"{origins[path]}: {path} = {_short(value)}: {why}")
            continue
        place = tree
        *sections, last = path.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = msgspec.to_builtins(checked)
    return None if faults else msgspec.convert(tree, Config)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(error: Exception) -> str:
    """The library's words; of its path only what is below the key."""
    return str(error).replace(" - at `$`", "").replace("`$[...]", "`members.*").replace("`$.", "`")


def _remedy(key: Key) -> str:
    """What to write where the library only says what it is not."""
    if key.path == "members":
        return "; write [members.n1] and below it peer and client, each as 'HOST:PORT'"
    kind = get_args(key.type)[0]
    if get_origin(kind) is Literal:
        return f"; there are {', '.join(get_args(kind))}"
    return ""
