"""How many runs of a namespace may be under way, and the jobs that wait for that.

A run that is held back, or triggered for later, is not under way yet. A job waits
once, however much of it waits, and goes behind the others after each run that it gets.
"""

from __future__ import annotations

from itertools import islice

from ..core import limits
from ..model import keys
from ..model.entities import Job
from ..model.record import UsageRecord
from ..model.view import View
from . import namespaces


def used(usage: UsageRecord) -> int:
    """How many runs count."""
    return usage.live - usage.held


def is_full(view: View, usage: UsageRecord, name: str) -> bool:
    most = namespaces.live_runs(view, name)
    return bool(most) and used(usage) >= most


def is_taken(view: View, usage: UsageRecord, name: str) -> bool:
    """Whether one more has to wait: there is no room, or others were there before."""
    return is_full(view, usage, name) or usage.quota_waits > 0


def wait(view: View, job: Job, usage: UsageRecord) -> None:
    """Wait for the quota, if the job does not yet."""
    if not job.state.quota_wait_since_ms:
        view.change_state(job).quota_wait_since_ms = view.now_ms
        entry = keys.quota_wait(job.namespace, view.now_ms, job.jid)
        view.put_raw(entry)
        first = keys.first_quota_wait(job.namespace)
        known = view.get_raw(first)
        # Of a state of before nothing is known while others wait.
        if not usage.quota_waits or (known is not None and entry < known):
            view.put_raw(first, entry)
        usage.quota_waits += 1


def leave(view: View, job: Job, usage: UsageRecord) -> None:
    """Wait for the quota no more."""
    state = job.state
    if state.quota_wait_since_ms:
        number = job.namespace
        view.delete_raw(keys.quota_wait(number, state.quota_wait_since_ms, job.jid))
        view.change_state(job).quota_wait_since_ms = 0
        usage.quota_waits -= 1
        if not usage.quota_waits:
            view.delete_raw(keys.first_quota_wait(number))


def first_waiting(view: View, namespace: int) -> list[int]:
    """The jobs that are served next. The queue leaves tombstones at its head, so it is noted where
    the first of them stands."""
    prefix, first = keys.in_namespace(keys.QUOTA_WAIT, namespace), keys.first_quota_wait(namespace)
    known = view.get_raw(first)
    found = list(islice(view.scan(known or prefix, keys.after(prefix)), limits.STEP))
    if found and found[0] != known:
        view.put_raw(first, found[0])
    return [int.from_bytes(key[-8:], "big") for key in found]
