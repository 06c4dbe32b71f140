"""Many jobs: upstream before downstream, cut into requests, and on from where it stopped."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

from ...proto.v1 import job_pb2

JOBS_MAX = 1_000
# The contract says 3 MiB; the rest is room for names and lengths around the jobs.
BYTES_MAX = 3 * 1024 * 1024 - 64 * 1024
MODES = {
    False: job_pb2.ImportJobsRequest.MODE_CREATE_ONLY,
    True: job_pb2.ImportJobsRequest.MODE_UPSERT,
}


@dataclass(slots=True)
class ImportTally:
    """How many jobs became what."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0

    def add(self, result: job_pb2.ImportResult) -> None:
        name = job_pb2.ImportResult.Verdict.Name(result.verdict)
        word = name.removeprefix("VERDICT_").lower()
        setattr(self, word, getattr(self, word) + 1)

    def __str__(self) -> str:
        return ", ".join(f"{count} {word}" for word, count in asdict(self).items())


@dataclass(slots=True)
class ImportProgress:
    """How far an import is. One that is kept in a file lets the same import go on from there, also
    in another process.

    progress = ImportProgress.kept("customers.progress")
    for result in client.jobs.import_each(jobs, progress=progress):
        print(result.job, result.reason)
    progress.forget()
    """

    # Part of each request's id: one whose answer was lost is not done twice. It is random, since an
    # import that is complete and repeated must be done again and not be answered from memory.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Jobs whose answer has come.
    done: int = 0
    tally: ImportTally = field(default_factory=ImportTally)
    path: Path | None = None

    @classmethod
    def kept(cls, path: str | Path) -> Self:
        """What the file says, or the beginning where it says nothing."""
        path = Path(path)
        try:
            said = json.loads(path.read_text())
            return cls(said["id"], said["done"], ImportTally(**said["tally"]), path)
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path=path)

    def took(self, answer: job_pb2.ImportJobsResponse) -> None:
        """The answer of the next request has come."""
        for result in answer.results:
            self.tally.add(result)
        self.done += len(answer.results)
        self.save()

    def save(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text(
            json.dumps({"id": self.id, "done": self.done, "tally": asdict(self.tally)})
        )
        fresh.replace(self.path)

    def forget(self) -> None:
        """The import is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def import_requests(
    jobs: Iterable[job_pb2.Job], *, replace: bool, namespace: str, progress: ImportProgress
) -> Iterator[job_pb2.ImportJobsRequest]:
    """Requests for what is left of the jobs, in their order."""
    # The id has to be on disk before the first request leaves.
    progress.save()
    place = progress.done
    request, size = _request(replace, progress, place), 0
    for job in islice(jobs, place, None):
        own = job.ByteSize() + len(namespace) + 16
        if request.jobs and (len(request.jobs) >= JOBS_MAX or size + own > BYTES_MAX):
            place += len(request.jobs)
            yield request
            request, size = _request(replace, progress, place), 0
        added = request.jobs.add()
        added.CopyFrom(job)
        added.namespace = job.namespace or namespace
        size += own
    if request.jobs:
        yield request


def _request(replace: bool, progress: ImportProgress, place: int) -> job_pb2.ImportJobsRequest:
    return job_pb2.ImportJobsRequest(mode=MODES[replace], request_id=f"{progress.id}.{place}")


def in_order(jobs: Iterable[job_pb2.Job]) -> Iterator[job_pb2.Job]:
    """Jobs without upstream as they come, then the others, each after those it names.

    Jobs of a cycle come as they are, for the cluster to refuse with the cycle's path.
    """
    waiting: dict[str, job_pb2.Job] = {}
    for job in jobs:
        if job.spec.upstream.jobs:
            waiting[job.name] = job
        else:
            yield job
    done: set[str] = set()
    for name in waiting:
        yield from _with_upstream(name, waiting, done)


def _with_upstream(
    name: str, waiting: dict[str, job_pb2.Job], done: set[str]
) -> Iterator[job_pb2.Job]:
    """Depth first without recursion: flows may be longer than Python's stack."""
    stack = [name]
    while stack:
        top = stack[-1]
        if top in done:
            stack.pop()
            continue
        missing = [
            one.job for one in waiting[top].spec.upstream.jobs
            if one.job in waiting and one.job not in done and one.job not in stack
        ]  # fmt: skip
        if missing:
            stack.append(missing[0])
        else:
            done.add(stack.pop())
            yield waiting[top]
