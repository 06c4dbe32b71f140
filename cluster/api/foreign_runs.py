"""Runs of which a token for one namespace must not speak.

Each word about one is answered by itself, as if there were no such run, and never asked of the
rules: the id says whose it is, so nothing is looked up and nothing can be learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.model import keys
from ...statemachine.runs import recorded
from ..node import refusals

EXTENSION = worker_pb2.ResultAck.SUBJECT_EXTENSION
Word = TypeVar("Word", worker_pb2.Result, worker_pb2.ProgressReport, worker_pb2.ExtendRequest)


def is_foreign(run: str, only: int | None) -> bool:
    """Whether a run is of another namespace than the one with this number; None stands for all."""
    place = keys.run_key(run) if only is not None else None
    return place is not None and keys.namespace_of(place[0]) != only


def parted(words: Sequence[Word], only: int | None) -> tuple[Sequence[Word], Sequence[Word]]:
    """The words about its own runs, and those about foreign ones."""
    if only is None or not words:
        return words, ()
    own: list[Word] = []
    foreign: list[Word] = []
    for word in words:
        (foreign if is_foreign(word.run, only) else own).append(word)
    return own, foreign


def ack(word: worker_pb2.Result | worker_pb2.ExtendRequest) -> worker_pb2.ResultAck:
    refusal = recorded.no_run(word.run)
    found = worker_pb2.ResultAck(token=word.token, reason=refusal.word, message=refusal.message)
    if isinstance(word, worker_pb2.ExtendRequest):
        found.subject = EXTENSION
    return found


def acks(
    words: Iterable[worker_pb2.Result], only: int | None, own: Iterable[worker_pb2.ResultAck]
) -> Iterator[worker_pb2.ResultAck]:
    """An answer to each of these, with those to the words about its own runs in their places."""
    rest = iter(own)
    return (ack(word) if is_foreign(word.run, only) else next(rest) for word in words)


def too_many(maximum: int, whose: str) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_NODE_LIMIT,
        f"a stream of {whose} has spoken more than {maximum} times of runs that its access token "
        "is not for; report the leases of this token alone, and connect again",
        refusals.LIMIT_RETRY_MS,
        limit="foreign_runs",
        maximum=maximum,
        of=whose,
    )


def stop(word: worker_pb2.ProgressReport) -> worker_pb2.Stop:
    message = recorded.lost(word.run, word.token, None).message
    kind = worker_pb2.Stop.KIND_LOST
    return worker_pb2.Stop(token=word.token, run=word.run, kind=kind, message=message)
