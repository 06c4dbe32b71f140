"""The firing ledger: exactly one outcome for each scheduled time of a job.

What was missed during a long outage is one entry for the whole stretch, so that a job that fires
every second costs no more after a week than one that fires every hour. An entry for one scheduled
time inside a stretch, made by a backfill, takes that one out of the stretch.

Stretches stand in a table of their own as well, so that the one around a scheduled time is found
however many entries lie between. A state that was written before there was that table gets it in
small pieces (`index`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from msgspec.structs import replace

from ...proto.v1 import run_pb2
from ..core import limits
from ..model import keys
from ..model.entities import Job
from ..model.record import (
    LedgerRecord,
    ProofRecord,
    RunRecord,
    StateRecord,
    encode,
    parse,
)
from ..model.view import View
from ..schedule.plan import Plan, count_scheduled, latest_scheduled_before, names, scheduled_times
from ..tenants import namespaces

# Outcomes that stand for a run.
WITH_RUN = frozenset({run_pb2.OUTCOME_RAN, run_pb2.OUTCOME_LATE, run_pb2.OUTCOME_REPLACED})
# Outcomes after which a backfill may run the scheduled time.
BACKFILLABLE = frozenset(
    {
        run_pb2.OUTCOME_SKIPPED_OVERLAP,
        run_pb2.OUTCOME_SKIPPED_CALENDAR,
        run_pb2.OUTCOME_COALESCED,
        run_pb2.OUTCOME_MISSED,
        run_pb2.OUTCOME_SKIPPED_DEADLINE,
        run_pb2.OUTCOME_SKIPPED_QUOTA,
    }
)
# The entry for one scheduled time alone, by outcome; every run makes one.
ALONE = {number: encode(LedgerRecord(outcome=number)) for number in run_pb2.Outcome.values()}
OUTCOMES = {value: number for number, value in ALONE.items()}
PURGE = 4  # Old entries that go when a new one comes: more than come in, so it ends.
AHEAD = 2_000  # Entries ahead of the time that one change looks at.
PIECE = 1_000  # Entries that are looked at in one piece of making the table of stretches.


def record(
    view: View, job: Job, scheduled_ms: int, outcome: run_pb2.Outcome.ValueType,
    *, is_known: bool = False, proof: ProofRecord | None = None,
) -> StateRecord:  # fmt: skip
    """Record what became of a scheduled time, which may be known to have had another outcome; the
    state of its job, which was taken for that."""
    state = view.change_state(job)
    newest = scheduled_ms > state.last_scheduled_at_ms
    # A backlog is worked off while newer times fire, so a past one may be new all the same.
    if newest or not (is_known or covering(view, job.jid, scheduled_ms) is not None):
        state.fired += 1
        if newest:
            state.last_scheduled_at_ms = scheduled_ms
        if outcome not in WITH_RUN:
            state.skipped += 1
    if proof is None and outcome == run_pb2.OUTCOME_RAN:
        entry = ALONE[outcome]
    else:
        proof = proof or decided(view)
        entry = encode(LedgerRecord(outcome=outcome, proof=proof))
    view.put_encoded(keys.ledger(job.jid, scheduled_ms), entry)
    if not state.ledger_from_ms or scheduled_ms < state.ledger_from_ms:
        state.ledger_from_ms = scheduled_ms
    if newest and outcome not in WITH_RUN:
        # A run makes room when it leaves the history; this entry has none.
        purge(view, job)
    elif not newest:
        view.backfilled.add(job.jid)
    return state


def decided(view: View, due_ms: int = 0) -> ProofRecord:
    """The proof of what is decided on now."""
    return ProofRecord(view.now_ms, view.base + 1, due_ms)


def mark_added(view: View, jid: int, scheduled_ms: int) -> None:
    """Somebody added this time, so an audit is not surprised that no schedule names it."""
    view.edit(keys.ledger(jid, scheduled_ms), LedgerRecord).added = True


def correct(view: View, jid: int, scheduled_ms: int, outcome: run_pb2.Outcome.ValueType) -> None:
    """Another outcome in place of the one that was recorded, if that is kept still."""
    key = keys.ledger(jid, scheduled_ms)
    if view.get(key, LedgerRecord) is not None:
        view.edit(key, LedgerRecord).outcome = outcome


def stretch(
    view: View, job: Job, plan: Plan, first: int, last: int,
    outcome: run_pb2.Outcome.ValueType, count: int = 0, proof: ProofRecord | None = None,
) -> None:  # fmt: skip
    """Record what became of all times from one to another that have no entry of their own, which
    are so many if the caller knows."""
    state = job.state
    proof = proof or decided(view)
    own = own_entries(view, job, first, last)
    # Of several schedules a count is exact up to some number only, and so is the difference of two.
    if own or not count or len(plan.repeats) + len(plan.onces) > 1:
        # The first may follow from the end of a run, and then no count finds it.
        behind = count_scheduled(plan, first + 1, last + 1)
        count = max(1 + behind.number - len(own), 0 if behind.exact else 2)
    if own and own[0] == first:
        # Among so many at least one has none.
        known = set(own)
        times = scheduled_times(plan, first + 1, last + 1, len(own)).times
        first = next((at_ms for at_ms in times if at_ms not in known), last)
        proof = replace(proof, due_at_ms=0)
    if count < 1:
        return
    state = record(view, job, first, outcome, proof=proof)
    if count > 1:
        entry = LedgerRecord(
            outcome=outcome, last_at_ms=last, count=count, made_in=view.base + 1, proof=proof
        )
        _put_stretch(view, job.jid, first, entry)
        state.fired += count - 1
        state.skipped += count - 1
        state.last_scheduled_at_ms = max(last, state.last_scheduled_at_ms)


def _put_stretch(view: View, jid: int, first: int, entry: LedgerRecord) -> None:
    view.put(keys.ledger(jid, first), entry)
    view.put_raw(keys.stretch(jid, first))


def knows(view: View, jid: int, scheduled_ms: int) -> bool:
    """Whether a scheduled time has an entry of its own."""
    return view.get(keys.ledger(jid, scheduled_ms), LedgerRecord) is not None


def own_entries(view: View, job: Job, first: int, last: int) -> list[int]:
    """The scheduled times of a range that have an entry of their own, in order, less those that
    somebody added. Ahead of what was decided on these are only those that were moved to before
    their time."""
    if job.state.last_scheduled_at_ms < first:
        return []
    found = []
    for key, value in _entries(view, keys.ledger(job.jid, first), keys.ledger(job.jid, last + 1)):
        if value not in OUTCOMES:
            entry = parse(key, value, LedgerRecord) if value else view.get(key, LedgerRecord)
            if entry is None or entry.added:
                continue
        found.append(keys.scheduled_at(key))
    return found


def _entries(view: View, low: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
    """What is stored in a range of the ledger; b"" for what this decision has written or deleted,
    of which the view knows more."""
    stored = view.stored.scan(low, end)
    mine = dict.fromkeys(view.touched_between(low, end), b"")
    return sorted((dict(stored) | mine).items()) if mine else stored


def covering(view: View, jid: int, scheduled_ms: int) -> tuple[int, LedgerRecord] | None:
    """The entry that speaks of a scheduled time: its own, or a stretch around it."""
    own = view.get(keys.ledger(jid, scheduled_ms), LedgerRecord)
    if own is not None:
        return scheduled_ms, own
    return reaching(view, jid, scheduled_ms)


def reaching(view: View, jid: int, at_ms: int) -> tuple[int, LedgerRecord] | None:
    """The stretch that begins before an instant and reaches to it or beyond."""
    first = _stretch_before(view, jid, at_ms)
    if first is None:
        return None
    entry = view.need(keys.ledger(jid, first), LedgerRecord)
    return (first, entry) if entry.last_at_ms >= at_ms else None


def _stretch_before(view: View, jid: int, scheduled_ms: int) -> int | None:
    """Where the last stretch begins that begins before a scheduled time."""
    low, end = keys.stretch(jid, 0), keys.stretch(jid, scheduled_ms)
    key = next(view.scan(low, end, backwards=True), None)
    found = None if key is None else keys.scheduled_at(key)
    mark = _indexed_to(view)
    if mark >= keys.LEDGER_END:
        return found
    # A state of before: what is not in the table yet has to be walked over.
    low = max(mark, keys.ledger(jid, found or 0))
    for key in _stretches(view, low, keys.ledger(jid, scheduled_ms), backwards=True):
        return keys.scheduled_at(key)
    return found


def _stretches(view: View, low: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
    """The stored entries of a range that still are stretches."""
    for key, value in view.stored.scan(low, end, backwards=backwards):
        if value not in OUTCOMES:
            entry = view.get(key, LedgerRecord)
            if entry is not None and entry.last_at_ms:
                yield key


def _indexed_to(view: View) -> bytes:
    """All stretches before this key of the ledger stand in their table."""
    return view.get_raw(keys.INDEXED) or keys.LEDGER


def index(view: View) -> None:
    """Go on with the table of stretches, in a state that was written before there was one."""
    low = _indexed_to(view)
    if low >= keys.LEDGER_END:
        return
    piece = [key for key, _ in islice(view.stored.scan(low, keys.LEDGER_END), PIECE + 1)]
    end = piece[PIECE] if len(piece) > PIECE else keys.LEDGER_END
    for key in _stretches(view, low, end):
        view.put_raw(keys.STRETCH + key[1:])
    view.put_raw(keys.INDEXED, end)


def is_stretch(key: bytes, value: bytes) -> bool:
    """Whether a stored entry speaks of many scheduled times."""
    return value not in OUTCOMES and bool(parse(key, value, LedgerRecord).last_at_ms)


def few_ahead(view: View, jid: int, at_ms: int, table: bytes) -> bool:
    """Whether one change can look at all entries of a job, or stretches, behind an instant."""
    first = keys.stretch(jid, at_ms) if table == keys.STRETCH else keys.ledger(jid, at_ms)
    found = view.stored.scan(first, keys.after(keys.of_job(table, jid)))
    return len(list(islice(found, AHEAD + 1))) <= AHEAD and _indexed_to(view) >= keys.LEDGER_END


def cut(view: View, job: Job, plan: Plan, at_ms: int) -> None:
    """End all stretches at an instant, so that what is behind it is decided on again; there are few
    (`few_ahead`)."""
    low, end = keys.stretch(job.jid, at_ms + 1), keys.after(keys.of_job(keys.STRETCH, job.jid))
    firsts = [keys.scheduled_at(key) for key in view.scan(low, end)]
    begun = _stretch_before(view, job.jid, at_ms + 1)
    if (
        begun is not None
        and view.need(keys.ledger(job.jid, begun), LedgerRecord).last_at_ms > at_ms
    ):
        firsts.append(begun)
    for first in firsts:
        entry, state = drop(view, keys.ledger(job.jid, first)), view.change_state(job)
        state.fired -= entry.count
        state.skipped -= entry.count
        if first <= at_ms:
            last = latest_scheduled_before(plan, at_ms + 1, ever=True) or first
            last = max(first, last)
            stretch(view, job, plan, first, last, entry.outcome, proof=entry.proof)


def mark_ahead(view: View, job: Job, plan: Plan, at_ms: int) -> None:
    """Other schedules need not name the times that were decided on ahead of them; there are few.
    One that had only missed its schedules is open again when these name it."""
    low, end = keys.ledger(job.jid, at_ms + 1), keys.after(keys.of_job(keys.LEDGER, job.jid))
    for key in [key for key, _ in _entries(view, low, end)]:
        entry = view.get(key, LedgerRecord)
        if entry is None or entry.last_at_ms:
            continue
        is_named = names(plan, keys.scheduled_at(key))
        if is_named and entry.added and entry.outcome == run_pb2.OUTCOME_MISSED:
            drop(view, key)
            state = view.change_state(job)
            state.fired -= 1
            state.skipped -= 1
        else:
            view.edit(key, LedgerRecord).added = not is_named


def drop(view: View, key: bytes) -> LedgerRecord:
    """Take an entry out of the ledger."""
    entry = view.need(key, LedgerRecord)
    if entry.last_at_ms:
        view.delete_raw(keys.STRETCH + key[1:])
    view.delete(key)
    return entry


def backfillable(view: View, job: Job, times: list[int]) -> list[int]:
    """Those of some scheduled times, in order, that may run, as far as the ledger knows; it is read
    once for all of them. `may_backfill` is asked again for each when its turn comes."""
    alone, stretches = _read(view, job.jid, times[0], times[-1])
    purged_ms = job.state.ledger_purged_ms
    # Of what is older than the job, and was purged, only the history may know.
    forgotten = times[0] < min(purged_ms, job.definition.created_at_ms) and _has_runs(
        view, job.jid, times
    )
    found, place = [], 0
    for at_ms in times:
        outcome = alone.get(at_ms)
        if outcome is None and stretches:
            while place < len(stretches) and stretches[place][1].last_at_ms < at_ms:
                place += 1
            if place < len(stretches) and stretches[place][0] <= at_ms:
                outcome = stretches[place][1].outcome
        if outcome is None and at_ms < purged_ms:
            older = at_ms < job.definition.created_at_ms
            if older and not (forgotten and not may_backfill(view, job, at_ms)):
                found.append(at_ms)
        elif outcome is None or outcome in BACKFILLABLE:
            found.append(at_ms)
    return found


def _has_runs(view: View, jid: int, times: list[int]) -> bool:
    """Whether a run of a range of scheduled times is under way or in the history."""
    first, end = keys.occurrence_of(times[0]), keys.occurrence_of(times[-1] + 1)
    live = view.scan(keys.run(jid, first), keys.run(jid, end))
    newest, behind = keys.ended(jid, end), keys.after(keys.ended(jid, first))
    past = chain(view.scan_stored(newest, behind), view.touched_between(newest, behind))
    return next(chain(live, past), None) is not None


def _read(
    view: View, jid: int, first: int, last: int
) -> tuple[dict[int, int], list[tuple[int, LedgerRecord]]]:
    """What the ledger says of a range: the outcomes of times alone, and stretches in order."""
    alone: dict[int, int] = {}
    stretches: list[tuple[int, LedgerRecord]] = []
    before = covering(view, jid, first)
    if before is not None and before[0] < first:
        stretches.append(before)
    for key, value in _entries(view, keys.ledger(jid, first), keys.ledger(jid, last + 1)):
        outcome = OUTCOMES.get(value)
        if outcome is not None:
            alone[keys.scheduled_at(key)] = outcome
            continue
        entry = view.get(key, LedgerRecord)
        if entry is not None and entry.last_at_ms:
            stretches.append((keys.scheduled_at(key), entry))
        elif entry is not None:
            alone[keys.scheduled_at(key)] = entry.outcome
    return alone, stretches


def may_backfill(view: View, job: Job, scheduled_ms: int) -> bool:
    """Whether a past scheduled time may still run: it has no run, now or ever."""
    found = covering(view, job.jid, scheduled_ms)
    if found is None and job.definition.created_at_ms <= scheduled_ms < job.state.ledger_purged_ms:
        # Nobody knows any more whether it ran.
        return False
    if found is not None and found[1].outcome not in BACKFILLABLE:
        return False
    # The ledger may be kept for a shorter time than runs are.
    occurrence = keys.occurrence_of(scheduled_ms)
    if view.get(keys.run(job.jid, occurrence), RunRecord) is not None:
        return False
    past = view.get(keys.ended(job.jid, occurrence), RunRecord)
    return past is None or past.state == run_pb2.RUN_STATE_SKIPPED


def take_out(
    view: View, job: Job, plan: Plan, scheduled_ms: int, *, is_named: bool = False
) -> bool:
    """A scheduled time of a stretch is to have an entry of its own, which the caller makes. Whether
    it had an outcome, there or alone. `is_named`: it is one of them for certain."""
    found = covering(view, job.jid, scheduled_ms)
    if found is None or not found[1].last_at_ms:
        return found is not None
    first, entry = found
    is_former = first <= job.definition.schedules_since_ms
    is_end = scheduled_ms in (first, entry.last_at_ms)
    if not (is_end or is_named) and (is_former or not names(plan, scheduled_ms)):
        # It is none of them; of what came under other schedules only the ends are known.
        return False
    entry.count -= 1
    if first != scheduled_ms and entry.count > 0:
        view.put(keys.ledger(job.jid, first), entry)
        return True
    drop(view, keys.ledger(job.jid, first))
    if entry.count > 0:
        second = first + 1 if is_former else _second(view, job.jid, plan, first, entry.last_at_ms)
        entry.proof = replace(entry.proof, due_at_ms=0) if entry.proof else None
        _put_stretch(view, job.jid, second, entry)
    return True


def _second(view: View, jid: int, plan: Plan, first: int, last: int) -> int:
    """Where a stretch begins when its first scheduled time is taken out. What lies behind may have
    entries of its own; behind a step of these it begins in any case, and they lie inside it."""
    if last <= plan.since_ms:
        # Its times are those of other schedules: which of them are left nobody knows.
        return first + 1
    at_ms = first
    for _ in range(limits.STEP):
        named = scheduled_times(plan, at_ms + 1, last + 1, 1, ever=True).times
        if not named:
            return first + 1
        [at_ms] = named
        if not knows(view, jid, at_ms):
            return at_ms
    return at_ms + 1 if at_ms < last else first + 1


def oldest(view: View, job: Job, most: int) -> list[bytes]:
    first = keys.ledger(job.jid, job.state.ledger_from_ms)
    return list(
        islice(view.scan_stored(first, keys.after(keys.of_job(keys.LEDGER, job.jid))), most)
    )


def purge(view: View, job: Job, most: int = PURGE) -> int:
    """Drop a few entries that are older than the namespace keeps.

    The answer is when the oldest of the others has had its time; 0 when there are none.
    """
    state = job.state
    keep_ms = namespaces.keep_ledger_ms(view, job.definition.namespace)
    edge_ms = view.now_ms - keep_ms
    if job.jid in view.backfilled:
        # What this decision has put among the old entries is not stored yet: the mark must wait.
        return view.now_ms + limits.MINUTE_MS
    if 0 < state.ledger_from_ms < edge_ms:
        for key in oldest(view, job, most):
            entry = view.need(key, LedgerRecord)
            at_ms = keys.scheduled_at(key)
            last_ms = max(at_ms, entry.last_at_ms)
            if last_ms >= edge_ms:
                if state.ledger_from_ms != at_ms:
                    view.change_state(job).ledger_from_ms = at_ms
                return last_ms + keep_ms + 1
            drop(view, key)
            state = view.change_state(job)
            state.ledger_from_ms = at_ms + 1
            state.ledger_purged_ms = max(state.ledger_purged_ms, last_ms + 1)
    if not state.ledger_from_ms or state.ledger_from_ms > state.last_scheduled_at_ms:
        return 0
    return max(state.ledger_from_ms + keep_ms, view.now_ms) + 1
