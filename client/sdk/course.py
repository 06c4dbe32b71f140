"""One call's way to its answer: whom to ask, how long to wait, when to give up.

This is all policy and no I/O, so that the blocking and the asynchronous client do the same:

    course = Course(...)
    while True:
        attempt = course.next_try(now)
        send course.request to attempt.address, with attempt.timeout
        answered: course.answered(leader), done
        failed:   wait course.failed(failure, now) seconds, which raises when it is over
"""

from __future__ import annotations

import logging
import math
import random
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from ...proto.contract import Method, Next, Repeat
from .backoff import backoff
from .endpoints import Endpoints
from .errors import CallerError, OutcomeUnknown, RaftschedError, RateLimited, Unavailable
from .refusals import TRY_ELSEWHERE, FailedTry

logger = logging.getLogger("raftsched.client")
# The first try may last this long, each further one twice as long, so that a hung node costs
# seconds, and a slow answer still arrives.
TRY_FIRST_S, TRY_MOST_S = 2.0, 2_048.0
# The first wait between two tries, twice as long each time.
BACKOFF_FIRST_S = 0.02
BACKOFF_CAP_S = 1.0
# A limit that lets a call wait for so long is worth a word.
WAIT_WARNED_S = 0.5
# So long without a leader is longer than an election.
ELECTION_WARNED_S = 1.0
# So often in one call the word on who leads is followed without a wait.
HINTS_MAX = 3
NO_QUORUM = "NO_QUORUM"
# The fields by which a request asks the server to take its time.
WAITING = ("timeout", "wait")


@dataclass(frozen=True, slots=True)
class Try:
    """Whom to ask, and for how long."""

    address: str
    timeout: float


class Course:
    """The policy of one call."""

    def __init__(
        self,
        method: Method,
        request: Message,
        endpoints: Endpoints,
        *,
        started: float,
        timeout: float,
        pinned: str = "",
        any_node: bool = False,
        retry: bool = True,
        leaderless: float = math.inf,
    ) -> None:
        self.method = method
        self.request = request
        self._endpoints = endpoints
        self._deadline = started + timeout
        # From when on it ends if no node knows a leader.
        self._leaderless_from = started + leaderless
        self._timeout = timeout
        # Only this endpoint may be asked.
        self._pinned = pinned
        self._any_node = any_node
        self._retry = retry
        self._tried: list[str] = []
        self._hinted = ""
        self._hints = 0
        self._waits = 0
        # The namespace lives in another cluster, which was followed.
        self._moved = False
        # Some try may have done what was asked.
        self._perhaps_done = False
        # Whoever called was warned that a limit makes it wait.
        self._warned = False
        # What a node said that was reached, which says more than that others were not.
        self._refusal: FailedTry | None = None
        # What the last try at each node came to that was not just cut off by the time it had.
        self._came_to: dict[str, FailedTry] = {}

    def next_try(self, now: float) -> Try:
        address = self._pinned or self._hinted
        if not address:
            address = self._endpoints.pick(now, self._tried, any_node=self._any_node)
        self._hinted = ""
        left = max(self._deadline - now, 0.001)
        if self._retry and not self.method.slow and not self._pinned:
            most = backoff(len(self._tried) + 1, TRY_FIRST_S, TRY_MOST_S) + asked_wait(self.request)
            left = min(left, most)
        self._tried.append(address)
        return Try(address, left)

    def answered(self, leader: str) -> None:
        self._endpoints.answered(self._tried[-1], leader)

    def failed(self, failure: FailedTry, now: float) -> float:
        """Seconds to wait before the next try; raises what the caller gets if there is none."""
        self._note(failure, now)
        if not failure.outcome_known and not self.method.harmless:
            self._perhaps_done = True
        if failure.reason:
            self._refusal = failure
        if not failure.cut_off:
            self._came_to[self._tried[-1]] = failure
        if self._follows(failure):
            return 0.0
        if not self._may_go_on(failure):
            raise self._verdict(failure)
        if now >= self._leaderless_from and self._nobody_knows_a_leader():
            raise self._last_word(failure, "no node knows a leader")
        wait = self._wait(failure, now)
        if now + wait >= self._deadline:
            raise self._out_of_time(failure)
        what, where = self.method.verb, self._tried[-1]
        why = f"{failure.reason or failure.code} {failure.message}"
        logger.debug("%s at %s: %s; again in %.3f s", what, where, why, wait)
        if not self._warned and self._is_worth_a_word(failure, now, wait):
            # Else whoever called would take it for a slow cluster until the deadline.
            self._warned = True
            left = self._deadline - now
            logger.warning(
                "%s at %s waits, for up to %.0f s: %s", what, where, left, failure.message
            )
        return wait

    def _is_worth_a_word(self, failure: FailedTry, now: float, wait: float) -> bool:
        """A limit that makes a call wait, or an election that takes longer than they do."""
        if failure.next == Next.NEXT_LATER:
            return wait >= WAIT_WARNED_S
        since = now - (self._deadline - self._timeout)
        return failure.next in TRY_ELSEWHERE and since >= ELECTION_WARNED_S

    def broke_off(self, failure: FailedTry, now: float) -> RaftschedError:
        """What the caller gets for a stream that ended after it had begun."""
        self._note(failure, now)
        return self._verdict(failure)

    def _note(self, failure: FailedTry, now: float) -> None:
        address = self._tried[-1]
        if failure.broken or failure.next == Next.NEXT_OTHER_NODE:
            self._endpoints.broke(address, now)
        else:
            self._endpoints.answered(address, "")
        if failure.leader:
            self._endpoints.learn(failure.leader)
        elif failure.next in TRY_ELSEWHERE:
            self._endpoints.forget_leader(address)

    def _follows(self, failure: FailedTry) -> bool:
        """Go on in the cluster that a refusal names; once in a call."""
        if failure.next != Next.NEXT_OTHER_CLUSTER or self._moved or self._pinned:
            return False
        elsewhere = self._endpoints.elsewhere(failure.values.get("addresses", ""))
        if elsewhere is None:
            return False
        self._endpoints, self._moved, self._hinted = elsewhere, True, ""
        return True

    def _may_go_on(self, failure: FailedTry) -> bool:
        if not self._retry or not failure.retryable:
            return False
        return not (failure.distrust and self._endpoints.all_in(self._tried))

    def _nobody_knows_a_leader(self) -> bool:
        """Each node that was reached in this call says so, and each other one was asked."""
        found = self._came_to.values()
        return (
            self._endpoints.all_in(self._tried)
            and any(one.reason == NO_QUORUM for one in found)
            and all(one.reason == NO_QUORUM or one.broken for one in found)
        )

    def _wait(self, failure: FailedTry, now: float) -> float:
        leader = failure.leader
        # One that may not be asked, since a token would be exposed there, was not learned.
        fresh = (
            leader in self._endpoints.known
            and leader != self._tried[-1]
            and not self._endpoints.suspect(leader, now)
        )
        if failure.next in TRY_ELSEWHERE and fresh and not self._pinned:
            self._hints += 1
            if self._hints <= HINTS_MAX:
                self._hinted = leader
                return 0.0
        self._waits += 1
        step = backoff(self._waits, BACKOFF_FIRST_S, BACKOFF_CAP_S)
        # Those who were given the same time must not come back at the same instant.
        asked = (failure.retry_after or 0.0) * random.uniform(1.0, 1.25)
        return max(asked, random.uniform(0.5, 1.0) * step)

    def _verdict(self, failure: FailedTry) -> RaftschedError:
        """What the caller gets for a failure after which there is no other try."""
        if failure.retryable or not failure.outcome_known:
            return self._last_word(failure, "it is not tried again")
        if failure.code == "UNIMPLEMENTED":
            text = f"{self._tried[-1]} does not know the call {self.method.verb}"
            why = f"it runs an older version, or is no node ({failure.message})"
            return failure.error(CallerError, f"{text}; {why}", self._request_id)
        return failure.error(failure.error_kind, failure.message, self._request_id)

    def _out_of_time(self, failure: FailedTry) -> RaftschedError:
        return self._last_word(
            failure, f"no other try fits into the timeout of {self._timeout:g} s"
        )

    def _last_word(self, failure: FailedTry, why: str) -> RaftschedError:
        asked = ", ".join(dict.fromkeys(self._tried))
        if failure.broken and self._refusal is not None:
            failure = self._refusal
        elif failure.cut_off:
            failure = self._came_to.get(self._tried[-1], failure)
        word = f"{failure.distrust} ({failure.message})" if failure.distrust else failure.message
        text = f"{self.method.verb}: {why}; asked {asked}; the last word was: {word}"
        if self._perhaps_done:
            text = f"{text}. It may have been done; call again with {self._how_to_repeat()}"
            return failure.error(OutcomeUnknown, text, self._request_id)
        kind = RateLimited if failure.error_kind is RateLimited else Unavailable
        return failure.error(kind, f"{text}. It was not done", self._request_id)

    def _how_to_repeat(self) -> str:
        if self.method.repeat == Repeat.REPEAT_BY_TOKEN:
            return "the same token"
        return f"request_id {self._request_id!r} to learn which"

    @property
    def _request_id(self) -> str:
        return str(getattr(self.request, "request_id", ""))


def asked_wait(request: Any) -> float:  # noqa: ANN401  # Any request of the contracts.
    """For how many seconds the request asks the server to hold its answer back."""
    fields = request.DESCRIPTOR.fields_by_name
    for name in WAITING:
        if name in fields and fields[name].message_type is not None:
            if request.HasField(name):
                asked = getattr(request, name).ToMilliseconds() / 1000
                return float(min(max(asked, 0.0), 60.0))
            return 30.0 if name == "timeout" else 0.0
    return 0.0
