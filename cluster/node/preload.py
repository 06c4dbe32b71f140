"""Looks at what is dear when it is first asked for, on a thread, before the leader's loop needs it.

A time zone that was never asked takes some milliseconds and a cron expression a third of one; a
call may name hundreds of zones, or bring sixteen thousand expressions. A call waits for its own, in
turns with the reads of others. The rules remember what was looked at, so they find it there.

The zones that the leader uses are looked at by the others too, one after the other with rests
between, so that none of them begins cold when it comes to lead.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...proto.v1 import calendar_pb2, job_pb2, schedule_pb2
from ...statemachine.schedule import zones
from ...statemachine.schedule.compiler import shape_of
from .readers import Pace, Readers

REST_S = 0.02  # Between two zones that no call waits for.
NAMED = 64  # Zones that the others are sent at a time.
STAND_BACK_S = 0.001  # Less than a read does: a write waits for it, and its caller will not.
TURN_S = 0.02  # What one call looks at before it is somebody else's turn.
SEEN = 8_192  # Texts that are known to have been looked at: as many as the rules remember.
SOON = "zones of the leader"  # In whose turn those are looked at.
CALENDARS = (calendar_pb2.CreateCalendarRequest, calendar_pb2.UpdateCalendarRequest)
Spec = tuple[Sequence[schedule_pb2.Schedule], schedule_pb2.Timing]
# How schedules with a cron expression and timings with a zone begin in the bytes of a job: tag and
# length of the one, and the tag of the field in it. A payload may have such bytes as well.
NAMING = tuple(re.compile(each, re.DOTALL) for each in (rb'B.{1,5}"', rb"J.{1,5}\n"))


class Ahead:
    """See the head of this file. For one loop."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        # Zones and expressions that were looked at; none is always known.
        self._seen = {""}
        # What the leader uses and nobody here has asked for yet: no more than there are zones.
        self._soon: dict[str, None] = {}
        self._warming: asyncio.Task[None] | None = None
        self._named = 0

    async def look_at(self, todo: list[Spec], caller: str, now_ms: int) -> None:
        """Return when what a request names, and was not looked at before, has been."""
        while todo:
            done = await self._readers.read(f"{caller} ahead", self._looking(todo, now_ms))
            for spec in todo[:done]:
                self._note(_texts(spec))
            del todo[:done]

    def _looking(self, todo: list[Spec], now_ms: int) -> Callable[[], Callable[[], int]]:
        return lambda: lambda: _look_at(todo, now_ms, self._readers.pace(STAND_BACK_S))

    def _note(self, texts: Iterable[str]) -> None:
        if len(self._seen) > SEEN:
            self._seen = {""}
        self._seen.update(texts)

    def unseen(self, body: object) -> list[Spec]:
        """What of a request was not looked at yet; to be handed to `look_at` if there is any.
        Written out: each call pays for it, and an import for each of its thousand jobs, unless its
        bytes say that it names nothing."""
        kind = body.__class__
        if kind is job_pb2.CreateJobRequest or kind is job_pb2.UpdateJobRequest:
            specs = [body.job.spec]  # type: ignore[attr-defined]
        elif kind is job_pb2.ImportJobsRequest:
            data = body.SerializeToString()  # type: ignore[attr-defined]
            if not any(naming.search(data) for naming in NAMING):
                return []
            specs = [job.spec for job in body.jobs]  # type: ignore[attr-defined]
        elif kind in CALENDARS:
            timing = schedule_pb2.Timing(zone=body.calendar.zone)  # type: ignore[attr-defined]
            return [] if timing.zone in self._seen else [((), timing)]
        else:
            return []
        seen = self._seen
        todo: list[Spec] = []
        for spec in specs:
            if spec.HasField("timing") and spec.timing.zone not in seen:
                todo.append((spec.schedules, spec.timing))
                continue
            # A copy: going through the list itself costs twice as much.
            for schedule in spec.schedules[:]:
                if schedule.HasField("cron") and schedule.cron.expression not in seen:
                    todo.append((spec.schedules, spec.timing))
                    break
        return todo

    def in_use(self) -> list[str]:
        """Some of the zones that this node has asked for, other ones each time."""
        names = zones.in_use()
        first = self._named if self._named < len(names) else 0
        page = names[first : first + NAMED]
        self._named = first + len(page)
        return page

    def soon(self, names: Iterable[str], now_ms: int) -> None:
        """Look at zones that may be needed."""
        self._soon.update(dict.fromkeys(zones.cold(names)))
        if self._soon and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._warm(now_ms))

    async def _warm(self, now_ms: int) -> None:
        while self._soon:
            name, _ = self._soon.popitem()
            todo: list[Spec] = [((), schedule_pb2.Timing(zone=name))]
            await self._readers.read(SOON, self._looking(todo, now_ms))
            await asyncio.sleep(REST_S)

    def stop(self) -> None:
        if self._warming is not None:
            self._warming.cancel()


def _look_at(todo: list[Spec], now_ms: int, pace: Pace) -> int:
    """Look at some of them, and say how many; on a thread."""
    until = time.monotonic() + TURN_S
    for done, (schedules, timing) in enumerate(todo, 1):
        # What raises here raises in the rules as well, where the call is refused and it is counted.
        with contextlib.suppress(Exception):
            zones.warm([timing.zone], now_ms // 1000)
            shape_of(schedules, timing)
        pace.look()
        if time.monotonic() > until:
            return done
    return len(todo)


def _texts(spec: Spec) -> Iterator[str]:
    schedules, timing = spec
    yield timing.zone
    for schedule in schedules:
        yield schedule.cron.expression
