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
from .entities import Job, Run
from .record import FormerRecord
from .specs import Template
from .view import View


def check_room(view: View, job: Job) -> None:
    """Former specs may be large, and an import may change more of them than fit into a change."""
    definition = job.definition
    if view.has_bytes and job.state.live > job.state.former:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"runs of the job '{definition.name}' are under way and keep what they do, and this "
            "call has changed as much of that as one may; import this job in another call",
            job=definition.name, limit="change_bytes", maximum=limits.CHANGE_BYTES,
            actual=limits.CHANGE_BYTES + definition.weight(),
        )  # fmt: skip


def keep(view: View, job: Job) -> None:
    """The next version of a job has another action or payload."""
    state, definition = job.state, view.change_definition(job)
    live = state.live - state.former
    if live:
        former = FormerRecord(template=definition.template, payload=definition.payload, live=live)
        view.put(keys.former(job.jid, definition.action_version), former)
        view.change_state(job).former = state.live
    definition.action_version = definition.version + 1


def ended(view: View, run: Run) -> None:
    """A run has ended of a job that has former specs."""
    key = keys.former(run.jid, run.record.action_version)
    former = view.get(key, FormerRecord)
    if former is None:
        return
    view.change_state(run.job).former -= 1
    former.live -= 1
    if former.live:
        view.put(key, former)
    else:
        view.delete(key)


def former(view: View, run: Run) -> tuple[Template, bytes | None]:
    """What a run goes by whose job has changed: the template with its action, and its payload."""
    record = view.need(keys.former(run.jid, run.record.action_version), FormerRecord)
    return record.template, record.payload
