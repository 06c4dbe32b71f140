"""How a node makes snapshots, and hands one to a follower too far behind for the log.

The leader offers a manifest; the follower fetches what it lacks, a few chunks ahead, and asks
again for what does not come (`snapshot_receiver.py`). So the sender keeps no state, a broken link
costs nothing that has arrived, and a slow disk on one side slows only that transfer.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from .manifest import FileOf, Manifest
from .message import BadCopy, Chunk, Fetch, SnapshotOffer
from .node_state import NodeState
from .outbox import HelperJob, HelperJobs, Outbox
from .port import Machine
from .progress import FollowerProgress
from .snapshot import Snapshots

logger = logging.getLogger(__name__)

VERIFY_AGAIN = 60.0  # Seconds; reading gigabytes again is not to be had for a message each time.


class SnapshotSender:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        outbox: Outbox,
        jobs: HelperJobs,
        snapshots: Snapshots,
        machine: Machine,
    ) -> None:
        self.node, self.journal, self.settings = node, node.journal, node.settings
        self.outbox, self.jobs = outbox, jobs
        self.snapshots, self.machine = snapshots, machine
        self.progress: dict[str, FollowerProgress] = {}  # What a leader knows of the others.
        self.making = False
        self.verified: dict[int, float] = {}  # Which of our snapshots were read again, and when.

    def offer(self, peer: str, progress: FollowerProgress, now: float) -> None:
        latest = self.snapshots.latest
        if latest is None or latest.index < max(self.journal.base_index, progress.lacks):
            self.make_snapshot()
            return
        if (
            progress.offered != latest.index
            and now - progress.fetched_at > 10 * self.settings.probe
        ):
            # Not at once where one was offered just now: each answer would bring another offer.
            progress.offered = latest.index
        if progress.offered and now >= progress.offer_at:
            progress.offer_at = now + 4 * self.settings.probe
            manifest = self.snapshots.by_index.get(progress.offered)
            if manifest is None:
                progress.offered = 0
            else:
                data = manifest.encode()
                self.outbox.send(peer, SnapshotOffer(self.node.term, data), len(data))

    def make_snapshot(self) -> None:
        """Write the present state beside the journal, on the helper."""
        between = self.node.installing or self.node.bereft
        if self.making or between or self.node.applied <= self.snapshots.last_index:
            return
        index = self.node.applied
        self.making = True
        work = self.snapshots.write(self.machine.checkpoint())

        def written(made: tuple[int, list[FileOf]]) -> None:
            self.publish_snapshot(max(index, made[0]), *made)

        self.jobs.append(HelperJob("checkpoint", work, written))

    def publish_snapshot(self, index: int, state: int, files: list[FileOf]) -> None:
        """Name the snapshot: the state may hold more than when it was asked for."""
        if index < self.journal.base_index:
            self.making = False  # A snapshot from elsewhere was installed in the meantime.
            return
        configs = [c for c in self.journal.configs if c[0] <= index][-1:]
        manifest = Manifest(index, self.journal.term_at(index), state, configs, files)
        manifest.check()
        work = self.snapshots.publish(manifest)
        self.jobs.append(
            HelperJob("publish snapshot", work, lambda _: self.snapshot_made(manifest))
        )

    def snapshot_made(self, manifest: Manifest) -> None:
        self.making = False
        self.keep(manifest, self.on_offer())
        self.cut_journal(tail=not self.node.full)

    def on_offer(self) -> set[int]:
        return {progress.offered for progress in self.progress.values()}

    def keep(self, manifest: Manifest, on_offer: Set[int] = frozenset()) -> None:
        self.remove(self.snapshots.add(manifest, on_offer))

    def remove(self, old: list[int]) -> None:
        if old:
            work = self.snapshots.removal(old)
            self.jobs.append(HelperJob("remove old snapshots", work, lambda _: None))

    def on_fetch(self, peer: str, fetch: Fetch, now: float) -> None:
        progress = self.progress.get(peer)
        if progress is not None:
            progress.fetched_at = now
        size = min(fetch.size, self.settings.chunk_bytes)
        data = self.snapshots.read(fetch.snapshot, fetch.file, fetch.offset, size)
        there = data is not None
        answer = Chunk(self.node.term, fetch.snapshot, fetch.file, fetch.offset, there, data or b"")
        self.outbox.send(peer, answer, 64 + len(answer.data))

    def on_bad_copy(self, message: BadCopy, now: float) -> None:
        """A follower got something else than we wrote, or cannot read it: see whether the disk
        still has it, and whether it can be read.

        If not this node stops, as for any damage; otherwise the link was to blame, or the peer.
        """
        manifests = self.snapshots.by_index.values()
        manifest = next((m for m in manifests if m.id == message.snapshot), None)
        self.verified = {m.id: self.verified[m.id] for m in manifests if m.id in self.verified}
        again = now - self.verified.get(message.snapshot, float("-inf")) < VERIFY_AGAIN
        if manifest is not None and not again:
            self.verified[message.snapshot] = now
            work = self.snapshots.verification(manifest, self.machine.check)
            self.jobs.append(HelperJob("verify snapshot", work, lambda _: None))

    # The journal behind a snapshot.

    def compact(self) -> None:
        """Make a snapshot, unless the last one would allow the same cut."""
        if self.tail_before(self.node.applied) > self.snapshots.last_index:
            self.make_snapshot()
        else:
            self.cut_journal()

    def tail_before(self, index: int) -> int:
        """Where the journal begins that is kept for slow followers behind a snapshot."""
        settings = self.settings
        return self.journal.tail_before(index, settings.tail_entries, settings.tail_bytes)

    def free_room(self) -> None:
        """The disk is full: keep the newest snapshot and what came after it, and make one if whole
        segments go by that. A slow follower fetches the snapshot instead."""
        if self.node.bereft or self.node.installing:
            return  # What there is may be needed.
        self.remove(self.snapshots.forget_old(1, self.on_offer()))
        self.cut_journal(tail=False)
        if self.journal.last_of_segment_before(self.node.applied) > self.snapshots.last_index:
            self.make_snapshot()

    def cut_journal(self, *, tail: bool = True) -> None:
        """Drop old segments, but not what a follower needs that fetches a snapshot now."""
        newest = self.snapshots.last_index
        limit = self.tail_before(newest) if tail else newest
        for progress in self.progress.values():
            if progress.offered:
                limit = min(limit, progress.offered)
        if limit > self.journal.base_index:
            kept = self.journal.bytes_kept
            self.journal.cut(min(limit, self.journal.synced_index))
            freed = kept - self.journal.bytes_kept
            if freed and not tail:
                logger.warning(
                    "%s removes %d MB of its journal that its newest snapshot stands for, since "
                    "the disk is full", self.node.me, freed >> 20,
                )  # fmt: skip
