"""The short way by which arguments get their names says what `inspect.Signature.bind` says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.client.app.binding import PayloadBinding


def none() -> None: ...
def one(a: int) -> None: ...
def placed(a: list[int], /) -> None: ...
def several(a: int, b: str = "x", *, c: int, d: int = 4) -> None: ...
def given_by_name(*, d: int = 0, a: int = 1) -> None: ...


@given(
    function=st.sampled_from([none, one, placed, several, given_by_name]),
    args=st.lists(st.integers(0, 9), max_size=3),
    names=st.lists(st.sampled_from("abcdz"), unique=True, max_size=4),
)
def test_arguments_are_bound_as_by_a_call(
    function: Callable[..., Any], args: Sequence[int], names: Sequence[str]
) -> None:
    kwargs, binding = dict.fromkeys(names, 7), PayloadBinding("job", function)
    wanted, why = dict[str, Any](), ""
    try:
        wanted = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as wrong:
        why = str(wrong)
    if why:
        with pytest.raises(TypeError) as refused:
            binding._bound(args, kwargs)
        assert str(refused.value).startswith(f"job: {why}; it takes ")
    else:
        assert [*binding._bound(args, kwargs).items()] == [*wanted.items()]
