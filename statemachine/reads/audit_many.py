"""Many jobs audited in one call, each answered or refused alone.

What their audits have in common is read once: the audit log above all, which costs many times what
an audit of a job with few scheduled times does. A call ends behind the job with which it has looked
at much, and says so; whoever asked goes on with those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import job_pb2
from ..calls.jobs import find
from ..core import limits
from ..core.rejection import Fault, Reason, Refused, Rejection
from ..core.store import Reading
from ..model import validate
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import next_time
from ..tenants import namespaces
from . import audit
from .audit_evidence import NamespaceEvidence

JOBS_MAX = 100
# Records and scheduled times of its jobs, after which a call ends.
LOOKED_AT = limits.AUDIT_TIMES


def audit_jobs(
    view: View, request: job_pb2.AuditJobsRequest, workers: Workers
) -> job_pb2.AuditJobsResponse:
    namespaces.need(view, request.namespace)
    faults = validate.count("jobs", len(request.jobs), JOBS_MAX)
    if not request.jobs:
        faults.append(Fault("jobs", Reason.ERROR_REASON_FIELD_REQUIRED, "is empty; name some"))
    if faults:
        raise Refused.of(faults)
    # What they have in common does not count, or a call would end with its first job.
    reading, namespace = CountingReading(view.stored), None
    own = View(reading, view.now_ms)
    answer, size, times = job_pb2.AuditJobsResponse(), 0, 0
    for name in dict.fromkeys(request.jobs):
        if size > limits.PAGE_BYTES or reading.count + times > LOOKED_AT:
            answer.partial = True
            break
        one = answer.audits.add(job=name)
        try:
            job = find(own, request.namespace, name)
            namespace = namespace or NamespaceEvidence(view, job)
            one.audit.CopyFrom(audit.of_job(own, job, request, namespace))
        except Refused as refused:
            _refuse(one, refused.rejection)
        except next_time.UnreadableSchedule as unreadable:
            _refuse(one, unreadable.rejection(name))
        size += one.ByteSize()
        times += one.audit.expected
    return answer


def _refuse(one: job_pb2.JobAudit, no: Rejection) -> None:
    one.reason, one.field, one.message = no.word, no.values.get("field", ""), no.message


class CountingReading:
    """State at one instant, and how many of its records were read."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.count = 0

    def get(self, key: bytes) -> bytes | None:
        self.count += 1
        return self._reading.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self.count += len(keys)
        return self._reading.get_many(keys)

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for entry in self._reading.scan(first, end, backwards=backwards):
            self.count += 1
            yield entry
