"""Frames of the worker's stream, within their limits, and what is wrong with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import grpc

from ...proto.v1 import worker_pb2
from ...statemachine.core import limits
from ...statemachine.core.instants import set_ms
from ...statemachine.core.rejection import Reason, Refused
from ..node import refusals
from ..node.worker_sessions import WorkerSessions
from . import body
from .call import Context
from .caller_limits import CallerShare

FRAME_MAX = 3 << 20
WORDS_MAX = 1_000  # Of each kind in a frame of the worker.
HELLO_S = 2.0  # From the beginning of a stream to its hello.
FrameSizes = Callable[[int], object]


def welcome(sessions: WorkerSessions, cluster: str) -> worker_pb2.Welcome:
    """What a session must keep to."""
    found = worker_pb2.Welcome(cluster=cluster)
    set_ms(found.heartbeat, sessions.heartbeat_ms)
    set_ms(found.lapse, sessions.lapse_ms)
    if sessions.shows_time:
        set_ms(found.server_time, sessions.wall_ms())
    return found


async def first_frame(
    context: Context, share: CallerShare, caller: str, heard: FrameSizes
) -> worker_pb2.WorkRequest:
    """The first frame, with the hello; what waits to be parsed counts for its caller."""
    try:
        async with asyncio.timeout(HELLO_S):
            data = await context.read()
    except TimeoutError:
        raise required(f"did not come within {HELLO_S:.0f} s of the stream") from None
    if data is grpc.aio.EOF:
        raise required("did not come before the worker closed its side")
    heard(len(data))
    share.take(caller, len(data))
    try:
        frame = await parsed(data, caller)
    finally:
        share.give(caller, len(data))
    if not frame.HasField("hello"):
        raise required("is not in the first frame")
    return frame


async def parsed(data: bytes, caller: str) -> worker_pb2.WorkRequest:
    """A frame of a worker, within its limits."""
    if len(data) > FRAME_MAX:
        raise too_many("frame", FRAME_MAX, len(data), "bytes")
    frame = await body.parsed(worker_pb2.WorkRequest, data, caller=caller)
    for name, words in (
        ("results", frame.results), ("progress", frame.progress), ("extensions", frame.extensions)
    ):  # fmt: skip
        if len(words) > WORDS_MAX:
            raise too_many(name, WORDS_MAX, len(words), "entries")
    within(frame.progress)
    if frame.credits < 0:
        raise wrong("credits", f"is {frame.credits}; it says how many more leases may come")
    return frame


def within(reports: Iterable[worker_pb2.ProgressReport]) -> None:
    """Refuse what the rules would not take. Nothing but an old token is answered by a stop, so a
    report that is refused there would end a handler whose lease stands."""
    for report in reports:
        size = len(report.checkpoint)
        if size > limits.CHECKPOINT_BYTES:
            raise refusals.refused(
                Reason.ERROR_REASON_LIMIT_EXCEEDED,
                f"the checkpoint of run {report.run[:256]} has {size} bytes; the most is "
                f"{limits.CHECKPOINT_BYTES}. Store it elsewhere and send its address",
                limit="checkpoint",
                maximum=limits.CHECKPOINT_BYTES,
                actual=size,
            )


def fitting(taken: Sequence[worker_pb2.Lease]) -> int:
    """How many leases fit into one answer; one always does."""
    size = 0
    for count, lease in enumerate(taken):
        size += lease.ByteSize() + 8
        if size > FRAME_MAX and count:
            return count
    return len(taken)


def required(why: str) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_FIELD_REQUIRED,
        f"hello {why}; begin the stream with a frame that says who you are",
        field="hello",
    )


def wrong(field: str, why: str) -> Refused:
    return refusals.refused(Reason.ERROR_REASON_FIELD_INVALID, f"{field} {why}", field=field)


def too_many(what: str, maximum: int, actual: int, of: str) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"{what} has {actual} {of}, at most {maximum} may be sent at once; send them in parts",
        limit=what,
        maximum=maximum,
        actual=actual,
    )


def unread(seconds: float) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_BACKLOG_FULL,
        f"the worker has not read from its stream for {seconds:.0f} s; connect again, and keep "
        "reading while handlers work",
        200,
    )
