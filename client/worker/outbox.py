"""What a worker has to say about its leases, until it is said, or answered."""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2 import Result, WorkRequest
from .frames import merged, split

# Progress waits this long for more of it, unless a frame leaves anyway.
PROGRESS_S = 0.25


class WorkerOutbox:
    """Reports stay until they are answered; progress and requests for time until they are sent."""

    def __init__(self, now: float) -> None:
        # Of leases that have ended here, by token, until the end is acknowledged.
        self.reports: dict[int, Result] = {}
        self.report_bytes = 0
        self._unsent: dict[int, Result] = {}
        self._late: list[int] = []
        self._late_at = now
        self._progress: dict[int, worker_pb2.ProgressReport] = {}
        self._progress_at = now
        # What a failed attempt left for the next; it is said before the failure itself.
        self._last_words: dict[int, worker_pb2.ProgressReport] = {}
        self._extensions: dict[int, worker_pb2.ExtendRequest] = {}
        self._unsent_extensions: dict[int, worker_pb2.ExtendRequest] = {}

    def opened(self, now: float) -> None:
        """A new stream begins: what the old one had not acknowledged is said again (rule 4)."""
        self._unsent = dict(self.reports)
        self._unsent_extensions = dict(self._extensions)
        self._late, self._late_at = [], now

    def report(self, token: int, result: Result) -> None:
        self.reports[token] = self._unsent[token] = result
        if self._progress or self._extensions:
            words = self._progress.get(token)
            self._drop_requests(token)
            if words is not None and result.HasField("failure"):
                self._last_words[token] = words
            elif words is not None and result.HasField("given_back"):
                back = result.given_back
                back.checkpoint = back.checkpoint or words.checkpoint
        self.report_bytes += result.ByteSize()

    def replace(self, token: int, less: Result) -> None:
        """Report this instead of what was refused."""
        self.report_bytes += less.ByteSize() - self.reports[token].ByteSize()
        self.reports[token] = self._unsent[token] = less

    def forget(self, token: int) -> None:
        report = self.reports.pop(token, None)
        if report is not None:
            self.report_bytes -= report.ByteSize()
            self._unsent.pop(token, None)
        if self._progress or self._last_words or self._extensions:
            self._drop_requests(token)

    def _drop_requests(self, token: int) -> None:
        self._progress.pop(token, None)
        self._last_words.pop(token, None)
        self._extensions.pop(token, None)
        self._unsent_extensions.pop(token, None)

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        """Say it with the next frame; the newest word of each attempt counts."""
        self._progress[report.token] = merged(self._progress.get(report.token), report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        self._extensions[request.token] = self._unsent_extensions[request.token] = request

    def extension_answered(self, token: int) -> bool:
        """Whether it was asked for."""
        return self._extensions.pop(token, None) is not None

    def send_late_again(self, now: float, heartbeat_s: float) -> None:
        """Reports that no word was heard of for a whole heartbeat are said again (rule 3)."""
        if now < self._late_at + heartbeat_s:
            return
        self._unsent.update(
            (token, self.reports[token]) for token in self._late if token in self.reports
        )
        self._late = [token for token in self.reports if token not in self._unsent]
        self._late_at = now

    def next_at(self, heartbeat_s: float) -> float:
        """When there is something to say, or to say again."""
        at = self._late_at + heartbeat_s if self.reports else float("inf")
        return min(at, self._progress_at + PROGRESS_S) if self._progress else at

    def frames(self, now: float) -> Iterator[WorkRequest]:
        """What is to be said now."""
        if self._unsent:
            results, self._unsent = list(self._unsent.values()), {}
            if self._last_words:
                words = [self._last_words[r.token] for r in results if r.token in self._last_words]
                yield from split(words, "progress")
            yield from split(results, "results")
        if self._unsent_extensions:
            requests, self._unsent_extensions = list(self._unsent_extensions.values()), {}
            yield from split(requests, "extensions")
        if self._progress and now >= self._progress_at + PROGRESS_S:
            reports, self._progress = list(self._progress.values()), {}
            self._progress_at = now
            yield from split(reports, "progress")
