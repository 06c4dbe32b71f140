"""What a lease takes and gives back: slots of its job, key, queue and namespace, and its place in
the worker's session. Taking and giving are written next to each other, so that they match.

No slot stays free while a run waits for it that a worker would take. A wait queue has as many of
its lane's runs admitted as slots are free, or is empty: a slot that becomes free admits more; a run
that takes a slot leaves one free less; and one that was admitted by a key and takes another's slot,
or waits for its job, has the next one of its queue tried in the same grant (`pass_on`). Whoever
ends admits others, whatever it had, so a lane that nobody serves keeps no other from the slot. One
that was admitted by its job may wait for the key: then so would all that wait for the job.

Where a limit is raised or taken away, some of each queue are admitted at once, and the rest by
those that leave. The price is a read for each lane that waits; a key or job has few. Where jobs
disagree about the limit of a key, a run that may go waits for those in front of it in its lane.
"""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import job_pb2
from ..core import limits
from ..model import concurrency_key, keys
from ..model.record import (
    JobRecord,
    KeyRecord,
    LaneRecord,
    QueueRecord,
    RunRecord,
    SessionRecord,
    StateRecord,
    UsageRecord,
)
from ..model.view import View
from . import lanes

# How many of each lane's runs that wait for slots take part again when one is free. Two, so that a
# limit that was raised is used up soon.
UNPARK = 2
# Of a limit for each value of a field, so many values are looked at when it changes. What waits for
# the others goes on when the next run of the same value ends.
KEYS_WOKEN = 100


def full(
    view: View, jid: int, run: RunRecord, job: JobRecord, state: StateRecord,
) -> int:  # fmt: skip
    """Whose limit keeps a run from being leased, if any."""
    limit = job.form.spec.concurrency
    if limit.job and state.running >= limit.job:
        return RunRecord.PARKING_JOB
    run.limit_key = concurrency_key.of(view, jid, run, job)
    if run.limit_key and limit.key_limit:
        key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
        record = view.get(key, KeyRecord)
        if record is not None and record.running >= limit.key_limit:
            return RunRecord.PARKING_KEY
    return RunRecord.PARKING_UNSPECIFIED


def take(view: View, jid: int, occasion: int, run: RunRecord, session: SessionRecord) -> None:
    """What a lease takes of its key and session; lane, queue, job and namespace are counted by
    the grant, which has them at hand."""
    if run.limit_key:
        key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
        record = view.get(key, KeyRecord) or KeyRecord()
        record.running += 1
        view.put(key, record)
    if not session.leased:
        session.token_from = run.token
    session.leased += 1
    view.put_raw(keys.lease(session.number, run.token), keys.lease_value(jid, occasion))


def release(
    view: View, jid: int, run: RunRecord,
    state: StateRecord, usage: UsageRecord,
) -> None:  # fmt: skip
    """Give everything back. The caller puts state and run; usage is put already."""
    view.delete_raw(keys.lease(run.session, run.token))
    session = view.sessions.get(run.session)
    if session is None:
        session = view.edit(keys.session(run.worker), SessionRecord)
        view.sessions[run.session] = session
    session.leased -= 1
    if run.token == session.token_from:
        session.token_from += 1
    if run.cancel_at_ms:
        session.cancels -= 1
    queue = view.queues.get(run.lane)
    if queue is None:
        lane = view.need(keys.lane(run.lane), LaneRecord)
        queue = view.edit(keys.queue(lane.namespace, lane.queue), QueueRecord)
        view.queues[run.lane] = queue
    queue.leased -= 1
    usage.leased -= 1
    # How long leases last, by the clock hour: it tells what workers can carry.
    now_ms = view.now_ms
    if now_ms - usage.hour_at_ms >= limits.HOUR_MS:
        _begin_hour(usage, now_ms)
    usage.leases_ended += 1
    usage.leases_took_ms += now_ms - run.leased_at_ms or 1
    state.running -= 1
    if run.limit_key:
        key = keys.limit_key(keys.namespace_of(jid), run.limit_key)
        view.edit(key, KeyRecord).running -= 1


def _begin_hour(usage: UsageRecord, now_ms: int) -> None:
    begin_ms = now_ms - now_ms % limits.HOUR_MS
    recent = begin_ms - usage.hour_at_ms == limits.HOUR_MS
    usage.before_ended = usage.leases_ended if recent else 0
    usage.before_took_ms = usage.leases_took_ms if recent else 0
    usage.hour_at_ms, usage.leases_ended, usage.leases_took_ms = begin_ms, 0, 0


def mean_times(usage: UsageRecord, now_ms: int) -> tuple[int, int]:
    """How many leases ended in this clock hour and the one before, and how long they lasted."""
    hours = now_ms // limits.HOUR_MS - usage.hour_at_ms // limits.HOUR_MS
    if hours == 0:
        ended = usage.leases_ended + usage.before_ended
        return ended, usage.leases_took_ms + usage.before_took_ms
    return (usage.leases_ended, usage.leases_took_ms) if hours == 1 else (0, 0)


def let_in(view: View, jid: int, run: RunRecord, state: StateRecord) -> None:
    """A run has left: those that wait for a slot of its job or key try again.

    Not only when it gave a slot back: one that was let in may have gone on to wait for another
    slot and end there, and then it is up to it to let the next one in.
    """
    if state.parked:
        lanes.unpark(view, keys.parked_by_job(jid), UNPARK)
    if run.limit_key and (owner := _waited_for(view, jid, run.limit_key)):
        lanes.unpark(view, owner, UNPARK)


def pass_on(view: View, jid: int, run: RunRecord, name: str) -> bytes | None:
    """A run that had this key, or was let in by it, does not take its slot now: the next one of its
    lane tries in its place. That one's entry in the lane, if there is one."""
    owner = _waited_for(view, jid, name)
    return lanes.unpark_next(view, keys.parked_in(owner, run.lane)) if owner else None


def limits_changed(
    view: View, jid: int, state: StateRecord, old: job_pb2.ConcurrencyLimit,
    new: job_pb2.ConcurrencyLimit,
) -> None:  # fmt: skip
    """There may be more room for runs of a job than before; those that do not fit park again."""
    if state.parked:
        lanes.unpark(view, keys.parked_by_job(jid), limits.STEP)
    for name in sorted({old.key, new.key} - {""}):
        for key in _keys_of(view, jid, name):
            if owner := _waited_for(view, jid, key):
                lanes.unpark(view, owner, limits.STEP)


def _keys_of(view: View, jid: int, name: str) -> list[str]:
    """The key of a name; of a field of the payload the keys that some of its values have."""
    if not concurrency_key.is_path(name):
        return [name]
    namespace = keys.namespace_of(jid)
    first = keys.limit_key(namespace, f"{name}=")
    some = islice(view.scan_stored(first, keys.after(first)), KEYS_WOKEN)
    return [name, *map(keys.name_of_limit_key, some)]


def _waited_for(view: View, jid: int, name: str) -> bytes:
    """Where runs wait for a key; b"" when none does, and without a holder its record goes."""
    namespace = keys.namespace_of(jid)
    key = keys.limit_key(namespace, name)
    record = view.get(key, KeyRecord)
    if record is not None and record.parked:
        return keys.parked_by_key(namespace, name)
    if record is not None and not record.running:
        view.delete(key)
    return b""
