"""What users see when they write code: types that hold, and examples that are Python."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cached_property
from typing import Any, assert_type

import pytest

from raftsched import client as package
from raftsched.client import AsyncClient, AsyncRun, Client, Run
from raftsched.client.sdk import resources
from raftsched.client.sdk.resources import AlertOptions
from raftsched.proto.v1 import alert_pb2, event_pb2, job_pb2, run_pb2

from ..rows import each


def types_of_the_blocking_client(client: Client) -> None:
    """Never called: mypy reads it."""
    assert_type(client.jobs.create("a", handler="x", priority="high"), job_pb2.Job)
    assert_type([*client.jobs.list("state=PAUSED", limit=3, stale=True)], list[job_pb2.Job])
    assert_type(client.jobs.trigger("a"), Run)
    assert_type(client.jobs.trigger("a").wait(3), Run)
    assert_type(client.jobs.trigger("a").result(list[int], timeout=3), list[int])
    assert_type(client.runs.explain("a"), run_pb2.Explanation)
    assert_type(next(client.events.watch(after="1.0")), event_pb2.Event)
    assert_type(client.dead.purge(), int)
    client.jobs.create("a", priority="top")  # type: ignore[arg-type]
    client.jobs.create("a", nonsense=1)  # type: ignore[call-arg]
    client.jobs.get("a", request_id="b")  # type: ignore[call-arg]


async def types_of_the_asynchronous_client(client: AsyncClient) -> None:
    """Never called: mypy reads it."""
    assert_type(await client.jobs.create("a", handler="x"), job_pb2.Job)
    assert_type([job async for job in client.jobs.list()], list[job_pb2.Job])
    run = await client.jobs.trigger("a")
    assert_type(run, AsyncRun)
    assert_type(await run.result(int), int)
    assert_type(await anext(client.events.watch()), event_pb2.Event)


def documented() -> Iterator[tuple[str, Any]]:
    """Everything that is to have a docstring with an example."""
    for name in package.__all__:
        if name.islower() and name != "current_context":
            yield name, getattr(package, name)
    for client in (Client(), AsyncClient()):
        for name, hangs in vars(type(client)).items():
            if isinstance(hangs, cached_property):
                for word, method in methods(getattr(client, name)):
                    yield f"{type(client).__name__}.{name}.{word}", method
    for kind in (Client, AsyncClient):
        for word in ("call", "ask", "stream"):
            yield f"{kind.__name__}.{word}", getattr(kind, word)


def methods(service: object) -> Iterator[tuple[str, Any]]:
    """Those by hand as well as those that are made."""
    for kind in type(service).__mro__[:-1]:
        yield from ((word, method) for word, method in vars(kind).items() if word[0] != "_")


FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
DOCUMENTED = dict(documented())


@each("name", DOCUMENTED)
def test_an_example_is_python_and_shows_the_call(name: str) -> None:
    said = inspect.cleandoc(DOCUMENTED[name].__doc__)

    example = said.split("\n\n")[-1]

    compile(example, name, "exec", FLAGS)
    word = name.rpartition(".")[2]
    assert f"{word}(" in textwrap.dedent(example)
    tree = compile(example, name, "exec", FLAGS | ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and "=" in str(node.value):
            assert all(" " not in term for term in str(node.value).split(" AND "))
    assert ("await " in example or "async " in example) == name.startswith(
        "Async"
    ) or "." not in name


def test_what_is_exported_is_there_and_documented() -> None:
    for name in package.__all__:
        assert getattr(package, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(package, "nonsense")  # noqa: B009


def test_every_condition_of_an_alert_can_be_given() -> None:
    kinds = {field.name for field in alert_pb2.AlertCondition.DESCRIPTOR.oneofs[0].fields}

    assert kinds <= AlertOptions.__annotations__.keys()
    assert kinds <= resources._ALERT.keys()
