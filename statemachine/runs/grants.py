"""Leases are granted: many runs to many workers in one change.

Workers that can take the same runs are one group. Each group looks at the first run of each lane
that it fits, and takes the one with the lowest rank. Namespaces that share workers take turns in
proportion to their weights: each lease moves a namespace back by a stride, and the one that is
furthest in front goes next. A namespace that was idle does not save its turns up.

A grant says when a queue that only its rate holds back gives again (`View.allowance_ms`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, heappushpop
from itertools import islice

from ...proto.v1 import worker_pb2
from ..core import limits
from ..core.rejection import Refused
from ..model import answers, keys
from ..model.entities import Run
from ..model.phases import ASIDE, PARKED
from ..model.record import (
    LaneRecord,
    QueueRecord,
    RunRecord,
    SessionRecord,
    UsageRecord,
)
from ..model.request import Grant, Offer
from ..model.timers import earliest
from ..model.view import View
from ..occurrences.next_time import BROKEN, DELETING
from ..tenants import idempotency, namespaces
from . import admission, lanes, leases, move, set_aside, slots

# A namespace's virtual time moves by this, divided by its weight, for each lease.
STRIDE = 1_000_000
LATEST = b"\xff" * 24
FEW_LANES = 8  # With ready runs; so few are looked through for each kind of workers.
ROUND = 32  # Runs that a group of workers takes before it is the turn of the next one.
LEAST, LEAST_OF_ALL = 16, 256  # Runs that each group, and all, may get of a grant without time.


@dataclass(slots=True)
class Source:
    """A queue while leases are granted."""

    key: bytes
    queue: QueueRecord
    # Its allowance and its instant before it was refilled for this grant.
    before: tuple[int, int]
    # It may hold runs back.
    limited: bool
    granted: int = 0


@dataclass(slots=True)
class LaneCursor:
    """A lane while leases are granted: its record, and the first run in it."""

    key: bytes
    lane: LaneRecord
    source: Source
    entries: Iterator[bytes]
    # The first entry, without table and lane; LATEST when there is none.
    head: bytes = LATEST
    entry: bytes = b""
    granted: int = 0
    # Entries that came into the lane since, as a heap.
    later: list[bytes] = field(default_factory=list)

    def advance(self) -> None:
        self.entry = next(self.entries, b"")
        if self.later:
            self.entry = heappushpop(self.later, self.entry) if self.entry else heappop(self.later)
        self.head = self.entry[lanes.MARK :] if self.entry else LATEST


@dataclass(slots=True)
class Tenant:
    """A namespace while leases are granted."""

    number: int
    usage: UsageRecord
    # Leases it may have at once by its quota; 0 for any number.
    quota: int
    stride: int
    # Its virtual time is not counted as less than this.
    floor: int = 0
    granted: int = 0
    cursors: list[LaneCursor] = field(default_factory=list)
    # See UsageRecord.lane_from: as it will be.
    lane_from: bytes = b""


@dataclass(slots=True)
class Taker:
    """A worker while leases are granted."""

    offer: Offer
    left: int
    session: SessionRecord
    leases: list[worker_pb2.Lease] = field(default_factory=list)
    # Those that it took before, under the same request id.
    before: list[worker_pb2.Lease] | None = None


def grant(view: View, request: Grant, actor: str) -> list[list[worker_pb2.Lease]]:
    """Give ready runs to the workers that offer to take some."""
    lanes.index_some(view)
    ready = Ready.at(view)
    tenants: dict[str, Tenant | None] = {}
    sessions: dict[str, SessionRecord] = {}
    takers = [
        Taker(offer, offer.credits, _session(view, offer.worker, sessions))
        for offer in request.offers
    ]
    _give_again(view, takers)
    groups: dict[object, list[Taker]] = {}
    for taker in takers:
        offer = taker.offer
        fit = (offer.namespaces, offer.queues, offer.handlers, tuple(sorted(offer.labels.items())))
        groups.setdefault(fit, []).append(taker)
    left = request.most
    # Groups take short turns, so that none takes all the time there is.
    busy = [(_tenants(view, group[0].offer, tenants, ready), group) for group in groups.values()]
    least = min(LEAST, max(1, LEAST_OF_ALL // max(1, len(busy))))
    while busy and left > 0:
        share = left if len(busy) == 1 else min(ROUND, max(1, left // len(busy)))
        still = []
        for found, group in busy:
            given = _serve(view, found, group, min(share, left), least)
            left -= given
            if given == share and left > 0:
                still.append((found, group))
        # Whoever had a turn waits for the time that is left.
        busy, least = still, 1
    for cursor in ready.cursors.values():
        _write_back(view, cursor)
    _write_back_queues(view, ready)
    for taker in takers:
        if taker.leases:
            view.put(keys.session(taker.offer.worker), taker.session)
            _remember(view, taker)
    return [taker.before or taker.leases for taker in takers]


def _give_again(view: View, takers: list[Taker]) -> None:
    """A call whose answer was lost gets the leases it took, as far as they stand, and no others."""
    seen = set()
    for taker in takers:
        request = taker.offer.request
        if request is None or not request.request_id:
            continue
        try:
            before = leases.taken(view, request)
        except Refused:
            # Its id is another request's, as `Again` says to who asks.
            before = []
        if before is not None or request.request_id in seen:
            taker.left, taker.before = 0, before
        seen.add(request.request_id)


def _remember(view: View, taker: Taker) -> None:
    request = taker.offer.request
    if request is not None and request.request_id:
        tokens = [lease.token for lease in taker.leases]
        idempotency.add_leases(view, request, taker.session.number, tokens)


def _serve(view: View, tenants: list[Tenant], group: list[Taker], most: int, least: int) -> int:
    """Lease up to `most` runs to the workers of a group; return how many. However little time there
    is, `least` are tried."""
    given = 0
    takers = [taker for taker in group if taker.left > 0]
    place = tried = 0
    while given < most and takers:
        if (tried >= least or view.has_bytes) and tried and view.is_full:
            # What is left is asked for again at once.
            view.allowance_ms = view.now_ms
            break
        tried += 1
        found = _next(tenants)
        if found is None:
            break
        tenant, cursor = found
        taker = takers[place % len(takers)]
        lease = _lease(view, tenant, cursor, taker)
        cursor.advance()
        if lease is None:
            continue
        taker.leases.append(lease)
        taker.left -= 1
        given += 1
        if taker.left:
            place += 1
        else:
            takers.remove(taker)
    for tenant in tenants:
        # A grant that gives nothing is no change.
        if tenant.granted:
            tenant.usage.lane_from = tenant.lane_from
            view.put(keys.usage(tenant.number), tenant.usage)
    return given


def _next(tenants: list[Tenant]) -> tuple[Tenant, LaneCursor] | None:
    """The namespace whose turn it is, and its lane with the lowest rank."""
    best: tuple[Tenant, LaneCursor] | None = None
    best_time = 0
    for tenant in tenants:
        usage = tenant.usage
        time = usage.virtual_time if usage.virtual_time > tenant.floor else tenant.floor
        if best is not None and time >= best_time:
            continue
        if tenant.quota and usage.leased >= tenant.quota:
            continue
        first: LaneCursor | None = None
        head = LATEST
        for cursor in tenant.cursors:
            source = cursor.source
            if cursor.head < head and not (source.limited and _is_shut(source.queue)):
                first, head = cursor, cursor.head
        if first is not None:
            best, best_time = (tenant, first), time
    return best


def _is_shut(queue: QueueRecord) -> bool:
    if queue.paused or (queue.concurrency and queue.leased >= queue.concurrency):
        return True
    return bool(queue.rate) and queue.allowance < 1000


def _lease(view: View, tenant: Tenant, cursor: LaneCursor, taker: Taker) -> worker_pb2.Lease | None:
    """Lease the first run of a lane, or park it when its job or key has no free slot. Either way it
    leaves its lane."""
    view.subject = cursor.entry
    place = keys.run_of(cursor.entry)
    run = view.runs.get(place) or view.run(place)
    view.delete(cursor.entry)
    cursor.granted += 1
    if run.job.definition.template.has_limit or run.record.limit_key:
        why = _full(view, cursor, run)
        if why:
            move.move(view, run, PARKED, slot=why)
            return None
    state = run.job.state.state
    if state >= DELETING and (state == BROKEN or set_aside.find(view, run.jid)):
        move.move(view, run, ASIDE)
        _admit_next(view, cursor, run)
        return None
    _count(tenant, cursor)
    move.lease(view, run, taker.offer.worker, taker.session)
    return answers.lease(view, run)


def _admit_next(view: View, cursor: LaneCursor, run: Run) -> None:
    """Its job was set aside; what waits behind it for a key goes on."""
    record = run.record
    if record.limit_key:
        entry = admission.admit_next(view, run, record.limit_key)
        if not record.exempt & RunRecord.KEY_OF_TRIGGER:
            view.change_run(run).limit_key = ""
        if entry is not None:
            heappush(cursor.later, entry)


def _full(view: View, cursor: LaneCursor, run: Run) -> int:
    """Whose limit keeps a run from being leased, if any."""
    before = run.record.limit_key
    why = slots.full(view, run)
    if before and (why == RunRecord.PARKING_JOB or run.record.limit_key != before):
        entry = admission.admit_next(view, run, before)
        if entry is not None:
            heappush(cursor.later, entry)
    return why


def _count(tenant: Tenant, cursor: LaneCursor) -> None:
    usage = tenant.usage
    usage.leased += 1
    if usage.virtual_time < tenant.floor:
        usage.virtual_time = tenant.floor
    usage.virtual_time += tenant.stride
    tenant.granted += 1
    source = cursor.source
    source.granted += 1
    queue = source.queue
    queue.leased += 1
    if queue.rate:
        queue.allowance -= 1000


def _tenants(
    view: View, offer: Offer, known: dict[str, Tenant | None], ready: Ready
) -> list[Tenant]:
    """The namespaces of an offer with the lanes that it fits."""
    found = []
    for name in offer.namespaces:
        if name not in known:
            known[name] = _tenant(view, name)
        whole = known[name]
        if whole is None:
            continue
        fitting, behind = _cursors(view, whole, offer, ready, whole.usage.lane_from)
        if not fitting and whole.usage.lane_from:
            fitting, behind = _cursors(view, whole, offer, ready, b"")
        if fitting:
            found.append(replace(whole, cursors=fitting, lane_from=behind))
    if len(found) > 1:
        # Who was idle starts a little in front of the others, not with all the turns it missed.
        floor = max(tenant.usage.virtual_time for tenant in found) - STRIDE
        for tenant in found:
            tenant.floor = floor
    return found


def _tenant(view: View, name: str) -> Tenant | None:
    record = namespaces.find(view, name)
    if record is None:
        return None
    usage = view.get(keys.usage(record.number), UsageRecord) or UsageRecord()
    stride = STRIDE // (record.settings.weight or limits.NAMESPACE_WEIGHT)
    return Tenant(record.number, usage, record.settings.quota.leases, stride)


def _cursors(
    view: View, tenant: Tenant, offer: Offer, ready: Ready, behind: bytes
) -> tuple[list[LaneCursor], bytes]:
    """The lanes with ready runs that an offer fits; of very many some, and behind which others are
    looked at the next time."""
    found: list[LaneCursor] = []
    for queue in ready.queues_of(tenant.number, offer.queues):
        source = ready.source(view, tenant.number, queue)
        fitting = ready.fitting(view, tenant.number, queue, offer, behind)
        if source.limited and _is_shut(source.queue):
            if next(fitting, None) is not None:
                ready.wait_for(view, source.queue)
            continue
        for key in fitting:
            found.append(ready.cursor(view, key, source))
            if len(found) == limits.LANES:
                return found, key
    return found, b""


@dataclass(slots=True)
class Ready:
    """What is ready while leases are granted."""

    # The queues with ready runs by namespace; None: there are too many to look through.
    queues: dict[int, set[str]] | None
    # All lanes with ready runs by namespace and queue; None: they are more than a few.
    few: dict[tuple[int, str], list[bytes]] | None = None
    sources: dict[tuple[int, str], Source] = field(default_factory=dict)
    cursors: dict[int, LaneCursor] = field(default_factory=dict)

    @classmethod
    def at(cls, view: View) -> Ready:
        queues: dict[int, set[str]] = {}
        first, end = keys.BUSY, keys.after(keys.BUSY)
        found = list(islice(view.scan(first, end), FEW_LANES + 1))
        if len(found) <= FEW_LANES:
            few: dict[tuple[int, str], list[bytes]] = {}
            for busy in found:
                number, queue = keys.place_of(busy)
                queues.setdefault(number, set()).add(queue)
                few.setdefault((number, queue), []).append(busy)
            return cls(queues, few)
        for _ in range(limits.BUSY_PLACES):
            key = next(view.scan(first, end), None)
            if key is None:
                return cls(queues)
            number, queue = keys.place_of(key)
            queues.setdefault(number, set()).add(queue)
            first = keys.after(keys.busy_in(number, queue))
        return cls(None)

    def queues_of(self, number: int, wanted: tuple[str, ...]) -> list[str]:
        """Of the queues that a worker pulls from, those that have ready runs."""
        if self.queues is None:
            return list(wanted)
        there = self.queues.get(number)
        return [queue for queue in wanted if queue in there] if there else []

    def fitting(
        self, view: View, number: int, queue: str, offer: Offer, behind: bytes
    ) -> Iterator[bytes]:
        """The lanes of one of these queues that an offer fits."""
        if self.few is None:
            return lanes.busy_for(view, number, queue, offer.handlers, offer.labels, behind)
        return (
            key
            for key in self.few[number, queue]
            if lanes.fits(self._lane(view, key), offer.handlers, offer.labels)
        )

    @staticmethod
    def _lane(view: View, busy: bytes) -> LaneRecord:
        return view.need(keys.lane(keys.lane_in(busy)), LaneRecord)

    def source(self, view: View, number: int, name: str) -> Source:
        source = self.sources.get((number, name))
        if source is None:
            key = keys.queue(number, name)
            queue = view.get(key, QueueRecord) or QueueRecord()
            before = (queue.allowance, queue.allowance_at_ms)
            if queue.rate:
                refill(view, queue)
            limited = bool(queue.paused or queue.concurrency or queue.rate)
            source = self.sources[number, name] = Source(key, queue, before, limited)
        return source

    def cursor(self, view: View, busy: bytes, source: Source) -> LaneCursor:
        number = keys.lane_in(busy)
        cursor = self.cursors.get(number)
        if cursor is None:
            lane = self._lane(view, busy)
            prefix = keys.ready_in(number)
            # No further than there are some: behind those that come back from a wait queue lie the
            # tombstones of all that went into it.
            entries = islice(
                view.scan(prefix + lane.ready_from, keys.after(prefix)), max(1, lane.ready)
            )
            cursor = self.cursors[number] = LaneCursor(keys.lane(number), lane, source, entries)
            cursor.advance()
        return cursor

    def wait_for(self, view: View, queue: QueueRecord) -> None:
        """Note when a queue gives again that its rate alone holds back."""
        if queue.paused or not queue.rate or queue.allowance >= 1000:
            return
        if queue.concurrency and queue.leased >= queue.concurrency:
            return
        # In thousandths, filled by the rate in each millisecond. Rounded up.
        at_ms = queue.allowance_at_ms - (queue.allowance - 1000) // queue.rate
        view.allowance_ms = earliest(view.allowance_ms, at_ms)


def refill(view: View, queue: QueueRecord) -> None:
    """A token bucket in whole thousandths, filled by the clock of the change."""
    burst = (queue.burst or queue.rate) * 1000
    passed_ms = view.now_ms - queue.allowance_at_ms
    # The time of the state was set back since: nobody knows how much has passed.
    gained = passed_ms * queue.rate if passed_ms >= 0 else burst
    queue.allowance = min(burst, queue.allowance + gained)
    queue.allowance_at_ms = view.now_ms


def _write_back(view: View, cursor: LaneCursor) -> None:
    """Write down what was taken from a lane, and where its next scan starts."""
    if not cursor.granted:
        return
    cursor.lane.ready -= cursor.granted
    cursor.lane.ready_from = cursor.head if cursor.head != LATEST else b""
    view.put(cursor.key, cursor.lane)
    if not cursor.lane.ready:
        view.delete(lanes.busy_key(cursor.lane))


def _write_back_queues(view: View, ready: Ready) -> None:
    """Write down what was taken from a queue. What gave nothing is not written, so its refill must
    not stay."""
    for cursor in ready.cursors.values():
        if cursor.head != LATEST and cursor.source.queue.rate:
            ready.wait_for(view, cursor.source.queue)
    for source in ready.sources.values():
        if source.granted:
            view.put(source.key, source.queue)
        else:
            source.queue.allowance, source.queue.allowance_at_ms = source.before


def _session(view: View, worker: str, known: dict[str, SessionRecord]) -> SessionRecord:
    """A worker's session; it is written with its first lease."""
    session = known.get(worker) or view.get(keys.session(worker), SessionRecord)
    if session is None:
        view.meta.session_serial += 1
        session = SessionRecord(number=view.meta.session_serial)
    known[worker] = session
    return session
