"""Reads catalog.toml: the typed calls, and what of them the contracts do not say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TypedCall:
    """One method of a service; catalog.toml says what each means."""

    name: str
    rpc: str
    example: str
    takes: str = ""
    doc: str = ""
    kind: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class TypedService:
    """What hangs on a client under one name."""

    # client.jobs, which is AsyncJobs of aio/jobs.py.
    attribute: str
    kind: str
    doc: str
    calls: tuple[TypedCall, ...]
    # The calls of the contracts that its base is written for by hand.
    by_hand: tuple[str, ...] = ()
    # The options of its resource, in sdk/resources.py.
    options: str = ""


def _service(attribute: str, entry: Mapping[str, Any]) -> TypedService:
    calls = (TypedCall(name=name, **rest) for name, rest in entry.get("calls", {}).items())
    by_hand = tuple(entry.get("by_hand", ()))
    kind, options = entry["class"], entry.get("options", "")
    return TypedService(attribute, kind, entry["doc"], tuple(calls), by_hand, options)


_CATALOG = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text())
NOT_TYPED: tuple[str, ...] = tuple(_CATALOG.pop("not_typed"))
SERVICES = tuple(_service(attribute, entry) for attribute, entry in _CATALOG.items())
