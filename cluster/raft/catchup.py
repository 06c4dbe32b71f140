"""How a node too far behind for the log gets a snapshot.

The leader offers a manifest; the follower fetches what it lacks, a few chunks ahead, and asks
again for what does not come. So the sender keeps no state, a broken line costs nothing that has
arrived, and a slow disk on one side slows only that transfer. Commit does not move until the
snapshot is verified, put in place and the journal stands on it.
"""

from __future__ import annotations

from collections.abc import Set

from .faults import Damaged, Fatal, require
from .journal import Journal
from .message import AppendAck, BadCopy, Chunk, Fetch, Offer, WireError
from .port import Machine
from .progress import Progress
from .snapshot import FileOf, Incoming, Manifest, Snapshots, folder_of
from .state import Job, State

VERIFY_AGAIN = 60.0  # Seconds; reading gigabytes again is not to be had for a message each time.


class CatchUp(State):
    """See the head of this file."""

    snapshots: Snapshots
    incoming: Incoming | None = None
    making = False
    verified: dict[int, float]  # Which of our snapshots were read again, and when.

    # The leader's side.

    def offer(self, peer: str, progress: Progress, now: float) -> None:
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
                self.send(peer, Offer(self.term, data), len(data))

    def make_snapshot(self) -> None:
        """Write the present state beside the journal, on the helper."""
        between = self.installing or self.bereft
        if self.making or between or self.last_applied <= self.snapshots.last_index:
            return
        index = self.last_applied
        self.making = True
        work = self.snapshots.write(self.machine.checkpoint())

        def written(made: tuple[int, list[FileOf]]) -> None:
            self.publish_snapshot(max(index, made[0]), *made)

        self.jobs.append(Job("checkpoint", work, written))

    def publish_snapshot(self, index: int, state: int, files: list[FileOf]) -> None:
        """Name the snapshot: the state may hold more than when it was asked for."""
        if index < self.journal.base_index:
            self.making = False  # A snapshot from elsewhere was installed in the meantime.
            return
        configs = [c for c in self.journal.configs if c[0] <= index][-1:]
        manifest = Manifest(index, self.journal.term_at(index), state, configs, files)
        manifest.check()
        work = self.snapshots.publish(manifest)
        self.jobs.append(Job("publish snapshot", work, lambda _: self.snapshot_made(manifest)))

    def snapshot_made(self, manifest: Manifest) -> None:
        self.making = False
        self.keep(manifest, {p.offered for p in self.progress.values()})
        self.cut_journal()

    def keep(self, manifest: Manifest, on_offer: Set[int] = frozenset()) -> None:
        old = self.snapshots.add(manifest, on_offer)
        if old:
            work = self.snapshots.removal(old)
            self.jobs.append(Job("remove old snapshots", work, lambda _: None))

    def tail_before(self, index: int) -> int:
        """Where the journal begins that is kept for slow followers behind a snapshot."""
        settings = self.settings
        return self.journal.tail_before(index, settings.tail_entries, settings.tail_bytes)

    def cut_journal(self) -> None:
        """Drop old segments, but not what a follower needs that fetches a snapshot now."""
        limit = self.tail_before(self.snapshots.last_index)
        for progress in self.progress.values():
            if progress.offered:
                limit = min(limit, progress.offered)
        if limit > self.journal.base_index:
            self.journal.cut(min(limit, self.journal.synced_index))

    def on_fetch(self, peer: str, fetch: Fetch, now: float) -> None:
        progress = self.progress.get(peer)
        if progress is not None:
            progress.fetched_at = now
        size = min(fetch.size, self.settings.chunk_bytes)
        data = self.snapshots.read(fetch.snapshot, fetch.file, fetch.offset, size)
        there = data is not None
        answer = Chunk(self.term, fetch.snapshot, fetch.file, fetch.offset, there, data or b"")
        self.send(peer, answer, 64 + len(answer.data))

    def on_bad_copy(self, message: BadCopy, now: float) -> None:
        """A follower got something else than we wrote, or cannot read it: see whether the disk
        still has it, and whether it can be read.

        If not this node stops, as for any damage; otherwise the line was to blame, or the peer.
        """
        manifests = self.snapshots.by_index.values()
        manifest = next((m for m in manifests if m.id == message.snapshot), None)
        self.verified = {m.id: self.verified[m.id] for m in manifests if m.id in self.verified}
        again = now - self.verified.get(message.snapshot, float("-inf")) < VERIFY_AGAIN
        if manifest is not None and not again:
            self.verified[message.snapshot] = now
            work = self.snapshots.verification(manifest, self.machine.check)
            self.jobs.append(Job("verify snapshot", work, lambda _: None))

    # The follower's side.

    def on_offer(self, peer: str, offer: Offer, now: float) -> None:
        try:
            manifest = Manifest.decode(offer.manifest)
        except ValueError as error:
            raise WireError(f"Offer: {error}") from error
        if manifest.term > offer.term:
            raise WireError(f"Offer: a snapshot of term {manifest.term} cannot be here")
        if not self.hear(peer, offer.term, now):
            self.send(peer, AppendAck(self.term, 0, 0, False))
            return
        if self.has_snapshot(manifest):
            # An old or repeated offer: what it holds is here, and so is what came after.
            self.send(peer, AppendAck(self.term, manifest.index, manifest.index, True))
        elif self.incoming is None or self.incoming.manifest.id != manifest.id:
            if not self.installing and not (self.incoming and self.incoming.busy):
                self.incoming = Incoming(manifest, self.snapshots, self.settings)
                self.fetch_more(peer, now)
        elif now - self.incoming.asked_at > 2 * self.settings.probe:
            self.incoming.ask_again()
            self.fetch_more(peer, now)

    def has_snapshot(self, manifest: Manifest) -> bool:
        return manifest.index <= self.commit

    def hear(self, peer: str, term: int, now: float) -> bool:
        raise NotImplementedError

    def on_chunk(self, peer: str, chunk: Chunk, now: float) -> None:
        incoming = self.incoming
        if incoming is None or incoming.manifest.id != chunk.snapshot or self.installing:
            return
        if not chunk.there:
            if not incoming.busy and peer == incoming.source:
                self.incoming = None
            return
        incoming.take(chunk)
        self.write_incoming(peer, now)
        self.fetch_more(peer, now)

    def fetch_more(self, peer: str, now: float) -> None:
        incoming = self.incoming
        if incoming is None:
            return
        incoming.source = peer
        for file, offset, size in incoming.wanted():
            incoming.asked_at = now
            self.send(peer, Fetch(self.term, incoming.manifest.id, file, offset, size))
        if incoming.complete and not incoming.busy and not self.installing:
            self.install(incoming)

    def write_incoming(self, peer: str, now: float) -> None:
        incoming = self.incoming
        work = incoming.work() if incoming is not None else None
        if work is not None and incoming is not None:

            def written(_: object) -> None:
                incoming.busy = False
                self.write_incoming(peer, incoming.asked_at)
                self.fetch_more(peer, incoming.asked_at)

            incoming.busy = True
            self.jobs.append(Job("write snapshot", work, written))

    def tick_incoming(self, now: float) -> None:
        """Ask again for chunks that did not come, of whoever leads now."""
        incoming = self.incoming
        if incoming is None or incoming.busy or self.installing:
            return
        if now - incoming.asked_at > 2 * self.settings.probe and incoming.source in self.connected:
            incoming.ask_again()
            self.fetch_more(incoming.source, now)

    # Putting it in place.

    def install(self, incoming: Incoming) -> None:
        manifest = incoming.manifest
        if self.has_snapshot(manifest):
            self.incoming = None
            return
        # Until it is done nothing is appended, applied or voted for: the state is in between.
        self.installing = True
        finish = incoming.finish
        finished: list[str | None] = []

        def put_in_place() -> bool:
            # Without space for the rest of it, all of this is tried again.
            if not finished:
                finished.append(finish())
            [folder] = finished
            if folder is None:
                return False
            try:
                self.machine.check(folder)
            except Damaged:
                self.snapshots.drop(folder)
                return False
            restore(self.machine, folder)
            return True

        def done(good: bool) -> None:
            if good:
                self.installed(manifest)
            else:
                self.discard(incoming)

        self.jobs.append(Job("install snapshot", put_in_place, done))

    def discard(self, incoming: Incoming) -> None:
        """It is not what its manifest says, or was damaged before it was sent. It is fetched anew
        when it is offered again."""
        self.installing = False
        self.incoming = None
        self.send(incoming.source, BadCopy(self.term, incoming.manifest.id))

    def installed(self, manifest: Manifest) -> None:
        require(manifest.index > self.commit, f"snapshot {manifest.index} came after {self.commit}")
        self.installing = self.bereft = False
        self.incoming = None
        self.keep(manifest)
        self.fail_waiting(manifest.index)
        stand_on(self, manifest)
        self.last_applied = max(manifest.index, self.machine.applied())
        self.commit = max(self.commit, self.last_applied)
        self.config_changed()
        if self.leader is not None:
            ack = AppendAck(self.term, manifest.index, manifest.index, True)
            self.send(self.leader, ack)


def restore(machine: Machine, folder: str) -> None:
    """Let the machine take a snapshot that is whole; if it cannot, the node ends."""
    try:
        machine.restore(folder)
    except (Fatal, OSError):
        raise
    except Exception as error:
        raise Fatal(
            f"{folder} arrived as it was sent, but its state cannot be read here: "
            f"{type(error).__name__}: {error}. If a newer release wrote it, upgrade this node; "
            "otherwise start with an empty folder."
        ) from error


def stand_on(core: CatchUp, manifest: Manifest) -> None:
    """Make the journal follow a snapshot, keeping a tail that continues it."""
    journal = core.journal
    known = journal.base_index <= manifest.index <= journal.last_index
    if not known or journal.term_at(manifest.index) != manifest.term:
        journal.reset(manifest.index, manifest.term, manifest.configs)


def stand_on_latest(snapshots: Snapshots, journal: Journal, machine: Machine) -> None:
    """Finish an installation that a crash cut off between its steps, and give a state that is
    behind, or lost, what the newest snapshot holds that is whole.

    A snapshot with its final name is verified and durable. Entries behind it stay: only if the
    journal does not contain the snapshot's last entry does it begin anew.
    """
    while (latest := snapshots.latest) is not None and machine.applied() < latest.state:
        try:
            snapshots.verify(latest)
            machine.check(folder_of(latest.index))
        except Damaged as damaged:
            snapshots.set_aside(latest.index, damaged)
        else:
            restore(machine, folder_of(latest.index))
            break
    latest = snapshots.latest
    if latest is None or (snapshots.lost and latest.index < journal.base_index):
        return  # Nothing, or an older one to which the journal does not reach back any more.
    known = journal.base_index <= latest.index <= journal.last_index
    if not known or journal.term_at(latest.index) != latest.term:
        require(
            latest.index > journal.base_index,
            f"the journal begins at {journal.base_index}, behind snapshot {latest.index}",
        )
        journal.reset(latest.index, latest.term, latest.configs)
        batch = journal.take()
        if batch is not None:
            batch.run()
            journal.settled(batch)
