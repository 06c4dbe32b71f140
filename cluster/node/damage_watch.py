"""Looks for files of a running node that are not what was written, and ends it by that.

Damage of the state or of the journal ends the node: others lead on, and a note shows the next start
what it met. A snapshot is set aside, and another one is made of the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ...statemachine.core.rocks_store import RocksStore
from ...statemachine.core.store import Corrupt
from ..raft import faults, segment
from ..raft.disk import RealDisk
from ..raft.disk_errors import disk_failed
from ..raft.driver import Driver
from . import damage
from .applier import Replica
from .consensus_view import ConsensusView
from .scrub import Background, Pace, Scrub, set_stop_mark, take_stop_mark

logger = logging.getLogger(__name__)

STATE = "state"  # The folder of the state.
DOUBT = "it met damage before it ended"
JOURNAL_DOUBT = "the journal lacks entries, as this node found before it ended"
REPLACED = (
    "{path} is not the file any more that was opened at the start: it was removed or replaced "
    "under the running node, so what is written would be lost. If it was moved, put it back; else "
    "start this node while the others lead, and it takes all from them. If it befell a majority of "
    "the nodes, do not start them with empty folders: that would begin a new cluster; restore a "
    "backup"
)


class DamageWatch:
    """See the head of this file."""

    def __init__(
        self, name: str, folder: Path, rate: int, end: Callable[[BaseException], bool]
    ) -> None:
        """`end` ends the node, unless it has ended; whether it was the first to do so. Raises
        Damaged if the last process found that the journal lacks entries."""
        self._name, self._folder, self._end = name, folder, end
        self._noted = damage.noted(folder)
        if self._noted == damage.JOURNAL:
            raise faults.Damaged(f"{folder}: {JOURNAL_DOUBT}. {segment.ADVICE}")
        self.scrub = Scrub(folder)
        self._background = Background(self._scrub, self._scrub_failed, rate)
        # That of the loop, once it runs.
        self._thread = 0

    def open_state(self, snapshots: Path, cache_bytes: int) -> Replica:
        """Open the state, or set it aside and begin with an empty one."""
        in_doubt = self._noted == damage.STATE
        replica = Replica(
            self._folder / STATE, snapshots, cache_bytes=cache_bytes, damaged=self._met,
            set_aside=self._set_aside, doubt=DOUBT if in_doubt else "",
            check=None if take_stop_mark(self._folder) else self.scrub.check_at_start,
        )  # fmt: skip
        if in_doubt:
            # Once it is aside: what comes after may fail, and must not set an empty state aside.
            damage.forget(self._folder)
        return replica

    def watch(
        self, disk: RealDisk, replica: Replica, driver: Driver, consensus: ConsensusView
    ) -> None:
        """What there is to look at."""
        self._disk, self._replica = disk, replica
        self._driver, self._consensus = driver, consensus
        if self._noted == damage.SNAPSHOT:
            consensus.set_damaged_snapshots_aside()
            damage.forget(self._folder)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._background.start(hastes=self.scrub.behind)

    def stop(self) -> None:
        """On a thread, since a pass may be under way."""
        self._background.stop()

    def stopped_in_order(self) -> None:
        """All of the state is on the disk, so the next start need not read the tables."""
        try:
            set_stop_mark(self._folder)
        except OSError as error:
            # The next start reads the tables, as after a stop that was not in order.
            logger.warning("%s cannot note that it stopped in order: %s", self._name, error)

    def consensus_ended(self, error: BaseException) -> None:
        """Note what the next start should know of it."""
        if isinstance(error, faults.DiskFailed):
            # Perhaps since the folder is not there any more.
            self.look_at_files()
        elif isinstance(error, faults.Damaged):
            forgot = isinstance(error, faults.JournalDamaged)
            self._note(damage.JOURNAL if forgot else damage.SNAPSHOT, error)

    def look_at_files(self) -> None:
        """End if the files that are written are not those of the folder any more: nothing of it
        would be there after the next start."""
        ours, newest = self._disk.holds_its_lock(), self._consensus.journal.newest
        if ours and self._disk.holds(newest):
            return
        path = self._disk.root / newest if ours else self._disk.root
        error = faults.Damaged(REPLACED.format(path=path))
        self._end(error)
        if ours:
            # Else there is nothing of ours to note it in.
            self._note(damage.JOURNAL, error)

    def _met(self, error: Corrupt) -> None:
        """The store met damage, on whatever thread: no answer leaves this node any more. Who asked
        the store may make of it what he likes, so this does not rely on him."""
        if not self._thread or self._loop.is_closed():
            return  # It does not run yet, or no more: whoever asked ends with the error itself.
        if threading.get_ident() == self._thread:
            self._end_damaged(error)
        else:
            self._loop.call_soon_threadsafe(self._end_damaged, error)

    def _end_damaged(self, error: Corrupt, what: str = damage.STATE) -> None:
        reason = faults.Damaged(
            f"{error}. Others lead on; at its next start this node sets that state aside and "
            "takes another by itself, from its own snapshot or from theirs"
        )
        if self._end(reason):
            self._note(what, reason)

    def _note(self, what: str, why: BaseException) -> None:
        try:
            damage.note(self._folder, what, str(why))
        except OSError as error:
            # The next start looks by itself after such an end.
            logger.warning("%s cannot note that it met damage: %s", self._name, error)

    def _set_aside(self, name: str, why: str) -> None:
        damage.set_aside(self._folder, [f"{STATE}/{name}"], why)

    # On the thread that reads all again.

    def _scrub(self, pace: Pace) -> None:
        """One pass over all that does not change any more."""
        store, what = self._replica.store, damage.STATE
        try:
            assert isinstance(store, RocksStore)
            self.scrub.check_state(store, pace)
            what = damage.SNAPSHOT
            self.scrub.check_journal(self._consensus.journal.full_segments(), pace)
        except Corrupt as error:
            self._loop.call_soon_threadsafe(self._end_damaged, error, what)
            return
        except Exception:
            if self._replica.store is store:
                raise
            return  # Another state took its place, and the files of this one are gone.
        for manifest in self._consensus.snapshots():
            if file := self.scrub.check_snapshot(manifest, pace):
                replace = self._consensus.replace_snapshot
                self._loop.call_soon_threadsafe(replace, manifest.index, file)
        with contextlib.suppress(OSError):
            # On a full disk the next start reads through more than it must.
            self.scrub.save()
        self.scrub.pass_ended = time.time()

    def _scrub_failed(self, error: Exception) -> None:
        """A disk that cannot be read is as good as damaged."""
        self._loop.call_soon_threadsafe(self._driver.fail, disk_failed(error))
