"""Many jobs, cut into requests that the cluster takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...proto.v1 import job_pb2

JOBS_MAX = 1_000
# The contract says 3 MiB; the rest is room for names and lengths around the jobs.
BYTES_MAX = 3 * 1024 * 1024 - 64 * 1024
MODES = {
    False: job_pb2.ImportJobsRequest.MODE_CREATE_ONLY,
    True: job_pb2.ImportJobsRequest.MODE_UPSERT,
}


def import_requests(
    jobs: Iterable[job_pb2.Job], *, replace: bool, namespace: str, request_id: str = ""
) -> Iterator[job_pb2.ImportJobsRequest]:
    """Requests for all jobs in their order. The n-th gets "request_id.n", if there is one."""
    request, size, count = job_pb2.ImportJobsRequest(mode=MODES[replace]), 0, 0
    for job in jobs:
        own = job.ByteSize() + len(namespace) + 16
        if request.jobs and (len(request.jobs) >= JOBS_MAX or size + own > BYTES_MAX):
            yield _named(request, request_id, count)
            request, size, count = job_pb2.ImportJobsRequest(mode=MODES[replace]), 0, count + 1
        added = request.jobs.add()
        added.CopyFrom(job)
        added.namespace = job.namespace or namespace
        size += own
    if request.jobs:
        yield _named(request, request_id, count)


def _named(
    request: job_pb2.ImportJobsRequest, request_id: str, number: int
) -> job_pb2.ImportJobsRequest:
    if request_id:
        request.request_id = f"{request_id}.{number}"
    return request
