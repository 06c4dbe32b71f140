"""What must hold in every state, beyond derived entries: nothing is lost, doubled or stuck.

A breach has no entry that mends it; it is a bug in the rules. The rules are held to this after
every test, and a node may walk it in the background.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import islice

from ...proto.v1 import flow_pb2, run_pb2
from ..core import limits
from ..core.store import Reading
from ..model import keys, phases
from ..model.difference import Breach, jid_in, record, records
from ..model.entities import job_with
from ..model.record import (
    FlowRecord,
    JobRecord,
    KeyRecord,
    LedgerRecord,
    MetaRecord,
    NamespaceRecord,
    NoticeRecord,
    QueueRecord,
    RunRecord,
    SessionRecord,
    StateRecord,
    StepRecord,
    UniqueRecord,
    UsageRecord,
    parse,
)
from ..model.view import View
from ..occurrences import next_time
from ..runs import runs
from ..tenants import namespaces

JOBS = RunRecord.PARKING_JOB
KEYS = RunRecord.PARKING_KEY


def check(store: Reading, most: int = limits.LOOKED_AT) -> list[Breach]:
    """What does not hold, at most so many breaches."""
    return list(islice(_breaches(store), most))


def _breaches(store: Reading) -> Iterator[Breach]:
    meta = record(store, keys.META, MetaRecord) or MetaRecord()
    yield from _jobs(store, meta)
    yield from _live_runs(store, meta)
    yield from _ended_runs(store, meta)
    yield from _ledgers(store)
    yield from _parked(store)
    yield from _uniques(store)
    yield from _flows(store, meta.now_ms)


def _jobs(store: Reading, meta: MetaRecord) -> Iterator[Breach]:
    for key, _, job in records(store, keys.JOB, JobRecord):
        jid = jid_in(key)
        if jid & ((1 << 40) - 1) > meta.job_serial:
            yield Breach(key, "its number was not given out")
        if store.get(keys.lane(job.lane)) is None:
            yield Breach(key, f"its lane {job.lane} is not there")
        if store.get(keys.state(jid)) is None:
            yield Breach(key, "it has no state")
    for key, _, state in records(store, keys.STATE, StateRecord):
        owner = record(store, keys.job(jid_in(key)), JobRecord)
        if owner is None:
            yield Breach(key, "the job of this state is not there")
        else:
            yield from _moves_on(store, key, owner, state)


def _moves_on(store: Reading, key: bytes, job: JobRecord, state: StateRecord) -> Iterator[Breach]:
    """A job whose schedules go on has a next time, or waits for a run that is under way."""
    is_aside = store.get(keys.broken(jid_in(key))) is not None
    if is_aside:
        if state.state not in (next_time.BROKEN, next_time.DELETING):
            yield Breach(key, f"the job {job.name} was set aside, but is not BROKEN")
        return
    if state.state == next_time.BROKEN:
        yield Breach(key, f"the job {job.name} is BROKEN, and nothing says why")
    if state.state == next_time.DELETING and not state.timer_at_ms:
        yield Breach(key, f"the job {job.name} is being deleted, and nothing goes on with it")
    ahead = next_time.ahead(state)
    if state.state == next_time.ACTIVE and state.may_finish and not ahead:
        yield Breach(key, f"the job {job.name} is ACTIVE, but nothing lies ahead of it")
    if state.state == next_time.FINISHED and ahead:
        yield Breach(key, f"the job {job.name} is FINISHED, but something lies ahead of it")
    backlog = state.backlog
    under_way = state.live > state.held
    if backlog and backlog[0].release_at_ms and state.state == next_time.ACTIVE:
        # A state that was written before has it on the job's own timer.
        goes_on = store.get(keys.catch_up(jid_in(key))) is not None
        if not goes_on and not 0 < state.timer_at_ms <= backlog[0].release_at_ms:
            yield Breach(key, f"the backlog of the job {job.name} waits, and nothing goes on")
    if backlog and not (backlog[0].release_at_ms or under_way or state.quota_wait_since_ms):
        yield Breach(key, f"the backlog of the job {job.name} waits for a run, and there is none")
    if state.state != next_time.ACTIVE or state.next_scheduled_at_ms or under_way:
        return
    view = View(store, 0)
    again = copy(state)
    behind_ms = max(state.last_scheduled_at_ms, view.now_ms)
    next_time.advance_behind(view, job_with(jid_in(key), job, again), behind_ms)
    if again.next_scheduled_at_ms:
        yield Breach(key, f"the job {job.name} has times ahead, but no next one")


def _live_runs(store: Reading, meta: MetaRecord) -> Iterator[Breach]:
    tokens: set[int] = set()
    for key, _, run in records(store, keys.RUN, RunRecord):
        jid, occurrence = keys.run_of(key)
        job = record(store, keys.job(jid), JobRecord)
        if job is None or store.get(keys.state(jid)) is None:
            yield Breach(key, "the job of this run is not there")
            continue
        former = keys.former(jid, run.action_version)
        if run.action_version != job.action_version and store.get(former) is None:
            yield Breach(key, f"what it does, as of version {run.action_version}, is not there")
        if run.phase in phases.ENDS or run.ended_at_ms:
            yield Breach(key, "it has ended, but lies among the runs under way")
        if store.get(keys.ended(jid, occurrence)) is not None:
            yield Breach(key, "it is under way and in the history")
        if run.token > meta.token:
            yield Breach(key, f"its token {run.token} was not given out yet ({meta.token})")
        if run.phase == phases.LEASED:
            if run.token in tokens or not run.token:
                yield Breach(key, f"its token {run.token} is that of another live lease, or 0")
            tokens.add(run.token)
            session = record(store, keys.session(run.worker), SessionRecord)
            if session is None or session.number != run.session:
                yield Breach(key, f"its lease is not of the present session of {run.worker}")
        yield from _reachable(store, key, run)
        yield from _carries(store, key, jid, occurrence, run)
        if not occurrence & 0xFFFF:
            yield from _recorded(store, key, jid, occurrence, run, meta)


def _carries(
    store: Reading, key: bytes, jid: int, occurrence: int, run: RunRecord
) -> Iterator[Breach]:
    if run.exempt & RunRecord.CARRIES and store.get(keys.carried(jid, occurrence)) is None:
        yield Breach(key, "what it carries is not there")


def _holds(run: RunRecord) -> Iterator[str]:
    """Where a run holds less or more than its phase says."""
    row = phases.TABLE.get(run.phase)
    if row is None or run.phase == phases.NEW:
        yield f"it is in {phases.name(run.phase)}, in which no run stands"
        return
    for name in phases.FIELDS:
        value = getattr(run, name)
        if name in row.holds and not value:
            yield f"it is {row.name} without {name}"
        elif value and name not in row.holds + row.may_hold:
            yield f"it is {row.name}, but has {name} {value}"


def _reachable(store: Reading, key: bytes, run: RunRecord) -> Iterator[Breach]:
    """Exactly one thing moves a run on, as its phase says: a worker's turn, a slot, an end before
    it, or a timer."""
    for what in _holds(run):
        yield Breach(key, what)
    for at_ms in (run.retry_at_ms, run.deadline_at_ms, run.cancel_at_ms):
        if at_ms and not 0 < run.timer_at_ms <= at_ms:
            yield Breach(key, f"nothing fires at {at_ms} (its timer stands at {run.timer_at_ms})")
    if run.phase in phases.WAITING:
        yield from _held(store, key, run)


def _held(store: Reading, key: bytes, run: RunRecord) -> Iterator[Breach]:
    """A run that was due when the clock stood still is released by the end of another one."""
    meta = record(store, keys.META, MetaRecord)
    now_ms = meta.now_ms if meta is not None else 0
    if run.phase == phases.LATER or 0 < run.timer_at_ms <= now_ms:
        if not 0 < run.timer_at_ms <= max(run.due_at_ms, now_ms):
            yield Breach(key, "it is held until it is due, but nothing fires then")
        return
    if store.get(keys.room(jid_in(key))) is not None:
        return
    jid = jid_in(key)
    state = record(store, keys.state(jid), StateRecord)
    job = record(store, keys.job(jid), JobRecord)
    if state is None or job is None or state.state == next_time.DELETING:
        return
    if state.quota_wait_since_ms or not runs.is_room(job_with(jid, job, state)):
        return
    resting = state.state in (next_time.PAUSED, next_time.BROKEN)
    if run.phase == phases.HALTED and (resting or store.get(keys.resume(jid))):
        return
    begin, end = keys.timers_from(keys.LATER), keys.timers_from(keys.LATER | now_ms + 1)
    wakes = keys.WAKE_HELD + key[1:9]
    if not any(timer.endswith(wakes) for timer, _ in store.scan(begin, end)):
        yield Breach(key, "it is held back, but there is room for it beside those under way")


def _ended_runs(store: Reading, meta: MetaRecord) -> Iterator[Breach]:
    for key, _, run in records(store, keys.ENDED, RunRecord):
        jid, occurrence = keys.ended_of(key)
        if store.get(keys.job(jid)) is None:
            yield Breach(key, "the job of this run is not there")
            continue
        if run.phase not in phases.ENDS or not run.ended_at_ms:
            yield Breach(key, "it lies in the history, but has not ended")
        for what in _holds(run):
            yield Breach(key, what)
        yield from _carries(store, key, jid, occurrence, run)
        if keys.instant(run.purge_at_ms) < run.ended_at_ms:
            yield Breach(key, "it leaves the history before it ended")
        if not occurrence & 0xFFFF:
            yield from _recorded(store, key, jid, occurrence, run, meta)


def _recorded(
    store: Reading, key: bytes, jid: int, occurrence: int, run: RunRecord,
    meta: MetaRecord,
) -> Iterator[Breach]:  # fmt: skip
    """A run that was fired has the entry in the ledger that it says it has."""
    scheduled_ms = keys.scheduled_of(occurrence)
    entry = record(store, keys.ledger(jid, scheduled_ms), LedgerRecord)
    job = record(store, keys.job(jid), JobRecord)
    if entry is None:
        assert job is not None, "the caller has asked"
        keep_ms = namespaces.keep_ledger_ms(View(store, 0), job.namespace)
        state = record(store, keys.state(jid), StateRecord)
        begin_ms = state.ledger_from_ms if state is not None else 0
        if scheduled_ms >= max(meta.now_ms - keep_ms, begin_ms):
            yield Breach(key, "the ledger does not know that it was fired")
    elif entry.outcome != run.outcome:
        names = [run_pb2.Outcome.Name(outcome) for outcome in (entry.outcome, run.outcome)]
        yield Breach(key, f"the ledger says {names[0]}, the run {names[1]}")


def _ledgers(store: Reading) -> Iterator[Breach]:
    """Each entry is of a job, has an outcome, and stretches do not overlap."""
    jid, last_ms = -1, -1
    for key, _, entry in records(store, keys.LEDGER, LedgerRecord):
        if jid_in(key) != jid:
            jid, last_ms = jid_in(key), -1
            if store.get(keys.state(jid)) is None:
                yield Breach(key, "the job of this entry is not there")
        if not entry.outcome:
            yield Breach(key, "it has no outcome")
        if entry.last_at_ms:
            if keys.scheduled_at(key) <= last_ms or entry.last_at_ms < keys.scheduled_at(key):
                yield Breach(key, "the stretch overlaps the one before, or ends before it begins")
            last_ms = entry.last_at_ms


def _parked(store: Reading) -> Iterator[Breach]:
    """Runs of a lane wait for a slot only while another run has one, or one of the lane is on its
    way to take one."""
    first, end = keys.PARKED, keys.after(keys.PARKED)
    while (entry := next(store.scan(first, end), None)) is not None:
        wait_queue = keys.wait_queue_in(entry[0])
        first = keys.after(wait_queue)
        jid, occurrence = keys.run_of(entry[0])
        run = record(store, keys.run(jid, occurrence), RunRecord)
        if run is not None and not _has_holder(store, jid, run) and not _moves(store, jid, run):
            yield Breach(
                wait_queue, f"runs of lane {run.lane} wait for a slot that nobody has or wants"
            )


def _has_holder(store: Reading, jid: int, waiting: RunRecord) -> bool:
    if waiting.parking == JOBS:
        state = record(store, keys.state(jid), StateRecord)
        return state is not None and state.running > 0
    key = keys.limit_key(keys.namespace_of(jid), waiting.limit_key)
    shared = record(store, key, KeyRecord)
    return shared is not None and shared.running > 0


def _moves(store: Reading, jid: int, waiting: RunRecord) -> bool:
    """Whether a run of the same lane will have this slot, or let the next one in.

    One that was let in by its job may wait for its key by now, and is let in by that.
    """
    first, end, shared, by_key = jid, jid + 1, "", True
    if waiting.parking == KEYS:
        number = keys.namespace_of(jid)
        first, end = keys.jid_of(number, 0), keys.jid_of(number + 1, 0)
        shared, by_key = waiting.limit_key, False
    for key, value in store.scan(keys.run(first, 0), keys.run(end, 0)):
        run = parse(key, value, RunRecord)
        takes_part = run.phase == phases.READY or (by_key and run.parking == KEYS)
        if takes_part and run.lane == waiting.lane and (not shared or run.limit_key == shared):
            return True
    return False


def _uniques(store: Reading) -> Iterator[Breach]:
    """A business key is held by a run that is under way, or for a time after its end."""
    for key, _, taken in records(store, keys.UNIQUE, UniqueRecord):
        jid, name = jid_in(key), key[9:].decode()
        run = record(store, keys.run(jid, taken.occurrence), RunRecord)
        if not taken.until_ms and (run is None or run.unique_key != name):
            yield Breach(key, "the run that holds this key is not under way")
    for key, _, run in records(store, keys.RUN, RunRecord):
        jid, occurrence = keys.run_of(key)
        # One that is to be cancelled may have lost it to the run that replaces it.
        if run.unique_key and not run.cancel_at_ms:
            held = record(store, keys.unique(jid, run.unique_key), UniqueRecord)
            if held is None or held.occurrence != occurrence:
                yield Breach(key, f"it does not hold its key {run.unique_key}")


def _flows(store: Reading, now_ms: int) -> Iterator[Breach]:
    for key, _, flow in records(store, keys.FLOW, FlowRecord):
        if flow.going:
            if not flow.timer_at_ms:
                yield Breach(key, "the time of the wave is over, and nothing goes on with it")
            continue
        if flow.notices and not 0 < keys.instant(flow.timer_at_ms) <= now_ms:
            yield Breach(key, "jobs of the wave are to hear of an end, and nothing does it")
        if not (flow.live or flow.waiting or flow.notices or flow.ended_at_ms):
            yield Breach(key, "nothing of the wave is under way or waits, but it has not ended")
        if flow.ended_at_ms and not flow.timer_at_ms:
            yield Breach(key, "the wave has ended, and nothing will forget it")
        if flow.waiting and not flow.stuck and not flow.timer_at_ms:
            yield Breach(key, "a step of the wave waits, and nothing will call it stuck")
        if flow.stuck and not flow.live and not flow.timer_at_ms:
            yield Breach(key, "the wave waits for ever, and nothing will forget it")
    for key, _, _ in records(store, keys.NOTICE, NoticeRecord):
        if store.get(keys.FLOW + key[1:17]) is None:
            yield Breach(key, "the wave of this notice is not there")
    for key, _, step in records(store, keys.STEP, StepRecord):
        if store.get(keys.FLOW + key[1:17]) is None:
            yield Breach(key, "the wave of this step is not there")
        if (step.state == flow_pb2.FlowStep.STATE_FIRED) != bool(step.occurrence):
            yield Breach(key, "a step has a run if and only if it has fired")


def check_limits(store: Reading, most: int = limits.LOOKED_AT) -> list[Breach]:
    """Where more is leased than a limit says; right after a limit was lowered this is no bug."""
    return list(islice(_exceeded(store), most))


def _limits_of_keys(store: Reading) -> dict[bytes, int]:
    """By key, the highest limit of the jobs whose runs have it. The last that was leased of them
    found room by its own, so no more can have it."""
    found: dict[bytes, int] = {}
    for key, _, run in records(store, keys.RUN, RunRecord):
        if run.limit_key and run.state == run_pb2.RUN_STATE_RUNNING:
            jid, _ = keys.run_of(key)
            job = record(store, keys.job(jid), JobRecord)
            most = job.template.spec.concurrency.key_limit if job is not None else 0
            shared = keys.limit_key(keys.namespace_of(jid), run.limit_key)
            # No limit of its own: as many as there may be.
            found[shared] = max(most or limits.CONCURRENCY, found.get(shared, 0))
    return found


def _exceeded(store: Reading) -> Iterator[Breach]:
    for key, _, job in records(store, keys.JOB, JobRecord):
        limit = job.template.spec.concurrency
        state = record(store, keys.state(jid_in(key)), StateRecord)
        if state is not None and limit.job and state.running > limit.job:
            yield Breach(key, f"{state.running} runs are leased; the limit is {limit.job}")
    most_by_key = _limits_of_keys(store)
    for key, _, record_of_key in records(store, keys.LIMIT_KEY, KeyRecord):
        most = most_by_key.get(key, 0)
        if most and record_of_key.running > most:
            yield Breach(key, f"{record_of_key.running} runs are leased; the limit is {most}")
    for key, _, queue in records(store, keys.QUEUE, QueueRecord):
        if queue.concurrency and queue.leased > queue.concurrency:
            yield Breach(key, f"{queue.leased} runs are leased; the limit is {queue.concurrency}")
    for key, _, settings in records(store, keys.NAMESPACE, NamespaceRecord):
        usage = record(store, keys.usage(settings.number), UsageRecord)
        quota = settings.settings.quota.leases
        if quota and usage is not None and usage.leased > quota:
            yield Breach(key, f"{usage.leased} runs are leased; the quota is {quota}")
