"""Messages that wait until what they say is durable, and the work that waits for a helper."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .journal import Journal
from .message import Message


class Outbox:
    """Each message waits for the journal to be durable up to where it ended when it was written.

    Heartbeats say nothing about entries, only about the term, pre-votes bind nobody, and a leader
    counts on no entry that it sends before it has it itself. So these go in a queue of their own
    that waits for the last vote: a slow disk does not silence a leader.
    A message may be lost anywhere on its way, so a queue that is full, by number or by bytes, drops
    its oldest.
    """

    def __init__(self, journal: Journal, limit: int, limit_bytes: int) -> None:
        self.journal = journal
        self.limit, self.limit_bytes = limit, limit_bytes
        self.queues: tuple[deque[tuple[int, str, Message, int]], ...] = (deque(), deque())
        self.bytes = [0, 0]

    def send(self, to: str, message: Message, size: int = 64) -> None:
        """Let a message go when what it says is durable; `size` is what it holds in memory."""
        self._put(1, self.journal.end, to, message, size)

    def send_first(self, to: str, message: Message, size: int = 64) -> None:
        """Let a message go when our last vote is durable, whatever entries wait for the disk."""
        self._put(0, self.journal.spoken_for, to, message, size)

    def _put(self, queue: int, need: int, to: str, message: Message, size: int) -> None:
        waiting = self.queues[queue]
        waiting.append((need, to, message, size))
        self.bytes[queue] += size
        while len(waiting) > self.limit or self.bytes[queue] > self.limit_bytes:
            self.bytes[queue] -= waiting.popleft()[3]

    def release(self, synced: int) -> list[tuple[str, Message]]:
        """Return what may leave now; first what waits for a vote only."""
        ready = []
        for number, queue in enumerate(self.queues):
            while queue and queue[0][0] <= synced:
                _, to, message, size = queue.popleft()
                self.bytes[number] -= size
                ready.append((to, message))
        return ready


@dataclass
class HelperJob:
    """Work for the helper thread; `done` is called on the loop with what `run` returned."""

    name: str
    run: Callable[[], Any]
    done: Callable[[Any], None]


HelperJobs = deque[HelperJob]
