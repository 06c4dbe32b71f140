"""The worker of `raftsched dev`, and the jobs it begins with. Begin your own from this file.

python -m raftsched.client.dev.example 127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys

from .. import AlreadyExists, AsyncClient, Context, Retry, Unavailable, Worker, cron, every
from ..worker.executors import Executor, HttpExecutor, ShellExecutor

TIMEOUT_S = 30.0


def register(worker: Worker) -> None:
    """The handlers of the examples."""

    @worker.handler()
    def hello(context: Context, name: str = "world") -> str:
        return f"hello {name}, this is attempt {context.attempt}"

    @worker.handler()
    def flaky(context: Context) -> str:
        if context.attempt == 1:
            raise ConnectionError("the first attempt always fails, so that there is a retry to see")
        return f"worked on attempt {context.attempt}"

    @worker.handler()
    async def extract() -> list[int]:
        await asyncio.sleep(0.1)
        return [random.randint(1, 100) for _ in range(5)]

    @worker.handler()
    def load(context: Context) -> str:
        numbers: list[int] = context.upstream("extract", list[int])
        return f"the sum is {sum(numbers)}"


async def create_jobs(client: AsyncClient) -> None:
    """As they are, if they are there already: a person may have changed them."""
    orders = (
        client.jobs.create("hello", handler="hello", payload={"name": "you"},
                           schedule=cron("*/5 * * * * *")),
        client.jobs.create("flaky", handler="flaky", schedule=every(10),
                           retry=Retry(attempts=3, first=1)),
        client.jobs.create("extract", handler="extract", schedule=cron("*/15 * * * * *")),
        client.jobs.create("load", handler="load", after="extract"),
    )  # fmt: skip
    for order in orders:
        try:
            await order
        except AlreadyExists:
            continue


def executors() -> list[Executor]:
    """All that are installed; a cluster to try things on starts without the others, too."""
    found: list[Executor] = [ShellExecutor()]
    with contextlib.suppress(ImportError):  # The screen says that aiohttp is missing.
        found.append(HttpExecutor(allow=["loopback"]))
    return found


async def main(endpoints: str) -> None:
    async with AsyncClient(endpoints, timeout=TIMEOUT_S) as client:
        while True:
            try:
                await create_jobs(client)
                break
            except Unavailable:
                await asyncio.sleep(0.1)
    # It carries out what jobs of your own name, too: addresses to call, this machine's among them,
    # and commands.
    worker = Worker(endpoints, executors=executors())
    register(worker)
    print("ready", flush=True)  # noqa: T201  # Whoever started us waits for the word.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
