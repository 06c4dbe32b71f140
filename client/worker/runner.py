"""Carries out leases: calls handlers on the loop or on threads, and says how they ended."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, Protocol

from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2 import Lease, Result, ResultAck, Stop
from . import outcomes
from .context import Context, enter
from .frames import merged
from .outcomes import STOPPED, PermanentError, Released
from .protocol import Session
from .threads import Mailbox, Threads

if TYPE_CHECKING:
    from .attempt_spans import AttemptSpans

FetchSecrets = Callable[[Lease], Awaitable[Mapping[str, str]]]


class Runnable(Protocol):
    """A handler or an executor."""

    @property
    def is_async(self) -> bool: ...

    @property
    def inline(self) -> bool: ...

    @property
    def invoke(self) -> Callable[[Context], Any]: ...


class Runner:
    """Used from the loop; handlers on threads come back to it through the mailbox."""

    def __init__(
        self,
        runnables: Mapping[str, Runnable],
        session: Session,
        changed: Callable[[], object],
        failed: Callable[[BaseException], None],
        threads: int,
        secrets: FetchSecrets,
        spans: AttemptSpans | None = None,
    ) -> None:
        self._runnables = runnables
        self._session = session
        # Asks the cluster for the secrets of a lease.
        self._secrets = secrets
        # None: attempts have no spans.
        self.spans = spans
        # Called when there may be something to say.
        self._changed = changed
        # Called when something of ours is broken, which must not pass in silence.
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._mailbox: Mailbox[Callable[[], None]] = Mailbox(self._loop, self._deliver)
        self._threads = Threads(self._loop, threads)
        self._active: dict[int, Context] = {}
        # What handlers have said since the loop last came by, by token.
        self._progress: dict[int, worker_pb2.ProgressReport] = {}
        self._extensions: dict[int, worker_pb2.ExtendRequest] = {}
        self._words_lock = threading.Lock()
        self._words_called = False
        # Handlers see what was set before the worker began, and nothing of each other.
        self._base = contextvars.copy_context()

    @property
    def active(self) -> Mapping[int, Context]:
        """Handlers under way, by token."""
        return self._active

    def start(self, lease: Lease) -> None:
        action = lease.action
        handler = self._runnables.get(action.handler or action.WhichOneof("kind") or "")
        if handler is None:
            self._unknown(lease)
            return
        context, token = Context(lease, self), lease.token
        if handler.inline:
            result = self._base.copy().run(call, handler.invoke, context, self.spans)
            self._session.ended(token, result)
            self._changed()
            return
        self._active[token] = context
        if handler.is_async:
            context.task = self._loop.create_task(self._drive(handler.invoke, context, token))
        else:
            self._threads.submit(lambda: self._on_thread(handler.invoke, context, token))

    def _unknown(self, lease: Lease) -> None:
        name = lease.action.handler or lease.action.WhichOneof("kind") or "(none)"
        error = PermanentError(
            f"this worker has no handler {name!r}; it has: {', '.join(sorted(self._runnables))}",
            kind="HandlerUnknown",
        )
        self._session.ended(lease.token, outcomes.failure(lease, error))
        self._changed()

    async def _drive(self, invoke: Callable[[Context], Any], context: Context, token: int) -> None:
        self._end_of(token, await drive(invoke, context, self.spans))

    def _on_thread(self, invoke: Callable[[Context], Any], context: Context, token: int) -> None:
        context.started = True
        result = self._base.copy().run(call, invoke, context, self.spans)
        self._mailbox.put(lambda: self._end_of(token, result))

    def _end_of(self, token: int, result: Result) -> None:
        try:
            del self._active[token]
            self._session.ended(token, result)
            self._changed()
        except Exception as error:
            self._failed(error)

    def _deliver(self, message: Callable[[], None]) -> None:
        try:
            message()
        except Exception as error:
            self._failed(error)

    def stop(self, order: Stop) -> None:
        """Ask a handler to stop. Coroutines are cancelled; threads have to look."""
        context = self._active.get(order.token)
        if context is None:
            return
        again = context.cancelled and order.kind != Stop.KIND_LOST
        context.stop(order)
        if context.task is not None and context.started and not again:
            context.task.cancel(order.message)

    def stop_all(self, why: str) -> None:
        """The worker stops: what ends by this is given back."""
        for token, context in list(self._active.items()):
            if not context.cancelled:
                self.stop(Stop(token=token, run=context.run, message=why))

    def extended(self, ack: ResultAck) -> None:
        context = self._active.get(ack.token)
        if context is None:
            return
        if ack.reason:
            context.log.warning("more time was refused: %s: %s", ack.reason, ack.message)
        elif ack.HasField("deadline"):
            context.extended(ack.deadline.ToDatetime(tzinfo=UTC))

    @property
    def draining(self) -> bool:
        """Of Voice."""
        return self._session.draining

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        """Of Voice: called by contexts, from any thread."""
        with self._words_lock:
            token = report.token
            self._progress[token] = merged(self._progress.get(token), report)
        self._words_wait()

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        """Of Voice."""
        with self._words_lock:
            self._extensions[request.token] = request
        self._words_wait()

    async def secrets(self, lease: Lease) -> Mapping[str, str]:
        """Of Voice."""
        return await self._secrets(lease)

    def _words_wait(self) -> None:
        """Words of threads gather until the loop comes by; there is one of each kind a handler."""
        if threading.get_ident() == self._home:
            self._pass_words_on()
        elif not self._words_called:
            self._words_called = True
            self._mailbox.put(self._pass_words_on)

    def _pass_words_on(self) -> None:
        self._words_called = False
        with self._words_lock:
            reports, self._progress = self._progress, {}
            requests, self._extensions = self._extensions, {}
        for report in reports.values():
            self._session.progress(report)
        for request in requests.values():
            self._session.extend(request)
        self._changed()

    def close(self) -> None:
        self._mailbox.close()
        self._threads.close()


async def drive(
    invoke: Callable[[Context], Any], context: Context, spans: AttemptSpans | None = None
) -> Result:
    """Run an async handler to its end, in a task of its own."""
    enter(context)
    span = None if spans is None else spans.begin(context)
    context.started = True
    try:
        context.check_cancelled()
        result = outcomes.success(context.lease, await invoke(context), context.log_tail)
    except GeneratorExit:
        raise
    except BaseException as error:
        result = _end(context, error)
    result = _noted(context, result)
    if span is not None:
        span.end(context, result)
    return result


def call(
    invoke: Callable[[Context], Any], context: Context, spans: AttemptSpans | None = None
) -> Result:
    """Run a sync handler to its end, in a context of its own."""
    enter(context)
    span = None if spans is None else spans.begin(context)
    try:
        context.check_cancelled()
        result = outcomes.success(context.lease, invoke(context), context.log_tail)
    except BaseException as error:
        result = _end(context, error)
    result = _noted(context, result)
    if span is not None:
        span.end(context, result)
    return result


def _noted(context: Context, result: Result) -> Result:
    if context.new_labels:
        result.notes.labels.update(context.new_labels)
    if context.warning and result.HasField("success"):
        result.notes.warning = context.warning
    context.redact(result)
    return result


def _end(context: Context, error: BaseException) -> Result:
    lease, tail = context.lease, context.log_tail
    if isinstance(error, Released):
        return outcomes.given_back(lease, error.delay_s, error.checkpoint, tail)
    if isinstance(error, STOPPED) and context.cancelled:
        if context.stop_kind == Stop.KIND_CANCEL:
            return outcomes.cancelled(lease, context.stop_reason, tail)
        return outcomes.given_back(lease, log_tail=tail)
    return outcomes.failure(lease, error, tail, context.redaction.text)
