"""What failed and was set aside, refused or given up while this node led: for the log, for
`cluster status`, for metrics and alerts. Nothing here decides anything."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...statemachine.piecewise import Failure

logger = logging.getLogger(__name__)

FATES = ("set aside", "refused", "given up", "left out")
KEPT = 20  # Of the last ones, for `cluster status`.
LOGGED = 100  # Different ones that are logged with their trace; from then on each is only counted.
COUNTED_S = 600.0  # For alerts: how long one counts.
RECENT = 1_000  # Of which the instants are kept; more are "at least so many".


@dataclass(frozen=True, slots=True)
class SetAsideWork:
    """One of them, for people."""

    what: str
    reason: str
    at_ms: int


class Troubles:
    """All of them since the process began."""

    def __init__(self, name: str, now_ms: Callable[[], int], seconds: Callable[[], float]) -> None:
        self.name, self.now_ms, self.seconds = name, now_ms, seconds
        # By fate.
        self.counts: Counter[str] = Counter()
        # The last ones that are not a job, newest first.
        self.last: deque[SetAsideWork] = deque(maxlen=KEPT)
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._logged: set[tuple[str, str]] = set()

    def add(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self.counts[failure.fate] += 1
            error = failure.error
            reason = f"{type(error).__name__}: {error}"[:1_000]
            self._log(failure, reason)
            drop_traces(error)
            if failure.fate in ("given up", "left out"):
                self.last.appendleft(SetAsideWork(failure.what, reason, self.now_ms()))
                self._recent.append(self.seconds())

    def failed(self, what: str, error: Exception) -> None:
        """Something of the loop's own failed that is no decision; it goes on without."""
        self.add([Failure(what, error, "given up")])

    def recent(self) -> int:
        """How many that are not a job were set aside of late."""
        since = self.seconds() - COUNTED_S
        while self._recent and self._recent[0] < since:
            self._recent.popleft()
        return len(self._recent)

    def _log(self, failure: Failure, reason: str) -> None:
        about = (failure.what, reason)
        if about in self._logged:
            return
        if len(self._logged) == LOGGED:
            logger.error("%s: over %d different failures; they are only counted", self.name, LOGGED)
        if len(self._logged) <= LOGGED:
            self._logged.add(about)
        if len(self._logged) <= LOGGED:
            job = f" (job number {failure.jid})" if failure.jid else ""
            logger.error(
                "%s: %s failed and was %s%s: %s", self.name, failure.what, failure.fate, job,
                reason, exc_info=failure.error,
            )  # fmt: skip


def drop_traces(error: BaseException) -> None:
    """A trace holds all that was decided, which holds the failure, and so itself: the memory of a
    decision until the collector looks."""
    one: BaseException | None = error
    while one is not None and one.__traceback__ is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
