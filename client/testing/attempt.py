"""One attempt at a run, without a cluster: what a handler is given, and what it says and does."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...proto.v1 import common_pb2, run_pb2, worker_pb2
from ...proto.v1.worker_pb2 import Lease, Result, Stop
from ..app.task import Task
from ..sdk import values
from ..worker.context import Context
from ..worker.handlers import Handler
from ..worker.outcomes import JSON
from ..worker.runner import call, drive

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a handler ended, as it would be reported to a cluster."""

    # What would be reported to the cluster, as it would be; `value` is what the handler returned.
    report: Result
    # What the handler raised, if it did.
    error: BaseException | None
    # The end of what it logged.
    log: str

    @property
    def succeeded(self) -> bool:
        return self.report.HasField("success")

    @property
    def failed(self) -> bool:
        return self.report.HasField("failure") and not self.report.failure.cancelled

    @property
    def cancelled(self) -> bool:
        return self.report.HasField("failure") and self.report.failure.cancelled

    @property
    def given_back(self) -> bool:
        return self.report.HasField("given_back")

    @property
    def value(self) -> Any:  # noqa: ANN401  # What JSON holds.
        """What the cluster would keep: JSON read back, other bytes as they are, None for nothing.

        For anything but a success it raises what the handler raised.
        """
        if not self.succeeded:
            raise self.error or AssertionError(f"the attempt did not succeed: {self.report}")
        payload = self.report.success.result
        if payload.content_type != JSON:
            return payload.data or None
        return msgspec.json.decode(payload.data)

    @property
    def warning(self) -> str:
        """What the handler warned of, if it succeeded."""
        return self.report.notes.warning

    @property
    def fatal(self) -> bool:
        """No other attempt is to be made."""
        return self.report.failure.fatal

    @property
    def kind(self) -> str:
        """The word that retry policies look at; empty unless it failed."""
        return self.report.failure.error.kind

    @property
    def message(self) -> str:
        return self.report.failure.error.message

    @property
    def retry_after(self) -> float | None:
        """Seconds until another attempt, if the handler asked for that."""
        failure = self.report.failure
        return (
            failure.retry_after.ToMilliseconds() / 1000 if failure.HasField("retry_after") else None
        )


@dataclass
class Attempt:
    """What the handler will be given; then, what it said. Use it for one call of `run`.

    attempt = Attempt(attempt=3, checkpoint={"page": 7})
    attempt.cancel_on_progress(2)
    outcome = attempt.run(sync_mailbox, {"user": "ann"})
    assert outcome.cancelled and attempt.progress[-1].done == 2
    """

    attempt: int = 1
    max_attempts: int = 4
    run_id: str = "test:2026-01-01T00:00:00.000Z"
    job: str = "test"
    namespace: str = "default"
    token: int = 1
    scheduled_time: datetime = NOW
    due_time: datetime | None = None
    deadline: datetime | None = None
    # What the attempt before left: bytes, or anything JSON can hold. None: nothing.
    checkpoint: object = None
    # What jobs upstream in the flow returned, by name.
    upstream: Mapping[str, object] = field(default_factory=dict)
    # The labels of the run, and where it belongs in a trace (traceparent, tracestate).
    labels: Mapping[str, str] = field(default_factory=dict)
    trace_context: Mapping[str, str] = field(default_factory=dict)
    # The secrets that the action of an executor names.
    secrets: Mapping[str, str] = field(default_factory=dict)
    # What a task of an app is given, by its type.
    given: Mapping[type, object] = field(default_factory=dict)
    # Whether the worker is about to stop; may be changed while the handler runs.
    draining: bool = False

    # What the handler said, in order.
    progress: list[run_pb2.Progress] = field(init=False, default_factory=list)
    checkpoints: list[bytes] = field(init=False, default_factory=list)
    # Seconds that it asked for by `extend`.
    extensions: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.context = Context(self._lease(), _Ear(self))
        self._cancel_at: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _lease(self) -> Lease:
        lease = Lease(
            namespace=self.namespace,
            run=self.run_id,
            job=self.job,
            token=self.token,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            checkpoint=b"" if self.checkpoint is None else _data(self.checkpoint),
            labels=self.labels,
            trace_context=values.trace_context(self.trace_context),
        )
        lease.scheduled_time.FromDatetime(self.scheduled_time)
        lease.due_time.FromDatetime(self.due_time or self.scheduled_time)
        if self.deadline is not None:
            lease.deadline.FromDatetime(self.deadline)
        for job, value in self.upstream.items():
            result = common_pb2.Payload(data=_data(value), content_type=JSON)
            lease.upstream.add(job=job, run=job, state=run_pb2.RUN_STATE_SUCCEEDED, result=result)
        return lease

    def run(
        self, function: Callable[..., object], payload: object = None, content_type: str = JSON
    ) -> Outcome:
        """Carry out a handler as a worker would; the payload is bytes, or anything JSON can hold.

        An async handler gets a loop of its own; where one runs already, use `run_async`.
        """
        handler, raised = self._prepare(function, payload, content_type)
        if handler.is_async:
            return asyncio.run(self._drive(handler, raised))
        invoke = _noting(handler.invoke, raised)
        result = contextvars.copy_context().run(call, invoke, self.context)
        return self._outcome(result, raised)

    async def run_async(
        self, function: Callable[..., object], payload: object = None, content_type: str = JSON
    ) -> Outcome:
        """As `run`, for tests that have a loop; a sync handler gets a thread."""
        handler, raised = self._prepare(function, payload, content_type)
        if handler.is_async:
            return await self._drive(handler, raised)
        invoke = _noting(handler.invoke, raised)
        result = await asyncio.to_thread(call, invoke, self.context)
        return self._outcome(result, raised)

    def _prepare(
        self, function: Callable[..., object], payload: object, content_type: str
    ) -> tuple[Handler, list[BaseException]]:
        if self.context.started:
            raise RuntimeError("this attempt has been made; make a new Attempt for another one")
        self.context.started = True
        given = self.context.lease.payload
        if payload is not None:
            given.data, given.content_type = _data(payload), content_type
        return self._handler(function), []

    def _handler(self, function: Callable[..., object]) -> Handler:
        if not isinstance(function, Task):
            return Handler(getattr(function, "__name__", "handler"), function)
        handler: Handler = function.handler
        given = {one.name: self._given(one.annotation) for one in handler.parameters.given}

        def invoke(context: Context) -> Any:  # noqa: ANN401
            args, named = handler.arguments(context, context.lease.payload, given)
            return handler.function(*args, **named)

        return handler.around(invoke)

    def _given(self, kind: type) -> object:
        if kind not in self.given:
            raise TypeError(
                f"the task wants a {kind.__name__}; write Attempt(given={{{kind.__name__}: ...}})"
            )
        return self.given[kind]

    async def _drive(self, handler: Handler, raised: list[BaseException]) -> Outcome:
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(drive(_noting_async(handler.invoke, raised), self.context))
        self._task = task
        return self._outcome(await task, raised)

    def _outcome(self, result: Result, raised: list[BaseException]) -> Outcome:
        tail = result.log_tail.decode("utf-8", "replace")
        return Outcome(result, raised[0] if raised else None, tail)

    def cancel(self, message: str = "cancelled by the test") -> None:
        """As if somebody had cancelled the run; from any thread, before or while it runs."""
        self._stop(Stop.KIND_CANCEL, message)

    def lose(self, message: str = "lost by the test") -> None:
        """As if the lease had been lost."""
        self._stop(Stop.KIND_LOST, message)

    def shut_down(self) -> None:
        """As if the worker stopped."""
        self._stop(Stop.KIND_UNSPECIFIED, "the worker stops")

    def cancel_on_progress(self, done: int) -> None:
        """Cancel as soon as the handler has said that it is this far."""
        self._cancel_at = done

    def _stop(self, kind: Stop.Kind.ValueType, message: str) -> None:
        self.context.stop(Stop(token=self.token, run=self.run_id, kind=kind, message=message))
        # What is cancelled before it begins sees that by itself.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._task.cancel, message)

    def heard(self, report: worker_pb2.ProgressReport) -> None:
        if report.checkpoint:
            self.checkpoints.append(report.checkpoint)
        if report.HasField("progress"):
            self.progress.append(report.progress)
            if self._cancel_at is not None and report.progress.done >= self._cancel_at:
                self._cancel_at = None
                self.cancel()


class _Ear:
    """The Voice of a context whose words a test hears."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def draining(self) -> bool:
        return self._attempt.draining

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        self._attempt.heard(report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        self._attempt.extensions.append(request.by.ToMilliseconds() / 1000)

    async def secrets(self, lease: Lease) -> Mapping[str, str]:
        return self._attempt.secrets


Invoke = Callable[[Context], Any]


def _noting(invoke: Invoke, raised: list[BaseException]) -> Invoke:
    def noting(context: Context) -> Any:  # noqa: ANN401
        try:
            return invoke(context)
        except BaseException as error:
            raised.append(error)
            raise

    return noting


def _noting_async(invoke: Invoke, raised: list[BaseException]) -> Invoke:
    async def noting(context: Context) -> Any:  # noqa: ANN401
        try:
            return await invoke(context)
        except BaseException as error:
            raised.append(error)
            raise

    return noting


def _data(value: object) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)
