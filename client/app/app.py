"""An app: the jobs and tasks of a program, declared where their functions stand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from ...proto.v1 import job_pb2
from ..sdk.errors import NotFound
from ..sdk.links import Tls
from ..sdk.schedules import When
from ..sdk.specs import JobWords
from ..worker.context import Context
from . import deferring
from .clients import AppClients, settings_of
from .codecs import Codec
from .dependencies import Dependencies, DependencyProvider, Per
from .entries import TaskEntry, utc_now
from .handle import AsyncTaskRun, TaskRun
from .middleware import DeferCall, Layers, called
from .task import Declare, Task, checked_name
from .views import JobInfo

if TYPE_CHECKING:
    from ..worker.worker import WorkerOptions
    from .app_worker import AppWorker
    from .sync import Changes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Hook = TypeVar("Hook", bound=Callable[[], Any])
Made = TypeVar("Made", bound=Callable[..., Any])
RunLayer = TypeVar("RunLayer", bound=Callable[[Context], Iterator[None] | AsyncIterator[None]])
CallLayer = TypeVar("CallLayer", bound=Callable[[DeferCall], Iterator[None] | AsyncIterator[None]])
# A label of the jobs that an app with a name has declared.
LABEL = "raftsched-app"


class App:
    """The jobs and tasks of a program: declared, deferred and carried out.

    app = App("node-1:7400,node-2:7400,node-3:7400", name="shop")

    @app.job(cron("0 9 * * mon", zone="Europe/Berlin"), payload={"to": "anna"})
    async def report(to: str) -> None: ...

    @app.task
    async def remind(reminder: Reminder) -> None: ...

    app.sync()                                  # declares both to the cluster
    await remind.defer(Reminder("anna"))        # from any program that has the app
    app.run()                                   # carries out what is due

    Nothing is connected before it is needed. Without endpoints it goes by RAFTSCHED_ENDPOINTS,
    and likewise by the other variables of the command line: RAFTSCHED_NAMESPACE, RAFTSCHED_TOKEN,
    RAFTSCHED_TOKEN_FILE, RAFTSCHED_CA_FILE, RAFTSCHED_CERT_FILE, RAFTSCHED_KEY_FILE.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        *,
        name: str = "",
        namespace: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
        timeout: float = 30.0,
        codec: Codec | None = None,
    ) -> None:
        """`name` marks the jobs that it declares, so that `sync` can delete those that it no longer
        declares. `codec` turns payloads and results on their way. `insecure` lets a token go to
        other machines without TLS."""
        self.name = checked_name(name) if name else ""
        self.codec = codec
        self.connections = AppClients(
            settings_of(endpoints, namespace, token, tls, timeout=timeout, insecure=insecure)
        )
        self.tasks: dict[str, Task[Any, Any, Any]] = {}
        self.dependencies = Dependencies()
        self.run_layers, self.defer_layers = Layers[Context](), Layers[DeferCall]()
        self._startup: list[Callable[[], Any]] = []
        self._shutdown: list[Callable[[], Any]] = []
        # What `in_` counts from; a test with a virtual clock has another one.
        self.now: Callable[[], datetime] = utc_now

    def __repr__(self) -> str:
        return f"<App {self.name or '(no name)'} of {len(self.tasks)} tasks>"

    @property
    def namespace(self) -> str:
        """Whose jobs they are."""
        return str(self.connections.settings["namespace"])

    @property
    def settings(self) -> dict[str, Any]:
        """What its clients and workers are made with."""
        return dict(self.connections.settings)

    def connect_to(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """Take these nodes instead of those it was made with."""
        self.connections.close()
        own = {"token": token, "tls": tls, "insecure": insecure}
        self.connections = AppClients({**self.connections.settings, "endpoints": endpoints, **own})

    def work_in(self, namespace: str) -> None:
        """Take this namespace instead of that it was made with."""
        self.connections.close()
        self.connections = AppClients({**self.settings, "namespace": namespace})

    # Declaring.

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(
        self, *, name: str = "", inline: bool = False, **words: Unpack[JobWords]
    ) -> Declare: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str = "",
        inline: bool = False,
        **words: Unpack[JobWords],
    ) -> Any:
        """Declare a function that is carried out when somebody defers it, any number at once.

        @app.task
        async def remind(reminder: Reminder) -> None: ...

        @app.task(queue="mail", retry=Retry(3, fatal=[BadAddress]))
        async def send(to: str, text: str) -> None: ...

        `inline` runs a sync function on the worker's loop itself: for what takes microseconds.
        """
        declare = self._declaring((), name, None, inline, words)
        return declare if function is None else declare(function)

    @overload
    def job(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def job(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def job(
        self,
        *schedules: When,
        name: str = "",
        payload: object = None,
        inline: bool = False,
        **words: Unpack[JobWords],
    ) -> Declare: ...
    def job(
        self,
        *schedules: Any,
        name: str = "",
        payload: object = None,
        inline: bool = False,
        **words: Unpack[JobWords],
    ) -> Any:
        """Declare a function that is carried out by a schedule, or after other jobs. It can be
        deferred as well.

        @app.job(cron("0 2 * * *", zone="Europe/Berlin"), retry=Retry(5))
        async def clean_up() -> None: ...

        @app.job(every(timedelta(minutes=5)), payload={"to": "anna"})
        async def report(to: str) -> None: ...

        @app.job(after=clean_up)
        async def count() -> int: ...
        """
        if len(schedules) == 1 and callable(schedules[0]) and not isinstance(schedules[0], When):
            return self._declaring((), name, payload, inline, words)(schedules[0])
        return self._declaring(schedules, name, payload, inline, words)

    def _declaring(
        self, schedules: Sequence[When], name: str, payload: object, inline: bool, words: JobWords
    ) -> Declare:
        def declare(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            task = Task[Any, Any, Any](
                self, function, name=name, schedules=schedules, payload=payload, inline=inline,
                words=words,
            )  # fmt: skip
            if task.name in self.tasks:
                raise ValueError(
                    f"there is a task {task.name!r} already; give one of them another name: "
                    "name='...'"
                )
            # Says what is wrong with the words where they stand.
            task.job()
            self.tasks[task.name] = task
            return task

        return Declare(declare)

    def jobs_declared(self) -> list[job_pb2.Job]:
        """What `sync` declares."""
        jobs = [task.job() for task in self.tasks.values()]
        if self.name:
            for job in jobs:
                job.spec.labels[LABEL] = self.name
        return jobs

    # Around what it does.

    def on_startup(self, function: Hook) -> Hook:
        """Call this when a worker of the app begins, before it takes any run; it may be async.

        @app.on_startup
        async def warm() -> None: ...
        """
        self._startup.append(function)
        return function

    def on_shutdown(self, function: Hook) -> Hook:
        """Call this when a worker of the app has ended its runs, the last registered first."""
        self._shutdown.append(function)
        return function

    @overload
    def provide(self, function: Made, /) -> Made: ...
    @overload
    def provide(self, *, per: Per = "worker") -> Callable[[Made], Made]: ...
    def provide(self, function: Any = None, *, per: Per = "worker") -> Any:
        """Provide what the function returns, or yields, to handlers that ask for that type: made
        once for a worker, or anew for each run (`per="run"`).

        @app.provide
        async def database() -> AsyncIterator[Database]:
            async with connect() as database:
                yield database

        @app.task
        async def report(to: str, database: Database = GIVEN) -> None: ...
        """

        def register(made: Made) -> Made:
            self.dependencies.add(DependencyProvider(made, per))
            return made

        return register if function is None else register(function)

    def around_run(self, function: RunLayer) -> RunLayer:
        """Let this function stand around each run: it yields once, and the handler runs there.

        @app.around_run
        def timed(context: Context) -> Iterator[None]:
            began = monotonic()
            yield
            print(context.job, monotonic() - began)
        """
        self.run_layers.add(function)
        return function

    def around_defer(self, function: CallLayer) -> CallLayer:
        """Let this function stand around each call that defers: it yields once, and the call is
        made there.

        @app.around_defer
        def tenant(call: DeferCall) -> Iterator[None]:
            for entry in call.entries:
                entry.labels["tenant"] = current_tenant.get()
            yield
        """
        self.defer_layers.add(function)
        return function

    # Deferring.

    async def defer_many(self, entries: Iterable[TaskEntry[T]]) -> list[AsyncTaskRun[T]]:
        """Have thousands of runs made in few calls, of any tasks of this app; SomeRefused if some
        are refused, and then the others have their runs.

        await app.defer_many([remind.entry(Reminder("anna")), report.entry(to="ben")])
        """
        return await deferring.defer_many(self, entries)

    def defer_many_sync(self, entries: Iterable[TaskEntry[T]]) -> list[TaskRun[T]]:
        """As `defer_many`, for code without a loop."""
        return deferring.defer_many_sync(self, entries)

    # Declaring to the cluster.

    def sync(
        self, *, yes: bool = False, dry_run: bool = False, say: Callable[[str], object] = print
    ) -> Changes:
        """Show what differs between the app and the cluster, and declare the jobs.

        Jobs that the app of this name declared before and no longer does are deleted once somebody
        at a terminal has agreed, or with `yes`. `dry_run` shows, and changes nothing.
        """
        from . import sync

        return sync.sync(self, yes=yes, dry_run=dry_run, say=say)

    def jobs(self) -> list[JobInfo]:
        """The jobs of the app as the cluster has them; those that are not declared yet are left
        out."""
        found = []
        for name in self.tasks:
            try:
                found.append(JobInfo.of(self.connections.blocking().jobs.get(name)))
            except NotFound as missing:
                if missing.reason != "JOB_NOT_FOUND":
                    raise
        return found

    # Carrying out.

    def worker(self, **options: Unpack[WorkerOptions]) -> AppWorker:
        """A worker that carries out the tasks of the app."""
        from .app_worker import AppWorker

        return AppWorker(self, **options)

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Carry out what is due, until SIGTERM or Ctrl-C: the first drains, the second stops now.

        app.run(slots=50, queues=["mail"])
        """
        self.worker(**options).run()

    async def serve(self, **options: Unpack[WorkerOptions]) -> None:
        """As `run`, on the loop that is there, until it is cancelled."""
        await self.worker(**options).serve()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """What a worker of the app serves in: its start-up, what it provides, its shut-down."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.aclose)
            await self.dependencies.open(stack)
            for function in self._shutdown:
                stack.push_async_callback(called, function)
            for function in self._startup:
                await called(function)
            yield

    # AppClients.

    def close(self) -> None:
        """Let go of the connections that `defer_sync` and `sync` have made."""
        self.connections.close()

    async def aclose(self) -> None:
        """Let go of the connections that this loop has made."""
        await self.connections.close_on_this_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
