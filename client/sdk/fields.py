"""From words to fields: how options become a message and the mask that names what they speak of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from .ranges import put
from .values import choice

# Option -> the field it sets, and how its value is made.
Fields = Mapping[str, tuple[str, Callable[[Any], Any]]]


def write(message: Message, options: Mapping[str, Any], fields: Fields) -> list[str]:
    """Set what the options say, and return the paths; None leaves a field empty."""
    paths: list[str] = []
    for word, value in options.items():
        if word not in fields:
            raise TypeError(f"there is no option {word!r}; there are {', '.join(sorted(fields))}")
        path, made = fields[word]
        if path in paths:
            raise ValueError(f"{word!r} repeats another option ({path})")
        paths.append(path)
        if value is not None:
            try:
                _put(message, path.split("."), made(value))
            except (TypeError, ValueError) as wrong:
                raise type(wrong)(f"{word}: {wrong}") from wrong
    return paths


def _put(message: Any, names: Sequence[str], value: Any) -> None:  # noqa: ANN401
    *parents, last = names
    for name in parents:
        message = getattr(message, name)
    if isinstance(value, Message):
        getattr(message, last).CopyFrom(value)
    elif isinstance(value, list):
        getattr(message, last).extend(value)
    elif isinstance(value, dict):
        getattr(message, last).update(value)
    else:
        put(message, last, value)


def same(value: Any) -> Any:  # noqa: ANN401
    return value


def word(enum: Any, prefix: str) -> Callable[[str], int]:  # noqa: ANN401
    return lambda chosen: int(choice(enum, prefix, chosen))
