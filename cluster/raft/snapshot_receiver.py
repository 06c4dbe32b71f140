"""How a node too far behind for the log fetches a snapshot, and puts it in place.

Commit does not move until the snapshot is verified, put in place and the journal stands on it.
"""

from __future__ import annotations

from .faults import Damaged, Fatal, require
from .incoming import Incoming
from .journal import Journal
from .manifest import Manifest, folder_of
from .members import Members
from .message import AppendAck, BadCopy, Chunk, Fetch, SnapshotOffer, WireError
from .node_state import NodeState
from .outbox import HelperJob, HelperJobs, Outbox
from .port import Machine
from .proposals import Proposals
from .snapshot import Snapshots
from .snapshot_sender import SnapshotSender


class SnapshotReceiver:
    """See the head of this file."""

    def __init__(
        self,
        node: NodeState,
        members: Members,
        outbox: Outbox,
        jobs: HelperJobs,
        sender: SnapshotSender,
        proposals: Proposals,
    ) -> None:
        self.node, self.settings, self.members = node, node.settings, members
        self.outbox, self.jobs, self.proposals = outbox, jobs, proposals
        self.sender, self.snapshots, self.machine = sender, sender.snapshots, sender.machine
        self.incoming: Incoming | None = None

    def on_offer(self, peer: str, manifest: Manifest, now: float) -> None:
        if self.has_snapshot(manifest):
            # An old or repeated offer: what it holds is here, and so is what came after.
            self.outbox.send(peer, AppendAck(self.node.term, manifest.index, manifest.index, True))
        elif self.incoming is None or self.incoming.manifest.id != manifest.id:
            if not self.node.installing and not (self.incoming and self.incoming.busy):
                self.incoming = Incoming(manifest, self.snapshots, self.settings)
                self.fetch_more(peer, now)
        elif now - self.incoming.asked_at > 2 * self.settings.probe:
            self.incoming.ask_again()
            self.fetch_more(peer, now)

    def has_snapshot(self, manifest: Manifest) -> bool:
        return manifest.index <= self.node.commit

    def on_chunk(self, peer: str, chunk: Chunk, now: float) -> None:
        incoming = self.incoming
        if incoming is None or incoming.manifest.id != chunk.snapshot or self.node.installing:
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
            self.outbox.send(peer, Fetch(self.node.term, incoming.manifest.id, file, offset, size))
        if incoming.complete and not incoming.busy and not self.node.installing:
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
            self.jobs.append(HelperJob("write snapshot", work, written))

    def tick(self, now: float) -> None:
        """Ask again for chunks that did not come, of whoever leads now."""
        incoming = self.incoming
        if incoming is None or incoming.busy or self.node.installing:
            return
        late = now - incoming.asked_at > 2 * self.settings.probe
        if late and incoming.source in self.members.connected:
            incoming.ask_again()
            self.fetch_more(incoming.source, now)

    # Putting it in place.

    def install(self, incoming: Incoming) -> None:
        manifest = incoming.manifest
        if self.has_snapshot(manifest):
            self.incoming = None
            return
        # Until it is done nothing is appended, applied or voted for: the state is in between.
        self.node.installing = True
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

        self.jobs.append(HelperJob("install snapshot", put_in_place, done))

    def discard(self, incoming: Incoming) -> None:
        """It is not what its manifest says, or was damaged before it was sent. It is fetched anew
        when it is offered again."""
        self.node.installing = False
        self.incoming = None
        self.outbox.send(incoming.source, BadCopy(self.node.term, incoming.manifest.id))

    def installed(self, manifest: Manifest) -> None:
        node = self.node
        require(manifest.index > node.commit, f"snapshot {manifest.index} came after {node.commit}")
        node.installing = node.bereft = False
        self.incoming = None
        self.sender.keep(manifest)
        self.proposals.fail(manifest.index)
        stand_on(node.journal, manifest)
        node.applied = max(manifest.index, self.machine.applied())
        node.commit = max(node.commit, node.applied)
        self.members.follow_log()
        if node.leader is not None:
            ack = AppendAck(node.term, manifest.index, manifest.index, True)
            self.outbox.send(node.leader, ack)


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


def manifest_of(offer: SnapshotOffer) -> Manifest:
    """Return the manifest on offer; WireError if no node that works would send it."""
    try:
        manifest = Manifest.decode(offer.manifest)
    except ValueError as error:
        raise WireError(f"Offer: {error}") from error
    if manifest.term > offer.term:
        raise WireError(f"Offer: a snapshot of term {manifest.term} cannot be here")
    return manifest


def stand_on(journal: Journal, manifest: Manifest) -> None:
    """Make the journal follow a snapshot, keeping a tail that continues it."""
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
            journal.end_round(batch)
