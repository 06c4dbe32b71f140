"""Celery with Redis, for load.py."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

DATABASE = 1
MASTER = "bench"


class CelerySystem:
    """Tasks with an instant (`eta`): each worker fetches them ahead and keeps them in memory."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        options: dict[str, Any] = {"visibility_timeout": 3_600}
        broker = f"redis://127.0.0.1:{asked['port']}/{DATABASE}"
        if asked["sentinels"]:
            broker = ";".join(
                f"sentinel://127.0.0.1:{port}/{DATABASE}" for port in asked["sentinels"]
            )
            options["master_name"] = MASTER
        self.app = import_module("celery").Celery("bench", broker=broker, backend=None)
        self.app.conf.update(
            broker_transport_options=options, task_ignore_result=True,
            # Taken away behind the run, so that one whose worker dies is not lost.
            task_acks_late=True, worker_prefetch_multiplier=asked["prefetch"],
            broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
        )  # fmt: skip
        self.began: Callable[[float], None] = lambda due: None

        def noop(due: float, **payload: str) -> None:
            self.began(due)

        # Shared, it would stand in the app of a forked worker too, which has one of its own.
        self.noop = self.app.task(name="noop", shared=False)(noop)

    async def install(self) -> None:
        """Nothing is needed before the first task."""

    async def connect(self) -> None:
        self.producers = self.app.producer_pool
        self.redis = import_module("redis").Redis(port=self.asked["port"], db=DATABASE)

    async def insert(self, due: list[float]) -> None:
        """One after the other: it has no call for many."""
        payload = import_module("json").loads(self.asked["payload"])
        with self.producers.acquire(block=True) as producer:
            for instant in due:
                self.noop.apply_async(
                    kwargs={"due": instant, **payload}, producer=producer,
                    eta=datetime.fromtimestamp(instant, UTC),
                )  # fmt: skip

    async def left(self) -> bool:
        return bool(self.redis.llen("celery") or self.redis.hlen("unacked"))

    def work(self, began: Callable[[float], None]) -> None:
        self.began = began
        self.app.worker_main([
            "worker", "--pool=prefork", "--concurrency=1", "--loglevel=ERROR",
            f"--hostname=worker-{import_module('os').getpid()}@%h",
            "--without-gossip", "--without-mingle",
        ])  # fmt: skip


SYSTEM = CelerySystem
