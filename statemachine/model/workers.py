"""Workers as the leader knows them: the state only knows what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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


class WorkerCounts:
    """How many workers pull from each queue, by namespace, kept as they come and go; "" stands for
    all namespaces."""

    def __init__(self, workers: Workers = ()) -> None:
        self._of = Counter[tuple[str, str]]()
        for worker in workers:
            self.add(worker.offer.namespaces, worker.offer.queues)

    def of(self, namespace: str, queue: str) -> int:
        return self._of[namespace, queue]

    def add(self, namespaces: Sequence[str], queues: Sequence[str]) -> None:
        self._of.update(_pairs(namespaces, queues))

    def remove(self, namespaces: Sequence[str], queues: Sequence[str]) -> None:
        for pair in _pairs(namespaces, queues):
            self._of[pair] -= 1
            if not self._of[pair]:
                del self._of[pair]

    def clear(self) -> None:
        self._of.clear()


def _pairs(namespaces: Sequence[str], queues: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What one worker counts for, once each."""
    every = ("", *dict.fromkeys(namespaces))
    return ((namespace, queue) for queue in dict.fromkeys(queues) for namespace in every)
