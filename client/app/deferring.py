"""How entries become runs: one call for one, and few calls for thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ...proto.v1 import job_pb2, run_pb2
from ..sdk.errors import NotFound
from ..sdk.triggers import single_request
from .entries import TaskEntry
from .handle import AsyncTaskRun, SomeRefused, TaskRun
from .middleware import DeferCall

if TYPE_CHECKING:
    from .app import App

T = TypeVar("T")
Handle = TypeVar("Handle")
REFUSED = job_pb2.TriggerResult.VERDICT_REFUSED
SWALLOWED = "what stands around the call has swallowed its error"


async def defer_many(app: App, entries: Iterable[TaskEntry[T]]) -> list[AsyncTaskRun[T]]:
    wanted = _own(app, entries)
    if not wanted:
        return []
    async with AsyncExitStack() as stack:
        await app.defer_layers.enter_async(DeferCall(wanted), stack)
        client = app.connections.on_this_loop()
        triggers = [entry.trigger() for entry in wanted]
        with _declared(app):
            if len(wanted) == 1:
                made = await client.call(single_request(triggers[0], app.namespace))
                return [AsyncTaskRun(wanted[0].task, client, made)]
            results = await client.jobs.trigger_many(triggers)
        return _handles(
            app, wanted, results, lambda entry, run: AsyncTaskRun(entry.task, client, run)
        )
    raise RuntimeError(SWALLOWED)


def defer_many_sync(app: App, entries: Iterable[TaskEntry[T]]) -> list[TaskRun[T]]:
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "a call that blocks would hold up the loop that runs here; write `await task.defer()`"
        )
    wanted = _own(app, entries)
    if not wanted:
        return []
    app.defer_layers.check("defer_sync")
    with ExitStack() as stack:
        app.defer_layers.enter(DeferCall(wanted), stack)
        client = app.connections.blocking()
        triggers = [entry.trigger() for entry in wanted]
        with _declared(app):
            if len(wanted) == 1:
                made = client.call(single_request(triggers[0], app.namespace))
                return [TaskRun(wanted[0].task, client, made)]
            results = client.jobs.trigger_many(triggers)
        return _handles(app, wanted, results, lambda entry, run: TaskRun(entry.task, client, run))
    raise RuntimeError(SWALLOWED)


def _own(app: App, entries: Iterable[TaskEntry[T]]) -> list[TaskEntry[T]]:
    wanted = list(entries)
    for entry in wanted:
        if not isinstance(entry, TaskEntry):
            raise TypeError(f"{entry!r} is no entry; write task.entry(...) for each run")
        if entry.task.app is not app:
            raise ValueError(f"{entry.task!r} belongs to another app; defer it by that one")
    return wanted


@contextmanager
def _declared(app: App) -> Iterator[None]:
    """Say what to do where the cluster does not know a job yet."""
    try:
        yield
    except NotFound as missing:
        if missing.reason != "JOB_NOT_FOUND":
            raise
        raise NotFound(
            undeclared(app, missing.values.get("job", "")), reason=missing.reason,
            values=missing.values, code=missing.code, request_id=missing.request_id,
        ) from missing  # fmt: skip


def undeclared(app: App, job: str) -> str:
    return (
        f"the namespace {app.namespace!r} has no job {job!r} yet: declare the jobs of the app, "
        "by app.sync() or `raftsched app sync MODULE:app`"
    )


def _handles(
    app: App, wanted: Sequence[TaskEntry[Any]], results: Sequence[job_pb2.TriggerResult],
    handle: Callable[[TaskEntry[Any], run_pb2.Run], Handle],
) -> list[Handle]:  # fmt: skip
    runs: list[Any] = []
    refused = dict[int, job_pb2.TriggerResult]()
    namespace = app.namespace
    for place, (entry, result) in enumerate(zip(wanted, results, strict=True)):
        if result.verdict == REFUSED:
            refused[place] = result
            runs.append(None)
        else:
            run = run_pb2.Run(id=result.run, namespace=namespace, job=entry.task.name)
            runs.append(handle(entry, run))
    if refused:
        words = {
            place: undeclared(app, wanted[place].task.name)
            if result.reason == "JOB_NOT_FOUND" else result.message
            for place, result in refused.items()
        }  # fmt: skip
        raise SomeRefused(runs, words, next(iter(refused.values())).reason)
    return runs
