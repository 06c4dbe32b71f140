"""Who counts calls: the services tell, what becomes of it is not their business."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Called on the loop after each call; must be cheap and must not raise."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call ended: "JobService/CreateJob", "OK" or another gRPC code, and how long it took
        here; of a stream, its life."""


class Nobody:
    """Counts nothing."""

    def called(self, method: str, code: str, seconds: float) -> None: ...
