"""The worker of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..worker.worker import Worker, WorkerOptions
from .carrying_out import handler_of

if TYPE_CHECKING:
    from .app import App


class AppWorker(Worker):
    """Carries out the tasks of an app, within its start-up and shut-down."""

    def __init__(self, app: App, **options: Unpack[WorkerOptions]) -> None:
        settings = app.settings
        options.setdefault("namespaces", [app.namespace])
        # Without queues a worker takes from "default" alone.
        options.setdefault("queues", sorted({task.queue for task in app.tasks.values()}))
        trust = {word: settings[word] for word in ("token", "tls", "insecure")}
        super().__init__(settings["endpoints"], **trust, **options)
        self.app = app
        if not app.tasks:
            raise ValueError("this app has no tasks; write @app.task over a function")
        for task in app.tasks.values():
            self.add(handler_of(task))

    async def serve(self) -> None:
        async with self.app.lifespan():
            await super().serve()
