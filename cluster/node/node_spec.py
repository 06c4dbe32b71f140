"""What a node must know to start."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...statemachine.core.rocks_store import CACHE_BYTES
from ..raft.driver import Place
from ..raft.journal import JournalLimits
from ..raft.port import RaftSettings
from .applier import RENEWING
from .limits import HEARTBEAT_MS
from .loop_steps import LoopSteps
from .secret_keys import SecretKeys
from .virtual_clock import VirtualClock


@dataclass(frozen=True, kw_only=True)
class MemberAddresses:
    """Where a node is found: host:port for other nodes, and for clients."""

    peer: str
    client: str


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """See the head of this file."""

    name: str
    cluster: str
    folder: Path
    # By name, this one included; the same on all of them.
    members: dict[str, MemberAddresses]
    # Where it listens for other nodes, if not at its own address in the list.
    listen_peer: str = ""
    # Nobody may call without an access token, not even before there is one.
    tokens: bool = False
    version: str = "0"
    heartbeat_ms: int = HEARTBEAT_MS
    skew_max_ms: int = 1_000
    cache_bytes: int = CACHE_BYTES
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    # Under which secrets for targets are encrypted.
    secret_keys: SecretKeys = field(default_factory=SecretKeys)
    settings: RaftSettings = field(default_factory=RaftSettings)
    journal: JournalLimits = field(default_factory=JournalLimits)
    scrub_rate: int = 8 << 20  # Bytes a second that are read again in the background.
    # The clocks, for tests: milliseconds since 1970, and seconds that only grow.
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    seconds: Callable[[], float] = time.monotonic
    # The time that jobs go by, in tests of programs that use them.
    virtual: VirtualClock | None = None

    def place(self) -> Place:
        """The same as consensus wants it."""
        contacts = {name: member.peer for name, member in self.members.items()}
        return Place(
            cluster=self.cluster, node=self.name, contacts=contacts, listen=self.listen_peer,
            settings=self.settings, journal=self.journal, contexts=self.contexts,
        )  # fmt: skip

    def clear_leftovers(self) -> Path:
        """Remove what a crash left of a backup or of a recovery; the folder in which checkpoints
        wait to be streamed."""
        backups = self.folder / "backups"
        for left in (backups, self.folder / RENEWING):
            shutil.rmtree(left, ignore_errors=True)
        return backups

    def loop_steps(self) -> LoopSteps:
        return LoopSteps(self.name, self.wall_ms, self.seconds, self.settings.silence_min / 3)
