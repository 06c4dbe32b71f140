"""Procrastinate, for load.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

LEFT = "select exists (select from procrastinate_jobs where status in ('todo', 'doing')) as any"


class ProcrastinateSystem:
    """Its jobs in PostgreSQL; workers run many at a time in one event loop."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        package = import_module("procrastinate")
        self.app = package.App(
            connector=package.PsycopgConnector(
                conninfo=f"host=127.0.0.1 port={asked['port']} user=postgres dbname=postgres",
                min_size=2, max_size=asked["connections"],
            )
        )  # fmt: skip
        self.began: Callable[[float], None] = lambda due: None

        async def noop(due: float, **payload: str) -> None:
            self.began(due)

        self.noop = self.app.task(name="noop")(noop)

    async def install(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        await self.app.open_async()

    async def insert(self, due: list[float]) -> None:
        """Those of one instant at once: a call takes one due time."""
        payload = import_module("json").loads(self.asked["payload"])
        if len({*due}) == 1:
            deferrer = self.noop.configure(schedule_at=datetime.fromtimestamp(due[0], UTC))
            await deferrer.batch_defer_async(*[{"due": instant, **payload} for instant in due])
            return
        limit = asyncio.Semaphore(self.asked["connections"])

        async def one(instant: float) -> None:
            async with limit:
                deferrer = self.noop.configure(schedule_at=datetime.fromtimestamp(instant, UTC))
                await deferrer.defer_async(due=instant, **payload)

        await asyncio.gather(*map(one, due))

    async def left(self) -> bool:
        row = await self.app.connector.execute_query_one_async(LEFT)
        return bool(row["any"])

    def work(self, began: Callable[[float], None]) -> None:
        self.began = began

        async def serve() -> None:
            async with self.app.open_async():
                await self.app.run_worker_async(
                    concurrency=self.asked["concurrency"],
                    fetch_job_polling_interval=self.asked["poll_s"],
                    install_signal_handlers=False,
                    delete_jobs="successful",
                )

        asyncio.run(serve())


SYSTEM = ProcrastinateSystem
