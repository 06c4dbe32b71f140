"""Mending what a self-check has found, a piece at a time, while the state goes on.

A check looks at all of the state, as it was at one revision, and takes its time. Its differences
are then asked of the present state, each by itself and at the cost of one record: an entry is put
or deleted if its record still wants that, a counter is moved by what it was off (so whatever was
counted since then stays), a mark is moved back and never on, and what follows from one job is
computed anew. So no decision looks at more than it mends.

Nothing may be mended twice from one check: a counter would be moved twice. What depends on what was
mended differs still, and the next check finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..core.store import Reading
from ..model import keys
from ..model.difference import Difference, jid_in
from ..model.record import FlowRecord, JobRecord, MetaRecord, Record, StateRecord, encode, parse
from ..model.request import Repair, Repaired
from ..model.view import View
from ..occurrences.next_time import DELETING
from .counters import COUNTED, FACTS, MARKS, facts
from .entries import OWNERS

# Tables in which a view finds what its decision has written.
SCANNED = (keys.PARKED, keys.QUOTA_WAIT, keys.EDGE)
# Where the first one may stand that waits in a queue, which is moved back and never on; and the
# table of those that wait.
QUEUE_MARKS = {keys.FIRST_WAITING: keys.PARKED, keys.FIRST_QUOTA_WAIT: keys.QUOTA_WAIT}
# Records that go when they count nothing any more, with what they count.
EMPTIED = {keys.LIMIT_KEY: ("running", "parked"), keys.FORMER: ("live",)}


class Present:
    """The state with what this decision has written so far."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.get: Callable[[bytes], bytes | None] = self._get

    def _get(self, key: bytes) -> bytes | None:
        value: object = self._view.get_raw(key)
        assert value is None or isinstance(value, bytes | Record)
        return encode(value) if isinstance(value, Record) else value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._get(key) for key in keys]

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Whether there is something is all that is asked here."""
        scan = self._view.scan if first[:1] in SCANNED else self._view.scan_stored
        for key in scan(first, end, backwards=backwards):
            yield key, b""


def repair(view: View, request: Repair, actor: str = "") -> Repaired:
    """Mend what a check has found, as far as this decision has room."""
    present, mended = Present(view), 0
    for done, difference in enumerate(request.differences):
        if done and view.is_full:
            return Repaired(done, mended)
        mended += _mend(view, present, difference)
    return Repaired(len(request.differences), mended)


def _mend(view: View, present: Reading, difference: Difference) -> bool:
    """Whether the present state was still wrong there."""
    table = difference.key[:1]
    if table in COUNTED:
        return _count(view, present, difference, COUNTED[table])
    if table == keys.IDEMPOTENCY_BY_AGE:
        return _place(view, present, difference)
    key, wanted = difference.key, difference.wanted
    found, is_wanted = present.get(key), OWNERS[table]
    if wanted is None:
        if found is None or is_wanted(present, key, found):
            return False
        view.delete(key)
        return True
    if table in QUEUE_MARKS:
        queue = QUEUE_MARKS[table] + key[1:]
        is_behind = found is None or found > wanted
        if not is_behind or next(present.scan(queue, keys.after(queue)), None) is None:
            return False
    elif not is_wanted(present, key, wanted):
        return False
    elif table == keys.TIMER:
        # To put it again is to lower the mark of its range.
        (view.put_later if keys.timer_at(key) & keys.LATER else view.put_timer)(key)
        return True
    elif found == wanted:
        return False
    view.put_raw(key, wanted)
    return True


def _place(view: View, present: Reading, difference: Difference) -> bool:
    """The place of an answered request among all, by age."""
    key, wanted = difference.key, difference.wanted
    if present.get(key) != difference.found:
        return False
    if wanted is None:
        view.delete(key)
        return True
    value = present.get(keys.META)
    meta = parse(keys.META, value, MetaRecord) if value is not None else MetaRecord()
    place = int.from_bytes(key[1:9], "big")
    if not meta.idempotency_from <= place < meta.idempotency_next:
        return False
    if present.get(keys.idempotency(wanted)) is None:
        return False
    view.put_raw(key, wanted)
    return True


def _count(view: View, present: Reading, difference: Difference, kind: type[Record]) -> bool:
    """Move the counters of a record by what they were off when they were counted."""
    key = difference.key
    value = present.get(key)
    if value is None and difference.found is not None:
        # It went since then, with all that it counted.
        return False
    now, before = _parsed(key, value, kind), _parsed(key, difference.found, kind)
    if isinstance(now, FlowRecord) and (now.going or now.round != _round(before)):
        # Another round counts from 0.
        return False
    emptied = EMPTIED.get(key[:1], ())
    if difference.wanted is None:
        right: dict[str, object] = {
            name: max(0, getattr(now, name) - getattr(before, name)) for name in emptied
        }
    else:
        right = dict(_right(now, before, _parsed(key, difference.wanted, kind)))
    if isinstance(now, StateRecord):
        right |= _facts(view, present, jid_in(key), now)
    if all(getattr(now, name) == value for name, value in right.items()):
        return False
    for name, field in right.items():
        setattr(now, name, field)
    if emptied and not any(getattr(now, name) for name in emptied):
        view.delete(key)
    else:
        # As a record, since the leader may hold the wrong one in memory.
        view.put(key, now)
    return True


def _round(record: Record) -> int:
    assert isinstance(record, FlowRecord), "a table has one kind of record"
    return record.round


def _parsed(key: bytes, value: bytes | None, kind: type[Record]) -> Record:
    return kind() if value is None else parse(key, value, kind)


def _right(now: Record, before: Record, wanted: Record) -> Iterator[tuple[str, object]]:
    """What the present record must say where the one that was checked was wrong."""
    for name in now.__struct_fields__:
        found, right = getattr(before, name), getattr(wanted, name)
        if found == right or name in FACTS:
            continue
        held = getattr(now, name)
        yield name, min(held, right) if name in MARKS else max(0, held + right - found)


def _facts(view: View, present: Reading, jid: int, state: StateRecord) -> dict[str, object]:
    """What follows from a job, whatever was counted."""
    value = present.get(keys.job(jid))
    if value is None or state.state == DELETING:
        return {}
    return facts(present, view, jid, parse(keys.job(jid), value, JobRecord), state)
