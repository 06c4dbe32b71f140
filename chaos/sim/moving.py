"""Users on a cluster who make the moves of `moves.py`, and the oracle of what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Reason, Rejection
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.record import parse_change
from .lives import Lives
from .moves import People
from .oracle import EARLY_MS, LATE_MS, Oracle
from .settled import check_all
from .user import AGAIN, Done, User
from .world import SimViolation

if TYPE_CHECKING:
    from .rules import SchedulerCluster

UNIT_MS = 1_000


class MovingUser(User):
    """One request at a time, as any other; it may be refused."""

    def __init__(self, number: int, cluster: SchedulerCluster) -> None:
        super().__init__(number, cluster)
        options = cluster.options
        self.what = ""
        self.people = People(
            self.world.dice, lambda: cluster.oracle.true_ms(), UNIT_MS, options.moves,
            options.parts, prefix=f"u{number}-",
        )  # fmt: skip

    @property
    def request_id(self) -> str:
        return str(self.body.request_id)  # type: ignore[attr-defined]  # Each of these has one.

    def choose(self) -> Done:
        self.what, ask = self.people.next()
        self.body = ask.body
        return ask.done

    def took(self, reply: object) -> None:
        refused = isinstance(reply, Rejection) and reply.reason not in AGAIN
        if isinstance(reply, Rejection) and reply.reason == Reason.ERROR_REASON_RULE_FAILED:
            raise SimViolation(f"S10 {self.what} failed: {reply.message}")
        if not refused:
            if not isinstance(reply, Rejection):
                self.cluster.oracle.counts[self.what] += 1
            super().took(reply)
            return
        self.cluster.oracle.counts[f"{self.what} refused"] += 1
        self.busy = False
        self.later(self.PAUSE, self.go)


class MovesOracle(Oracle):
    """Checks what holds whatever was asked for (`lives.py`), and clocks and acknowledgements."""

    def __init__(self, true_ms: Callable[[], int], steps: int = 1_000_000) -> None:
        super().__init__(true_ms, steps)
        self.lives = Lives(steps)
        self.counts = self.lives.counts

    def changed(self, index: int, data: bytes, revision: int) -> None:
        if index <= self.index:
            return
        self.index = index
        change = parse_change(data, revision)
        if change.now_ms > self.true_ms() + EARLY_MS:
            ahead = change.now_ms - self.true_ms()
            raise SimViolation(f"S9 time in the state is {ahead} ms ahead at {index}")
        self.lives.changed(change)

    def acknowledged(self, ack: worker_pb2.ResultAck, succeeded: bool) -> None:
        if not ack.reason and succeeded and ack.token not in self.lives.good:
            raise SimViolation(f"S6 the end of lease {ack.token} is acknowledged, and none was")

    def recount(self, store: Reading, anchor_ms: int, true_ms: int) -> int:
        """All that holds of a state at the end."""
        check_all(store, self.lives.now_ms, self.lives, late_ms=LATE_MS)
        return self.counts["times counted"]

    def check_user(self, user: MovingUser) -> None:
        """S1. What was answered was there."""
        for job in user.people.jobs.values():
            for run in sorted(job.triggers):
                if keys.run_key(run) not in self.lives.fired:
                    raise SimViolation(f"S1 {run} was acknowledged, and never was")
