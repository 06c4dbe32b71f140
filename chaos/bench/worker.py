"""A worker process of the benchmarks: the SDK's worker with a handler that does nothing.

It reports how many runs it has begun, a line each time the number has changed; for lateness, it
writes the due time of each run, and the seconds from then to its start, behind what a file has.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from array import array
from pathlib import Path

from ...client import Context, Worker

REPORT_S = 0.02
# So many figures are kept before they are written.
KEPT = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m raftsched.chaos.bench.worker")
    parser.add_argument("endpoints")
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument("--lateness", type=Path)
    options = parser.parse_args()
    worker = Worker(options.endpoints, slots=options.slots, grace=5.0)
    begun = 0
    late = array("d")

    def noop() -> None:
        nonlocal begun
        begun += 1

    def timed(context: Context) -> None:
        nonlocal begun
        begun += 1
        due_s = context.due_time.timestamp()
        late.extend((due_s, time.time() - due_s))

    def flaky(context: Context) -> None:
        if context.attempt == 1:
            raise RuntimeError("the first attempt fails, as it was asked to")
        noop()

    def write() -> None:
        with options.lateness.open("ab") as file:
            file.write(late.tobytes())
        del late[:]

    worker.handler("noop", inline=True)(timed if options.lateness else noop)
    worker.handler("flaky", inline=True)(flaky)

    async def report() -> None:
        reported = -1
        while True:
            if begun != reported:
                reported = begun
                sys.stdout.write(f"{reported}\n")
                sys.stdout.flush()
            if len(late) >= KEPT:
                write()
            await asyncio.sleep(REPORT_S)

    async def serve() -> None:
        reporting = asyncio.create_task(report())
        serving = asyncio.create_task(worker.serve())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await asyncio.wait([reporting, serving], return_when=asyncio.FIRST_COMPLETED)
        for task in (reporting, serving):
            if task.done():
                task.result()
        reporting.cancel()

    try:
        asyncio.run(serve())
    finally:
        if options.lateness:
            write()


if __name__ == "__main__":
    main()
