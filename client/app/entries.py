"""One run that is wanted: a task, its arguments, and what is said about the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ..sdk.specs import PriorityWord
from ..sdk.trace import current_trace
from ..sdk.triggers import trigger_of
from ..sdk.values import Length, Payload
from .codecs import encoded

if TYPE_CHECKING:
    from ...proto.v1 import job_pb2
    from .handle import AsyncTaskRun, TaskRun
    from .task import Task

T = TypeVar("T")


class DeferOptions(TypedDict, total=False):
    """What may be said about a run that is deferred."""

    # So long from now: a timedelta, or seconds.
    in_: Length
    # At this instant.
    at: datetime
    # The business key of the run: while a run of the task holds it, there is no second one.
    key: str
    # What happens when the key is taken: the run that holds it is the answer, the call is refused,
    # or that run is cancelled for the new one.
    when_taken: Literal["return_existing", "reject", "replace"]
    # The key stays taken so long after the run has ended; without it, until it ends.
    hold: Length
    # Instead of those of the task.
    priority: PriorityWord
    queue: str
    # Counts instead of the task's own concurrency key.
    concurrency_key: str
    # Written on the run.
    labels: Mapping[str, str]
    # Where the run belongs in a trace, as OpenTelemetry injects it: traceparent, tracestate.
    trace_context: Mapping[str, str]
    # Wait while the overlap policy lets none begin, or be refused.
    if_running: Literal["wait", "refuse"]
    # Also while the task is paused, and whatever its overlap policy says.
    force: bool


@dataclass(slots=True)
class TaskEntry(Generic[T]):
    """A run that is wanted. What surrounds the call may still change it.

    entry = remind.options(key="remind:7").entry(Reminder("anna"))
    await app.defer_many([entry])
    """

    task: Task[Any, Any, T]
    payload: Payload | None
    options: DeferOptions
    # Written on the run, beside those of the options.
    labels: dict[str, str] = field(default_factory=dict)

    async def defer(self) -> AsyncTaskRun[T]:
        """Have the run made."""
        [run] = await self.task.app.defer_many([self])
        return run

    def defer_sync(self) -> TaskRun[T]:
        """As `defer`, for code without a loop."""
        [run] = self.task.app.defer_many_sync([self])
        return run

    def trigger(self) -> job_pb2.Trigger:
        """As the cluster takes it."""
        payload = encoded(self.task.app.codec, self.payload)
        if not self.options:
            return trigger_of(
                self.task.name, payload=payload, labels=self.labels, trace_context=current_trace()
            )
        said: Any = {**self.options}
        due = said.pop("at", None)
        if "in_" in said:
            if due is not None:
                raise ValueError("options has both in_ and at; write one of them")
            wait = said.pop("in_")
            length = wait if isinstance(wait, timedelta) else timedelta(seconds=wait)
            if length < timedelta(0):
                raise ValueError(f"in_ is {wait!r}; write a length of time that is not negative")
            due = self.task.app.now() + length
        said["unique_key"] = said.pop("key", "")
        said.setdefault("trace_context", current_trace())
        said["labels"] = {**said.get("labels", {}), **self.labels}
        return trigger_of(self.task.name, payload=payload, due=due, **said)


def utc_now() -> datetime:
    return datetime.now(UTC)
