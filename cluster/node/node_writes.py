"""Calls that write: decided by the leader's loop, replicated, applied, and only then answered."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...proto import tracing
from ...statemachine.core.rejection import Refused, Rejection
from . import refusals
from .leader_loop import Leader
from .preload import Ahead

if TYPE_CHECKING:
    from ...proto.otel_spans import Spans


class NodeWrites:
    """See the head of this file."""

    def __init__(self, leader: Leader, zones: Ahead, now_ms: Callable[[], int]) -> None:
        self._leader, self._zones, self._now_ms = leader, zones, now_ms
        self._name = leader.name

    async def ask(self, body: object, actor: str, timeout: float, tenant: str = "") -> object:
        """Have a request decided, of any kind that the rules know. Raises Refused."""
        if unseen := self._zones.unseen(body):
            try:
                async with asyncio.timeout(timeout):
                    await self._zones.look_at(unseen, actor, self._now_ms())
            except TimeoutError:
                raise refusals.commit_timeout(timeout) from None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        spans = tracing.active()
        steps = None
        if spans is not None and spans.is_recording:
            steps = WriteSteps(spans, self._leader)

        def end(reply: object) -> None:
            if not future.done():
                future.set_result(reply)

        def answer(reply: object) -> None:
            if steps is not None and not future.done():
                steps.answered()
            end(reply)

        def unknown() -> None:
            end(refusals.leader_changed(self._name).rejection)

        def late() -> None:
            pending.withdrawn = not future.done()
            end(refusals.commit_timeout(timeout).rejection)

        pending = self._leader.ask(body, actor, answer, unknown, tenant)
        # Half of what `asyncio.timeout` costs each call.
        timer = loop.call_later(timeout, late)
        try:
            reply = await future
        finally:
            timer.cancel()
            if future.cancelled():
                # Whoever waited is gone; what was not decided yet need not be.
                pending.withdrawn = True
        if isinstance(reply, Rejection):
            raise Refused(reply)
        if isinstance(reply, Exception):
            try:
                # Its trace, which the leader's log has, holds the request that it was raised for.
                raise reply.with_traceback(None)
            finally:
                # Its new trace holds this frame, which must not hold it in turn.
                del reply, future, end, answer, unknown, late, timer, pending, steps
        return reply


class WriteSteps:
    """The spans of a write: how long it waited for a change, was decided, and came to a majority.

    Made as it is answered, which is in the same turn as its change: so the times of the leader's
    last change are those of its own.
    """

    def __init__(self, spans: Spans, leader: Leader) -> None:
        self._spans, self._leader = spans, leader
        self._asked_at = leader.seconds()
        # Of the caller that waits; what is answered is answered in the leader's.
        self._context = contextvars.copy_context()

    def answered(self) -> None:
        """Its outcome is known."""
        leader = self._leader
        if leader.began_at >= self._asked_at and leader.decided_at >= leader.began_at:
            self._context.run(self._note, leader.began_at, leader.decided_at, leader.seconds())

    def _note(self, began: float, decided: float, now: float) -> None:
        # From the clock of the loop to that of spans.
        zero = time.time_ns() - int(now * 1e9)
        steps = {"wait for a change": self._asked_at, "decide": began, "commit": decided}
        ends = began, decided, now
        try:
            for (name, start), end in zip(steps.items(), ends, strict=True):
                self._spans.step(name, zero + int(start * 1e9), zero + int(end * 1e9))
        except Exception as error:
            self._spans.failed(error)
