"""Where messages for a worker go: a stream, or whoever waits in a unary call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Rejection

Messages = Sequence[worker_pb2.Lease] | Sequence[worker_pb2.ResultAck]


class WorkerSink(Protocol):
    """Where words for a worker go. Called on the loop; must neither block nor raise."""

    def pre_serialize(self, words: Messages) -> None:
        """Leases or acks that are on their way into the log. If they get there they are sent, and
        are the same object."""

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        """New leases; perhaps none, when an offer found nothing."""

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None: ...

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None: ...

    def drain(self, reason: str) -> None: ...

    def redirect(self, leader: str, reason: str) -> None:
        """This node leads no more; nothing else will come."""

    def lost(self, refusal: Rejection) -> None:
        """The session is gone, or another stream took it over; nothing else will come."""


class NullSink:
    """For a session that nobody is connected to."""

    def pre_serialize(self, words: Messages) -> None: ...
    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None: ...
    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None: ...
    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None: ...
    def drain(self, reason: str) -> None: ...
    def redirect(self, leader: str, reason: str) -> None: ...
    def lost(self, refusal: Rejection) -> None: ...


NULL_SINK = NullSink()
