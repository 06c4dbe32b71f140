"""A new cluster out of what is left of an old one, made on a node that is stopped: from a backup
(`restore`), or from the folder of one node when the majority is gone for good (`recover`).

Either way one node begins alone, with a state in which every lease has lapsed and numbers go on
above those that were ever given out. The other nodes of the configuration come with empty folders
and are taken in by themselves, so all of them have their state from one place.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...statemachine import recovery
from ...statemachine.core.store import Corrupt
from ...statemachine.model import keys
from ..node import backup
from ..node.applier import PREFIX, RENEWING, Replica
from ..node.backup import NoBackup
from ..node.peer_info import FEATURE_LEVEL
from ..raft import faults
from ..raft.disk import RealDisk
from ..raft.force_new_cluster import force_new_cluster
from ..raft.journal import COMMAND, CONFIG, NOOP, SWITCH, Journal, JournalLimits
from ..raft.membership import Configuration
from ..raft.snapshot import Snapshots
from ..raft.snapshot_receiver import stand_on_latest
from . import probe, tls
from .config import Config
from .data_dir import IDENTITY, NO_SPACE, Folder
from .exits import NodeCannotStart, NodeExit

READ = 8 << 20  # Bytes of the journal at a time.


@dataclass(frozen=True)
class Standing:
    """What a folder holds, for whoever has to choose among several."""

    term: int
    last_index: int
    revision: int
    # The voters it knows, and those other nodes that live with this history.
    voters: list[str]
    alive: list[str]


@dataclass(frozen=True)
class Renewed:
    """What the new cluster begins with."""

    # Of the state that it goes on from.
    revision: int
    jobs: int
    live_runs: int
    # Who is to come with an empty folder.
    others: list[str]


def restore(config: Config, archive: Path, *, other: bool = False) -> Renewed:
    """Make an empty folder that of a node which begins anew from a backup.

    With `other` the backup may be of a cluster with another name. Raises CannotStart.
    """
    _need_nobody(config)
    with ExitStack() as stack:
        folder = Folder(Path(config.folder), config.cluster, config.name, whose=False)
        stack.callback(folder.close)
        if not folder.fresh:
            raise NodeCannotStart(
                NodeExit.FOLDER_FOREIGN,
                f"{folder.path} is a node's already, and a backup is put into an empty folder; "
                "name another one, or set this one aside",
            )
        stack.enter_context(_left_empty(folder.path))
        stack.enter_context(_explained(config))
        work = stack.enter_context(_workshop(folder.path))
        manifest = _unpack(config, archive, work, other=other)
        disk = RealDisk(folder.path / "consensus")
        stack.callback(disk.close)
        state = _opened(stack, config, work, disk)
        meta = state.meta
        if wrong := backup.mismatch(meta, manifest):
            raise NodeCannotStart(NodeExit.NO_BACKUP, f"{archive} cannot be put back: {wrong}")
        journal, snapshots = Journal(disk, _limits(config), secrets.token_hex(8)), Snapshots(disk)
        made = _renew(config, journal, snapshots, state, 1, manifest.term + 1)
        # Until now no node starts in this folder: a restore that was cut off is seen by that.
        folder.own()
        return made


def look(config: Config) -> Standing:
    """What a folder holds. Raises CannotStart."""
    with _remains(config) as (journal, snapshots, state):
        return _standing(config, journal, snapshots, state)


def recover(config: Config, confirm: Callable[[Standing], bool]) -> Renewed | None:
    """Make the folder of a node which survived that of a new cluster, if `confirm` agrees. Raises
    CannotStart, for one when the nodes that answer are a majority with this one."""
    with _remains(config) as (journal, snapshots, state), ExitStack() as stack:
        standing = _standing(config, journal, snapshots, state)
        lives = {*standing.alive, config.name} & set(standing.voters)
        if standing.alive and 2 * len(lives) > len(standing.voters):
            raise NodeCannotStart(
                NodeExit.CLUSTER_LIVES,
                f"{' and '.join(standing.alive)} answer, which is a majority together with "
                f"{config.name}; start {config.name} instead: nothing is lost",
            )
        if not confirm(standing):
            return None
        stack.enter_context(_explained(config))
        work = stack.enter_context(_workshop(Path(config.folder)))
        state.checkpoint_into(work / f"{PREFIX}1")
        copy = _opened(stack, config, work, journal.disk)
        # A snapshot may end with entries that are no business of the state.
        for index, kind, data in _tail(journal, max(copy.applied(), snapshots.last_index)):
            if kind in (COMMAND, SWITCH):
                copy.apply(index, data)
        return _renew(config, journal, snapshots, copy, journal.last_index + 1, journal.term + 1)


def _renew(
    config: Config, journal: Journal, snapshots: Snapshots, state: Replica, index: int, term: int
) -> Renewed:
    """Lay down a state as the beginning of a new cluster."""
    origin, before = secrets.token_hex(8), state.meta.revision
    state.meta = recovery.recover(state.store, index, origin)
    force_new_cluster(
        journal, snapshots, config.name, {n: m.peer for n, m in config.members.items()},
        origin=origin, incarnation=secrets.randbits(48) | 1 << 40, term=term,
        checkpoint=state.checkpoint(),
    )  # fmt: skip
    jobs, live = backup.count(state.store.scan(keys.USAGE, keys.after(keys.USAGE)))
    return Renewed(before, jobs, live, sorted(config.members.keys() - {config.name}))


@contextmanager
def _remains(config: Config) -> Iterator[tuple[Journal, Snapshots, Replica]]:
    """Open what a node that is stopped has left, under its locks."""
    path = Path(config.folder)
    if not (path / IDENTITY).exists():
        raise NodeCannotStart(
            NodeExit.FOLDER_FOREIGN, f"{path} is no node's folder; name the right one"
        )
    with ExitStack() as stack:
        stack.callback(Folder(path, config.cluster, config.name).close)
        stack.enter_context(_explained(config))
        disk = RealDisk(path / "consensus")
        stack.callback(disk.close)
        journal, snapshots = Journal(disk, _limits(config), secrets.token_hex(8)), Snapshots(disk)
        if not journal.configs:
            raise NodeCannotStart(
                NodeExit.FOLDER_FOREIGN,
                f"{config.name} never belonged to a cluster, so there is nothing to go on from",
            )
        state = Replica(path / "state", disk.root, cache_bytes=config.cache_mb << 20)
        stack.callback(state.close)
        stand_on_latest(snapshots, journal, state)
        if max(state.applied(), snapshots.last_index) < journal.base_index:
            raise NodeCannotStart(
                NodeExit.DAMAGED,
                f"the state of {config.name} is damaged and so is its snapshot; go on from another "
                "node, or put a backup back: raftsched node restore --help",
            )
        yield journal, snapshots, state


def _standing(config: Config, journal: Journal, snapshots: Snapshots, state: Replica) -> Standing:
    members = Configuration.decode(journal.configs[-1][1])
    addresses = {name: member.address for name, member in members.members.items()}
    addresses |= {name: member.peer for name, member in config.members.items()}
    addresses.pop(config.name)
    answered = probe.histories(addresses, tls.peer_contexts(config))
    alive = sorted(name for name, origin in answered.items() if origin == members.origin)
    return Standing(
        journal.last_term, journal.last_index, state.meta.revision, members.voters, alive
    )


def _need_nobody(config: Config) -> None:
    """A second node that is restored, or a cluster that still works, would be a second cluster."""
    others = {name: m.peer for name, m in config.members.items() if name != config.name}
    found = probe.histories(others, tls.peer_contexts(config))
    lives = sorted(name for name, origin in found.items() if origin is not None)
    if lives:
        raise NodeCannotStart(
            NodeExit.CLUSTER_LIVES,
            f"{' and '.join(lives)} run as nodes of a cluster; a backup is put back on one node, "
            f"and the others begin with empty folders. Stop {' and '.join(lives)} first, or start "
            f"{config.name} with an empty folder, so that it joins",
        )


def _unpack(config: Config, archive: Path, work: Path, *, other: bool) -> backup.ArchiveManifest:
    try:
        manifest = backup.unpack(archive, work / f"{PREFIX}1")
    except NoBackup as error:
        raise NodeCannotStart(
            NodeExit.NO_BACKUP, f"{archive} cannot be put back: {error}"
        ) from error
    except FileNotFoundError as error:
        raise NodeCannotStart(NodeExit.NO_BACKUP, f"there is no file {error.filename}") from error
    if manifest.format > backup.FORMAT or manifest.feature_level > FEATURE_LEVEL:
        raise NodeCannotStart(
            NodeExit.NEWER_FORMAT,
            f"{archive} was made by version {manifest.version}; put it back with that or a newer "
            "one",
        )
    if manifest.cluster != config.cluster and not other:
        raise NodeCannotStart(
            NodeExit.OTHER_CLUSTER,
            f"{archive} is of the cluster {manifest.cluster!r}, and the configuration says "
            f"{config.cluster!r}; if that is meant, say --other-cluster",
        )
    return manifest


def _opened(stack: ExitStack, config: Config, work: Path, disk: object) -> Replica:
    """The copy that is changed. What it is made of stays as it is."""
    assert isinstance(disk, RealDisk)
    copy = Replica(work, disk.root, cache_bytes=config.cache_mb << 20)
    stack.callback(copy.close)
    return copy


def _tail(journal: Journal, applied: int) -> Iterator[tuple[int, int, bytes]]:
    """What the journal holds behind the state. Whether it had been committed nobody can say any
    more; if it had, somebody may have been answered, so it counts."""
    if applied < journal.base_index:
        raise faults.Damaged(
            f"the state ends at {applied}, and the journal begins behind {journal.base_index}"
        )
    while applied < journal.last_index:
        for entry in journal.entries(applied + 1, journal.last_index, READ):
            if entry.kind not in (COMMAND, CONFIG, NOOP, SWITCH):
                raise faults.Unsupported(f"entry {entry.index} is of kind {entry.kind}, not known")
            applied = entry.index
            yield entry.index, entry.kind, entry.data


def _limits(config: Config) -> JournalLimits:
    return JournalLimits(segment=config.segment_mb << 20)


@contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A place beside the state, on the same disk; it goes whatever happens."""
    work = folder / RENEWING
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _left_empty(folder: Path) -> Iterator[None]:
    """What is refused, or has no room, can be tried again in the same folder."""
    try:
        yield
    except NodeCannotStart:
        shutil.rmtree(folder / "consensus", ignore_errors=True)
        raise


@contextmanager
def _explained(config: Config) -> Iterator[None]:
    """Turn what ends a node into a line with its own code."""
    try:
        yield
    except faults.Damaged as error:
        raise NodeCannotStart(NodeExit.DAMAGED, str(error)) from error
    except faults.Unsupported as error:
        raise NodeCannotStart(NodeExit.NEWER_FORMAT, str(error)) from error
    except faults.CallRefused as error:
        raise NodeCannotStart(NodeExit.CONFIG, str(error)) from error
    except OSError as error:
        code = NodeExit.DISK_FULL if error.errno in NO_SPACE else NodeExit.FOLDER_UNWRITABLE
        story = f"{error.filename or config.folder}: {error.strerror}; nothing was changed"
        raise NodeCannotStart(code, story) from error
    except Corrupt as error:
        raise NodeCannotStart(NodeExit.DAMAGED, f"the state cannot be opened: {error}") from error
