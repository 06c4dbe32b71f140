"""What takes the place of the state when a backup is put back while the node runs.

The bytes of the backup stand in the state itself (calls/staging.py). Once they are sealed every
node makes tables of them in a folder beside its own, aside from the loop, and says so to the
others. When all have, one entry of the log exchanges the state on each of them: that takes a rename
and an open. A node that meets the entry without them, since it was away or was stopped, makes them
then.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...statemachine import recovery
from ...statemachine.calls import staging
from ...statemachine.core.rocks_store import RocksStore, read_through
from ...statemachine.core.store import Corrupt, Reading
from ...statemachine.machine import read_meta
from ...statemachine.model import keys
from ...statemachine.model.record import (
    MetaRecord,
    RestoredRecord,
    StagedRecord,
    SwitchRecord,
    encode,
    parse,
)
from ..raft.disk import LACKS
from . import backup

# Before the bytes of such an entry: no change begins with it.
SWITCH = b"\xc1"
CACHE_BYTES = 16 << 20
# What a node says of a stage that it could not make ready: there was no room, or why else.
FULL = "!"
FAILED = "- "
ENTRIES = 10_000  # Read between two looks.
Check = Callable[[backup.ArchiveManifest], None]


class CannotRestore(Exception):
    """What was sent cannot take the place of the state; the text says why."""


@dataclass(frozen=True)
class MadeReady:
    """Tables that wait in a folder, closed and on the disk."""

    folder: Path
    meta: MetaRecord
    restored: RestoredRecord


class _Bytes:
    """Pieces, read as a file."""

    def __init__(self, pieces: Iterator[bytes], look: Callable[[], None]) -> None:
        self._pieces, self._look, self._left = pieces, look, b""

    def read(self, size: int, /) -> bytes:
        self._look()
        found = [self._left]
        have = len(self._left)
        while have < size and (piece := next(self._pieces, None)) is not None:
            found.append(piece)
            have += len(piece)
        data = b"".join(found)
        self._left = data[size:]
        return data[:size]


def make(
    store: Reading, staged: StagedRecord, folder: Path, check: Check | None = None,
    look: Callable[[], None] = lambda: None,
) -> MadeReady:  # fmt: skip
    """Make the tables, which are the same on every node. Raises CannotRestore, as `check` may and
    `look`, which is called now and then; and OSError where there is no room."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        pieces = _Bytes(staging.pieces(store, staged.serial), look)
        manifest = backup.unpack_from(pieces, folder)
        if check is not None:
            check(manifest)
        for _ in read_through(folder, ENTRIES):
            look()
        made = _replaced(folder, manifest, staged)
    except (backup.NoBackup, Corrupt) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotRestore(str(error)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for file in (*folder.iterdir(), folder):
        sync(file)
    return made


def _replaced(folder: Path, manifest: backup.ArchiveManifest, staged: StagedRecord) -> MadeReady:
    store = RocksStore(folder, cache_bytes=CACHE_BYTES)
    try:
        was = read_meta(store)
        if wrong := backup.mismatch(was, manifest):
            raise CannotRestore(wrong)
        jobs, live = backup.count(store.scan(keys.USAGE, keys.after(keys.USAGE)))
        what = f"revision {was.revision} of {manifest.time}, cluster {manifest.cluster}"
        meta = recovery.replace(store, staged, what)
        store.flush()
    finally:
        store.close()
    restored = RestoredRecord(
        id=staged.id, cluster=manifest.cluster, taken=manifest.time, revision=was.revision,
        jobs=jobs, live_runs=live,
    )  # fmt: skip
    return MadeReady(folder, meta, restored)


def finish(made: MadeReady, order: SwitchRecord, index: int, target: Path) -> None:
    """Give the tables what the entry says and the name of the state. Raises Corrupt if they are not
    those that it speaks of."""
    if made.meta.fingerprint != order.meta.fingerprint:
        raise Corrupt(
            "the backup became another state here than on the leader, so this one may run another "
            "version; it takes the state from the others"
        )
    order.meta.applied_index = order.restored.index = index
    store = RocksStore(made.folder, cache_bytes=CACHE_BYTES)
    try:
        store.write([(keys.META, encode(order.meta)), (keys.RESTORED, encode(order.restored))], [])
        store.flush()
    finally:
        store.close()
    sync(made.folder)
    made.folder.rename(target)
    sync(target.parent)


def order_of(data: bytes) -> SwitchRecord | None:
    """What an entry of the log says of it, if it is such a one."""
    return parse(keys.RESTORED, data[1:], SwitchRecord) if data[:1] == SWITCH else None


def order(base: MetaRecord, staged: StagedRecord, made: MadeReady) -> bytes:
    """The entry, decided on a state."""
    made.restored.before = base.revision
    meta = recovery.beyond(made.meta, base)
    return SWITCH + encode(SwitchRecord(
        base=base.revision, serial=staged.serial, meta=meta, restored=made.restored,
    ))  # fmt: skip


def restored_in(store: Reading) -> RestoredRecord | None:
    """The backup that a state began from while the cluster ran."""
    value = store.get(keys.RESTORED)
    return parse(keys.RESTORED, value, RestoredRecord) if value is not None else None


def sync(path: Path) -> None:
    """Make a file or folder durable; an error ends the node, as any error of the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Preparing:
    """Makes ready what is sealed, on a thread of its own, and says how far that is."""

    def __init__(self, cluster: str, level: int, folder: Path, changed: Callable[[], None]) -> None:
        """A backup is to be of this cluster, and of at most this feature level. `changed` is called
        on that thread when there is something new to say."""
        self._cluster, self._level = cluster, level
        self._folder, self._changed = folder, changed
        self._helper = ThreadPoolExecutor(1, "restore")
        self._staged: StagedRecord | None = None
        self._making: Future[MadeReady] | None = None
        self._ends = threading.Event()

    def look(self, store: Callable[[], Reading], staged: StagedRecord | None) -> None:
        """Begin with what is sealed now. `store`: the state as it is, for a thread."""
        if self._making is not None and not self._making.done():
            return
        serial = staged.serial if staged is not None and staged.origin else 0
        if serial == self.serial:
            return
        if staged is None or not serial:
            self._staged = self._making = None
            self._helper.submit(shutil.rmtree, self._folder, ignore_errors=True)
            return
        self._staged = staged
        self._making = self._helper.submit(
            make,
            store(),
            staged,
            self._folder,
            partial(self._check, staged),
            self._may_go_on,
        )
        self._making.add_done_callback(lambda _: self._changed())

    def _check(self, staged: StagedRecord, manifest: backup.ArchiveManifest) -> None:
        if manifest.format > backup.FORMAT or manifest.feature_level > self._level:
            raise CannotRestore(
                f"it was made by version {manifest.version}; put it back into a cluster of that or "
                "a newer one"
            )
        if manifest.cluster != self._cluster and not staged.other_cluster:
            raise CannotRestore(
                f"it is of the cluster '{manifest.cluster}', and this one is '{self._cluster}'; if "
                "that is meant, say so with other_cluster (--other-cluster)"
            )

    @property
    def serial(self) -> int:
        return self._staged.serial if self._staged is not None else 0

    @property
    def progress(self) -> str:
        """For the others: the number of the stage, then its fingerprint, or what failed."""
        if self._making is None or not self._making.done():
            return ""
        error = self._making.exception()
        if isinstance(error, OSError) and error.errno in LACKS:
            return f"{self.serial} {FULL}"
        if error is not None:
            return f"{self.serial} {FAILED}{error}"
        return f"{self.serial} {self._making.result().meta.fingerprint.hex()}"

    def wait(self, serial: int) -> MadeReady | None:
        """What was made of a stage, or is being made; None if it is not here."""
        if self._making is None or serial != self.serial or self._making.exception() is not None:
            return None
        made = self._making.result()
        return made if made.folder.exists() else None

    def _may_go_on(self) -> None:
        if self._ends.is_set():
            raise CannotRestore("this node stops")

    def close(self) -> None:
        """Return once nothing is being made any more, which is soon."""
        self._ends.set()
        self._helper.shutdown()
