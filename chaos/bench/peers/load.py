"""A load on a system in Python; a program of its own, run where that is installed and we are not.

Its argument is what is asked, as JSON. The system is one of the files beside this one, which says
how it takes jobs, how its workers run, and whether any is left; the rest is the same for all. The
last line is what was found; when each run was due and when it began goes to a file. Workers are
processes, like ours. They count what they have begun in memory that this process reads, so counting
costs nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import json
import multiprocessing
import sys
import threading
import time
import traceback
from array import array
from pathlib import Path
from typing import Any

BATCH = 1_000
ROOM_S = 3.0
DRAIN_S = 60.0
# A worker that ended is started again by whatever looks after it: after as long as systemd waits.
RESTART_S = 0.1
# Behind the loss of a primary: so long it may take until all is begun.
RECOVERED_S = 150.0
LOOK_S, LEFT_LOOK_S, REST_S = 0.01, 0.005, 0.5
KILL_WITH_PARENT = 1


def system(path: str, asked: dict[str, Any]) -> Any:  # noqa: ANN401  # Of a file beside this one.
    spec = importlib.util.spec_from_file_location("the_system", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no program")
    module = importlib.util.module_from_spec(spec)
    sys.modules["the_system"] = module
    spec.loader.exec_module(module)
    return module.SYSTEM(asked)


def work(path: str, asked: dict[str, Any], begun: Any, pairs: Any) -> None:  # noqa: ANN401
    """A worker; it notes when each run was due and when it began."""
    # Nobody is left behind when the driver is killed.
    ctypes.CDLL(None).prctl(KILL_WITH_PARENT, 9)
    lock = threading.Lock()

    def began(due: float) -> None:
        now = time.time()
        with lock:
            at = 2 * begun.value
            pairs[at], pairs[at + 1] = due, now
            begun.value += 1

    while True:
        try:
            system(path, asked).work(began)
        except (Exception, SystemExit):
            traceback.print_exc()
        if not asked["failover"]:
            sys.exit("a worker ended by itself")
        time.sleep(RESTART_S)


class PeerLoad:
    """Inserts, and waits until all is done."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.system = system(asked["system"], asked)
        self.warm_up = min(asked["warm_up"], asked["runs"])
        # Processes that share plain memory, and so are forked; nothing here has threads.
        fork = multiprocessing.get_context("fork")
        # Twice what should be needed, for a run that is begun again.
        room = 4 * (asked["runs"] + self.warm_up)
        count = asked["workers"]
        self.begun = [fork.RawValue("q") for _ in range(count)]
        self.pairs = [fork.RawArray("d", room) for _ in range(count)]
        self.workers = [
            fork.Process(target=work, args=(asked["system"], asked, begun, pairs))
            for begun, pairs in zip(self.begun, self.pairs, strict=True)
        ]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    async def drive(self) -> dict[str, float]:
        await self.system.connect()
        runs, rate = self.asked["runs"], self.asked["rate"]
        began = time.time()
        # As those that count: of one instant, or each with its own, which some insert one by one.
        apart_s = 1e-5 if rate else 0.0
        await self.insert([began + number * apart_s for number in range(self.warm_up)])
        # How long the others will take: twice as long each.
        each_s = 2 * (time.time() - began) / self.warm_up
        await self.drained(self.warm_up, time.time())
        known = [begun.value for begun in self.begun]
        began = time.time()
        first = began + runs * max(each_s, 1 / self.asked["insert_rate"]) + ROOM_S
        await self.insert([first + number / rate if rate else first for number in range(runs)])
        took = time.time() - began
        if began + took > first:
            sys.exit(f"inserting took {took:.1f} s, which is too long; has the machine other work?")
        sys.stdout.write(json.dumps({"first": first}) + "\n")
        sys.stdout.flush()
        last = first + (runs / rate if rate else 0.0)
        if self.asked["failover"]:
            await self.recovered(runs + self.warm_up, last)
        else:
            await self.drained(runs + self.warm_up, last)
        done = time.time()
        whole = array("d")
        for pairs, begun, before in zip(self.pairs, self.begun, known, strict=True):
            whole.extend(pairs[2 * before : 2 * begun.value])
        Path(self.asked["pairs"]).write_bytes(whole.tobytes())
        # Whoever looks at the workers from outside sees them once more.
        await asyncio.sleep(REST_S)
        return {"first": first, "done": done, "inserted_per_s": runs / took}

    async def insert(self, due: list[float]) -> None:
        for start in range(0, len(due), BATCH):
            await self.system.insert(due[start : start + BATCH])

    async def drained(self, runs: int, last_due: float) -> None:
        """Return when so many runs were begun and no job is left, each completion committed."""
        until = last_due + DRAIN_S + runs / self.asked["least_rate"]
        while (begun := self.count()) < runs:
            self.look_after(until, f"{begun} of {runs} runs were begun")
            await asyncio.sleep(LOOK_S)
        while await self.system.left():
            self.look_after(until, "all runs were begun, but not all are completed")
            await asyncio.sleep(LEFT_LOOK_S)

    async def recovered(self, runs: int, last_due: float) -> None:
        """Return when so many runs were begun, or when it is clear that some never are."""
        until = last_due + RECOVERED_S
        while self.count() < runs and time.time() < until:
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(1.0)

    def count(self) -> int:
        return sum(each.value for each in self.begun)

    def look_after(self, until: float, state: str) -> None:
        if not all(worker.is_alive() for worker in self.workers):
            sys.exit(f"a worker ended; {state}")
        if time.time() > until:
            sys.exit(f"it took too long; {state}")


def main() -> None:
    driver = PeerLoad(json.loads(sys.argv[1]))
    asyncio.run(driver.system.install())
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
