"""Sending many jobs: in chunks, upstream before downstream, and on from where it stopped."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from ..messages import job_pb2
from ..session import Invocation

CHUNK_JOBS = 1_000
# Below the limit of 3 MiB for a request, with room for what is around the jobs.
CHUNK_BYTES = 2_500_000

Result: TypeAlias = job_pb2.ImportResult


def chunks(jobs: Iterable[job_pb2.Job]) -> Iterator[list[job_pb2.Job]]:
    chunk: list[job_pb2.Job] = []
    size = 0
    for job in jobs:
        job_size = job.ByteSize() + 8
        if chunk and (len(chunk) == CHUNK_JOBS or size + job_size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += job_size
    if chunk:
        yield chunk


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


@dataclass(slots=True)
class Tally:
    """How many jobs became what."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0

    def add(self, result: Result) -> None:
        word = Result.Verdict.Name(result.verdict).removeprefix("VERDICT_").lower()
        setattr(self, word, getattr(self, word) + 1)

    def __str__(self) -> str:
        return ", ".join(f"{count} {word}" for word, count in asdict(self).items())


@dataclass(slots=True)
class Progress:
    """How far an import is, kept in a file so that the same command goes on from there."""

    path: Path | None
    # Part of each chunk's request id: a chunk whose answer was lost is not done twice.
    id: str
    done: int = 0
    tally: Tally = field(default_factory=Tally)

    @classmethod
    def of(cls, key: str) -> Progress:
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        path = Path(base).expanduser() / "raftsched" / "imports" / f"{key}.json"
        try:
            saved = json.loads(path.read_text())
            return cls(path, saved["id"], saved["done"], Tally(**saved["tally"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path, uuid.uuid4().hex)

    @classmethod
    def unkept(cls, request_id: str = "") -> Progress:
        return cls(None, request_id or uuid.uuid4().hex)

    def step(self, count: int) -> None:
        self.done += count
        self.save()

    def save(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), default=str))
        fresh.replace(self.path)

    def forget(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def key_of(session: Invocation, path: str, cluster_id: str, mode: int) -> str:
    """The same file, as it is now, into the same place, in the same way."""
    status = os.stat(path)
    facts = (cluster_id, session.namespace, os.path.realpath(path), status.st_size,
            status.st_mtime_ns, mode)  # fmt: skip
    return sha256(repr(facts).encode()).hexdigest()[:32]


def send(
    session: Invocation,
    jobs: Iterable[job_pb2.Job],
    mode: job_pb2.ImportJobsRequest.Mode.ValueType,
    progress: Progress,
) -> Iterator[Result]:
    """Send what is left of the jobs; yields what became of each."""
    for chunk in chunks(islice(jobs, progress.done, None)):
        request = job_pb2.ImportJobsRequest(
            jobs=chunk, mode=mode, validate_only=session.dry_run,
            request_id=f"{progress.id}-{progress.done}",
        )  # fmt: skip
        doing = f"import jobs {progress.done + 1} to {progress.done + len(chunk)}"
        answer = session.ask(request, job_pb2.ImportJobsResponse, doing)
        for result in answer.results:
            progress.tally.add(result)
        progress.step(len(chunk))
        yield from answer.results
