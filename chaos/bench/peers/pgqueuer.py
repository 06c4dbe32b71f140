"""PGQueuer, for load.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

NAME = "noop"


class PgqueuerSystem:
    """Its queue in PostgreSQL, and its workers on uvloop, as its own command line runs them."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked

    async def open(self) -> Any:  # noqa: ANN401
        return await import_module("asyncpg").connect(
            host="127.0.0.1", port=self.asked["port"], user="postgres", database="postgres",
            password="none",
        )  # fmt: skip

    async def install(self) -> None:
        connection = await self.open()
        queuer = import_module("pgqueuer")
        await queuer.Queries(queuer.AsyncpgDriver(connection)).install()
        await connection.close()

    async def connect(self) -> None:
        queuer = import_module("pgqueuer")
        self.connection = await self.open()
        self.queries = queuer.Queries(queuer.AsyncpgDriver(self.connection))

    async def insert(self, due: list[float]) -> None:
        now, count = time.time(), len(due)
        await self.queries.enqueue(
            [NAME] * count,
            [self.asked["payload"].encode()] * count,
            [0] * count,
            [timedelta(seconds=max(0.0, instant - now)) for instant in due],
        )

    async def left(self) -> bool:
        return bool(await self.connection.fetchval("select exists (select from pgqueuer)"))

    def work(self, began: Callable[[float], None]) -> None:
        async def serve() -> None:
            queuer = import_module("pgqueuer").PgQueuer.from_asyncpg_connection(await self.open())

            async def noop(job: Any) -> None:  # noqa: ANN401
                # Due times are given as delays from the server's clock when it reads them, so they
                # are a little later than meant. Counted from what they came to be, in its favour.
                began(job.execute_after.timestamp())

            queuer.entrypoint(NAME)(noop)
            await queuer.run(
                batch_size=self.asked["batch_size"],
                dequeue_timeout=timedelta(seconds=self.asked["poll_s"]),
            )

        import_module("uvloop").run(serve())


SYSTEM = PgqueuerSystem
