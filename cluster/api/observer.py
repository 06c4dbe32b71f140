"""Who counts: the services report calls, and the node what it has decided."""

from __future__ import annotations

from typing import Protocol

from ...proto.v1 import cluster_pb2


class Observer(Protocol):
    """Called on the loop after each call; must be cheap and must not raise."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call ended: "JobService/CreateJob", "OK" or another gRPC code, and how long it took
        here; of a stream, its life."""

    def tally(self) -> cluster_pb2.Tally | None:
        """What this node has decided so far; None when nobody counts."""


class Nobody:
    """Counts nothing."""

    def called(self, method: str, code: str, seconds: float) -> None: ...

    def tally(self) -> cluster_pb2.Tally | None:
        return None
