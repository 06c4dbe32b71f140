"""What a leader knows about one follower."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

BACKOFF_MAX = 2.0


@dataclass(slots=True)
class FollowerProgress:
    """`match` is durable there and equal to ours; `next` is what to send.

    While probing, one append at a time is under way, to find where the logs agree. Otherwise
    appends follow each other without waiting, up to a window of bytes.
    """

    next: int
    heard_at: float
    # The incarnation of the disk this is about: it says nothing about another one.
    disk: int
    match: int = 0
    probing: bool = True
    probe_at: float = 0.0
    probed: int = -1  # The `prev` that was asked last; answers to others are late.
    moved_at: float = 0.0
    # How long to wait for an answer beyond the usual, as none came so far. A link or a disk that is
    # slow is made slower by what is sent to it again.
    backoff: float = 0.0
    in_flight: int = 0
    sent: deque[tuple[int, int]] = field(default_factory=deque)  # (last index, bytes)
    round: int = 0
    echo: float = 0.0
    offered: int = 0  # Index of the snapshot on offer, 0 if none.
    offer_at: float = 0.0
    fetched_at: float = -1e9
    lacks: int = 0  # It has lost its state, and needs a snapshot of this index or a later one.
    lacks_until: float = 0.0  # Unless it says so again.
    known_commit: int = 0  # Commit index that was sent to the follower last.

    def acked(self, index: int, now: float) -> None:
        """The follower has all up to `index`. This never lowers anything."""
        if index > self.match or self.probing:
            self.moved_at = now
            self.backoff = 0.0
        self.match = max(self.match, index)
        self.next = max(self.next, index + 1)
        self.probing = False
        if index >= self.offered:
            self.offered = 0
        while self.sent and self.sent[0][0] <= self.match:
            self.in_flight -= self.sent.popleft()[1]

    def reconnected(self, now: float) -> None:
        """Send again what was under way, and nothing that may well be there.

        Who has not answered in this term yet says itself where its log ends. Beginning at
        `match`, which is 0 then, would send it the whole journal, or a snapshot.
        """
        self.offered = 0
        # It may have started anew, and its clock with it.
        self.echo = 0.0
        self.backoff = 0.0
        self.probe(self.next if self.probing else self.match + 1, now)

    def wait_longer(self, usual: float) -> None:
        self.backoff = min(2 * max(usual, self.backoff), BACKOFF_MAX)

    def probe(self, next_index: int, now: float) -> None:
        """Forget what is under way and ask again from `next_index`, at once."""
        self.next = max(self.match + 1, next_index)
        self.probing = True
        self.probe_at = now
        self.probed = -1
        self.in_flight = 0
        self.sent.clear()
