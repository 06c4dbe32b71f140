"""How soon the server of a worker's stream answers, and when it is left for another one."""

from __future__ import annotations

# A server owes an answer to a beat within a heartbeat. One that has answered much sooner so far,
# and now does not, is left after twice the time that it took, but not before this.
TIMEOUT_MIN_S = 0.8
# A server that owes an answer for so long, as followers wait for a leader before one of them
# stands, may lead no more: another node is asked, soon again, and later ever more seldom.
DOUBT_S, ASK_AGAIN_S, ASK_AGAIN_SHARE = 0.3, 0.1, 0.25
# A server that had something to say all the time, and owes no answer now, is asked once with a beat
# when it was silent for so many of its usual pauses, and for so long: it may hang.
SILENT_PAUSES, SILENT_MIN_S = 4, 0.1
# What one slow answer counts for, one answer later.
FORGETTING = 0.7


class AnswerTimes:
    """What is known of one server's answers, over all streams with it."""

    def __init__(self, heartbeat_s: float, now: float) -> None:
        self.heartbeat_s = heartbeat_s
        # When the last frame came.
        self.received_at = now
        # Since when the server owes an answer, to which beat, and whether that brought a report.
        self._asked_at: float | None = None
        self._asked_beat = 0
        self._asked_of_report = self._asked_early = False
        # When it last had a word on work, what pauses it usually makes, and whether a frame has
        # left since that it answers.
        self._worked_at, self._pause_s, self._asked_since = now, heartbeat_s, True
        # When another node was asked last who leads.
        self._inquired_at = now
        # How slow the slowest answer of late was, to a frame with nothing to answer but its beat,
        # and to one with a report.
        self._slowest_s = {False: heartbeat_s, True: heartbeat_s}
        # The same of beats that asked early. Until one was slow, they are taken to be quick.
        self._slowest_early_s = 0.0

    def opened(self, now: float) -> None:
        """A new stream begins."""
        self.received_at = now
        self._asked_at = None

    def sent(self, beat: int, now: float, *, has_report: bool) -> None:
        """A frame leaves, which is to be answered."""
        if self._asked_at is None or (has_report and not self._asked_of_report):
            self._asked_early = not has_report and now >= self.ask_early_at
            self._asked_at, self._asked_beat = now, beat
            self._asked_of_report = has_report
        self._asked_since = True

    def _worked(self, now: float) -> None:
        pause_s = min(now - self._worked_at, self.heartbeat_s)
        self._pause_s += (pause_s - self._pause_s) * (1 - FORGETTING)
        self._worked_at, self._asked_since = now, False

    @property
    def ask_early_at(self) -> float:
        """When to send a beat before its time; never, if it would say nothing new."""
        if self._asked_at is not None or self._asked_since:
            return float("inf")
        return self._worked_at + max(SILENT_MIN_S, SILENT_PAUSES * self._pause_s)

    def received(self, beat: int, now: float, *, works: bool = False) -> None:
        """A frame came, which answers all up to this beat, and may have a word on work."""
        self.received_at = now
        if works:
            self._worked(now)
        if self._asked_at is not None and beat >= self._asked_beat:
            kind, took = self._asked_of_report, now - self._asked_at
            self._slowest_s[kind] = max(took, self._slowest_s[kind] * FORGETTING)
            if self._asked_early:
                self._slowest_early_s = max(took, self._slowest_early_s * FORGETTING)
            self._asked_at = None

    @property
    def timeout_s(self) -> float:
        """How long an answer may take."""
        slowest = self._slowest_s[False]
        if self._asked_of_report:
            # That is answered as soon as it is recorded, a beat alone perhaps much later.
            slowest = min(self._slowest_s.values())
        return min(max(TIMEOUT_MIN_S, 2 * slowest), 2 * self.heartbeat_s)

    @property
    def overdue_at(self) -> float:
        """When the answer that is owed is overdue; never, if none is owed."""
        if self._asked_at is None:
            return float("inf")
        return max(self._asked_at, self.received_at) + self.timeout_s

    def allow_more(self) -> None:
        """Should it be slow and not dead, it gets more time on the next stream."""
        kinds = (False, True) if self._asked_of_report else (False,)
        self._slowest_s |= dict.fromkeys(kinds, self.timeout_s)

    def inquires(self, now: float) -> bool:
        """Whether to ask another node now who leads; if so, the stream still stands."""
        if now < self.inquire_at:
            return False
        self._inquired_at = now
        return True

    @property
    def inquire_at(self) -> float:
        """When to ask another node; never, if no answer is owed."""
        if self._asked_at is None:
            return float("inf")
        since = max(self._asked_at, self.received_at)
        # A server with very many workers answers a beat alone much later than a report.
        usual = 0.0 if self._asked_of_report else self._slowest_s[False]
        if self._asked_early:
            usual = self._slowest_early_s
        pause = max(ASK_AGAIN_S, ASK_AGAIN_SHARE * (self._inquired_at - since))
        return max(since + max(DOUBT_S, usual), self._inquired_at + pause)
