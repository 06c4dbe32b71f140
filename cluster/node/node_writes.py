"""Calls that write: decided by the leader's loop, replicated, applied, and only then answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...statemachine.core.rejection import Refused, Rejection
from . import refusals
from .leader_loop import Leader
from .preload import Ahead


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

        def answer(reply: object) -> None:
            if not future.done():
                future.set_result(reply)

        def unknown() -> None:
            answer(refusals.leader_changed(self._name).rejection)

        def late() -> None:
            pending.withdrawn = not future.done()
            answer(refusals.commit_timeout(timeout).rejection)

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
                del reply, future, answer, unknown, late, timer, pending
        return reply
