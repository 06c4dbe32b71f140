"""Frames that keep to the limits of the contract, and reports that stand for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import Message

from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2 import WorkRequest

ITEMS_MAX = 1_000
FRAME_BYTES_MAX = 3 * 1024 * 1024


def merged(
    older: worker_pb2.ProgressReport | None, newer: worker_pb2.ProgressReport
) -> worker_pb2.ProgressReport:
    """One report for two of the same attempt: what the newer leaves out stands as it was."""
    if older is not None:
        newer.checkpoint = newer.checkpoint or older.checkpoint
        newer.log_tail = newer.log_tail or older.log_tail
        if not newer.HasField("progress") and older.HasField("progress"):
            newer.progress.CopyFrom(older.progress)
    return newer


def split(items: Sequence[Message], name: str) -> Iterator[WorkRequest]:
    for start in range(0, len(items), ITEMS_MAX):
        yield from _fitting(items[start : start + ITEMS_MAX], name)


def _fitting(items: Sequence[Message], name: str) -> Iterator[WorkRequest]:
    frame = WorkRequest()
    getattr(frame, name).extend(items)
    # Some room is left for what else goes into the frame.
    if len(items) == 1 or frame.ByteSize() <= FRAME_BYTES_MAX - 1_024:
        yield frame
        return
    half = len(items) // 2
    yield from _fitting(items[:half], name)
    yield from _fitting(items[half:], name)
