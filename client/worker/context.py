"""What a handler knows about its attempt, and what it can say about it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

import msgspec

from ...proto import secret_text
from ...proto.v1 import run_pb2, worker_pb2
from ...proto.v1.worker_pb2 import Lease, Stop
from ..sdk.trace import CURRENT
from .outcomes import CHECKPOINT_BYTES_MAX, Cancelled, Released, clean, seconds
from .redaction import NO_SECRETS, Redaction
from .run_log import RunLog

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

T = TypeVar("T")

EXTEND_MIN_S, EXTEND_MAX_S = 1.0, 86_400.0
PROGRESS_MESSAGE_MAX = 256
LABELS_MAX, LABEL_VALUE_MAX = 32, 256
WARNING_MAX = 1_024
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
LABEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}", re.ASCII)


class Voice(Protocol):
    """Where the words of a context go; called from any thread."""

    @property
    def draining(self) -> bool: ...

    def progress(self, report: worker_pb2.ProgressReport) -> None: ...

    def extend(self, request: worker_pb2.ExtendRequest) -> None: ...

    async def secrets(self, lease: Lease) -> Mapping[str, str]: ...


class SpanOfAttempt(Protocol):
    """The span of an attempt, as far as its handler needs it."""

    def carrier(self) -> dict[str, str]:
        """As W3C headers."""


class Context:
    """One attempt. A handler gets it as an argument of this type, or from `current_context()`."""

    __slots__ = (
        "_deadline", "_lease", "_log", "_mark", "_new_labels", "_redaction", "_stop", "_voice",
        "_warnings", "secrets", "span", "started", "task",
    )  # fmt: skip

    def __init__(self, lease: Lease, voice: Voice) -> None:
        self._lease = lease
        self._voice = voice
        self._stop: Stop | None = None
        self._mark: _Mark | None = None
        self._log: RunLog | None = None
        self._deadline: datetime | None = None
        self._new_labels: dict[str, str] | None = None
        self._warnings = ""
        # For executors: the secrets that the action names, once they were fetched.
        self.secrets: Mapping[str, str] = {}
        self._redaction: Redaction | None = None
        # The attempt's own; None where it has none.
        self.span: SpanOfAttempt | None = None
        # For whoever runs the handler.
        self.started = False
        self.task: asyncio.Task[None] | None = None

    @property
    def lease(self) -> Lease:
        """All that the cluster said, as it said it."""
        return self._lease

    @property
    def namespace(self) -> str:
        return self._lease.namespace

    @property
    def run(self) -> str:
        """The run's id."""
        return self._lease.run

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt at this run, and on no other run: the run's id."""
        return self._lease.run

    @property
    def job(self) -> str:
        return self._lease.job

    @property
    def flow(self) -> str:
        """The flow's wave; empty if the run is part of none."""
        return self._lease.flow

    @property
    def token(self) -> int:
        """The fence: hand it to outside systems; later leases have higher ones."""
        return self._lease.token

    @property
    def attempt(self) -> int:
        """From 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def scheduled_time(self) -> datetime:
        """The instant the schedule names."""
        return _instant(self._lease.scheduled_time)

    @property
    def due_time(self) -> datetime:
        """When it was to start."""
        return _instant(self._lease.due_time)

    @property
    def deadline(self) -> datetime | None:
        """When the attempt must have ended, by the cluster's clock. None: no such limit."""
        if self._deadline is None and self._lease.HasField("deadline"):
            self._deadline = _instant(self._lease.deadline)
        return self._deadline

    @property
    def last_checkpoint(self) -> bytes:
        """What the last attempt left; empty: nothing."""
        return self._lease.checkpoint

    def load_checkpoint(self, as_type: type[T]) -> T | None:
        """What the last attempt left, read from JSON; None if it left nothing."""
        data = self._lease.checkpoint
        return msgspec.json.decode(data, type=as_type) if data else None

    def upstream(self, job: str, as_type: Any = Any) -> Any:  # noqa: ANN401
        """What a job upstream in the flow returned, read from JSON; None if it returned nothing."""
        for one in self._lease.upstream:
            if one.job == job:
                if one.result_omitted:
                    raise LookupError(
                        f"the result of {one.run} was too large to come along; get it"
                    )
                data = one.result.data
                return msgspec.json.decode(data, type=as_type) if data else None
        known = ", ".join(sorted(one.job for one in self._lease.upstream)) or "none"
        raise LookupError(f"no job {job!r} is upstream of this run; upstream are: {known}")

    @property
    def trace_context(self) -> dict[str, str]:
        """Where the run belongs in a trace, as headers of W3C Trace Context, which propagators of
        OpenTelemetry read; empty: in none. What is triggered from here is in the same trace. Where
        this worker makes spans, it is the attempt's own."""
        if self.span is not None:
            return self.span.carrier()
        trace = self._lease.trace_context
        named = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
        return {name: text for name, text in named.items() if text}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the run, with those written here."""
        return {**self._lease.labels, **(self._new_labels or {})}

    @property
    def new_labels(self) -> dict[str, str]:
        """For whoever runs the handler."""
        return self._new_labels or {}

    def label(self, name: str, value: str) -> None:
        """Write a label on the run, over one of the same name; it is sent with the attempt's end.

        context.label("region", "eu-west")
        """
        if not LABEL_NAME.fullmatch(name):
            raise ValueError(
                f"name is {name!r}; use 1 to 128 of a-z, 0-9, '-' and '_', first a letter or digit"
            )
        if len(value) > LABEL_VALUE_MAX or CONTROLS.search(value):
            raise ValueError(
                f"the value of {name} is {value[:40]!r}; write at most {LABEL_VALUE_MAX} "
                "characters, none of them a control character"
            )
        if len({*self._lease.labels, *self.new_labels, name}) > LABELS_MAX:
            raise ValueError(f"the run has {LABELS_MAX} labels already; that is the most")
        self._new_labels = {**self.new_labels, name: value}

    def warn(self, text: str) -> None:
        """Say that somebody should look at the run, although it succeeds; it is sent with the
        attempt's end, and only if that is a success. Several stand on a line each, up to 1,024
        characters together.

        context.warn("3 of 500 rows had no address")
        """
        # Before it is cut: of a secret that was cut in two nobody would know the first half.
        cleaned = self.redaction.text(clean(str(text))).strip()
        if not cleaned:
            raise ValueError("the text is empty; say what somebody should look at")
        self._warnings = f"{self._warnings}\n{cleaned}".strip()[:WARNING_MAX]

    @property
    def warning(self) -> str:
        """What was said by `warn` so far."""
        return self._warnings

    def progress(self, done: int, total: int = 0, message: str = "") -> None:
        """Say how far it is; cheap, the newest word counts. Also keeps `timeouts.heartbeat`."""
        for name, value in (("done", done), ("total", total)):
            if not isinstance(value, int) or not 0 <= value < 1 << 63:
                raise ValueError(
                    f"{name} is {value!r}; write whole numbers, such as progress(50, 100)"
                )
        message = clean(message)[:PROGRESS_MESSAGE_MAX]
        self._say(progress=run_pb2.Progress(done=done, total=total, message=message))

    def checkpoint(self, value: object) -> None:
        """Leave this for the next attempt, should there be one: bytes, or anything JSON can hold.

        It is sent within a second; an attempt whose process dies at once may lose the last one.
        """
        self._say(checkpoint=_checkpoint(value))

    def _say(self, **words: Any) -> None:  # noqa: ANN401  # Fields of a message.
        report = worker_pb2.ProgressReport(run=self.run, token=self.token, **words)
        self.redact(report)
        if self._log is not None:
            report.log_tail = self._log.news()
        self._voice.progress(report)

    def extend(self, by: float | timedelta) -> None:
        """Ask for more time, from now; `deadline` shows it once it is granted."""
        length = seconds(by, "by")
        if not EXTEND_MIN_S <= length <= EXTEND_MAX_S:
            raise ValueError(f"by is {length:g} s; it must be from 1 s to 24 h")
        request = worker_pb2.ExtendRequest(run=self.run, token=self.token)
        request.by.FromMilliseconds(int(length * 1000))
        self._voice.extend(request)

    def release(self, delay: float | timedelta = 0.0, checkpoint: object = b"") -> NoReturn:
        """Give the run back without counting the attempt; it ends the handler."""
        raise Released(seconds(delay, "delay"), _checkpoint(checkpoint))

    async def fetch_secrets(self) -> None:
        """For executors: have the secrets that the action names. From now on they are taken out of
        all that the attempt says."""
        if not secret_text.names_in(self._lease.action):
            return
        self.secrets = await self._voice.secrets(self._lease)
        self._redaction = Redaction(self.secrets.values())
        self.log.redaction = self._redaction

    def redact(self, report: Message) -> None:
        """Take secrets out of a report."""
        if self._redaction is not None:
            self._redaction.message(report)

    @property
    def redaction(self) -> Redaction:
        """What takes the secrets of this attempt out of texts."""
        return self._redaction or NO_SECRETS

    @property
    def log(self) -> RunLog:
        """A logger whose records carry the run; the end of it is kept with the run."""
        if self._log is None:
            self._log = RunLog(self._lease)
        return self._log

    @property
    def log_tail(self) -> bytes:
        return b"" if self._log is None else self._log.tail

    @property
    def cancelled(self) -> bool:
        """The attempt is to stop; `stop_reason` says why."""
        return self._stop is not None

    @property
    def stop_reason(self) -> str:
        return "" if self._stop is None else self._stop.message

    @property
    def stop_kind(self) -> int:
        """A Stop.Kind. UNSPECIFIED with `cancelled`: the worker itself stops."""
        return Stop.KIND_UNSPECIFIED if self._stop is None else self._stop.kind

    @property
    def draining(self) -> bool:
        """The worker takes no more and will stop soon: a good time for a checkpoint."""
        return self._voice.draining

    def check_cancelled(self) -> None:
        """Raise Cancelled if the attempt is to stop."""
        if self._stop is not None:
            raise Cancelled(self._stop.message)

    async def wait_cancelled(self) -> None:
        """Return when the attempt is to stop; for async handlers that clean up by a task."""
        await self._marked().wait()

    def wait_cancelled_sync(self, timeout: float | None = None) -> bool:
        """Wait in a sync handler; True when the attempt is to stop, False after the time."""
        return self._marked().thread.wait(timeout)

    def _marked(self) -> _Mark:
        if self._mark is None:
            self._mark = _Mark()
        if self._stop is not None:
            self._mark.set()
        return self._mark

    def stop(self, order: Stop) -> None:
        """Called by whoever runs the handler. A lost lease outweighs a request to cancel."""
        if self._stop is None or order.kind == Stop.KIND_LOST:
            self._stop = order
        if self._mark is not None:
            self._mark.set()

    def extended(self, deadline: datetime | None) -> None:
        """Called by whoever runs the handler: the cluster has answered `extend`."""
        if deadline is not None:
            self._deadline = deadline


class _Mark:
    """An event for threads and for coroutines of any loop."""

    def __init__(self) -> None:
        self.thread = threading.Event()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def set(self) -> None:
        self.thread.set()
        for loop, event in tuple(self._waiting):
            # The loop of a handler may be closed by the time the worker is asked to stop it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        mine = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(mine)
        try:
            if not self.thread.is_set():
                await mine[1].wait()
        finally:
            self._waiting.discard(mine)


enter = CURRENT.set


def current_context() -> Context:
    """The context of the handler that calls this, from any depth."""
    try:
        return cast(Context, CURRENT.get())
    except LookupError:
        raise LookupError(
            "no handler of a worker runs here; in a test, use raftsched.client.testing"
        ) from None


@contextlib.contextmanager
def entered(context: Context) -> Iterator[None]:
    mark = CURRENT.set(context)
    try:
        yield
    finally:
        CURRENT.reset(mark)


def _checkpoint(value: object) -> bytes:
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise ValueError(
            f"the checkpoint has {len(data):,} bytes, at most {CHECKPOINT_BYTES_MAX:,} are kept; "
            "keep the rest elsewhere"
        )
    return data


def _instant(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
