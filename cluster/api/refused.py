"""Calls that a node turns away for who calls or how many: counted, and logged within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from ...statemachine.core.rejection import Reason, Rejection
from .call import Call

# What says something of the caller or of the load, and nothing of what the request asks for.
COUNTED = frozenset(
    {
        Reason.ERROR_REASON_UNAUTHENTICATED,
        Reason.ERROR_REASON_NOT_BOOTSTRAPPED,
        Reason.ERROR_REASON_FORBIDDEN,
        Reason.ERROR_REASON_RATE_LIMITED,
        Reason.ERROR_REASON_BACKLOG_FULL,
        Reason.ERROR_REASON_NODE_LIMIT,
    }
)
LOGGED = 20
PERIOD_S = 10.0
logs = structlog.get_logger("raftsched.cluster.api.refused")


class RefusedCalls:
    """See the head of this file."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # By the name of the limit, or the reason where there is none.
        self.count: dict[str, int] = {}
        self._since = float("-inf")
        self._logged = 0

    def note(self, call: Call, rejection: Rejection) -> None:
        if rejection.reason not in COUNTED:
            return
        # Limits have names of ours; the values of other reasons are the caller's.
        limited = rejection.reason == Reason.ERROR_REASON_NODE_LIMIT
        what = rejection.values["limit"] if limited else rejection.word
        self.count[what] = self.count.get(what, 0) + 1
        if self._may_log():
            logs.warning(
                "refused", reason=rejection.word, limit=rejection.values.get("limit", ""),
                method=call.method.name, caller=call.caller or call.address,
                address=call.address, total=sum(self.count.values()),
            )  # fmt: skip

    def _may_log(self) -> bool:
        now = self.clock()
        if now - self._since >= PERIOD_S:
            self._since, self._logged = now, 0
        self._logged += 1
        return self._logged <= LOGGED
