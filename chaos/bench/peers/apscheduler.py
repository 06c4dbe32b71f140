"""APScheduler 3 with its jobs in PostgreSQL, for load.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

TABLE = "apscheduler_jobs"
GRACE_S = 3_600

BEGAN: list[Callable[[float], None]] = []


def noop(due: float, payload: str) -> None:
    BEGAN[0](due)


class ApschedulerSystem:
    """One process with threads: two would both run every job."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.inserted = 0

    def engine(self) -> Any:  # noqa: ANN401
        address = f"postgresql+psycopg://postgres@127.0.0.1:{self.asked['port']}/postgres"
        return import_module("sqlalchemy").create_engine(address, pool_pre_ping=True)

    def store(self) -> Any:  # noqa: ANN401
        module = import_module("apscheduler.jobstores.sqlalchemy")
        return module.SQLAlchemyJobStore(engine=self.engine(), tablename=TABLE)

    async def install(self) -> None:
        module = import_module("apscheduler.schedulers.background")
        scheduler = module.BackgroundScheduler(jobstores={"default": self.store()}, timezone=UTC)
        scheduler.start(paused=True)
        scheduler.shutdown()

    async def connect(self) -> None:
        """A scheduler that stands still is how another process adds jobs."""
        module = import_module("apscheduler.schedulers.background")
        self.scheduler = module.BackgroundScheduler(
            jobstores={"default": self.store()}, timezone=UTC
        )
        self.scheduler.start(paused=True)
        self.connection = self.engine().connect()

    async def insert(self, due: list[float]) -> None:
        """One after the other: it has no call for many."""
        for instant in due:
            self.inserted += 1
            self.scheduler.add_job(
                "the_system:noop", "date", run_date=datetime.fromtimestamp(instant, UTC),
                args=(instant, self.asked["payload"]), id=f"job-{self.inserted}",
                misfire_grace_time=GRACE_S,
            )  # fmt: skip

    async def left(self) -> bool:
        text = import_module("sqlalchemy").text(f"select exists (select from {TABLE})")
        found = bool(self.connection.execute(text).scalar())
        self.connection.rollback()
        return found

    def work(self, began: Callable[[float], None]) -> None:
        BEGAN[:] = [began]
        threads = import_module("apscheduler.executors.pool")
        module = import_module("apscheduler.schedulers.background")
        scheduler = module.BackgroundScheduler(
            jobstores={"default": self.store()}, timezone=UTC,
            executors={"default": threads.ThreadPoolExecutor(self.asked["threads"])},
        )  # fmt: skip
        scheduler.start()
        while True:
            time.sleep(self.asked["poll_s"])
            # What another process adds is not noticed: it has to be asked to look.
            scheduler.wakeup()


SYSTEM = ApschedulerSystem
