"""What a call that defers comes back with: the run, and what its handler will return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ...proto.v1 import run_pb2
from ..calls.aio.run import AsyncRun
from ..calls.blocking.run import Run
from ..sdk.errors import RaftschedError
from ..sdk.readable import run_text
from ..sdk.results import result_of
from .codecs import decoded
from .views import RunInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..calls.aio.client import AsyncClient
    from ..calls.blocking.client import Client
    from .task import Task

T = TypeVar("T")


class _TaskRun(Generic[T]):
    """What both kinds share."""

    task: Task[Any, Any, T]
    # The run as the clients have it, with all its methods.
    run: Run | AsyncRun

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def info(self) -> RunInfo:
        """What was last seen of it; `refresh` and `wait` look again."""
        return RunInfo.of(self.run.message)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {run_text(self.run.message)}>"

    def _result(self) -> T:
        message = run_pb2.Run()
        message.CopyFrom(self.run.message)
        if message.HasField("result"):
            message.result.CopyFrom(decoded(self.task.app.codec, message.result))
        return cast(T, result_of(message, self.task.returns))


class AsyncTaskRun(_TaskRun[T]):
    """A run that was deferred.

    run = await remind.defer(Reminder("anna"))
    print(await run.result(timeout=60))
    """

    run: AsyncRun

    def __init__(self, task: Task[Any, Any, T], client: AsyncClient, message: run_pb2.Run) -> None:
        self.task, self.run = task, AsyncRun(client, message)

    async def wait(self, timeout: float | None = None) -> RunInfo:
        """Wait until it has ended; RunNotEnded if it has not within `timeout` seconds."""
        await self.run.wait(timeout)
        return self.info

    async def result(self, timeout: float | None = None) -> T:
        """Wait until it has ended and return what its handler returned; RunFailed if it failed."""
        await self.run.wait(timeout)
        return self._result()

    async def refresh(self) -> RunInfo:
        """Look at it again."""
        await self.run.refresh()
        return self.info

    async def cancel(self, reason: str = "") -> None:
        """End it: one that waits does not begin, one that runs is given to stop."""
        await self.run.cancel(reason)


class TaskRun(_TaskRun[T]):
    """A run that was deferred, for code without a loop.

    run = remind.defer_sync(Reminder("anna"))
    print(run.result(timeout=60))
    """

    run: Run

    def __init__(self, task: Task[Any, Any, T], client: Client, message: run_pb2.Run) -> None:
        self.task, self.run = task, Run(client, message)

    def wait(self, timeout: float | None = None) -> RunInfo:
        """Wait until it has ended; RunNotEnded if it has not within `timeout` seconds."""
        self.run.wait(timeout)
        return self.info

    def result(self, timeout: float | None = None) -> T:
        """Wait until it has ended and return what its handler returned; RunFailed if it failed."""
        self.run.wait(timeout)
        return self._result()

    def refresh(self) -> RunInfo:
        """Look at it again."""
        self.run.refresh()
        return self.info

    def cancel(self, reason: str = "") -> None:
        """End it: one that waits does not begin, one that runs is given to stop."""
        self.run.cancel(reason)


class SomeRefused(RaftschedError):
    """Some of many entries were refused; the others have their runs.

    try:
        await app.defer_many(entries)
    except SomeRefused as error:
        for place, refusal in error.refusals.items():
            print(entries[place], refusal)
    """

    def __init__(self, runs: Sequence[Any], refusals: dict[int, str], reason: str) -> None:
        first = next(iter(refusals))
        count = "1 entry was" if len(refusals) == 1 else f"{len(refusals)} entries were"
        super().__init__(
            f"{count} refused of {len(runs)}, the first at place {first}: {refusals[first]}",
            reason=reason,
        )
        # In the order of the entries; None for those that were refused.
        self.runs = list(runs)
        # What is wrong with an entry, by its place.
        self.refusals = refusals
