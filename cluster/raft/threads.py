"""The two helper threads of a node: one writes and syncs the journal, one does what takes long.

Both get work that touches nothing the loop changes. What comes of it is taken on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from .disk import FULL, LACKS
from .disk_errors import disk_failed, lacking
from .journal import Batch, Journal
from .outbox import HelperJob, HelperJobs
from .port import LoopMeter, RaftSettings

logger = logging.getLogger(__name__)

Made = TypeVar("Made")
SLOW_SYNC = 0.1  # Seconds of a round above which the log says so: an election waits for two.
FULL_RETRY = 0.5  # Seconds between attempts to write on a full disk.


class Core(Protocol):
    """What the threads work for."""

    me: str
    settings: RaftSettings
    journal: Journal
    jobs: HelperJobs

    @property
    def journal_full(self) -> bool:
        """A round of the journal found no room."""

    def disk_full(self, full: bool, now: float) -> None: ...
    def free_room(self) -> None: ...


class Turns(Protocol):
    """The loop, as those see it whose work it waits for."""

    clock: Callable[[], float]
    steps: LoopMeter
    stopping: bool

    @property
    def core(self) -> Core: ...

    def guard(self, what: Callable[[], None]) -> None:
        """Do something to the core; if it raises, this node has ended."""

    def fail(self, error: BaseException) -> None: ...
    def wake(self) -> None: ...

    def turn_unless_due(self) -> None:
        """Take a turn now, unless one is about to come."""


class JournalThread:
    """One round of the journal at a time."""

    def __init__(self, turns: Turns, synced: Callable[[float], None]) -> None:
        self.turns, self.core, self.clock = turns, turns.core, turns.clock
        self.synced = synced  # Called after each round with the seconds until it was durable.
        self.thread = ThreadPoolExecutor(1, "sync")
        self._batch: Batch | None = None
        self._wrote_at = self._began_at = turns.clock()

    def begin(self, now: float) -> None:
        """Begin a round if there is anything to write and none is under way."""
        if self._batch is not None:
            return
        idle = now - self._wrote_at > self.core.settings.heartbeat
        self._batch = self.core.journal.take(idle=idle)
        if self._batch is not None:
            self._run()

    def _run(self) -> None:
        batch = self._batch
        if batch is not None and not self.turns.stopping:
            loop = asyncio.get_running_loop()
            self._began_at = self.clock()
            ran = self.thread.submit(batch.run)
            # An asyncio future would report it one round of the loop later.
            ran.add_done_callback(lambda done: self._from_thread(loop, done))

    def _run_again(self) -> None:
        if self._batch is not None:
            self.core.journal.relieve(self._batch)
        self._run()

    def _from_thread(self, loop: asyncio.AbstractEventLoop, done: Future[None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._ran, done)

    def _ran(self, done: Future[None]) -> None:
        error, batch, core = done.exception(), self._batch, self.core
        if batch is None or self.turns.stopping:
            return
        if isinstance(error, OSError) and error.errno in LACKS:
            if not core.journal_full:
                logger.error("%s: %s; nothing is lost", core.me, lacking(error))
            self.turns.guard(lambda: core.disk_full(True, self.clock()))
            if error.errno in FULL:
                self.turns.guard(core.free_room)
            asyncio.get_running_loop().call_later(FULL_RETRY, self._run_again)
        elif error is not None:
            self.turns.fail(disk_failed(error))
        else:
            self._batch = None
            self._wrote_at = self.clock()
            took = self._wrote_at - self._began_at
            if took > SLOW_SYNC:
                logger.info("a sync of the journal took %d ms", 1000 * took)
            self.synced(took)
            core.journal.end_round(batch)
            if core.journal_full:
                core.disk_full(False, self.clock())
            self.turns.turn_unless_due()


class BulkThread:
    """One job at a time: snapshots that are made and put in place, and what is asked between."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.core = turns, turns.core
        self.thread = ThreadPoolExecutor(1, "bulk")
        self._job: HelperJob | None = None
        self._lacking: HelperJob | None = None  # The last one that found no room, or no descriptor.

    def begin(self) -> None:
        if self._job is None and self.core.jobs:
            self._job = self.core.jobs.popleft()
            self._run()

    def _run(self) -> None:
        job = self._job
        if job is not None and not self.turns.stopping:
            self.turns.steps.begin_beside(job.name)
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self.thread, job.run).add_done_callback(self._ran)

    def _run_again(self) -> None:
        """Behind what else there is to do, which may give it room."""
        if self._job is not None:
            self.core.jobs.append(self._job)
            self._job = self.core.jobs.popleft()
        self._run()

    def _ran(self, done: asyncio.Future[Any]) -> None:
        error, job, turns = done.exception(), self._job, self.turns
        if job is None or turns.stopping:
            return
        turns.steps.end_beside(job.name)
        if isinstance(error, OSError) and error.errno in LACKS:
            if job is not self._lacking:
                why = lacking(error)
                logger.error("%s cannot %s: %s; it is tried again", self.core.me, job.name, why)
            self._lacking = job
            if error.errno in FULL:
                turns.guard(self.core.free_room)
            asyncio.get_running_loop().call_later(FULL_RETRY, self._run_again)
        elif error is not None:
            turns.fail(disk_failed(error))
        else:
            self._job = None
            result = done.result()
            began = turns.clock()
            turns.guard(lambda: job.done(result))
            turns.steps.end(f"after: {job.name}", began)

    async def do(self, name: str, work: Callable[[], Made], undo: Callable[[Made], None]) -> Made:
        """Do work between two snapshots. What it raises is the caller's; what comes for a caller
        that has left is undone."""
        future: asyncio.Future[Made] = asyncio.get_running_loop().create_future()

        def run() -> tuple[Made | None, Exception | None]:
            try:
                return (None, None) if future.done() else (work(), None)
            except Exception as error:
                return None, error

        def done(result: tuple[Made | None, Exception | None]) -> None:
            made, error = result
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                elif made is not None:
                    future.set_result(made)
            elif made is not None:
                self.core.jobs.append(
                    HelperJob(f"undo: {name}", lambda: undo(made), lambda _: None)
                )

        self.core.jobs.append(HelperJob(name, run, done))
        self.turns.wake()
        return await future
