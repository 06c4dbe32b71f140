"""Runs that wait for a slot of their job or key go back to their lane when one is free.

No slot stays free while a run waits for it that a worker would take. A wait queue has as many of
its lane's runs admitted as slots are free, or is empty: a slot that becomes free admits more; a run
that takes a slot leaves one free less; and one that was admitted by a key and takes another's slot,
or waits for its job, has the next one of its queue tried in the same grant (`admit_next`). Whoever
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
from ..model.entities import Job, Run
from ..model.phases import READY
from ..model.record import KeyRecord, RunRecord
from ..model.view import View
from . import lanes, wait_queues
from .move import move

# How many of each lane's runs that wait for a slot take part again when one is free. Two, so that a
# limit that was raised is used up soon.
AT_ONCE = 2
# Of a limit for each value of a field, so many values are looked at when it changes. What waits for
# the others goes on when the next run of the same value ends.
KEYS_WOKEN = 100
# Of a job whose limit changes, so many runs are asked for keys that their triggers named.
RUNS_LOOKED_AT = 1000


def has_left(view: View, run: Run) -> None:
    """A run has left: those that wait for a slot of its job or key try again.

    Not only when it gave a slot back: one that was admitted may have gone on to wait for another
    slot and end there, and then it is up to it to admit the next one.
    """
    if run.job.state.parked:
        _admit(view, keys.parked_by_job(run.jid), AT_ONCE)
    if run.record.limit_key and (owner := _waited_for(view, run.jid, run.record.limit_key)):
        _admit(view, owner, AT_ONCE)


def admit_next(view: View, run: Run, name: str) -> bytes | None:
    """A run that had this key, or was admitted by it, does not take its slot now: the next one of
    its lane tries in its place. That one's entry in the lane, if there is one."""
    owner = _waited_for(view, run.jid, name)
    wait_queue = keys.parked_in(owner, run.record.lane)
    if not owner or wait_queue not in wait_queues.of(view, owner):
        return None
    [found] = wait_queues.head(view, wait_queue, 1) or [b""]
    return _admit_run(view, keys.run_of(found)) if found else None


def limits_changed(
    view: View,
    job: Job,
    old: job_pb2.ConcurrencyLimit,
    new: job_pb2.ConcurrencyLimit,
) -> None:
    """There may be more room for runs of a job than before; those that do not fit park again."""
    if job.state.parked:
        _admit(view, keys.parked_by_job(job.jid), limits.STEP)
    found = {key for name in {old.key, new.key} - {""} for key in _keys_of(view, job.jid, name)}
    for key in sorted(found | _keys_of_triggers(view, job)):
        if owner := _waited_for(view, job.jid, key):
            _admit(view, owner, limits.STEP)


def _keys_of(view: View, jid: int, name: str) -> list[str]:
    """The key of a name; of a field of the payload the keys that some of its values have."""
    if not concurrency_key.is_path(name):
        return [name]
    namespace = keys.namespace_of(jid)
    first = keys.limit_key(namespace, f"{name}=")
    some = islice(view.scan_stored(first, keys.after(first)), KEYS_WOKEN)
    return [name, *map(keys.name_of_limit_key, some)]


def _keys_of_triggers(view: View, job: Job) -> set[str]:
    """The keys for which the first of a job's runs wait, as the trigger of each named it."""
    first = keys.run(job.jid, job.state.live_from)
    scanned = view.scan(first, keys.run(job.jid, keys.OCCURRENCE_MAX)) if job.state.live else ()
    found: set[str] = set()
    for key in islice(scanned, RUNS_LOOKED_AT):
        record = view.run(keys.run_of(key)).record
        is_named = record.exempt & RunRecord.KEY_OF_TRIGGER
        if is_named and record.parking == RunRecord.PARKING_KEY:
            found.add(record.limit_key)
        if len(found) == KEYS_WOKEN:
            break
    return found


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


def _admit(view: View, owner: bytes, most: int) -> None:
    """Let the runs that wait first for this owner's slots take part again, so many of each lane."""
    for wait_queue in wait_queues.of(view, owner):
        for entry in wait_queues.head(view, wait_queue, most):
            _admit_run(view, keys.run_of(entry))


def _admit_run(view: View, place: tuple[int, int]) -> bytes:
    """A run goes back to its lane with the rank it had; its entry there."""
    run = view.run(place)
    move(view, run, READY)
    return lanes.entry_of(run)
