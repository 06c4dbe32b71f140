"""How an attempt ends: what a handler may raise, and what is reported of it."""

from __future__ import annotations

import traceback
from asyncio import CancelledError
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Final

import msgspec

from ...proto.v1 import common_pb2, run_pb2, worker_pb2
from ...proto.v1.worker_pb2 import Lease, Result
from ..sdk.models import to_json

# Limits of the contract, in characters where it says characters.
PAYLOAD_BYTES_MAX = 65_536
CONTENT_TYPE_MAX = 128
CHECKPOINT_BYTES_MAX = 16_384
LOG_BYTES_MAX = 16_384
KIND_MAX = 128
MESSAGE_MAX = 4_096
TRACE_MAX = 16_384

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
# A copy of it costs half of what building one does.
PLAIN: Final = Result(success=worker_pb2.Success())

_encode = msgspec.json.Encoder(enc_hook=to_json).encode


class AttemptFailed(Exception):
    """This attempt failed; whether there is another one is the job's retry policy's to say.

    Any other exception does the same, with the name of its class as the kind.
    """

    def __init__(self, message: str = "", *, kind: str = "") -> None:
        super().__init__(message)
        # The word that policies look at; empty: the name of the class.
        self.kind = kind


class PermanentError(AttemptFailed):
    """The run must not be tried again, whatever the job's retry policy says."""


class RetryLater(AttemptFailed):
    """This attempt failed, and the next is to begin no earlier than `after` from now."""

    def __init__(self, after: float | timedelta, message: str = "", *, kind: str = "") -> None:
        super().__init__(message, kind=kind)
        self.after_s = seconds(after, "after")


class Cancelled(BaseException):
    """The attempt is to stop. It passes `except Exception`, as CancelledError does."""


class Released(BaseException):
    """The run is given back, without counting the attempt."""

    def __init__(self, delay_s: float, checkpoint: bytes) -> None:
        super().__init__("the handler gave the run back")
        self.delay_s = delay_s
        self.checkpoint = checkpoint


class PayloadInvalid(Exception):
    """The payload is not what the handler takes. Another attempt would meet the same one."""


class ResultInvalid(Exception):
    """What the handler returned cannot be kept. Another attempt would return the same."""


FATAL = (PermanentError, PayloadInvalid, ResultInvalid)
# What is raised to say how an attempt ended, and not because something broke.
SAID = (AttemptFailed, PayloadInvalid, ResultInvalid)
STOPPED = (Cancelled, CancelledError)


def seconds(length: float | timedelta, name: str) -> float:
    value = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if not 0 <= value <= 366 * 86_400:
        raise ValueError(f"{name} is {length!r}; it must be a length of time from 0 to 366 days")
    return value


def success(lease: Lease, value: object, log_tail: bytes = b"") -> Result:
    """Report what a handler returned: None, bytes as they are, all else as JSON."""
    if value is None and not log_tail:
        plain = Result()
        plain.CopyFrom(PLAIN)
        plain.run, plain.token = lease.run, lease.token
        return plain
    end = worker_pb2.Success(result=None if value is None else result_payload(value))
    return Result(run=lease.run, token=lease.token, success=end, log_tail=log_tail)


def result_payload(value: object) -> common_pb2.Payload:
    payload = _payload(value)
    size = len(payload.data)
    if size > PAYLOAD_BYTES_MAX:
        raise ResultInvalid(
            f"the result has {size:,} bytes, at most {PAYLOAD_BYTES_MAX:,} are kept; "
            "keep it elsewhere and return its address"
        )
    if len(payload.content_type) > CONTENT_TYPE_MAX:
        raise ResultInvalid(
            f"the result's content type has {len(payload.content_type)} characters, "
            f"at most {CONTENT_TYPE_MAX} are kept"
        )
    return payload


def _payload(value: object) -> common_pb2.Payload:
    match value:
        case common_pb2.Payload():
            return value
        case bytes() | bytearray():
            return common_pb2.Payload(data=bytes(value), content_type=BYTES)
    try:
        return common_pb2.Payload(data=_encode(value), content_type=JSON)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ResultInvalid(
            f"a result of type {type(value).__name__} cannot be written as JSON: {error}"
        ) from error


def failure(
    lease: Lease, error: BaseException, log_tail: bytes = b"",
    redact: Callable[[str], str] = str,
) -> Result:  # fmt: skip
    """Report what a handler raised, other than a request to stop."""
    kind = error.kind if isinstance(error, AttemptFailed) else ""
    # Before it is cut: a part of a secret would not be known for one.
    words, trace = redact(_words(error)), "" if _is_our_word(error) else redact(_trace(error))
    end = worker_pb2.Failure(
        error=run_pb2.RunError(
            kind=clean(kind or type(error).__name__)[:KIND_MAX],
            message=clean(words)[:MESSAGE_MAX],
            trace=_middle_cut(clean(trace), TRACE_MAX),
        ),
        fatal=isinstance(error, FATAL),
    )
    if isinstance(error, RetryLater):
        end.retry_after.FromMilliseconds(int(error.after_s * 1000))
    return Result(run=lease.run, token=lease.token, failure=end, log_tail=log_tail)


def cancelled(lease: Lease, why: str, log_tail: bytes = b"") -> Result:
    error = run_pb2.RunError(kind="Cancelled", message=clean(why)[:MESSAGE_MAX])
    end = worker_pb2.Failure(error=error, cancelled=True)
    return Result(run=lease.run, token=lease.token, failure=end, log_tail=log_tail)


def given_back(
    lease: Lease, delay_s: float = 0.0, checkpoint: bytes = b"", log_tail: bytes = b""
) -> Result:
    end = worker_pb2.GivenBack(checkpoint=checkpoint)
    if delay_s:
        end.delay.FromMilliseconds(int(delay_s * 1000))
    return Result(run=lease.run, token=lease.token, given_back=end, log_tail=log_tail)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"(its text cannot be had: {type(second).__name__})"


def _trace(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _own_frames_off(error.__traceback__))
    except Exception as second:
        return f"(the trace cannot be had: {type(second).__name__})"
    return "".join(lines)


def _is_our_word(error: BaseException) -> bool:
    """Whether it was raised here to say what is wrong, as executors do: then where says nothing."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else str(trace.tb_frame.f_globals.get("__package__"))
    client = str(__package__).rpartition(".")[0]
    ours = place == client or place.startswith(f"{client}.")
    return ours and isinstance(error, SAID)


def _own_frames_off(trace: TracebackType | None) -> TracebackType | None:
    """A reader wants to see the handler, not how it was called."""
    own = (__package__, f"{str(__package__).rpartition('.')[0]}.app")
    while trace is not None and trace.tb_next is not None:
        if trace.tb_frame.f_globals.get("__package__") not in own:
            break
        trace = trace.tb_next
    return trace


def _middle_cut(text: str, maximum: int) -> str:
    if len(text) <= maximum:
        return text
    mark = "\n[...]\n"
    head = (maximum - len(mark)) // 2
    return text[:head] + mark + text[len(text) - (maximum - len(mark) - head) :]


def clean(text: str) -> str:
    """Halves of surrogate pairs, which file names may hold, cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")
