"""The derived tables, entry by entry: what each record wants there, and who wants an entry.

Both directions are walked: every record is asked for its entries, which must be there, and every
entry for its record, which must want it. Nothing is held in memory but the keys already reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...proto import secret_text
from ..core.store import Reading
from ..model import keys
from ..model.difference import Difference, jid_in, namespace_in, record, records
from ..model.phases import FAILED, LEASED, PARKED, READY
from ..model.record import (
    AccessTokenRecord,
    CatchUpRecord,
    FlowRecord,
    JobRecord,
    LaneRecord,
    MetaRecord,
    NamespaceDeletionRecord,
    ResumeRecord,
    RoomRecord,
    RunRecord,
    StateRecord,
    UniqueRecord,
    UsageRecord,
)
from ..occurrences import ledger
from ..occurrences.next_time import DELETING
from ..runs.lanes import busy_key, wait_queue_of

# Entries that a record wants: key and value.
Wanted = Iterator[tuple[bytes, bytes]]


def differences(store: Reading) -> Iterator[Difference]:
    reported: set[bytes] = set()
    for key, value in _all_wanted(store):
        found = store.get(key)
        if found != value:
            reported.add(key)
            how = "is missing" if found is None else f"holds {found!r}"
            yield Difference(key, found, value, f"the {TABLES[key[:1]]} {how}, not {value!r}")
    for table, is_wanted in OWNERS.items():
        for key, value in store.scan(table, keys.after(table)):
            if key not in reported and not is_wanted(store, key, value):
                yield Difference(key, value, None, f"nothing wants this {TABLES[table]}")
    yield from _early_timers(store)
    yield from _early_waits(store)


def _all_wanted(store: Reading) -> Wanted:
    indexed = int.from_bytes(store.get(keys.LANES_INDEXED) or b"", "big")
    for key, _, job in records(store, keys.JOB, JobRecord):
        yield from _of_job(store, jid_in(key), job)
    for key, _, state in records(store, keys.STATE, StateRecord):
        if state.timer_at_ms:
            yield keys.job_timer(state.timer_at_ms, jid_in(key)), b""
        if state.quota_wait_since_ms:
            yield _quota_wait_of(jid_in(key), state), b""
    for key, _, run in records(store, keys.RUN, RunRecord):
        yield from _of_run(*keys.run_of(key), run)
    for key, _, run in records(store, keys.ENDED, RunRecord):
        yield from _of_ended(*keys.ended_of(key), run)
    for key, _, lane in records(store, keys.LANE, LaneRecord):
        yield _index_of(lane), key[1:5]
        if lane.ready and lane.number <= indexed:
            yield busy_key(lane), b""
    for key, _, unique in records(store, keys.UNIQUE, UniqueRecord):
        if unique.until_ms:
            yield keys.unique_timer(unique.until_ms, jid_in(key), key[9:].decode()), b""
    for key, _, flow in records(store, keys.FLOW, FlowRecord):
        yield from _of_flow(*keys.run_of(key), flow)
    for key, _, deletion in records(store, keys.NAMESPACE_DELETION, NamespaceDeletionRecord):
        yield keys.namespace_deletion_timer(deletion.timer_at_ms, namespace_in(key)), b""
    for key, _, goes_on in records(store, keys.CATCH_UP, CatchUpRecord):
        yield keys.backlog_timer(goes_on.timer_at_ms, jid_in(key)), b""
    for key, _, room in records(store, keys.ROOM, RoomRecord):
        yield keys.room_timer(room.timer_at_ms, jid_in(key)), b""
    for key, _, usage in records(store, keys.USAGE, UsageRecord):
        if usage.quota_timer_ms:
            yield keys.quota_timer(usage.quota_timer_ms, namespace_in(key)), b""
    for key, _, resumed in records(store, keys.RESUME, ResumeRecord):
        yield keys.resume_timer(resumed.timer_at_ms, jid_in(key)), b""
    for key, _, token in records(store, keys.ACCESS, AccessTokenRecord):
        yield keys.secret(token.digest), key[1:]
    for key, value in store.scan(keys.FORMER_SECRET, keys.after(keys.FORMER_SECRET)):
        yield keys.secret(value[8:]), key[1:]
    # A state that was written before has them up to here only.
    known = store.get(keys.INDEXED) or keys.LEDGER
    for key, value in store.scan(keys.LEDGER, known):
        if ledger.is_stretch(key, value):
            yield keys.STRETCH + key[1:], b""


def _of_job(store: Reading, jid: int, job: JobRecord) -> Wanted:
    namespace = keys.namespace_of(jid)
    yield keys.job_name(namespace, job.name), jid.to_bytes(8, "big")
    if not _is_there(store, jid):
        return
    for dependency in job.template.spec.upstream.jobs:
        source = store.get(keys.job_name(namespace, dependency.job))
        if source is not None:
            yield keys.edge(int.from_bytes(source, "big"), jid), b""
    for name in secret_text.names_in(job.template.spec.action):
        yield keys.secret_user(namespace, name, jid), b""


def _is_there(store: Reading, jid: int) -> bool:
    """Whether others may depend on a job: on one that is being deleted they may not."""
    state = record(store, keys.state(jid), StateRecord)
    return state is not None and state.state != DELETING


def _quota_wait_of(jid: int, state: StateRecord) -> bytes:
    return keys.quota_wait(keys.namespace_of(jid), state.quota_wait_since_ms, jid)


def _of_run(jid: int, occurrence: int, run: RunRecord) -> Wanted:
    if run.timer_at_ms:
        yield keys.run_timer(run.timer_at_ms, jid, occurrence), b""
    if run.phase == READY:
        yield keys.ready(run.lane, run.rank_ms, jid, occurrence), b""
    elif run.phase == PARKED:
        yield keys.parked(wait_queue_of(jid, run), run.rank_ms, jid, occurrence), b""
    elif run.phase == LEASED:
        yield keys.lease(run.session, run.token), keys.lease_value(jid, occurrence)


def _of_ended(jid: int, occurrence: int, run: RunRecord) -> Wanted:
    yield keys.purge_timer(run.purge_at_ms, jid, occurrence), b""
    if run.phase == FAILED:
        yield keys.dead(keys.namespace_of(jid), run.ended_at_ms, jid, occurrence), b""


def _index_of(lane: LaneRecord) -> bytes:
    labels = [(label.name, label.value) for label in lane.labels]
    return keys.lane_of(lane.namespace, lane.queue, lane.priority, lane.handler, labels)


def _of_flow(jid: int, occurrence: int, flow: FlowRecord) -> Wanted:
    if not flow.going:
        yield keys.flow_by_age(keys.namespace_of(jid), flow.created_at_ms, jid, occurrence), b""
    if flow.timer_at_ms:
        yield keys.flow_timer(flow.timer_at_ms, jid, occurrence), b""


# Whether the record that an entry belongs to wants it.


def _name_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid = int.from_bytes(value, "big")
    job = record(store, keys.job(jid), JobRecord)
    return job is not None and keys.job_name(keys.namespace_of(jid), job.name) == key


def edge_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    _, downstream = keys.run_of(key)
    job = record(store, keys.job(downstream), JobRecord)
    return job is not None and (key, value) in _of_job(store, downstream, job)


def _secret_user_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid = int.from_bytes(key[-8:], "big")
    job = record(store, keys.job(jid), JobRecord)
    return job is not None and (key, value) in _of_job(store, jid, job)


def _timer_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    at_ms, kind = keys.timer_at(key), key[9:10]
    if kind == keys.WAKE_JOB:
        state = record(store, keys.state(int.from_bytes(key[10:18], "big")), StateRecord)
        return state is not None and state.timer_at_ms == at_ms
    if kind == keys.WAKE_RUN:
        run = record(store, keys.run(*keys.run_of(key)), RunRecord)
        return run is not None and run.timer_at_ms == at_ms
    if kind == keys.WAKE_PURGE:
        past = record(store, keys.ended(*keys.run_of(key)), RunRecord)
        return past is not None and past.purge_at_ms == at_ms
    if kind == keys.WAKE_UNIQUE:
        unique = record(store, keys.UNIQUE + key[10:], UniqueRecord)
        return unique is not None and unique.until_ms == at_ms
    if kind == keys.WAKE_DELETION:
        deletion = record(
            store,
            keys.namespace_deletion(int.from_bytes(key[10:18], "big")),
            NamespaceDeletionRecord,
        )
        return deletion is not None and deletion.timer_at_ms == at_ms
    if kind == keys.WAKE_RETURN:
        return store.get(keys.job(keys.run_of(key)[0])) is not None
    if kind == keys.WAKE_QUOTA:
        number = int.from_bytes(key[10:18], "big")
        usage = record(store, keys.usage(number), UsageRecord)
        return usage is not None and usage.quota_timer_ms == at_ms
    if kind in (keys.WAKE_HELD, keys.WAKE_WAVES, keys.WAKE_LIMITS):
        return store.get(keys.JOB + key[10:18]) is not None
    if kind == keys.WAKE_BACKLOG:
        goes_on = record(store, keys.CATCH_UP + key[10:], CatchUpRecord)
        return goes_on is not None and goes_on.timer_at_ms == at_ms
    if kind == keys.WAKE_RESUME:
        resumed = record(store, keys.RESUME + key[10:], ResumeRecord)
        return resumed is not None and resumed.timer_at_ms == at_ms
    if kind == keys.WAKE_ROOM:
        room = record(store, keys.ROOM + key[10:], RoomRecord)
        return room is not None and room.timer_at_ms == at_ms
    flow = record(store, keys.flow(*keys.run_of(key)), FlowRecord)
    return kind == keys.WAKE_FLOW and flow is not None and flow.timer_at_ms == at_ms


def _wanted_by_run(store: Reading, key: bytes, value: bytes) -> bool:
    jid, occurrence = keys.run_of(key)
    run = record(store, keys.run(jid, occurrence), RunRecord)
    return run is not None and (key, value) in _of_run(jid, occurrence, run)


def _lease_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid, occurrence = keys.run_of(value)
    run = record(store, keys.run(jid, occurrence), RunRecord)
    return run is not None and (key, value) in _of_run(jid, occurrence, run)


def _dead_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid, occurrence = keys.run_of(key)
    run = record(store, keys.ended(jid, occurrence), RunRecord)
    return run is not None and (key, value) in _of_ended(jid, occurrence, run)


def _lane_index_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    lane = record(store, keys.LANE + value, LaneRecord)
    return lane is not None and _index_of(lane) == key


def _busy_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    lane = record(store, keys.lane(keys.lane_in(key)), LaneRecord)
    return lane is not None and lane.ready > 0 and busy_key(lane) == key


def _flow_by_age_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid, occurrence = keys.run_of(key)
    flow = record(store, keys.flow(jid, occurrence), FlowRecord)
    return flow is not None and (key, value) in _of_flow(jid, occurrence, flow)


def _early_timers(store: Reading) -> Iterator[Difference]:
    """Timers before the mark where the scan for due ones starts would never fire."""
    meta = record(store, keys.META, MetaRecord)
    if meta is None:
        return
    ranges = [(keys.TIMER, meta.timers_from), (keys.timers_from(keys.LATER), meta.later_from)]
    for begin, mark in ranges:
        for key, value in store.scan(begin, mark) if mark else ():
            if _timer_wanted(store, key, value):
                # To put it again is to lower the mark.
                yield Difference(key, value, value, "this timer lies before the mark of its range")


def _early_waits(store: Reading) -> Iterator[Difference]:
    """What stands before the mark of its queue would wait for ever."""
    at, end = keys.PARKED, keys.after(keys.PARKED)
    while entry := next(store.scan(at, end), None):
        wait_queue = keys.wait_queue_in(entry[0])
        at, first = keys.after(wait_queue), keys.first_waiting(wait_queue)
        mark, place = store.get(first), entry[0][-keys.PLACE :]
        # An owner of a state of before has none of them.
        if mark is None and not _is_any(store, keys.owner_in(first)):
            continue
        if mark is None or mark > place:
            yield Difference(
                first, mark, place, "a run waits for a slot before the mark of its queue"
            )
    at, end = keys.QUOTA_WAIT, keys.after(keys.QUOTA_WAIT)
    while entry := next(store.scan(at, end), None):
        at, first = keys.after(entry[0][:5]), keys.FIRST_QUOTA_WAIT + entry[0][1:5]
        mark = store.get(first)
        if mark is not None and mark > entry[0]:
            yield Difference(first, mark, entry[0], "a job waits for a quota before the mark")


def _is_any(store: Reading, prefix: bytes) -> bool:
    return next(store.scan(prefix, keys.after(prefix)), None) is not None


def _first_waiting_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    return _is_any(store, keys.PARKED + keys.owner_in(key)[1:])


def _first_quota_wait_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    return _is_any(store, keys.QUOTA_WAIT + key[1:])


def _secret_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    token = record(store, keys.ACCESS + value, AccessTokenRecord)
    former = (store.get(keys.FORMER_SECRET + value) or bytes(8))[8:]
    return token is not None and key[1:] in (token.digest, former)


def _quota_wait_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    jid = int.from_bytes(key[-8:], "big")
    state = record(store, keys.state(jid), StateRecord)
    return state is not None and state.quota_wait_since_ms > 0 and _quota_wait_of(jid, state) == key


def _stretch_wanted(store: Reading, key: bytes, value: bytes) -> bool:
    place = keys.LEDGER + key[1:]
    entry = store.get(place)
    return entry is not None and ledger.is_stretch(place, entry)


OWNERS: dict[bytes, Callable[[Reading, bytes, bytes], bool]] = {
    keys.NAME: _name_wanted,
    keys.EDGE: edge_wanted,
    keys.TIMER: _timer_wanted,
    keys.READY: _wanted_by_run,
    keys.PARKED: _wanted_by_run,
    keys.LEASE: _lease_wanted,
    keys.DEAD: _dead_wanted,
    keys.LANE_OF: _lane_index_wanted,
    keys.BUSY: _busy_wanted,
    keys.FLOW_BY_AGE: _flow_by_age_wanted,
    keys.SECRET: _secret_wanted,
    keys.SECRET_USER: _secret_user_wanted,
    keys.STRETCH: _stretch_wanted,
    keys.QUOTA_WAIT: _quota_wait_wanted,
    keys.FIRST_WAITING: _first_waiting_wanted,
    keys.FIRST_QUOTA_WAIT: _first_quota_wait_wanted,
}
TABLES = {
    keys.NAME: "name of a job",
    keys.EDGE: "edge between jobs",
    keys.TIMER: "timer",
    keys.READY: "ready entry of a run",
    keys.PARKED: "parked entry of a run",
    keys.LEASE: "lease",
    keys.DEAD: "dead letter",
    keys.LANE_OF: "index entry of a lane",
    keys.BUSY: "entry of a lane with ready runs",
    keys.FLOW_BY_AGE: "place of a flow by age",
    keys.SECRET: "hash of a secret",
    keys.SECRET_USER: "job that names a secret",
    keys.STRETCH: "stretch of a ledger",
    keys.QUOTA_WAIT: "place of a job that waits for a quota",
    keys.FIRST_WAITING: "mark of a wait queue",
    keys.FIRST_QUOTA_WAIT: "mark of those that wait for a quota",
}
