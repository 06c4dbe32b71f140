"""The counters and low-water marks, counted anew from the records.

Jobs and their runs lie in the same order, so they are walked side by side and only one job's
counts are held. What is summed over jobs (namespaces, queues, lanes, sessions, keys, calendars,
flows) is held in memory: one number for each of those that is in use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field

from ...proto.v1 import flow_pb2
from ..core.store import Reading
from ..model import keys, phases
from ..model.difference import Difference, jid_in, namespace_in, record, records
from ..model.record import (
    CalendarRecord,
    DependsRecord,
    FlowRecord,
    FormerRecord,
    JobRecord,
    KeyRecord,
    LaneRecord,
    NoticeRecord,
    QueueRecord,
    Record,
    RunRecord,
    SessionRecord,
    StateRecord,
    StepRecord,
    UsageRecord,
    encode,
    parse,
)
from ..model.timers import earliest
from ..model.view import View
from ..occurrences.next_time import DELETING, LEFT_OUT_MS, next_wake
from ..runs.lanes import MARK
from .entries import edge_wanted

Step = flow_pb2.FlowStep
# The records that hold something derived.
COUNTED: dict[bytes, type[Record]] = {
    keys.STATE: StateRecord,
    keys.LANE: LaneRecord,
    keys.USAGE: UsageRecord,
    keys.QUEUE: QueueRecord,
    keys.SESSION: SessionRecord,
    keys.LIMIT_KEY: KeyRecord,
    keys.CALENDAR: CalendarRecord,
    keys.FLOW: FlowRecord,
    keys.FORMER: FormerRecord,
    keys.DEPENDS: DependsRecord,
}
# Where something begins: an earlier mark is as good, and a later one is wrong.
MARKS = frozenset(("live_from", "ledger_from_ms", "ready_from", "token_from"))
# What follows from a job's definition and state, however many runs it has.
FACTS = frozenset(("has_downstream", "after_end", "once", "may_finish", "timer_at_ms"))


@dataclass(slots=True)
class Totals:
    """What is summed over jobs and runs."""

    jobs: Counter[int] = field(default_factory=Counter)
    payload_bytes: Counter[int] = field(default_factory=Counter)
    backlog: Counter[int] = field(default_factory=Counter)
    # By namespace, and in it by counter; see phases.TABLE.
    by_name: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    quota_waits: Counter[int] = field(default_factory=Counter)
    ready: Counter[int] = field(default_factory=Counter)
    first_ready: dict[int, bytes] = field(default_factory=dict)
    leased_by_lane: Counter[int] = field(default_factory=Counter)
    leased_by_session: Counter[bytes] = field(default_factory=Counter)
    cancels_by_session: Counter[bytes] = field(default_factory=Counter)
    first_token: dict[bytes, int] = field(default_factory=dict)
    running_by_key: Counter[bytes] = field(default_factory=Counter)
    parked_by_key: Counter[bytes] = field(default_factory=Counter)
    jobs_by_calendar: Counter[bytes] = field(default_factory=Counter)
    live_by_flow: Counter[bytes] = field(default_factory=Counter)
    live_by_former: Counter[bytes] = field(default_factory=Counter)


@dataclass(slots=True)
class OfJob:
    """What the runs of one job add up to."""

    # By counter; see phases.TABLE.
    counts: Counter[str] = field(default_factory=Counter)
    first: int = 0
    by_action_version: Counter[int] = field(default_factory=Counter)


def differences(store: Reading) -> Iterator[Difference]:
    totals = Totals()
    yield from _states(store, totals)
    for key, _, run in records(store, keys.ENDED, RunRecord):
        namespace = keys.namespace_of(jid_in(key))
        totals.by_name[namespace].update(phases.TABLE[run.phase].in_namespace)
    yield from _usages(store, totals)
    yield from _lanes(store, totals)
    yield from _queues(store, totals)
    yield from _sessions(store, totals)
    yield from _limit_keys(store, totals)
    yield from _calendars(store, totals)
    yield from _flows(store, totals)
    yield from _depends(store)
    yield from _formers(store, totals)


def _changed(
    key: bytes, value: bytes | None, found: Record, what: str, **wanted: object
) -> Iterator[Difference]:
    """Yield a record whose derived fields differ from what was counted."""
    wrong = []
    right = copy(found)
    for name, counted in wanted.items():
        if getattr(found, name) != counted:
            wrong.append(f"{name} is {getattr(found, name)!r}, it should be {counted!r}")
            setattr(right, name, counted)
    if wrong:
        yield Difference(key, value, encode(right), f"{what}: {'; '.join(wrong)}")


def _states(store: Reading, totals: Totals) -> Iterator[Difference]:
    runs = records(store, keys.RUN, RunRecord)
    run = next(runs, None)
    for key, value, state in records(store, keys.STATE, StateRecord):
        jid, counts = jid_in(key), OfJob()
        while run is not None and run[0][1:9] <= key[1:9]:
            if run[0][1:9] == key[1:9]:
                _add_run(counts, totals, *keys.run_of(run[0]), run[2])
            run = next(runs, None)
        totals.backlog[keys.namespace_of(jid)] += sum(part.left for part in state.backlog)
        totals.quota_waits[keys.namespace_of(jid)] += bool(state.quota_wait_since_ms)
        job = record(store, keys.job(jid), JobRecord)
        if job is None:
            continue
        if state.state != DELETING:
            _add_job(totals, jid, job)
        del counts.by_action_version[job.action_version]
        for version, live in counts.by_action_version.items():
            totals.live_by_former[keys.former(jid, version)] = live
        wanted = _of_state(store, jid, job, state, counts)
        yield from _changed(key, value, state, f"the job {job.name}", **wanted)


def _add_run(counts: OfJob, totals: Totals, jid: int, occurrence: int, run: RunRecord) -> None:
    namespace = keys.namespace_of(jid)
    row = phases.TABLE[run.phase]
    counts.counts.update(row.in_job)
    counts.first = counts.first or occurrence
    counts.by_action_version[run.action_version] += 1
    # Those that wait for a key are counted there.
    counts.counts["parked"] -= run.parking == RunRecord.PARKING_KEY
    totals.by_name[namespace].update(row.in_namespace)
    if run.uncounted:
        counts.counts["later"] -= run.phase == phases.LATER
        totals.by_name[namespace]["held"] -= 1
    if run.flow_jid:
        totals.live_by_flow[keys.flow(run.flow_jid, run.flow_occurrence)] += 1
    key = keys.limit_key(namespace, run.limit_key)
    if run.limit_key:
        # Named is enough: a run that was let in takes its slot a little later.
        totals.running_by_key[key] += run.phase == phases.LEASED
    if run.parking == RunRecord.PARKING_KEY:
        totals.parked_by_key[key] += 1
    elif run.phase == phases.READY:
        totals.ready[run.lane] += 1
        mark = keys.ready(run.lane, run.rank_ms, jid, occurrence)[MARK:]
        totals.first_ready[run.lane] = min(mark, totals.first_ready.get(run.lane, mark))
    if run.phase == phases.LEASED:
        totals.leased_by_lane[run.lane] += 1
        session = keys.session(run.worker)
        totals.leased_by_session[session] += 1
        totals.cancels_by_session[session] += bool(run.cancel_at_ms)
        totals.first_token[session] = min(run.token, totals.first_token.get(session, run.token))


def _add_job(totals: Totals, jid: int, job: JobRecord) -> None:
    namespace = keys.namespace_of(jid)
    totals.jobs[namespace] += 1
    totals.payload_bytes[namespace] += len(job.full_spec().payload.data)
    for name in job.template.calendars:
        totals.jobs_by_calendar[keys.calendar(namespace, name)] += 1


def _of_state(
    store: Reading, jid: int, job: JobRecord, state: StateRecord, counts: OfJob
) -> dict[str, object]:
    """What the derived fields of a job's state must be; a valid mark is as good as any."""
    wanted: dict[str, object] = {
        **{name: counts.counts[name] for name in ("live", "running", "held", "later", "parked")},
        "former": counts.by_action_version.total(),
    }
    if counts.first and state.live_from > counts.first:
        wanted["live_from"] = counts.first
    early = store.scan(keys.ledger(jid, 0), keys.ledger(jid, state.ledger_from_ms))
    missed = next(early, None)
    if missed is not None:
        wanted["ledger_from_ms"] = keys.scheduled_at(missed[0])
    if state.state != DELETING:
        wanted |= facts(store, View(store, 0), jid, job, state)
    return wanted


def facts(
    store: Reading, view: View, jid: int, job: JobRecord, state: StateRecord
) -> dict[str, object]:
    """What the FACTS in a job's state must be; the view is of the same state."""
    edges = keys.of_job(keys.EDGE, jid)
    spec = job.full_spec()
    rests = any(schedule.HasField("after_end") for schedule in spec.schedules)
    return {
        "has_downstream": next(store.scan(edges, keys.after(edges)), None) is not None,
        "after_end": rests,
        "once": len(spec.schedules) == 1 and spec.schedules[0].HasField("once"),
        "may_finish": bool(spec.schedules) and not rests and not spec.upstream.jobs,
        "timer_at_ms": _timer_of(view, job, state),
    }


def _timer_of(view: View, job: JobRecord, state: StateRecord) -> int:
    """Where a job's timer must stand; one that is behind its time may stand behind what was due,
    and one whose calendars may leave out its next times a little later."""
    at_ms = next_wake(view, state, state.next_due_at_ms)
    latest_ms = view.now_ms + (LEFT_OUT_MS if job.template.calendars else 0)
    if 0 < at_ms <= state.timer_at_ms <= latest_ms:
        return state.timer_at_ms
    # A job that is to be deleted stands among what can wait. In a state that was written before,
    # it did so from its time on, and the timer of a job fires for its backlog, too.
    if state.timer_at_ms == keys.instant(at_ms):
        return state.timer_at_ms
    going = 0 < state.delete_at_ms <= view.now_ms and state.timer_at_ms & keys.LATER
    before_ms = earliest(at_ms, *(part.release_at_ms for part in state.backlog[:1]))
    return state.timer_at_ms if going or state.timer_at_ms == before_ms else at_ms


def _usages(store: Reading, totals: Totals) -> Iterator[Difference]:
    numbers = {namespace_in(key) for key, _ in store.scan(keys.USAGE, keys.after(keys.USAGE))}
    numbers.update(totals.jobs, totals.by_name)
    for number in sorted(numbers):
        key, counts = keys.usage(number), totals.by_name[number]
        yield from _changed(
            key, store.get(key), record(store, key, UsageRecord) or UsageRecord(),
            f"the usage of namespace {number}", jobs=totals.jobs[number], live=counts["live"],
            leased=counts["leased"], dead=counts["dead"],
            payload_bytes=totals.payload_bytes[number], backlog=totals.backlog[number],
            held=counts["held"], quota_waits=totals.quota_waits[number],
        )  # fmt: skip


def _lanes(store: Reading, totals: Totals) -> Iterator[Difference]:
    for key, value, lane in records(store, keys.LANE, LaneRecord):
        number = int.from_bytes(key[1:5], "big")
        wanted: dict[str, object] = {"ready": totals.ready[number]}
        first = totals.first_ready.get(number)
        if first is not None and lane.ready_from > first:
            wanted["ready_from"] = first
        yield from _changed(key, value, lane, f"the lane {number}", **wanted)


def _queues(store: Reading, totals: Totals) -> Iterator[Difference]:
    leased: Counter[bytes] = Counter()
    for number, count in totals.leased_by_lane.items():
        lane = record(store, keys.lane(number), LaneRecord)
        if lane is not None:
            leased[keys.queue(lane.namespace, lane.queue)] += count
    for key, value, queue in records(store, keys.QUEUE, QueueRecord):
        what = f"the queue {key[5:].decode()}"
        yield from _changed(key, value, queue, what, leased=leased[key])


def _sessions(store: Reading, totals: Totals) -> Iterator[Difference]:
    for key, value, session in records(store, keys.SESSION, SessionRecord):
        wanted: dict[str, object] = {
            "leased": totals.leased_by_session[key],
            "cancels": totals.cancels_by_session[key],
        }
        first = totals.first_token.get(key)
        if first is not None and session.token_from > first:
            wanted["token_from"] = first
        yield from _changed(key, value, session, f"the session of {key[1:].decode()}", **wanted)


def _limit_keys(store: Reading, totals: Totals) -> Iterator[Difference]:
    in_use = set(totals.running_by_key) | set(totals.parked_by_key)
    for key in sorted(in_use):
        yield from _changed(
            key, store.get(key), record(store, key, KeyRecord) or KeyRecord(),
            f"the key {key[5:].decode()}", running=totals.running_by_key[key],
            parked=totals.parked_by_key[key],
        )  # fmt: skip
    for key, value in store.scan(keys.LIMIT_KEY, keys.after(keys.LIMIT_KEY)):
        if key not in in_use:
            yield Difference(key, value, None, f"no run uses the key {key[5:].decode()}")


def _calendars(store: Reading, totals: Totals) -> Iterator[Difference]:
    for key, value, calendar in records(store, keys.CALENDAR, CalendarRecord):
        what = f"the calendar {key[5:].decode()}"
        yield from _changed(key, value, calendar, what, jobs=totals.jobs_by_calendar[key])


def _flows(store: Reading, totals: Totals) -> Iterator[Difference]:
    for key, value, flow in records(store, keys.FLOW, FlowRecord):
        if flow.going:
            continue
        steps: Counter[int] = Counter()
        prefix = keys.steps_of(*keys.run_of(key))
        for step_key, step in store.scan(prefix, keys.after(prefix)):
            found = parse(step_key, step, StepRecord)
            steps[found.state] += found.round == flow.round
        notices = 0
        prefix = keys.notices_of(*keys.run_of(key))
        for notice_key, notice in store.scan(prefix, keys.after(prefix)):
            notices += parse(notice_key, notice, NoticeRecord).round == flow.round
        yield from _changed(
            key, value, flow, "the flow", live=totals.live_by_flow[key], notices=notices,
            waiting=steps[Step.STATE_WAITING], cannot_run=steps[Step.STATE_CANNOT_RUN],
        )  # fmt: skip


def _depends(store: Reading) -> Iterator[Difference]:
    for key, value, depends in records(store, keys.DEPENDS, DependsRecord):
        prefix = keys.of_job(keys.EDGE, jid_in(key))
        found = store.scan(prefix, keys.after(prefix))
        waiting = sum(edge_wanted(store, edge, at) for edge, at in found)
        yield from _changed(key, value, depends, "what hangs on the job", dependents=waiting)


def _formers(store: Reading, totals: Totals) -> Iterator[Difference]:
    for key, value, former in records(store, keys.FORMER, FormerRecord):
        live = totals.live_by_former[key]
        if live:
            yield from _changed(key, value, former, "the former spec", live=live)
        else:
            yield Difference(key, value, None, "no run goes by this former spec; live is 0")
