"""What runs are to do: each keeps the action and payload that its job had when it was made.

As long as nobody changes those, a run need only look at its job. When they are changed while runs
are under way, what those runs go by stays as a former spec until the last of them has ended.

A run does in every attempt what its job stated when it was made: another payload under the same
idempotency key would be another piece of work, and another handler would come to workers of the old
lane that do not have it. A run names the version of its job in which action and payload last
changed. What an earlier version stated is kept once for all its runs, with their number, so a
change costs the same however many runs wait. It may be 128 KiB for each job, so an import refuses
such a job when its change is full.

Limits, retries and timeouts are the job's present ones. A dead letter that is requeued does what
its job says now, in the lane of that: somebody may have mended it. It stays in its queue and keeps
its priority, since both may be those of its trigger.
"""

from __future__ import annotations

from ..core import limits
from ..core.rejection import Reason, Refused
from . import keys
from .record import FormerRecord, JobRecord, RunRecord, StateRecord
from .specs import Template
from .view import View


def check_room(view: View, job: JobRecord, state: StateRecord) -> None:
    """Former specs may be large, and an import may change more of them than fit into a change."""
    if view.has_bytes and state.live > state.former:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"runs of the job '{job.name}' are under way and keep what they do, and this call has "
            "changed as much of that as one may; import this job in another call",
            job=job.name, limit="change_bytes", maximum=limits.CHANGE_BYTES,
            actual=limits.CHANGE_BYTES + job.weight(),
        )  # fmt: skip


def keep(view: View, jid: int, job: JobRecord, state: StateRecord) -> None:
    """The next version of a job has another action or payload. The caller puts both records."""
    live = state.live - state.former
    if live:
        former = FormerRecord(template=job.template, payload=job.payload, live=live)
        view.put(keys.former(jid, job.action_version), former)
        state.former = state.live
    job.action_version = job.version + 1


def ended(view: View, jid: int, run: RunRecord, state: StateRecord) -> None:
    """A run has ended of a job that has former specs. The caller puts the state."""
    key = keys.former(jid, run.action_version)
    former = view.get(key, FormerRecord)
    if former is None:
        return
    state.former -= 1
    former.live -= 1
    if former.live:
        view.put(key, former)
    else:
        view.delete(key)


def former(view: View, jid: int, run: RunRecord) -> tuple[Template, bytes | None]:
    """What a run goes by whose job has changed: the template with its action, and its payload."""
    record = view.need(keys.former(jid, run.action_version), FormerRecord)
    return record.template, record.payload
