"""One node's copy of the state: what consensus applies, checkpoints and restores.

The state lives in a folder with a number in its name. A snapshot that comes from the leader, or a
backup that is put back, is built beside it under the next number, and counts once it has its final
name; the highest number is the state. So a crash at any moment leaves one whole state or the other.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from ...statemachine import machine
from ...statemachine.calls import staging
from ...statemachine.core.rocks_store import CACHE_BYTES, RocksStore, nobody, peek, read_whole
from ...statemachine.core.store import Corrupt, Store
from ...statemachine.model import keys
from ...statemachine.model.record import Change, MetaRecord, SwitchRecord, parse
from ..raft.disk import LACKS, file_limit
from ..raft.faults import Damaged, DiskFull, FileLimit
from ..raft.manifest import MANIFEST
from . import replacement
from .replacement import MadeReady, sync

# With the index of a change, the change, and where history stands after it.
Listener = Callable[[int, machine.Prepared, MetaRecord], None]
PREFIX = "state-"
REPLACING = "replacing"  # Where a backup is made ready to take the place of the state.
RENEWING = "renewing"  # Where a new cluster's state is made; see ops/recovery.py.


class Applied:
    """A store, and where its history stands. `apply` is what each node does with an entry."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.meta = machine.read_meta(store)
        # The backup that this state began from while the cluster ran, if there was one.
        self.restored = replacement.restored_in(store)
        self._replace_listeners: list[Callable[[], None]] = []
        # The last entry that changed something; entries decided on another state do not.
        self.changed_at = self.meta.applied_index
        self._listeners: list[Listener] = []
        # Seconds it took to write the last change.
        self.wrote_s = 0.0
        # A change that was decided here and is on its way, and the same when it is prepared.
        self._expected: tuple[bytes, Change | None] = (b"", None)
        self._prepared: machine.Prepared | None = None

    def on_change(self, listener: Listener) -> None:
        """Have a listener called on the loop after each change is applied."""
        self._listeners.append(listener)

    def on_replace(self, listener: Callable[[], None]) -> None:
        """Have a listener called on the loop when a backup has taken the place of the state."""
        self._replace_listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def applied(self) -> int:
        return self.meta.applied_index

    def expect(self, data: bytes, change: Change | None) -> None:
        """These very bytes are on their way into the log, and this is what they say."""
        self._expected, self._prepared = (data, change), None

    def prepare(self) -> None:
        """Do what can be done with what is expected, while it is on its way."""
        data, change = self._expected
        if change is not None and self._prepared is None:
            self._prepared = machine.prepare(self.store, data, change)

    def apply(self, index: int, data: bytes) -> None:
        began = perf_counter()
        if data is self._expected[0]:
            self.prepare()
        prepared, self._prepared, self._expected = self._prepared, None, (b"", None)
        if prepared is None or prepared.data is not data:
            prepared = machine.prepare(self.store, data)
        if not self._write(index, prepared):
            return
        self.changed_at = index
        self.wrote_s = perf_counter() - began
        for listener in self._listeners:
            listener(index, prepared, self.meta)

    def _write(self, index: int, prepared: machine.Prepared) -> bool:
        """Whether it changed the state. DiskFull if there was no room, and then nothing did."""
        with _room():
            try:
                self.meta = machine.write(self.store, index, prepared)
            except machine.WrongBase:
                # Its leader was deposed while it was under way, and the next decided otherwise.
                self.meta = machine.skip(self.store, index)
                return False
        return True

    def replace(self, store: Store) -> None:
        """Go on from another state, which a snapshot brought."""
        self.expect(b"", None)
        self.store = store
        self.meta = machine.read_meta(store)
        self.restored = replacement.restored_in(store)
        self.changed_at = self.meta.applied_index


@contextmanager
def _room() -> Iterator[None]:
    """What finds no room has done nothing, and comes again."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise FileLimit(file_limit()) from error
        if error.errno not in LACKS:
            raise
        raise DiskFull(str(error)) from error


class Replica(Applied):
    """The state on disk, as consensus sees it."""

    def __init__(
        self,
        folder: Path,
        snapshots: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        damaged: Callable[[Corrupt], None] = nobody,
        set_aside: Callable[[str, str], None] | None = None,
        doubt: str = "",
        check: Callable[[RocksStore], None] | None = None,
    ) -> None:
        """`damaged` is called, on any thread, with what the store finds corrupt. A state that
        cannot be believed, which `doubt` may say from the start, is handed to `set_aside` by its
        name and the reason, and an empty one is in its place; consensus gives it what it lacks.
        `check` reads a state before it is believed."""
        self._check = check
        self.folder, self.cache_bytes, self.damaged = folder, cache_bytes, damaged
        # What the paths of consensus are relative to.
        self.snapshots = snapshots
        self.retired: Store | None = None
        # Whoever makes a backup ready says what became of a stage; None: nothing yet.
        self.made_ready: Callable[[int], MadeReady | None] = lambda serial: None
        # A state that was replaced is not closed while it is written as files.
        self._copying = threading.Lock()
        self._closing: threading.Thread | None = None
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / REPLACING, ignore_errors=True)
        self.number = max(self._numbers(), default=1)
        self._remove_others()
        if doubt and set_aside is not None:
            self._set_aside(set_aside, doubt)
        try:
            self._begin()
        except Corrupt as error:
            if set_aside is None:
                raise
            self._set_aside(set_aside, str(error))
            self._begin()

    def _begin(self) -> None:
        store = self._open(self.number)
        try:
            if self._check is not None:
                self._check(store)
            super().__init__(store)
        except Corrupt:
            store.close()
            raise

    def _set_aside(self, set_aside: Callable[[str, str], None], why: str) -> None:
        set_aside(f"{PREFIX}{self.number}", why)
        # A number of its own, for whatever is known of the files of the former one.
        self.number += 1

    def checkpoint(self) -> Callable[[str], int]:
        """See the port. Most files are links to the store's own, which never change."""

        def work(folder: str) -> int:
            target = self.snapshots / folder
            made = target / "checkpoint"
            self.checkpoint_into(made)
            value = peek(made, keys.META)
            for file in sorted(made.iterdir()):
                sync(file)
                file.rename(target / file.name)
            made.rmdir()
            sync(target)
            return parse(keys.META, value, MetaRecord).applied_index if value else 0

        return work

    def checkpoint_into(self, folder: Path) -> None:
        """The same for a backup; where no `restore` is under way, on a helper."""
        with self._copying:
            checkpoint_of(self.store, folder)

    def check(self, folder: str) -> None:
        """Have the engine read all of a snapshot: digests vouch for its files as they were when it
        was made, and tables may have been damaged before that."""
        path = self.snapshots / folder
        try:
            read_whole(path)
        except Corrupt as error:
            raise Damaged(str(error)) from error

    def restore(self, folder: str) -> None:
        """Build the next state beside the present one, give it its name, then go on from it."""
        building = self.folder / "building"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        # One by one: what `copytree` raises does not say that the disk is full.
        for file in (self.snapshots / folder).iterdir():
            _link_or_copy(file, building / file.name)
        (building / MANIFEST).unlink(missing_ok=True)
        for file in building.iterdir():
            sync(file)
        sync(building)
        number = self.number + 1
        building.rename(self.folder / f"{PREFIX}{number}")
        sync(self.folder)
        # The loop may be reading from the old one at this moment; it is closed when it is not.
        fetched = self._open(number)
        self.retired = self.store
        self.replace(fetched)
        self.number = number

    def apply(self, index: int, data: bytes) -> None:
        self.let_go()
        order = replacement.order_of(data)
        if order is None:
            super().apply(index, data)
        else:
            with _room():
                self._switch(index, order)

    def let_go(self) -> None:
        """Close and remove what a snapshot took the place of; nobody reads from it any more."""
        if self.retired is not None:
            self.retired.close()
            self.retired = None
            self._remove_others()

    def _switch(self, index: int, order: SwitchRecord) -> None:
        """From here on the state is what became of a backup."""
        staged = staging.staged_in(self.store)
        if order.base != self.meta.revision or staged is None or staged.serial != order.serial:
            self.meta = machine.skip(self.store, index)
            return
        number = self.number + 1
        # What is there found no room to be opened when this entry came before.
        shutil.rmtree(self.folder / f"{PREFIX}{number}", ignore_errors=True)
        try:
            made = self.made_ready(staged.serial)
            if made is None:
                made = replacement.make(self.store, staged, self.folder / f"{REPLACING}-now")
            replacement.finish(made, order, index, self.folder / f"{PREFIX}{number}")
        except (replacement.CannotRestore, Corrupt) as error:
            # Others could: what stands here is not what was sent.
            self.damaged(Corrupt(str(error)))
            raise Damaged(str(error)) from error
        fresh, former = self._open(number), self.store
        self.replace(fresh)
        self._close_later(former, self.folder / f"{PREFIX}{self.number}")
        self.number = number
        for listener in self._replace_listeners:
            listener()

    def _close_later(self, store: Store, folder: Path) -> None:
        """What is still in memory of a state that is done with is written when it is closed."""

        def work() -> None:
            with self._copying:
                store.close()
            shutil.rmtree(folder, ignore_errors=True)

        self._wait_for_closing()
        self._closing = threading.Thread(target=work, name="close state")
        self._closing.start()

    def _wait_for_closing(self) -> None:
        if self._closing is not None:
            self._closing.join()

    def close(self) -> bool:
        """Whether all of it is on the disk now."""
        if self.retired is not None:
            self.retired.close()
        self._wait_for_closing()
        return self.store.close()

    def _open(self, number: int) -> RocksStore:
        path = self.folder / f"{PREFIX}{number}"
        return RocksStore(path, cache_bytes=self.cache_bytes, damaged=self.damaged)

    def _numbers(self) -> list[int]:
        names = [path.name for path in self.folder.iterdir() if path.name.startswith(PREFIX)]
        return sorted(int(name.removeprefix(PREFIX)) for name in names)

    def _remove_others(self) -> None:
        for path in self.folder.iterdir():
            if path.name not in (f"{PREFIX}{self.number}", REPLACING):
                shutil.rmtree(path)


def checkpoint_of(store: Store, folder: Path) -> None:
    """RocksDB makes the folder itself, and wants it not to be there."""
    assert isinstance(store, RocksStore)
    shutil.rmtree(folder, ignore_errors=True)
    store.checkpoint(folder)


def _link_or_copy(source: Path, target: Path) -> None:
    """Tables never change, so both folders can share them; RocksDB writes to the others."""
    if source.suffix == ".sst":
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
