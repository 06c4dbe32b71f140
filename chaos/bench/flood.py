"""Callers without a good token send all they can:
`python -m raftsched.chaos.bench.flood PORT SECONDS`.

A process of its own, so that how busy it is says nothing of who is measured beside it. It prints
how many were answered with what, 0 for connections that broke off.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

from .http import HttpConnection

# Each as fast as it is answered.
CONNECTIONS = 64
JOB = {"name": "flood", "cron": "* * * * *", "callback_url": "https://example.com/hook"}
ASKED: tuple[tuple[str, str, object], ...] = (
    ("GET", "/v1/jobs", None), ("POST", "/api/v1/jobs", JOB), ("DELETE", "/v1/jobs/none", None),
    ("GET", "/api/v1/jobs/none/status", None), ("GET", "/v1/runs?pageSize=1000", None),
    ("GET", "/nothing", None), ("POST", "/v1/jobs:import", {"jobs": [{}] * 500}),
    ("GET", "/v1/events:watch", None), ("POST", "/v1/jobs", "no job"),
)  # fmt: skip


async def flood(port: int, seconds: float) -> Counter[int]:
    until, answered = time.monotonic() + seconds, Counter[int]()

    async def one(number: int) -> None:
        # Every fourth guesses at tokens.
        caller = HttpConnection(port, f"rs_{number:043d}" if number % 4 == 0 else "")
        while time.monotonic() < until:
            number += 1
            try:
                answered[await caller.ask(*ASKED[number % len(ASKED)])] += 1
            except (OSError, asyncio.IncompleteReadError):
                answered[0] += 1
                caller.close()
        caller.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return answered


if __name__ == "__main__":
    found = asyncio.run(flood(int(sys.argv[1]), float(sys.argv[2])))
    sys.stdout.write(f"{json.dumps(found)}\n")
