"""What workers have reported, as requests of a change."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Rejection
from ...statemachine.model.request import (
    Note,
    Report,
)
from .pending import PendingRequest
from .worker_session import WorkerSession

LOST = worker_pb2.Stop.KIND_LOST
EXTENSION = worker_pb2.ResultAck.SUBJECT_EXTENSION
T = TypeVar("T")


def report(session: WorkerSession, results: tuple[worker_pb2.Result, ...]) -> PendingRequest:
    def answer(acks: object) -> None:
        assert isinstance(acks, list)
        session.sink.acks(acks)
        if len(acks) < len(results):
            # The change was full.
            session.results.extendleft(reversed(results[len(acks) :]))
            session.sessions.reported(session, first=not acks)

    def pre_serialize(acks: object) -> None:
        assert isinstance(acks, list)
        if acks:
            session.sink.pre_serialize(acks)

    return PendingRequest(
        Report(session.worker, results), answer, sent_again, items=len(results), sure=True,
        pre_serialize=pre_serialize,
    )  # fmt: skip


def note(
    session: WorkerSession, notes: tuple[worker_pb2.ProgressReport, ...], *, ends: bool = False
) -> PendingRequest:
    """`ends`: the results of these runs are to come next."""

    def answer(acks: object) -> None:
        assert isinstance(acks, list)
        run_of = {note.token: note.run for note in notes}
        stops = [
            worker_pb2.Stop(token=ack.token, run=run_of[ack.token], kind=LOST, message=ack.message)
            for ack in acks
            if ack.reason
        ]
        if stops:
            session.sink.stops(stops)
        if len(acks) < len(notes):
            session.note_again(notes[len(acks) :], first=not acks)

    return PendingRequest(
        Note(session.worker, notes), answer, sent_again, items=len(notes), sure=True, ends=ends
    )


def extension(session: WorkerSession, request: worker_pb2.ExtendRequest) -> PendingRequest:
    def answer(reply: object) -> None:
        ack = worker_pb2.ResultAck(token=request.token, subject=EXTENSION)
        if isinstance(reply, Rejection):
            ack.reason, ack.message = reply.word, reply.message
        else:
            assert isinstance(reply, worker_pb2.ExtendResponse)
            if reply.HasField("deadline"):
                ack.deadline.CopyFrom(reply.deadline)
        session.sink.acks([ack])

    return PendingRequest(request, answer, sent_again, sure=True)


def unreported(
    session: WorkerSession, stops: Sequence[worker_pb2.Stop]
) -> Sequence[worker_pb2.Stop]:
    """The stops without those of leases whose result waits: its acknowledgement is the answer."""
    if not stops or not session.results:
        return stops
    waiting = {result.token for result in session.results}
    return [stop for stop in stops if stop.kind != LOST or stop.token not in waiting]


def sent_again() -> None:
    """A worker sends what was not acknowledged to the next leader."""


def take(line: deque[T], most: int) -> list[T]:
    if len(line) <= most:
        taken = list(line)
        line.clear()
        return taken
    return [line.popleft() for _ in range(most)]
