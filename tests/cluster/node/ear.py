"""A worker's end of a session, for tests: it keeps all it is told."""

from __future__ import annotations

from collections.abc import Sequence

from raftsched.cluster.node.worker_sink import Messages
from raftsched.proto.v1 import worker_pb2
from raftsched.statemachine.core.rejection import Rejection


class Ear:
    """See the head of this file."""

    def __init__(self) -> None:
        self.pre_serialized: list[Messages] = []
        self.got: list[worker_pb2.Lease] = []
        self.acked: list[worker_pb2.ResultAck] = []
        self.stopped: list[worker_pb2.Stop] = []
        self.drained: list[str] = []
        self.redirected: list[str] = []
        self.gone: list[Rejection] = []

    def pre_serialize(self, words: Messages) -> None:
        self.pre_serialized.append(words)

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        self.got += leases

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        self.acked += acks

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None:
        self.stopped += stops

    def drain(self, reason: str) -> None:
        self.drained.append(reason)

    def redirect(self, leader: str, reason: str) -> None:
        self.redirected.append(leader)

    def lost(self, refusal: Rejection) -> None:
        self.gone.append(refusal)


def success(lease: worker_pb2.Lease) -> worker_pb2.Result:
    return worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
