"""How a worker calls a task: what stands around it, what it is given, and what it returns."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

from ..sdk.values import Payload
from ..worker.context import Context
from ..worker.handlers import Handler
from ..worker.outcomes import result_payload
from .codecs import decoded, encoded

if TYPE_CHECKING:
    from .app import App
    from .task import Task


def handler_of(task: Task[Any, Any, Any]) -> Handler:
    """What the worker registers. What is wrong with it is said now, not at its first run."""
    app, handler = task.app, task.handler
    where = f"task {task.name}"
    kinds = {one.name: one.annotation for one in task.binding.parameters.given}
    made = app.dependencies.of_a_run(kinds.values(), where, may_wait=handler.is_async)
    if not handler.is_async:
        app.run_layers.check(where)
    if not (kinds or app.run_layers or app.codec):
        return handler
    call = _Call(app, task, kinds, made)
    return handler.around(call.run_async if handler.is_async else call.run)


class _Call:
    """Calls a task with more than its payload."""

    def __init__(
        self, app: App, task: Task[Any, Any, Any], kinds: dict[str, type], made: list[Any]
    ) -> None:
        self._app, self._task, self._kinds, self._made = app, task, kinds, made
        self._arguments = task.handler.arguments

    def run(self, context: Context) -> object:
        with ExitStack() as stack:
            self._app.run_layers.enter(context, stack)
            values = {**self._app.dependencies.values, Context: context}
            for one in self._made:
                values[one.kind] = one.make(values, stack)
            args, kwargs = self._arguments(context, self._payload(context), self._given(values))
            return self._result(self._task.function(*args, **kwargs))
        # What stands around it took the error for itself.
        return None

    async def run_async(self, context: Context) -> object:
        async with AsyncExitStack() as stack:
            await self._app.run_layers.enter_async(context, stack)
            values = {**self._app.dependencies.values, Context: context}
            for one in self._made:
                values[one.kind] = await one.make_async(values, stack)
            args, kwargs = self._arguments(context, self._payload(context), self._given(values))
            return self._result(await self._task.function(*args, **kwargs))
        return None

    def _payload(self, context: Context) -> Payload:
        return decoded(self._app.codec, context.lease.payload)

    def _given(self, values: dict[type, Any]) -> dict[str, Any]:
        return {name: values[kind] for name, kind in self._kinds.items()}

    def _result(self, value: object) -> object:
        if self._app.codec is None or value is None:
            return value
        return encoded(self._app.codec, result_payload(value))
