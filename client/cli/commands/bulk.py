"""Jobs of files on their way to the cluster: what the SDK cuts into requests is sent one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from ...sdk.imports import ImportProgress, import_requests
from ..messages import job_pb2
from ..session import Invocation


def kept(session: Invocation, path: str, cluster_id: str, *, update: bool) -> ImportProgress:
    """How far the import of a file is: the same file, as it is now, into the same place, in the
    same way."""
    status = os.stat(path)
    facts = (cluster_id, session.namespace, os.path.realpath(path), status.st_size,
            status.st_mtime_ns, update)  # fmt: skip
    key = sha256(repr(facts).encode()).hexdigest()[:32]
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return ImportProgress.kept(Path(base).expanduser() / "raftsched" / "imports" / f"{key}.json")


def send(
    session: Invocation, jobs: Iterable[job_pb2.Job], progress: ImportProgress, *, update: bool
) -> Iterator[job_pb2.ImportResult]:
    """Send what is left of the jobs; yields what became of each."""
    requests = import_requests(jobs, replace=update, namespace=session.namespace, progress=progress)
    for request in requests:
        request.validate_only = session.dry_run
        doing = f"import jobs {progress.done + 1} to {progress.done + len(request.jobs)}"
        answer = session.ask(request, job_pb2.ImportJobsResponse, doing)
        progress.took(answer)
        yield from answer.results
