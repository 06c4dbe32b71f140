"""How many runs of a namespace may be under way, and the line of jobs that wait for that.

A run that is held back, or triggered for later, is not under way yet. A job stands in the line
once, however much of it waits, and goes behind the others after each run that it was let have.
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
    """Whether one more has to stand in line: there is no room, or others were there before."""
    return is_full(view, usage, name) or usage.in_line > 0


def wait(view: View, jid: int, state: StateRecord, usage: UsageRecord) -> None:
    """Stand in line, if the job does not yet. The caller puts the state."""
    if not state.in_line_since_ms:
        state.in_line_since_ms = view.now_ms
        view.put_raw(keys.in_line(keys.namespace_of(jid), view.now_ms, jid))
        usage.in_line += 1


def leave(view: View, jid: int, state: StateRecord, usage: UsageRecord) -> None:
    """Stand in line no more. The caller puts the state."""
    if state.in_line_since_ms:
        view.delete_raw(keys.in_line(keys.namespace_of(jid), state.in_line_since_ms, jid))
        state.in_line_since_ms = 0
        usage.in_line -= 1


def first_in_line(view: View, namespace: int) -> list[int]:
    """The jobs that are served next."""
    prefix = keys.in_namespace(keys.IN_LINE, namespace)
    found = islice(view.scan(prefix, keys.after(prefix)), limits.STEP)
    return [int.from_bytes(key[-8:], "big") for key in found]
