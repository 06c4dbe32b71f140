"""A worker: pulls runs and carries them out."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import logging
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypedDict, TypeVar, overload

from ...cluster.local.systemd import give_signs, notify
from ...proto import tracing
from ...proto.v1 import worker_pb2
from ..sdk.async_core import AsyncClientCore
from ..sdk.links import Tls
from ..sdk.values import texts, words
from .connection import Streams
from .executors.executor import Executor
from .handlers import Handler
from .lease_secrets import LeaseSecrets
from .protocol import LEASES_MAX, Session
from .runner import Runnable, Runner

if TYPE_CHECKING:
    from .attempt_spans import AttemptSpans

LOG = logging.getLogger("raftsched.worker")

F = TypeVar("F", bound=Callable[..., object])

THREADS_MAX = 256
# A handler that is asked to stop as the worker stops has this long for it.
HALT_S, HALT_NOW_S = 2.0, 0.2
# How long the cluster may take to acknowledge the last reports, or our drain.
LAST_WORD_S = 3.0
LAST_WORD_NOW_S = 1.0
LOOK_S = 0.01


class WorkerOptions(TypedDict, total=False):
    """What may be said about a worker."""

    # The queues that it takes runs from; none: "default", and of an app those of its tasks.
    queues: Iterable[str]
    # Whose runs it takes.
    namespaces: Iterable[str]
    # What jobs may ask for (worker_labels).
    labels: Mapping[str, str] | None
    # Runs at once, and threads for sync handlers; without `threads` as many as slots, at most 256.
    slots: int
    threads: int | None
    executors: Iterable[Executor]
    # Seconds to finish what is under way after the first signal.
    grace: float


class Worker:
    """Carries out the runs of a cluster by the functions that are registered with it.

    worker = Worker("node-1:7400,node-2:7400", queues=["mail"], slots=50)

    @worker.handler("send-email")
    async def send_email(context: Context, to: str, subject: str = "") -> int:
        ...

    worker.run()

    Async functions run on the loop; sync ones on threads, at most `threads` at a time, or, if they
    are declared `inline`, on the loop too. A registered function stays a plain function.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] = "127.0.0.1:7400",
        *,
        queues: Iterable[str] = (),
        namespaces: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        slots: int = 32,
        threads: int | None = None,
        executors: Iterable[Executor] = (),
        grace: float = 25.0,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        if not isinstance(slots, int):
            raise TypeError(f"slots is {slots!r}; write a whole number")
        if not 1 <= slots <= LEASES_MAX:
            raise ValueError(f"slots is {slots}; it must be from 1 to {LEASES_MAX:,}")
        if threads is not None and not 1 <= threads <= slots:
            raise ValueError(f"threads is {threads}; it must be from 1 to slots, which is {slots}")
        if not 0 <= grace <= 86_400:
            raise ValueError(f"grace is {grace!r}; it must be from 0 to 86,400 s")
        self.connect_to(endpoints, token=token, tls=tls, insecure=insecure)
        self._queues = tuple(texts(queues, "queues"))
        self._namespaces = tuple(texts(namespaces, "namespaces"))
        self._labels = words(labels or {}, "labels")
        self._slots = slots
        self._threads = threads or min(slots, THREADS_MAX)
        self._grace = grace
        self._executors = tuple(executors)
        self._runnables: dict[str, Runnable] = {one.name: one for one in self._executors}
        self._stop_asked = self._stop_now = False
        # The id of its session, while it serves.
        self.id = ""

    def connect_to(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """Take these nodes instead of those it was made with; before it serves. `insecure` lets a
        token go to other machines without TLS."""
        # What is wrong with them is said now.
        AsyncClientCore(endpoints, token=token, tls=tls, insecure=insecure)
        self._connect: Callable[[], AsyncClientCore] = lambda: AsyncClientCore(
            endpoints, token=token, tls=tls, insecure=insecure
        )

    @overload
    def handler(self, name: F, /) -> F: ...

    @overload
    def handler(self, name: str = "", *, inline: bool = False) -> Callable[[F], F]: ...

    def handler(self, name: F | str = "", *, inline: bool = False) -> F | Callable[[F], F]:
        """Register a function as the handler of this name; without a name, of its own. It stands
        above a function with parentheses or without.

        `inline` runs a sync function on the loop itself: for what takes microseconds and never
        waits, as everything else stands still meanwhile.
        """

        if not isinstance(name, str):
            return self.handler()(name)

        def register(function: F) -> F:
            self.add(Handler(name or function.__name__, function, inline=inline))
            return function

        return register

    def add(self, handler: Handler) -> None:
        if handler.name in self._runnables:
            raise ValueError(f"there is a handler {handler.name!r} already; choose another name")
        self._runnables[handler.name] = handler

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names of its handlers and executors."""
        return tuple(sorted(self._runnables))

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT: the first drains within `grace`, the second stops now."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "run() takes the signals, so it is for the main thread; "
                "elsewhere use asyncio.run(worker.serve()) and worker.stop()"
            )
        with (
            tracing.running("raftsched-worker"),
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        # It is ready without a cluster too: it takes up runs as soon as there is one.
        notify("READY=1")
        signs = asyncio.create_task(give_signs())
        try:
            await self.serve()
        finally:
            signs.cancel()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stop_asked:
            LOG.warning("%s again: giving everything back now", name)
            self._stop_now = True
            return
        LOG.info("%s: draining for at most %g s", name, self._grace)
        notify("STOPPING=1")
        self._stop_asked = True

    def stop(self, *, now: bool = False) -> None:
        """Make `run` or `serve` return, as the first signal does, or the second; any thread may."""
        self._stop_asked = True
        self._stop_now = self._stop_now or now

    async def serve(self) -> None:
        """Serve on the loop that is there, until `stop`. Cancelling gives everything back now."""
        if self.id:
            raise RuntimeError(f"this worker serves already, as {self.id}; make another one")
        if not self._runnables:
            raise ValueError("this worker has no handler and no executor; register one first")
        self.id = _new_id()
        session = Session(self._hello(), monotonic())
        try:
            for executor in self._executors:
                await executor.open()
            async with self._connect() as client:
                await _Service(self, client, session).serve(self._threads)
        finally:
            for executor in self._executors:
                await executor.close()
            self.id = ""
            self._stop_asked = self._stop_now = False

    def _hello(self) -> worker_pb2.WorkerHello:
        return worker_pb2.WorkerHello(
            worker=self.id,
            namespaces=self._namespaces,
            queues=self._queues,
            labels=self._labels,
            handlers=self.handlers,
            slots=self._slots,
            program=f"raftsched-python/{importlib.metadata.version('raftsched')}",
        )


class _Service:
    """A worker while it serves."""

    def __init__(self, worker: Worker, client: AsyncClientCore, session: Session) -> None:
        self._worker, self._client = worker, client
        self._session = session
        self._streams = Streams(client, session)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, threads: int) -> None:
        self._runner = Runner(
            self._worker._runnables,
            self._session,
            self._streams.changed,
            self._fail,
            threads,
            LeaseSecrets(self._client, lambda: self._worker.id).fetch,
            self._spans(),
        )
        self._streams.attach(self._runner)
        always: list[asyncio.Future[None]] = [
            asyncio.create_task(self._streams.keep()),
            asyncio.create_task(self._streams.tick()),
        ]
        stopping = asyncio.create_task(self._stop())
        try:
            waited = [*always, stopping, self._failed]
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        except asyncio.CancelledError:
            stopping.cancel()
            await self._give_back(HALT_NOW_S)
            await self._last_words(LAST_WORD_NOW_S)
            raise
        finally:
            for task in (*always, stopping):
                task.cancel()
            await asyncio.wait([*always, stopping])
            self._failed.cancel()
            self._runner.stop_all("the worker has stopped")
            self._runner.close()

    def _spans(self) -> AttemptSpans | None:
        spans = tracing.active()
        if spans is None:
            return None
        from .attempt_spans import AttemptSpans  # It loads OpenTelemetry.

        return AttemptSpans(spans, self._worker.id, self._worker._queues)

    def _fail(self, error: BaseException) -> None:
        """What must not happen has happened: let the worker end by it."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _stop(self) -> None:
        """Rule 6: drain, finish, give back the rest, wait for the acknowledgements, close."""
        worker, session = self._worker, self._session
        while not worker._stop_asked:
            await asyncio.sleep(10 * LOOK_S)
        session.drain()
        self._streams.changed()
        await self._until(lambda: session.idle or worker._stop_now, worker._grace)
        if not session.idle:
            await self._give_back(HALT_NOW_S if worker._stop_now else HALT_S)
        await self._last_words(LAST_WORD_NOW_S if worker._stop_now else LAST_WORD_S)
        await self._streams.goodbye()

    async def _last_words(self, timeout_s: float) -> None:
        session = self._session
        # A lease may be on its way until the server has answered the drain.
        if not await self._until(lambda: session.idle and session.drained, timeout_s):
            LOG.warning("the cluster has not answered; %d leases are left to it", session.held)

    async def _give_back(self, halt_s: float) -> None:
        self._session.drain()
        self._runner.stop_all("the worker stops")
        await self._until(lambda: not self._runner.active, halt_s)
        left = [context.run for context in self._runner.active.values()]
        if left:
            LOG.warning("%d handlers do not stop, such as that of %s", len(left), left[0])
        self._session.give_back_all()
        self._streams.changed()

    async def _until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Only a worker that stops waits like this, so looking now and then will do."""
        end = monotonic() + timeout
        while not reached():
            if monotonic() >= end:
                return False
            await asyncio.sleep(LOOK_S)
        return True


def _new_id() -> str:
    """Rule 1: unique among all processes at all times."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:80]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
