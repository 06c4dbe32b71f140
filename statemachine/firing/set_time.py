"""The state's time is set back, after clocks that were ahead have moved it.

Time in the state never goes back by itself, so while it is ahead of the clocks nothing that was
planned comes to pass. Setting it back decides no scheduled time anew: each job goes on behind the
last one it decided, unless it is brought back (bring_back.py), and what was planned by the wrong
time is moved with it.

It is the only change whose time is before that of the state, and is known by its note in the audit
log. Jobs that go on ahead do so until they are resumed or get other schedules. Leases, retries and
grace periods that began by the wrong time move with it, 500 timers a change. A backlog and a
deletion that were under way go on. The order of runs that became ready meanwhile stays.
"""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import cluster_pb2
from ..core import limits
from ..core.rejection import Reason, Refused
from ..core.store import Reading
from ..model import keys
from ..model.phases import WAITING
from ..model.record import AuditEntryRecord, Change, StateRecord, parse
from ..model.request import FireTimer, SetTime, TimeSet
from ..model.view import View
from ..occurrences import next_time
from ..runs import move
from ..tenants import audit_log, namespaces
from . import dispatch

METHOD = "SetStateTime"
LEAST_MS = 1_000  # A state this little ahead is there before anybody has typed the command.
PACE_MS = limits.MINUTE_MS  # The next of a backlog is at most so far ahead, or waits.
RUNS = 500  # Whose timers are looked at in one change.
Consequences = cluster_pb2.SetStateTimeResponse


def set_time(view: View, request: SetTime, actor: str) -> TimeSet:
    """Set the time back; then move, some at a time, what runs wait for."""
    if not request.after:
        _set_back(view, request, actor)
    first = request.after + b"\0" if request.after else keys.timers_from(request.to_ms)
    found = list(islice(view.scan_stored(first, keys.after(keys.TIMER)), RUNS + 1))
    for done, key in enumerate(found[:RUNS]):
        if done and view.is_full:
            return TimeSet(found[done - 1])
        is_job = key[9:10] in (keys.WAKE_JOB, keys.WAKE_BACKLOG)
        if key[9:10] == keys.WAKE_RUN:
            _move_run(view, *keys.run_of(key), request.from_ms - request.to_ms)
        elif is_job and keys.instant(keys.timer_at(key)) <= request.from_ms + PACE_MS:
            _move_job(view, int.from_bytes(key[10:18], "big"), request.from_ms - request.to_ms)
        elif (
            key[9:10] != keys.WAKE_PURGE
            and keys.LATER < keys.timer_at(key) <= keys.LATER | request.from_ms
        ):
            # Work in steps goes on at once.
            dispatch.fire_timer(view, FireTimer(key), actor)
    return TimeSet(found[RUNS - 1] if len(found) > RUNS else b"")


def _set_back(view: View, request: SetTime, actor: str) -> None:
    from_ms, to_ms = view.now_ms, request.to_ms
    if from_ms - to_ms < LEAST_MS:
        raise Refused.because(
            Reason.ERROR_REASON_FIELD_INVALID,
            "the state's time is not ahead of the clocks, so there is nothing to set back",
            field="",
        )
    view.set_back(to_ms)
    # Jobs may have decided further ahead by the clocks of a time before.
    furthest_ms = max(set_back_from(view.stored), from_ms)
    view.put_raw(keys.SET_BACK, furthest_ms.to_bytes(8, "big"))
    for key, _ in view.stored.scan(keys.USAGE, keys.after(keys.USAGE)):
        usage = namespaces.usage_of(view, int.from_bytes(key[1:5], "big") << keys.SERIAL_BITS)
        usage.backlog_free_us = min(usage.backlog_free_us, to_ms * 1000)
    detail = f"{from_ms - to_ms} ms back"
    audit_log.add(view, actor, METHOD, "", "cluster", request.request, detail)


def _move_run(view: View, jid: int, occurrence: int, back_ms: int) -> None:
    run = view.run((jid, occurrence))
    # The timer of one that waits is the instant at which it is due.
    if run.record.phase not in WAITING:
        move.set_back(view, run, back_ms)


def _move_job(view: View, jid: int, back_ms: int) -> None:
    """A job that waited for the quota, or goes, or has a backlog, is not to wait until the wrong
    time comes again."""
    now_ms, job = view.now_ms, view.job(jid)
    if job.state.backlog:
        for part in view.change_state(job).backlog:
            if part.release_at_ms > now_ms:
                part.release_at_ms = max(now_ms, part.release_at_ms - back_ms)
    next_time.reschedule(view, job)


def set_back_from(store: Reading) -> int:
    """From what time the state was set back, the furthest; 0 if never."""
    return int.from_bytes(store.get(keys.SET_BACK) or b"", "big")


def may_set_back(change: Change) -> bool:
    """Whether a change is one that sets the time back, and no mistake."""
    return any(
        key[:1] == keys.AUDIT and parse(key, value, AuditEntryRecord).method == METHOD
        for key, value in zip(change.keys, change.values, strict=True)
    )


def consequences(store: Reading, from_ms: int, to_ms: int) -> Consequences:
    """What was decided in between and will not come again, and what moves. Reads all jobs, so it is
    done aside from the loop."""
    found = Consequences()
    found.from_time.FromMilliseconds(from_ms)
    found.to_time.FromMilliseconds(to_ms)
    for key, value in store.scan(keys.STATE, keys.after(keys.STATE)):
        if parse(key, value, StateRecord).last_scheduled_at_ms > to_ms:
            found.jobs += 1
            jid = key[1:9]
            first = keys.ledger(int.from_bytes(jid, "big"), to_ms + 1)
            ends = store.scan(first, keys.after(keys.LEDGER + jid))
            found.scheduled_times += sum(1 for _ in ends)
    for key, _ in store.scan(keys.timers_from(to_ms), keys.after(keys.TIMER)):
        found.runs += key[9:10] == keys.WAKE_RUN
    return found
