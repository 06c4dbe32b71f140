"""The load on PGQueuer; a program of its own, run where PGQueuer is installed and we are not.

Its argument is what is asked, as JSON; its last line is what it found. Workers are processes, like
ours. They count what they have begun in memory that the driver reads, so counting costs nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import sys
import time
from datetime import timedelta
from typing import Any

BATCH = 1_000
WARM_UP = 2_000
ROOM_S = 3.0
DRAIN_S = 60.0
NAME = "noop"


async def connect(port: int) -> Any:  # noqa: ANN401
    import asyncpg  # type: ignore[import-not-found]

    return await asyncpg.connect(
        host="127.0.0.1", port=port, user="postgres", database="postgres", password="none"
    )


def work(asked: dict[str, Any], begun: Any, late: Any) -> None:  # noqa: ANN401
    """A worker: polls, runs, notes how late each run began."""
    import uvloop  # What its own command line runs on.
    from pgqueuer import PgQueuer  # type: ignore[import-not-found]

    # Nobody is left behind when the driver is killed.
    ctypes.CDLL(None).prctl(1, 9)

    async def serve() -> None:
        queuer = PgQueuer.from_asyncpg_connection(await connect(asked["port"]))

        async def noop(job: Any) -> None:  # noqa: ANN401
            late[begun.value] = time.time() - job.execute_after.timestamp()
            begun.value += 1

        queuer.entrypoint(NAME)(noop)
        await queuer.run(
            batch_size=asked["batch_size"],
            dequeue_timeout=timedelta(seconds=asked["poll_s"]),
        )

    uvloop.run(serve())


class PgQueuerLoad:
    """Inserts, and waits until all is done."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        # Processes that share plain memory, and so are forked; nothing here has threads.
        fork = multiprocessing.get_context("fork")
        # Twice what should be needed, for a run that is begun again.
        room = 2 * (asked["runs"] + WARM_UP)
        self.begun = [fork.RawValue("q") for _ in range(asked["workers"])]
        self.late = [fork.RawArray("d", room) for _ in self.begun]
        self.workers = [
            fork.Process(target=work, args=(asked, begun, late), daemon=True)
            for begun, late in zip(self.begun, self.late, strict=True)
        ]

    async def install(self) -> None:
        from pgqueuer import AsyncpgDriver, Queries

        connection = await connect(self.asked["port"])
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    async def drive(self) -> dict[str, float]:
        from pgqueuer import AsyncpgDriver, Queries

        self.connection = await connect(self.asked["port"])
        self.queries = Queries(AsyncpgDriver(self.connection))
        await self.insert([time.time()] * WARM_UP)
        await self.drained(WARM_UP, time.time())
        known = [begun.value for begun in self.begun]

        runs, rate = self.asked["runs"], self.asked["rate"]
        began = time.time()
        first = began + runs / self.asked["insert_rate"] + ROOM_S
        await self.insert([first + number / rate if rate else first for number in range(runs)])
        took = time.time() - began
        if began + took > first:
            sys.exit(f"inserting took {took:.1f} s, which is too long; has the machine other work?")
        # Due times are given as delays from the server's clock when it reads them, so they are a
        # little later than meant. Count from what they came to be, in favour of PGQueuer.
        which = "min" if rate else "max"
        first = await self.connection.fetchval(
            f"select extract(epoch from {which}(execute_after))::float8 from pgqueuer"
        )
        await self.drained(runs + WARM_UP, first)
        seconds = time.time() - first
        late = sorted(
            1000 * value
            for values, begun, before in zip(self.late, self.begun, known, strict=True)
            for value in values[before : begun.value]
        )
        return {
            "begun": len(late),
            "seconds": seconds,
            "inserted_per_s": runs / took,
            **{f"lateness_p{p}_ms": late[len(late) * p // 100] for p in (50, 95, 99)},
            "lateness_max_ms": late[-1],
        }

    async def insert(self, due: list[float]) -> None:
        for start in range(0, len(due), BATCH):
            part = due[start : start + BATCH]
            now, count = time.time(), len(part)
            await self.queries.enqueue(
                [NAME] * count,
                [self.asked["payload"].encode()] * count,
                [0] * count,
                [timedelta(seconds=max(0.0, instant - now)) for instant in part],
            )

    async def drained(self, runs: int, last_due: float) -> None:
        """Return when so many runs were begun and no job is left, each completion committed."""
        rate = self.asked["rate"]
        until = last_due + (runs / rate if rate else 0) + DRAIN_S + runs / 1_000
        while (begun := sum(each.value for each in self.begun)) < runs:
            self.look_after(until, f"{begun} of {runs} runs were begun")
            await asyncio.sleep(0.01)
        while await self.connection.fetchval("select exists (select from pgqueuer)"):
            self.look_after(until, "all runs were begun, but not all are completed")
            await asyncio.sleep(0.005)

    def look_after(self, until: float, state: str) -> None:
        if not all(worker.is_alive() for worker in self.workers):
            sys.exit(f"a worker ended; {state}")
        if time.time() > until:
            sys.exit(f"it took too long; {state}")


def main() -> None:
    driver = PgQueuerLoad(json.loads(sys.argv[1]))
    asyncio.run(driver.install())
    driver.start()
    try:
        found = asyncio.run(driver.drive())
    finally:
        for worker in driver.workers:
            worker.kill()
            worker.join()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
