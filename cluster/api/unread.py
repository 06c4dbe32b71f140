"""Answers that are on their way: counted until they were taken, and waited for no longer than that.

gRPC has no way to end a call whose answer waits for a caller that does not read: that goes with its
connection. So the connection is broken off, with all that is on it; who reads slowly has a minute
for each answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Any

from ...statemachine.core.rejection import Rejection
from ..node import refusals
from .call import Call
from .caller_limits import CallerShare
from .connections import break_off

TAKEN_S = 60.0  # From when an answer is there until all of it was taken.
LOOKED_AT = 100  # Answers in one look, of which there are fifty a second.


class Unread:
    """The answers of a node, the oldest first."""

    def __init__(self, answers: CallerShare, note: Callable[[Call, Rejection], None]) -> None:
        """`note` is called for each that is given up."""
        self._answers, self._note = answers, note
        # When each was ready, of which call it is, and how much it counts.
        self._since: OrderedDict[asyncio.Task[Any], tuple[float, Call, int]] = OrderedDict()
        self._breaking: asyncio.Task[None] | None = None

    def give_when_taken(self, call: Call, size: int) -> None:
        """An answer that counts, until gRPC has done with the call, whose task this is. (The
        context has callbacks as well, and with one it holds itself.)"""
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        self._since[task] = task.get_loop().time(), call, size
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[Any]) -> None:
        _, call, size = self._since.pop(task)
        self._answers.give(call.caller, size)

    def look(self, now: float) -> None:
        """Break off what was waited for too long. Should that fail, it is tried again as late."""
        if self._breaking is not None:
            if not self._breaking.done():
                return
            self._breaking.result()
            self._breaking = None
        peers = set[str]()
        for task, (since, call, size) in list(islice(self._since.items(), LOOKED_AT)):
            if now - since < TAKEN_S:
                break
            self._since[task] = now, call, size
            self._since.move_to_end(task)
            self._note(call, refusals.unread("this answer", TAKEN_S, call.caller).rejection)
            peers.add(call.peer)
        if peers:
            self._breaking = asyncio.create_task(break_off(peers), name="break off")
