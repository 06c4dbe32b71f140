"""Dependencies: what handlers are given by its type, made once for a worker or anew for each run.

    @app.provide
    async def database() -> AsyncIterator[Database]:
        async with connect() as database:
            yield database

    @app.task
    async def report(to: str, database: Database = GIVEN) -> None: ...

What stands behind a `yield` is done when the worker stops, or when the run has ended.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal

from ..worker.context import Context
from ..worker.handlers import hints_of

Per = Literal["worker", "run"]
Values = dict[type, Any]
YIELDING = {
    Iterator, Generator, AsyncIterator, AsyncGenerator,
    collections.abc.Iterable, collections.abc.AsyncIterable,
}  # fmt: skip


class DependencyProvider:
    """A function that makes what it says it returns."""

    def __init__(self, function: Callable[..., Any], per: Per) -> None:
        if per not in ("worker", "run"):
            raise ValueError(f"per is {per!r}; write 'worker' or 'run'")
        self.function, self.per = function, per
        self.name = function.__name__
        hints = hints_of(self.name, function)
        self.kind = _kind(self.name, hints.get("return"))
        # Parameter -> the type of what it is given.
        self.needs: dict[str, type] = {}
        for name in inspect.signature(function).parameters:
            kind = hints.get(name)
            if not isinstance(kind, type):
                raise TypeError(
                    f"provider {self.name}: say by an annotation of which class {name!r} is"
                )
            self.needs[name] = kind
        self._yields = inspect.isgeneratorfunction(function)
        self._yields_async = inspect.isasyncgenfunction(function)
        self._is_async = inspect.iscoroutinefunction(function)

    @property
    def waits(self) -> bool:
        """It can only be made where one may await."""
        return self._yields_async or self._is_async

    def make(self, values: Values, stack: ExitStack | AsyncExitStack) -> object:
        """Make it; what is to be undone is left to the stack."""
        arguments = self._arguments(values)
        if self._yields:
            return stack.enter_context(contextmanager(self.function)(**arguments))
        return self.function(**arguments)

    async def make_async(self, values: Values, stack: AsyncExitStack) -> object:
        """As `make`, where one may await."""
        if self._yields_async:
            made = asynccontextmanager(self.function)(**self._arguments(values))
            return await stack.enter_async_context(made)
        if self._is_async:
            return await self.function(**self._arguments(values))
        return self.make(values, stack)

    def _arguments(self, values: Values) -> dict[str, object]:
        return {name: values[kind] for name, kind in self.needs.items()}


def _kind(name: str, answer: object) -> type:
    """The type by which it is asked for."""
    origin = typing.get_origin(answer)
    if origin in YIELDING:
        answer = typing.get_args(answer)[0]
    if not isinstance(answer, type) or answer is type(None):
        raise TypeError(
            f"provider {name}: say by an annotation what it returns, such as `-> Database`, or "
            "`-> Iterator[Database]` if it yields"
        )
    return answer


class Dependencies:
    """All that an app provides."""

    def __init__(self) -> None:
        self._providers: dict[type, DependencyProvider] = {}
        # Made for the worker that serves.
        self.values: Values = {}
        self._is_open = False

    def add(self, provider: DependencyProvider) -> None:
        if issubclass(provider.kind, Context):
            raise ValueError("a Context is given by the worker itself; no provider is needed")
        if provider.kind in self._providers:
            other = self._providers[provider.kind].name
            raise ValueError(
                f"{other} provides a {provider.kind.__name__} already; let {provider.name} return "
                "another type"
            )
        self._providers[provider.kind] = provider

    def of_a_run(
        self, wanted: Iterable[type], where: str, *, may_wait: bool
    ) -> list[DependencyProvider]:
        """What has to be made for each run, in order. What cannot be is refused."""
        order = [one for one in self._order(wanted, where) if one.per == "run"]
        for one in order:
            if one.waits and not may_wait:
                raise TypeError(
                    f"{where} is not async and provider {one.name} is; write one of them the other "
                    "way, or make it once for the worker"
                )
        return order

    def _order(self, wanted: Iterable[type], where: str) -> list[DependencyProvider]:
        found: dict[type, DependencyProvider] = {}
        for kind in wanted:
            self._visit(kind, where, found, [])
        return [*found.values()]

    def _visit(
        self,
        kind: type,
        where: str,
        found: dict[type, DependencyProvider],
        path: list[DependencyProvider],
    ) -> None:
        of_worker = next((one for one in path if one.per == "worker"), None)
        if issubclass(kind, Context) or kind in found:
            is_run = issubclass(kind, Context) or found[kind].per == "run"
            if is_run and of_worker is not None:
                raise TypeError(_too_early(of_worker, kind))
            return
        provider = self._providers.get(kind)
        if provider is None:
            there = ", ".join(sorted(one.__name__ for one in self._providers)) or "nothing"
            asker = f"provider {path[-1].name}" if path else where
            raise TypeError(
                f"{asker} wants a {kind.__name__}, and nothing provides one (there is: {there}); "
                "write @app.provide over a function that returns one"
            )
        if provider in path:
            names = " -> ".join(one.name for one in [*path[path.index(provider) :], provider])
            raise TypeError(f"providers need each other in a circle: {names}")
        if provider.per == "run" and of_worker is not None:
            raise TypeError(_too_early(of_worker, kind))
        for need in provider.needs.values():
            self._visit(need, where, found, [*path, provider])
        found[kind] = provider

    async def open(self, stack: AsyncExitStack) -> None:
        """Make what is made once for a worker."""
        if self._is_open:
            raise RuntimeError("a worker of this app serves in this process already; end it first")
        self._is_open = True
        stack.callback(self._forget)
        wanted = [kind for kind, one in self._providers.items() if one.per == "worker"]
        values: Values = {}
        for provider in self._order(wanted, "the worker"):
            values[provider.kind] = await provider.make_async(values, stack)
        self.values = values

    def _forget(self) -> None:
        self.values, self._is_open = {}, False


def _too_early(provider: DependencyProvider, kind: type) -> str:
    return (
        f"provider {provider.name} is made once for the worker, and a {kind.__name__} is another "
        "one in each run; write @app.provide(per='run') over it"
    )
