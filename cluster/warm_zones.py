"""Time zones that a call names are looked at before it comes to the leader's loop: a zone that was
never asked takes some milliseconds, and a call may name hundreds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ..proto.v1 import job_pb2
from ..statemachine import zones


class WarmZones:
    """One thread, so that many calls at once do not crowd the loop out."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "zones")

    async def ready(self, body: object, now_ms: int) -> None:
        """Return when the zones of a request have been looked at."""
        names = zones.cold(_named(body))
        if names:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, zones.warm, names, now_ms // 1000)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


def _named(body: object) -> list[str]:
    if isinstance(body, job_pb2.ImportJobsRequest):
        return [job.spec.timing.zone for job in body.jobs]
    if isinstance(body, job_pb2.CreateJobRequest | job_pb2.UpdateJobRequest):
        return [body.job.spec.timing.zone]
    return []
