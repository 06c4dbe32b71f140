"""Workers as the leader knows them: the state only knows what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .request import Offer


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is there. The offer's credits are the slots that are free now."""

    offer: Offer
    slots: int


Workers = Sequence[Worker]


def pulling(workers: Workers, namespace: str, queue: str) -> list[Worker]:
    """Those that take runs from a queue."""
    return [
        worker
        for worker in workers
        if namespace in worker.offer.namespaces and queue in worker.offer.queues
    ]
