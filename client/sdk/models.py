"""Models of pydantic, wherever JSON is read or written: known by their methods, never imported."""

from __future__ import annotations

from typing import Any


def from_json(kind: Any, value: object) -> object:  # noqa: ANN401  # Any class.
    """What msgspec asks for a class that it does not know. What is wrong is a ValueError."""
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        made: object = validate(value)
        return made
    if kind is object or isinstance(value, kind):
        return value
    raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")


def to_json(value: object) -> object:
    """What msgspec asks for a value that it does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    made: object = dump(mode="json")
    return made


def is_model(kind: object) -> bool:
    """Whether a class is a model."""
    return isinstance(kind, type) and hasattr(kind, "model_validate")
