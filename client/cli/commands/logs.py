"""What a handler has logged: the end of it that the cluster keeps, and what comes after that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..render.clean import echo
from ..session import Invocation

if TYPE_CHECKING:
    from ..messages import run_pb2

# The cluster keeps so much of a log.
KEPT_BYTES = 16_384
GAP = "... what came before this is not kept any more ..."


class Log:
    """Prints what is new in a log of which each look shows the end."""

    def __init__(self, session: Invocation) -> None:
        self._session = session
        self._seen = b""
        self._token = 0

    def show(self, run: run_pb2.Run) -> None:
        # The tail of the attempt before stays until the next one says something.
        if run.log_tail == self._seen:
            return
        found, joined = run.log_tail, len(run.log_tail) < KEPT_BYTES
        if run.token == self._token:
            found, joined = news(self._seen, run.log_tail)
        elif self._token:
            self._session.say(f"Attempt {run.attempt}:")
        if not joined:
            self._session.say(GAP)
        self._seen, self._token = run.log_tail, run.token
        self.say(run, text_of(found))

    def say(self, run: run_pb2.Run, text: str) -> None:
        out = self._session.out
        if not out.is_table:
            out.piece({"run": run.id, "attempt": run.attempt, "log": text})
        else:
            # A pipe gets the handler's bytes as they are.
            (echo if out.for_person else click.echo)(text, nl=False)
        sys.stdout.flush()


def news(before: bytes, now: bytes) -> tuple[bytes, bool]:
    """What `now` has behind `before`, and whether it joins: the beginning may be cut off."""
    for begin in range(len(before)):
        if now.startswith(before[begin:]):
            return now[len(before) - begin :], True
    return now, not before


def text_of(log: bytes) -> str:
    """The first character may have been cut in two."""
    begin = 0
    while begin < min(3, len(log)) and 0x80 <= log[begin] < 0xC0:
        begin += 1
    return log[begin:].decode("utf-8", "replace")
