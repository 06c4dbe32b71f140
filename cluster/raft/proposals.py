"""Entries that callers of this node wait for, and the answers they get."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .journal import Entry
from .node_state import NodeState
from .port import Reply


class Proposals:
    """Who waits for which entry. An answer is given later, outside the core: what a caller does
    cannot get into it."""

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.waiting: dict[int, tuple[int, int, Reply]] = {}  # index -> term, size, reply
        self.bytes = 0
        self.answers: deque[Callable[[], None]] = deque()

    def add(self, kind: int, data: bytes, reply: Reply) -> None:
        """Put an entry of this leader at the end of the log."""
        journal, term = self.node.journal, self.node.term
        index = journal.last_index + 1
        size = len(data) + 64
        journal.append(Entry(index, term, kind, data))
        self.waiting[index] = (term, size, reply)
        self.bytes += size

    def applied(self, entry: Entry) -> None:
        """Answer whoever waited for an entry."""
        waiter = self.waiting.pop(entry.index, None)
        if waiter is not None:
            term, size, reply = waiter
            self.bytes -= size
            self.answer(reply, entry.index if term == entry.term else None)

    def fail(self, upto: int | None = None) -> None:
        """Answer "unknown" to those who wait for entries up to an index, or for any."""
        for index in sorted(i for i in self.waiting if upto is None or i <= upto):
            _, size, reply = self.waiting.pop(index)
            self.bytes -= size
            self.answer(reply, None)

    def answer(self, reply: Reply, index: int | None) -> None:
        self.answers.append(lambda: reply(index))
