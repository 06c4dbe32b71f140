"""Jobs that are set aside: work on one of them failed, and nothing else is to suffer from it.

A job that is set aside is BROKEN: it has no timer, so it does not fire, and its runs leave their
lane when their turn comes. What its running runs report is taken as ever. When somebody brings it
back, what came due meanwhile is late, and its misfire policy says what becomes of it; its runs come
back in steps.

To set aside must not fail itself, so it looks at as little as it can.

Table `K` says why. `RepairJob`, or a change of its spec, puts a job back where it stood. A schedule
that this build cannot compute (a zone that it lacks) is such a failure too, with words for people:
`next_time.UnreadableSchedule`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...proto.v1 import job_pb2
from ..core import limits
from ..core.instants import set_ms
from ..core.rejection import Reason, Refused
from ..core.store import Reading
from ..model import answers, keys, timers
from ..model.entities import Job
from ..model.phases import ASIDE, READY
from ..model.record import BrokenRecord, JobRecord, parse
from ..model.request import DropEntry, SetAside
from ..model.view import View
from ..occurrences import next_time
from ..tenants import audit_log, namespaces
from .move import move

COUNTED = 10_000  # Jobs that are counted; more are "at least so many".


def set_aside(view: View, request: SetAside, actor: str) -> bool:
    """Whether the job was not set aside before."""
    jid = request.jid
    job = view.find_job(jid)
    if job is None or view.get_raw(keys.broken(jid)) is not None:
        return False
    state = view.change_state(job)
    reason = request.reason[: limits.BROKEN_CHARS]
    record = BrokenRecord(reason=reason, at_ms=view.now_ms, was=state.state)
    view.put_once(keys.broken(jid), record)
    timers.set_job(view, job, 0)
    if state.state != next_time.DELETING:
        # One that is being deleted stays so: its name is not to be found.
        state.state = next_time.BROKEN
    return True


def drop_entry(view: View, request: DropEntry, actor: str) -> None:
    view.delete_raw(request.key)


def repair(view: View, request: job_pb2.RepairJobRequest, actor: str) -> job_pb2.Job:
    """Bring a job back, if what broke it is mended as far as can be seen."""
    job = _find(view, request)
    definition = job.definition
    namespaces.check_etag(request.etag, definition.version)
    record = find(view, job.jid)
    if record is not None:
        try:
            next_time.plan_of(view, job)
        except next_time.UnreadableSchedule as unreadable:
            raise refusal(definition, str(unreadable)) from None
        bring_back(view, job, record)
        if job.state.state != next_time.DELETING:
            next_time.advance_if_idle(view, job)
        next_time.reschedule(view, job)
        subject, namespace = f"job/{definition.name}", definition.namespace
        audit_log.add(view, actor, "RepairJob", namespace, subject, request, record.reason)
    return answers.job(job)


def _find(view: View, request: job_pb2.RepairJobRequest) -> Job:
    """The job of a name, even if it was set aside while it was being deleted."""
    number = namespaces.need(view, request.namespace).number
    value = view.get_raw(keys.job_name(number, request.job))
    jid = int.from_bytes(value, "big") if value is not None else 0
    job = view.find_job(jid) if jid else None
    if job is None or (job.state.state == next_time.DELETING and find(view, jid) is None):
        namespace = request.namespace or namespaces.DEFAULT
        raise Refused.because(
            Reason.ERROR_REASON_JOB_NOT_FOUND,
            f"there is no job '{request.job}' in the namespace '{namespace}'; list what there is",
            namespace=namespace, job=request.job,
        )  # fmt: skip
    return job


def bring_back(view: View, job: Job, record: BrokenRecord) -> None:
    """It stands where it stood, and its runs take part again. The caller reschedules."""
    state = view.change_state(job)
    view.delete(keys.broken(job.jid))
    state.state = record.was
    if state.live:
        view.put_later(keys.return_timer(keys.LATER | view.now_ms, job.jid, state.live_from))


def wake(view: View, jid: int, occurrence: int) -> None:
    """Some more runs of a job that came back take part again."""
    job = view.find_job(jid)
    if job is None or job.state.state == next_time.BROKEN:
        return
    first, end = keys.run(jid, occurrence), keys.run(jid, keys.OCCURRENCE_MAX)
    for count, key in enumerate(list(islice(view.scan(first, end), limits.STEP + 1))):
        place = keys.run_of(key)
        if count == limits.STEP or (count and view.is_full):
            view.put_later(keys.return_timer(keys.LATER | view.now_ms, *place))
            return
        run = view.run(place)
        if run.record.phase == ASIDE:
            move(view, run, READY)


def find(view: View, jid: int) -> BrokenRecord | None:
    """Why and since when a job is set aside; None when it is not."""
    key = keys.broken(jid)
    value = view.get_raw(key)
    return None if value is None else parse(key, value, BrokenRecord)


def refuse(view: View, job: Job) -> None:
    """Refuse what cannot be done with a job that is set aside."""
    if job.state.state == next_time.BROKEN:
        record = find(view, job.jid)
        raise refusal(job.definition, record.reason if record is not None else "")


def refusal(job: JobRecord, reason: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_JOB_BROKEN,
        f"'{job.name}' was set aside: {reason}; mend that, then repair the job or change its spec",
        job=job.name, broken_reason=reason,
    )  # fmt: skip


def show(view: View, jid: int, status: job_pb2.JobStatus) -> None:
    """Say why a job is BROKEN."""
    if status.state == next_time.BROKEN:
        record = find(view, jid)
        if record is not None:
            status.broken_reason = record.reason
            set_ms(status.broken_time, record.at_ms)


def broken(store: Reading, number: int | None = None) -> Iterator[int]:
    """Yield the jobs that are set aside, of a namespace or of all."""
    prefix = keys.BROKEN if number is None else keys.BROKEN + number.to_bytes(3, "big")
    for key, _ in store.scan(prefix, keys.after(prefix)):
        yield int.from_bytes(key[1:9], "big")


def count(store: Reading, number: int | None = None) -> int:
    """How many jobs are set aside; of very many, at least so many."""
    return sum(1 for _ in islice(broken(store, number), COUNTED))
