"""What stands around each run, and around each call that defers: functions that yield once.

    @app.around_run
    def timed(context: Context) -> Iterator[None]:
        began = monotonic()
        yield                       # What the handler raises comes out of here.
        print(context.job, monotonic() - began)

    @app.around_defer
    def tenant(call: DeferCall) -> Iterator[None]:
        for one in call.entries:
            one.labels["tenant"] = current_tenant.get()
        yield

The first that is registered is the outermost. One that is async is for async handlers and calls.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from .entries import TaskEntry

Subject = TypeVar("Subject")
Around = Callable[[Subject], "Iterator[None] | AsyncIterator[None]"]


@dataclass(frozen=True, slots=True)
class DeferCall:
    """A call to the cluster that is about to be made: what it defers."""

    entries: Sequence[TaskEntry[Any]]


class Layers(Generic[Subject]):
    """Functions that yield once, the outermost first."""

    def __init__(self) -> None:
        self._all: list[tuple[Callable[[Subject], Any], bool]] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, function: Callable[[Subject], Any]) -> None:
        if inspect.isasyncgenfunction(function):
            self._all.append((function, True))
        elif inspect.isgeneratorfunction(function):
            self._all.append((function, False))
        else:
            raise TypeError(f"{function.__name__} does not yield; what it surrounds is its `yield`")

    def check(self, where: str) -> None:
        """Refuse what cannot stand around something that does not await."""
        for function, waits in self._all:
            if waits:
                raise TypeError(
                    f"{where} is not async and {function.__name__}, which is to stand around it, "
                    "is; write one of them the other way"
                )

    def enter(self, subject: Subject, stack: ExitStack) -> None:
        for function, _ in self._all:
            stack.enter_context(contextmanager(function)(subject))

    async def enter_async(self, subject: Subject, stack: AsyncExitStack) -> None:
        for function, waits in self._all:
            if waits:
                await stack.enter_async_context(asynccontextmanager(function)(subject))
            else:
                stack.enter_context(contextmanager(function)(subject))


async def called(function: Callable[[], Any]) -> None:
    """Call a hook, and wait for it if it is async."""
    answer = function()
    if inspect.isawaitable(answer):
        await answer
