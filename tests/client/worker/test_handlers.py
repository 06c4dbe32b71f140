"""How a function becomes a handler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from raftsched.client.testing import Attempt
from raftsched.client.worker.context import Context
from raftsched.client.worker.handlers import Handler

from ...rows import each


@dataclass
class Order:
    number: int
    items: list[str]


def by_name(order: Order, *, note: str = "none") -> Any:  # noqa: ANN401
    return [order.number, order.items, note]


def structured(order: Order | None = None) -> Any:  # noqa: ANN401
    return None if order is None else order.number


def whole(order: Order, /) -> Any:  # noqa: ANN401
    return [order.number, order.items]


def whole_with_context(context: Context, order: Order, /) -> Any:  # noqa: ANN401
    return [order.number, context.attempt]


def context_last(n: int, *, context: Context) -> Any:  # noqa: ANN401
    return [n, context.attempt]


def optional_context(n: int, context: Context | None = None) -> Any:  # noqa: ANN401
    return [n, context is not None]


def bounded(n: Annotated[int, msgspec.Meta(le=5)]) -> Any:  # noqa: ANN401
    return n


def untyped(a, b=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return [a, b]


def mutable_default(words: list[str] = ["x"]) -> Any:  # noqa: ANN401, B006
    return words


class Callee:
    def __call__(self, n: int) -> Any:  # noqa: ANN401
        return n


ORDER = {"number": 7, "items": ["a"]}


@each(
    ("function", "payload", "value"),
    [
        (by_name, {"order": ORDER, "note": "n"}, [7, ["a"], "n"]),
        (by_name, {"order": ORDER}, [7, ["a"], "none"]),
        (structured, ORDER, 7),
        (structured, None, None),
        (lambda: 3, None, 3),
        (whole, ORDER, [7, ["a"]]),
        (whole_with_context, ORDER, [7, 1]),
        (context_last, {"n": 1}, [1, 1]),
        (optional_context, {"n": 1}, [1, True]),
        (bounded, {"n": 5}, 5),
        (untyped, {"a": [1, {"x": None}]}, [[1, {"x": None}], 2]),
        (mutable_default, None, ["x"]),
        (Callee(), {"n": 4}, 4),
        (functools.partial(by_name, note="p"), {"order": ORDER}, [7, ["a"], "p"]),
        (lambda: 3, {"ignored": True}, 3),
    ],
)
def test_the_payload_becomes_the_arguments(
    function: Callable[..., object], payload: object, value: object
) -> None:
    assert Attempt().run(function, payload).value == value


def test_a_bound_of_an_annotation_is_kept() -> None:
    assert Attempt().run(bounded, {"n": 6}).fatal


def stars(*args: int) -> None: ...


def two_contexts(a: Context, b: Context) -> None: ...


def whole_and_more(a: int, /, b: int) -> None: ...


def yields() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [stars, two_contexts, whole_and_more, yields])
def test_a_function_that_cannot_be_a_handler_is_refused_at_once(
    function: Callable[..., object],
) -> None:
    with pytest.raises(TypeError):
        Handler("h", function)


@each("name", ["", "a b", "a\0", "http", "grpc", "shell", "x" * 129])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="handler name"):
        Handler(name, lambda: None)


def test_an_async_function_is_not_inline() -> None:
    async def function() -> None: ...

    with pytest.raises(ValueError, match="inline"):
        Handler("h", function, inline=True)
