"""Time zones are looked at on a thread before the leader's loop needs them: one that was never
asked takes some milliseconds, and a call may name hundreds.

A call waits for those it names. Those that the leader uses are looked at by the others too, one
after the other with rests between, so that none of them begins cold when it comes to lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ..proto.v1 import calendar_pb2, job_pb2
from ..statemachine import zones
from .consensus.port import Steps, Untimed

REST_S = 0.02  # Between two zones that no call waits for.
NAMED = 64  # Zones that the others are told of at a time.
BESIDE = "look at time zones"


class WarmZones:
    """One thread, so that many calls at once do not crowd the loop out."""

    def __init__(self, steps: Steps | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, "zones")
        self._steps = steps or Untimed()
        # What the leader uses and nobody here has asked for yet: no more than there are zones.
        self._soon: dict[str, None] = {}
        self._warming: asyncio.Task[None] | None = None
        self._named = 0

    async def ready(self, body: object, now_ms: int) -> None:
        """Return when the zones of a request have been looked at."""
        names = zones.cold(_named(body))
        if names:
            await self._look_at(names, now_ms)

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
            await self._look_at([name], now_ms)
            await asyncio.sleep(REST_S)

    async def _look_at(self, names: list[str], now_ms: int) -> None:
        self._steps.begin_beside(BESIDE)
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, zones.warm, names, now_ms // 1000)
        finally:
            self._steps.end_beside(BESIDE)

    def stop(self) -> None:
        if self._warming is not None:
            self._warming.cancel()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


def _named(body: object) -> list[str]:
    if isinstance(body, job_pb2.ImportJobsRequest):
        return [job.spec.timing.zone for job in body.jobs]
    if isinstance(body, job_pb2.CreateJobRequest | job_pb2.UpdateJobRequest):
        return [body.job.spec.timing.zone]
    if isinstance(body, calendar_pb2.CreateCalendarRequest | calendar_pb2.UpdateCalendarRequest):
        return [body.calendar.zone]
    return []
