"""Answers that are on their way: counted until they were taken, and waited for no longer than that.

gRPC has no way to end a call whose answer waits for a caller that does not read: that goes with its
connection. So the connection is broken off, with all that is on it; who reads slowly has a minute
for each answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections import OrderedDict
from collections.abc import Callable, Set
from functools import partial
from itertools import islice
from typing import Any

from ...statemachine.core.rejection import Rejection
from .. import refusals
from .call import Call
from .shares import Share

TAKEN_S = 60.0  # From when an answer is there until all of it was taken.
LOOKED_AT = 100  # Answers in one look, of which there are fifty a second,
PIECE = 50  # and descriptors between two breaths of the loop.
DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


class Unread:
    """The answers of a node, the oldest first."""

    def __init__(self, answers: Share, note: Callable[[Call, Rejection], None]) -> None:
        """`note` is told of each that is given up."""
        self._answers, self._note = answers, note
        self._since: OrderedDict[asyncio.Task[Any], tuple[float, Call]] = OrderedDict()
        self._breaking: asyncio.Task[None] | None = None

    def give_when_taken(self, call: Call, size: int) -> None:
        """An answer that counts, until gRPC has done with the call, whose task this is. (The
        context has callbacks as well, and with one it holds itself.)"""
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        self._since[task] = task.get_loop().time(), call
        task.add_done_callback(partial(self._taken, call.caller, size))

    def _taken(self, caller: str, size: int, task: asyncio.Task[Any]) -> None:
        self._since.pop(task, None)
        self._answers.give(caller, size)

    def look(self, now: float) -> None:
        """Break off what was waited for too long. Should that fail, it is tried again as late."""
        if self._breaking is not None:
            if not self._breaking.done():
                return
            self._breaking.result()
            self._breaking = None
        peers = set[str]()
        for task, (since, call) in list(islice(self._since.items(), LOOKED_AT)):
            if now - since < TAKEN_S:
                break
            self._since[task] = now, call
            self._since.move_to_end(task)
            self._note(call, refusals.unread("this answer", TAKEN_S, call.caller).rejection)
            peers.add(call.context.peer())
        if peers:
            self._breaking = asyncio.create_task(break_off(peers), name="break off")


async def break_off(peers: Set[str]) -> None:
    """End the connections from these addresses, as gRPC writes them."""
    names = os.listdir(DESCRIPTORS)
    for first in range(0, len(names), PIECE):
        for name in names[first : first + PIECE]:
            _shut(int(name), peers)
        await asyncio.sleep(0)


def _shut(number: int, peers: Set[str]) -> None:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return
        # A descriptor of its own, so that it is the same socket to the end; addresses of both
        # families fit into one of the longer.
        with socket.fromfd(number, socket.AF_INET6, socket.SOCK_STREAM) as one:
            if _written(one.getpeername()) in peers:
                one.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It listens, or it was closed meanwhile.
        return


def _written(address: object) -> str:
    """As `ServicerContext.peer` says it; empty for what is no address of the network."""
    if not isinstance(address, tuple):
        return ""
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
