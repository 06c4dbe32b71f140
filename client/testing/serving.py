"""A worker that serves for as long as a block of a test lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

from ..calls.blocking.client import Client
from ..worker.worker import Worker, loop_factory

START_S = 60.0
# A worker that gives everything back at once needs less than two seconds.
STOP_S = 10.0
LOOK_S = 0.005


@contextmanager
def serving(worker: Worker, endpoints: list[str]) -> Iterator[Worker]:
    """Let it serve these nodes, on a thread; within the block the cluster knows it."""
    worker.connect_to(endpoints)
    ended: Future[None] = Future()
    thread = Thread(target=_serve, args=(worker, ended), name="worker", daemon=True)
    thread.start()
    try:
        _wait_until_known(worker, ended, endpoints)
        yield worker
    finally:
        worker.stop(now=True)
        thread.join(STOP_S)
    if not ended.done():
        raise TimeoutError(f"the worker did not stop within {STOP_S:g} s; does a handler block it?")
    # What broke in it must not pass in silence.
    ended.result()


def _serve(worker: Worker, ended: Future[None]) -> None:
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(worker.serve())
    except BaseException as error:
        ended.set_exception(error)
    else:
        ended.set_result(None)


def _wait_until_known(worker: Worker, ended: Future[None], endpoints: list[str]) -> None:
    end = monotonic() + START_S
    with Client(endpoints) as client:
        while all(one.worker != worker.id for one in client.workers.list(namespace="")):
            if ended.done():
                ended.result()
                raise RuntimeError("the worker stopped before the cluster knew it")
            if monotonic() >= end:
                raise TimeoutError(f"the cluster did not hear of the worker within {START_S:g} s")
            sleep(LOOK_S)
