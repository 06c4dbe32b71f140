"""What nodes send each other of themselves each second, and what follows from it.

It travels on the peer link beside consensus and is never replicated: addresses for clients,
versions, clocks, and a fingerprint of the state, so that a node whose copy differs from those of a
majority finds out and serves no longer.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version as version_of
from typing import Annotated

import msgspec

from ...statemachine.model.record import MetaRecord
from . import build
from .applier import Applied
from .figure_history import Figure, Past
from .secret_keys import SecretKeys, differing

logger = logging.getLogger(__name__)

# 2: the time of the state may be set back. 3: a worker is known by its tenant as well. 4: a backup
# may take the place of the state, identity providers, and secrets for targets.
FEATURE_LEVEL = 4
FRESH = 3.0  # Seconds for which a word counts.
FINGERPRINTS = 10_000  # Revisions back for which a peer's fingerprint can be compared.


class TookOver(msgspec.Struct, frozen=True, array_like=True):
    """Who came to lead. Fields are only ever appended."""

    at_ms: int
    term: int
    leader: str
    before: str = ""
    # One of the words in condition.py; empty where nobody knows.
    why: str = ""


class SelfReport(msgspec.Struct, frozen=True):
    """How a node is; see condition.py."""

    # The slowest write of the last minute; 0 where there was none.
    sync_ms: float = 0.0
    # When its first certificate ends, in seconds since 1970; 0: it is not valid.
    certificate_at: float | None = None
    took_over: tuple[TookOver, ...] = ()


class NodeInfo(msgspec.Struct, frozen=True):
    """One node, in its own words; times and skew as the hearer sees them."""

    client_address: str
    version: str
    zone_edition: str
    feature_level: int
    serving: bool
    wall_ms: int
    applied_index: int
    revision: int
    fingerprint: str
    # It has heard lately from all it is linked to; until then all say more often who they are.
    met: bool = True
    # Sessions of workers, which the leader alone has.
    workers: int = 0
    # SHA-256 of the secret that makes the first access token; empty where there is none.
    bootstrap: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    # SHA-256 of the secret by which its folder lets an admin in again; see admin_recovery.py.
    recovery: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    # A key under which it shows a leader who has called it by a certificate.
    forward_key: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    # What it computes with; empty from releases that did not say. See build.py.
    build: str = ""
    croniter: str = ""
    zones: str = ""
    # The zones it knows, as long as somebody it hears knows others.
    zone_names: tuple[str, ...] = ()
    # Some of those that the leader has asked for: who leads next is to have looked at them too.
    zones_in_use: tuple[str, ...] = ()
    # Access tokens that were used there of late, for the leader.
    tokens_used: tuple[str, ...] = ()
    # The backup it has made ready to take the place of the state (`Preparing.progress`).
    stage: str = ""
    # Ids of the keys for secrets that it has; under the first it encrypts.
    key_ids: tuple[str, ...] = ()
    # The newest figures, of the leader; where those that it has begin; and of each row some from
    # before what another node has.
    figures: tuple[Figure, ...] = ()
    figures_begin: tuple[int, ...] = ()
    figures_past: tuple[Past, ...] = ()
    report: SelfReport = SelfReport()
    heard_at: float = 0.0
    wall_skew_ms: int = 0


class PeerDirectory:
    """The other nodes, as they described themselves."""

    def __init__(
        self, name: str, replica: Applied, wall_ms: Callable[[], int],
        seconds: Callable[[], float], keys: SecretKeys | None = None,
    ) -> None:  # fmt: skip
        self.name, self.replica, self.wall_ms, self.seconds = name, replica, wall_ms, seconds
        self.peer_infos: dict[str, NodeInfo] = {}
        self.secret_keys = keys or SecretKeys()
        # This one's: another one with each start.
        self.forward_key = secrets.token_bytes(32)
        # Some of them have a secret for the first access token: asked for at each call.
        self.any_bootstrap = False
        # What this node says of the backup that is on its way.
        self.stage = ""
        # And of how it is.
        self.report = SelfReport()
        # Peers whose state differed from this node's at the same revision.
        self.differing: set[str] = set()
        self.diverged = False
        self._fingerprints: OrderedDict[int, bytes] = OrderedDict()
        self.applied(replica.meta)

    def applied(self, meta: MetaRecord) -> None:
        self._fingerprints[meta.revision] = meta.fingerprint
        if len(self._fingerprints) > FINGERPRINTS:
            self._fingerprints.popitem(last=False)

    def fingerprint_at(self, revision: int) -> bytes | None:
        """That of this node's state as it was; None when that is too long ago, or to come."""
        return self._fingerprints.get(revision)

    def message(
        self, client_address: str, version: str, *, serving: bool, met: bool = True,
        workers: int = 0, bootstrap: bytes = b"", recovery: bytes = b"",
        zones_in_use: Iterable[str] = (), tokens_used: tuple[str, ...] = (),
        figures: tuple[Figure, ...] = (), figures_begin: tuple[int, ...] = (),
        figures_past: tuple[Past, ...] = (),
    ) -> bytes:  # fmt: skip
        meta = self.replica.meta
        return msgspec.json.encode(
            NodeInfo(
                client_address=client_address, version=version, zone_edition=ZONE_EDITION,
                feature_level=FEATURE_LEVEL, serving=serving, wall_ms=self.wall_ms(),
                applied_index=meta.applied_index, revision=meta.revision,
                fingerprint=meta.fingerprint.hex(), met=met, workers=workers,
                bootstrap=bootstrap.hex(), forward_key=self.forward_key.hex(),
                recovery=recovery.hex(),
                build=build.build(), croniter=build.croniter(),
                zones=build.zones_digest(), zone_names=self._zone_names(),
                zones_in_use=tuple(zones_in_use), tokens_used=tokens_used, stage=self.stage,
                key_ids=self.secret_keys.ids,
                figures=figures, figures_begin=figures_begin, figures_past=figures_past,
                report=self.report,
            )
        )  # fmt: skip

    def _zone_names(self) -> tuple[str, ...]:
        """Sent to those alone who know others, since it is long."""
        mine = build.zones_digest()
        differs = any(info.zones not in ("", mine) for info in self.fresh().values())
        return tuple(sorted(build.zone_names())) if differs else ()

    def lacking(self) -> dict[str, str]:
        """Zones that this node knows and somebody who is there does not, with that one's name."""
        found: dict[str, str] = {}
        for name, info in sorted(self.fresh().items()):
            if info.zone_names:
                for zone in build.zone_names() - set(info.zone_names):
                    found.setdefault(zone, name)
        return found

    def differences(self) -> list[str]:
        """Where those who are there differ from this node, in sentences."""
        found = []
        for name, info in sorted(self.fresh().items()):
            for what, theirs, mine in (
                ("the build", info.build, build.build()),
                ("time zone data", info.zone_edition, ZONE_EDITION),
                ("the list of time zones", info.zones, build.zones_digest()),
                ("croniter", info.croniter, build.croniter()),
                ("feature level", str(info.feature_level), str(FEATURE_LEVEL)),
            ):
                if theirs and theirs != mine:
                    found.append(f"{name} has {what} {theirs}, {self.name} has {mine}.")
        others = {name: info.key_ids for name, info in self.fresh().items()}
        return found + differing(self.secret_keys.ids, others, self.name)

    def lacks_key(self, key_id: str) -> str:
        """The name of a node that is there and lacks a key for secrets; empty if none does."""
        found = (name for name, info in self.fresh().items() if key_id not in info.key_ids)
        return min(found, default="")

    def received(self, peer: str, text: bytes) -> NodeInfo | None:
        """Take what a peer says of itself; None if it cannot be read."""
        try:
            message = msgspec.json.decode(text, type=NodeInfo)
        except msgspec.DecodeError as error:
            # A later release may say other things; nothing depends on these words.
            logger.warning("what %s sends of itself cannot be read: %s", peer, error)
            return None
        skew_ms = message.wall_ms - self.wall_ms()
        info = msgspec.structs.replace(message, heard_at=self.seconds(), wall_skew_ms=skew_ms)
        self.peer_infos[peer] = info
        self.any_bootstrap = any(one.bootstrap for one in self.peer_infos.values())
        mine = self._fingerprints.get(message.revision)
        if mine is not None:
            self._compare(peer, mine.hex() == message.fingerprint, message.revision)
        return info

    def fresh(self) -> dict[str, NodeInfo]:
        """Those who sent word of themselves lately."""
        since = self.seconds() - FRESH
        return {name: info for name, info in self.peer_infos.items() if info.heard_at > since}

    def bootstraps(self) -> Iterator[bytes]:
        """Hashes of the secrets that make the first access token, empty ones too."""
        return (bytes.fromhex(info.bootstrap) for info in self.peer_infos.values())

    def recovering(self, shown: bytes, own: bytes, voters: Iterable[str]) -> int:
        """How many of the voters show this secret now, by its hash."""
        hashes = {name: info.recovery for name, info in self.fresh().items()}
        hashes[self.name] = own.hex()
        return sum(hmac.compare_digest(hashes.get(name, ""), shown.hex()) for name in voters)

    def forward_keys(self) -> dict[str, bytes]:
        """By node: this one's, and those of all that have shown theirs."""
        infos = self.peer_infos.items()
        others = {name: bytes.fromhex(info.forward_key) for name, info in infos if info.forward_key}
        return {**others, self.name: self.forward_key}

    def knows(self, level: int, names: Iterable[str]) -> bool:
        """None of these is known to be of a version before that feature level."""
        infos = (self.peer_infos.get(name) for name in names)
        return all(info is None or info.feature_level >= level for info in infos)

    def has_met(self, names: Iterable[str]) -> bool:
        """All of them have sent word of themselves lately."""
        return self.fresh().keys() >= set(names)

    def all_met(self, names: Iterable[str]) -> bool:
        """And they say the same of those they are linked to."""
        names = list(names)
        return self.has_met(names) and all(self.peer_infos[name].met for name in names)

    def skews_ms(self, voters: Iterable[str], now_ms: int) -> list[int]:
        """How far the clocks of the voters that were heard lately are from a clock of this node.
        Their time is counted on to this moment, since this clock may have been set since."""
        now = self.seconds()
        return [
            info.wall_ms + int((now - info.heard_at) * 1000) - now_ms
            for name in voters
            if (info := self.peer_infos.get(name)) is not None and now - info.heard_at < FRESH
        ]

    def skew_ms(self, voters: Iterable[str], most_ms: int, now_ms: int) -> int:
        """How far that is from a majority of them; 0 when near enough."""
        skews = self.skews_ms(voters, now_ms)
        far = sorted((skew for skew in skews if abs(skew) > most_ms), key=abs)
        # This clock agrees with itself, so one vote is on its side.
        if len(far) > len(skews) + 1 - len(far):
            return far[0]
        return 0

    def _compare(self, peer: str, same: bool, revision: int) -> None:
        if same:
            self.differing.discard(peer)
            return
        if peer not in self.differing:
            logger.error("the state of %s differs from that of %s at %d", self.name, peer, revision)
        self.differing.add(peer)
        # Of nodes that are there: those that were replaced have sent their last message.
        present = self.fresh()
        if len(self.differing & present.keys()) > (len(present) + 1) // 2 and not self.diverged:
            self.diverged = True
            logger.critical(
                "the state of %s differs from those of a majority, so it serves no longer; stop "
                "it, empty its folder and start it again: it fetches the state anew", self.name
            )  # fmt: skip


ZONE_EDITION = version_of("tzdata")
