"""An object of a Python module, as `MODULE:NAME` names it."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from ..exits import Exit, Trouble, wrong_use

T = TypeVar("T")


def find(where: str, folder: str, kind: type[T], command: str) -> T:
    """The object of this kind that the words mean; `command` is what was typed before them."""
    module_name, _, name = where.partition(":")
    # As Python itself does for a script: what is here goes first.
    try:
        os.chdir(folder)
    except OSError as wrong:
        raise wrong_use(f"cannot go to {folder}", str(wrong), "--chdir DIR") from wrong
    sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as wrong:
        if wrong.name and not module_name.startswith(wrong.name):
            raise
        raise Trouble(
            f"there is no module {module_name}", f"looked in {os.getcwd()} and what is installed",
            f"{command} {where} --chdir DIR", Exit.NOT_FOUND,
        ) from wrong  # fmt: skip
    return _named(module, name, kind, command) if name else _only(module, kind, command)


def _named(module: ModuleType, name: str, kind: type[T], command: str) -> T:
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        noun = kind.__name__
        state = "is not there" if found is None else f"is a {type(found).__name__}, not a {noun}"
        there = ", ".join(f"{module.__name__}:{one}" for one in _of(module, kind))
        raise wrong_use(
            f"{module.__name__}:{name} {state}",
            f"{noun.lower()}s of this module: {there or 'none'}",
            f"{command} {there.split(', ')[0]}" if there else f"{noun.lower()} = {noun}(...)",
        )
    return found


def _only(module: ModuleType, kind: type[T], command: str) -> T:
    names = _of(module, kind)
    if len(names) != 1:
        raise wrong_use(
            f"module {module.__name__} has {len(names)} {kind.__name__.lower()}s",
            ", ".join(names),
            f"{command} {module.__name__}:NAME",
        )
    return _named(module, names[0], kind, command)


def _of(module: ModuleType, kind: type) -> list[str]:
    return sorted(name for name, value in vars(module).items() if isinstance(value, kind))
