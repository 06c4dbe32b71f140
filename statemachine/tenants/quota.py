"""How many runs of a namespace may be under way, and the jobs that wait for that.

A run that is held back, or triggered for later, is not under way yet. A job waits
once, however much of it waits, and goes behind the others after each run that it gets.
"""

from __future__ import annotations

from itertools import islice

from ..core import limits
from ..model import keys
from ..model.record import StateRecord, UsageRecord
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


def wait(view: View, jid: int, state: StateRecord, usage: UsageRecord) -> None:
    """Wait for the quota, if the job does not yet. The caller puts the state."""
    if not state.quota_wait_since_ms:
        state.quota_wait_since_ms = view.now_ms
        view.put_raw(keys.quota_wait(keys.namespace_of(jid), view.now_ms, jid))
        usage.quota_waits += 1


def leave(view: View, jid: int, state: StateRecord, usage: UsageRecord) -> None:
    """Wait for the quota no more. The caller puts the state."""
    if state.quota_wait_since_ms:
        view.delete_raw(keys.quota_wait(keys.namespace_of(jid), state.quota_wait_since_ms, jid))
        state.quota_wait_since_ms = 0
        usage.quota_waits -= 1


def first_waiting(view: View, namespace: int) -> list[int]:
    """The jobs that are served next."""
    prefix = keys.in_namespace(keys.QUOTA_WAIT, namespace)
    found = islice(view.scan(prefix, keys.after(prefix)), limits.STEP)
    return [int.from_bytes(key[-8:], "big") for key in found]
