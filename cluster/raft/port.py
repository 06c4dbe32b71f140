"""The port: what consensus asks of the node that uses it, and what it notifies it of.

Everything here is called on the loop, one call at a time, except where it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

Reply = Callable[[int | None], None]
"""Called once: with an index, or with None for "unknown", never both."""


class Disk(Protocol):
    """Paths are relative and use `/`. Errors are OSError; a failed sync is final."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer at the end of the file."""

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write all of `data`, creating the file; durable only after `sync`."""

    def allocate(self, path: str, size: int) -> None:
        """Create the file if need be and reserve `size` bytes, or raise ENOSPC."""

    def size(self, path: str) -> int: ...

    def sync(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in the folder durable."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; a missing one is fine."""

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted; none if there is no such folder."""

    def is_one(self, path: str, other: str) -> bool:
        """Return whether both names are there and lead to one file."""

    def make_folder(self, path: str) -> None:
        """Create a folder, durably: what is synced in it later must be found."""

    def lock(self, path: str) -> None:
        """Take the folder for this process, or raise Refused."""


class Machine(Protocol):
    """The replicated state. What `apply` raises stops the node."""

    def applied(self) -> int:
        """Return the index up to which the state holds everything; asked at start and after
        a restore. Entries above it are applied again."""

    def apply(self, index: int, data: bytes) -> None:
        """Take a committed entry: in order, each index once as long as the node lives. DiskFull
        says that there was no room and nothing was taken: it comes again."""

    def checkpoint(self) -> Callable[[str], int]:
        """Return a function that writes the present state, or a later one, durably as files
        into the folder it is given, and returns the index that state holds. It runs on a
        helper thread."""

    def check(self, folder: str) -> None:
        """Read the whole state in that folder. Damaged says that it is not what a machine wrote:
        the files may be as they were sent, and were damaged before. Runs on a helper thread."""

    def restore(self, folder: str) -> None:
        """Put the state in that folder in place of the present one, atomically. Runs on a
        helper thread while nothing is applied."""


class LeadershipWatcher(Protocol):
    """Who wants to know about leadership."""

    def leadership_gained(self, term: int) -> None:
        """This node leads and has applied everything that was committed before its term."""

    def leadership_lost(self, term: int) -> None:
        """It does not lead any more, or may not; whoever waits is answered in this turn."""

    def removed(self) -> None:
        """This node was removed from the cluster and should stop."""

    def linked(self, peer: str) -> None:
        """There is a connection to a peer, a new one."""

    def on_notice(self, peer: str, text: bytes) -> None:
        """A member's server sent this of itself; see `Driver.notify`."""


@dataclass(frozen=True, kw_only=True)
class RaftSettings:
    """Times in seconds, sizes in bytes. Each has a reason beside it."""

    heartbeat: float = 0.05  # A sixth of the shortest silence that counts.
    silence_min: float = 0.3  # Above the worst stall seen of a disk or of the interpreter.
    silence_max: float = 0.6
    rank_step: float = 0.008  # A vote takes about 2 ms; the next in rank waits four of them.
    retry_min: float = 0.02  # A lost election after a lost connection is tried again soon,
    retry_max: float = 0.04  # doubling up to `silence_max` so that slow links get their turn.
    probe: float = 0.15  # An append without an answer is sent again after this.
    transfer: float = 1.0  # A target that has not taken over by then will not.
    append_bytes: int = 1 << 20  # One message; large enough for 60 MB/s at 1 ms a round.
    window_bytes: int = 8 << 20  # Under way to one follower.
    waiting_bytes: int = 64 << 20  # Proposed and not yet applied; more is refused.
    hurry_bytes: int = 64 << 10  # Waiting to be applied; a commit of more is sent at once.
    reads_max: int = 10_000  # Reads that wait for a round; more is refused.
    outbox_max: int = 10_000  # Messages that wait for the disk; the oldest is dropped.
    outbox_bytes: int = 128 << 20  # The same in bytes: the windows of all followers and more.
    apply_step: int = 256  # Entries applied before the loop looks at its messages again.
    apply_bytes: int = 1 << 20  # The same in bytes: some 10 ms, and one entry at least.
    compact_bytes: int = 256 << 20  # Journal kept before a snapshot is made and it is cut.
    tail_entries: int = 10_000  # Entries kept behind a snapshot for slow followers,
    tail_bytes: int = 64 << 20  # and no more whole segments than make so many bytes.
    chunk_bytes: int = 256 << 10  # Of a snapshot; small enough not to delay heartbeats.
    chunk_window: int = 4  # Chunks asked for ahead.
    room: float = 0.5  # Between attempts to write a state that had no room.
    introduce: float = 0.2  # How often a node without a cluster asks around.
    # How long a start waits at most for a word of all other voters before it votes or stands: they
    # may know that its folder is an older copy. Live nodes meet within milliseconds.
    meet: float = 0.5

    def __post_init__(self) -> None:
        if not 4 * self.heartbeat < self.silence_min < self.silence_max:
            raise ValueError("silence must begin after four heartbeats and end later")


class LoopMeter(Protocol):
    """Is notified how long what the loop does lasts, and what other threads do meanwhile."""

    def end(self, what: str, began: float) -> None:
        """A step ended that began at an instant of the driver's clock."""

    def begin_beside(self, what: str) -> None: ...

    def end_beside(self, what: str) -> None: ...


class Untimed:
    """Nobody asks how long steps last."""

    def end(self, what: str, began: float) -> None: ...
    def begin_beside(self, what: str) -> None: ...
    def end_beside(self, what: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another member as this node sees it."""

    voter: bool
    address: str
    connected: bool
    match: int = 0
    client: str = ""  # Where clients reach it, if the cluster knows.


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where this node stands."""

    node: str
    role: str
    term: int
    leader: str | None
    ready: bool
    last_index: int
    commit: int
    applied: int
    durable: int
    base: int
    full: bool
    bereft: bool  # Its state is lost, and another one is on its way from the leader.
    removed: bool
    # Entries up to here are committed, as another node knows, and this journal ends before; else 0.
    missing: int
    peers: dict[str, Peer] = field(default_factory=dict)
