"""The events of the cluster, read from the kept part of the journal.

Nothing is written for events: an entry of the journal that was applied is a change, and each node
derives the same events from it. A watcher asks for the change behind the last one it has seen. The
newest changes are derived once for all watchers; whoever is behind reads on from the journal, at
its own pace, so a slow one costs nothing but its place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ...proto.v1 import event_pb2
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.core.store import Reading, Store
from ...statemachine.machine import Prepared
from ...statemachine.model.record import MetaRecord, RestoredRecord
from ...statemachine.piecewise import FATAL
from ...statemachine.reads import events
from ..raft.journal import COMMAND, Entry
from . import refusals

# What changes that were derived hold in memory, and what an event does besides its bytes. A failure
# with its trace has 20 kB, and an event that says next to nothing 1.5.
CACHE_BYTES = 16 << 20
EVENT_BYTES = 1_500
# Beyond this a change is derived on the helper: it would hold the loop up for too long.
INLINE_BYTES = 16 << 10
PLACES = 4_096  # Revisions whose place in the journal is remembered.
# Changes that are derived at once, each of which holds its bytes and a snapshot of the state.
DERIVED_AT_ONCE = 4


class Head(msgspec.Struct, array_like=True):
    """The beginning of a change: what it was decided on."""

    format: int
    base: int


_HEAD = msgspec.msgpack.Decoder(Head)


class EntryLog(Protocol):
    """The journal, as far as it is needed here."""

    base_index: int

    def entries(self, first: int, last: int, size: int) -> list[Entry]: ...


class AppliedState(Protocol):
    """What the node has applied."""

    @property
    def meta(self) -> MetaRecord: ...

    def on_change(self, listener: Callable[[int, Prepared, MetaRecord], None]) -> None: ...

    def forget(self, listener: Callable[[int, Prepared, MetaRecord], None]) -> None: ...

    @property
    def store(self) -> Store: ...

    @property
    def restored(self) -> RestoredRecord | None: ...

    def on_replace(self, listener: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """What happened in one change."""

    revision: int
    events: list[event_pb2.Event]
    # What it holds in memory, about.
    size: int
    _by_namespace: dict[str, list[event_pb2.Event]] = field(default_factory=dict)

    def of(self, namespace: str) -> list[event_pb2.Event]:
        """Those of a namespace (empty: all). They are sorted out once for all who watch."""
        if not namespace:
            return self.events
        if not self._by_namespace:
            for event in self.events:
                self._by_namespace.setdefault(event.namespace, []).append(event)
        return self._by_namespace.get(namespace, [])


class EventFeed:
    """Events by revision, on one loop."""

    def __init__(
        self, state: AppliedState, log: EntryLog, failed: Callable[[str, Exception], None]
    ) -> None:
        self._state = state
        # Hears of each event that cannot be derived; its watchers go on without.
        self._failed = failed
        self._log = log
        self._cache: OrderedDict[int, ChangeEvents] = OrderedDict()
        self._cached = 0
        self._places: OrderedDict[int, int] = OrderedDict()
        self._deriving: dict[int, asyncio.Future[ChangeEvents]] = {}
        self._turns = asyncio.Semaphore(DERIVED_AT_ONCE)
        self._changed = asyncio.Event()
        self._helper = ThreadPoolExecutor(1, "events")
        self._oldest = (-1, 0)
        # Watchers that wait; without any, a change that is applied costs nothing here.
        self._waiting = 0
        state.on_change(self._applied)
        state.on_replace(self._replaced)

    @property
    def revision(self) -> int:
        """The newest change."""
        return self._state.meta.revision

    def oldest(self) -> int:
        """The oldest revision whose events can still be derived; the next one if there is none."""
        base = self._base
        if self._oldest[0] != base:
            found = self._first(base + 1)
            if found is None:
                return self.revision + 1
            self._oldest = (base, found[1])
        return self._oldest[1]

    async def wait(self, timeout: float) -> None:
        """Return when something was applied, or it is time to look up, or after a while."""
        changed = self._changed
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def wake(self) -> None:
        """Let all watchers look at what else may have changed, such as a stop of the node."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def events_of(self, revision: int) -> ChangeEvents:
        """What happened in a change that was applied; REVISION_GONE if nobody knows any more."""
        derived = self._cache.get(revision)
        if derived is not None:
            self._cache.move_to_end(revision)
            return derived
        future = self._deriving.get(revision)
        if future is None:
            future = asyncio.ensure_future(self._derive(revision))
            self._deriving[revision] = future
            future.add_done_callback(lambda _: self._deriving.pop(revision, None))
        # One watcher that leaves must not end it for the others.
        return await asyncio.shield(future)

    def close(self) -> None:
        self._state.forget(self._applied)
        self._helper.shutdown(wait=False, cancel_futures=True)

    def _applied(self, index: int, prepared: Prepared, meta: MetaRecord) -> None:
        self._note(meta.revision, index)
        if self._waiting:
            self.wake()

    def _replaced(self) -> None:
        """What was derived of the state before is not shown any more."""
        self._cache.clear()
        self._places.clear()
        self._cached = 0
        self.wake()

    @property
    def _base(self) -> int:
        """What this state shows begins behind this entry."""
        restored = self._state.restored
        return max(self._log.base_index, restored.index if restored is not None else 0)

    def _note(self, revision: int, index: int) -> None:
        self._places[revision] = index
        if len(self._places) > PLACES:
            self._places.popitem(last=False)

    async def _derive(self, revision: int) -> ChangeEvents:
        async with self._turns:
            data = self._change(revision)
            if len(data) <= INLINE_BYTES:
                derived, failures = derive(data, revision, self._state.store)
            else:
                reading = self._state.store.snapshot()
                derived, failures = await asyncio.get_running_loop().run_in_executor(
                    self._helper, derive, data, revision, reading
                )
        for error in failures:
            self._failed(f"an event of revision {revision}", error)
        self._cache[revision] = derived
        self._cached += derived.size
        while self._cached > CACHE_BYTES and len(self._cache) > 1:
            _, old = self._cache.popitem(last=False)
            self._cached -= old.size
        return derived

    def _change(self, revision: int) -> bytes:
        """The bytes of a change, from the journal."""
        oldest = self.oldest()
        if revision < oldest:
            raise gone(oldest)
        index = self._places.get(revision) or self._search(revision)
        found = self._first(index, revision)
        if found is None or found[1] != revision:
            # What was not applied stands in the way of halving; that is rare, so look at all.
            found = self._first(self._base + 1, revision, exactly=True)
        if found is None:
            raise gone(self.oldest())
        self._note(revision, found[0])
        return found[2]

    def _search(self, revision: int) -> int:
        """An index at or shortly before the entry that made a revision.

        The place of the change before answers at once, and is the usual case; else the journal is
        halved until it is found.
        """
        before = self._places.get(revision - 1)
        if before is not None and before > self._base:
            return before + 1
        low, high = self._base + 1, self._state.meta.applied_index + 1
        while low < high:
            middle = (low + high) // 2
            found = self._first(middle)
            if found is None or found[1] >= revision:
                high = middle
            else:
                low = middle + 1
        return low

    def _first(
        self, index: int, least: int = 0, *, exactly: bool = False
    ) -> tuple[int, int, bytes] | None:
        """Index, revision and bytes of the first change at or behind an index, and of at least
        that revision. Of several that name one revision the first was applied, and the others
        fitted no state."""
        last = self._state.meta.applied_index
        index = max(index, self._base + 1)
        while index <= last:
            [entry] = self._log.entries(index, index, 1)
            if entry.kind == COMMAND:
                revision = _HEAD.decode(entry.data).base + 1
                if revision == least or (revision > least and not exactly):
                    return index, revision, entry.data
            index += 1
        return None


def derive(data: bytes, revision: int, state: Reading) -> tuple[ChangeEvents, list[Exception]]:
    """What happened in a change, and what failed of it."""
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        if isinstance(error, FATAL):
            raise error
        failures.append(error)

    found = events.events(data, revision, state, failed)
    size = EVENT_BYTES + sum(EVENT_BYTES + one.ByteSize() for one in found)
    return ChangeEvents(revision, found, size), failures


def gone(oldest: int) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_REVISION_GONE,
        f"the events before revision {oldest} are gone; list what you need anew, then watch from "
        "the revision of that list",
        oldest=f"{oldest}.0",
    )
