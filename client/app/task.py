"""A function that was declared: still a function, and something that can be deferred."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from ..sdk.schedules import When
from ..sdk.specs import job_of
from ..sdk.values import Payload, payload
from ..worker.handlers import EXECUTORS, Handler
from .binding import PayloadBinding
from .codecs import encoded
from .entries import DeferOptions, TaskEntry

if TYPE_CHECKING:
    from ...proto.v1 import job_pb2
    from .app import App
    from .handle import AsyncTaskRun, TaskRun

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}", re.ASCII)


class TaskOptions(Generic[P, T]):
    """A task with what is said about the run, before its arguments."""

    def __init__(self, task: Task[P, Any, T], options: DeferOptions) -> None:
        unknown = options.keys() - DeferOptions.__optional_keys__
        if unknown:
            known = ", ".join(sorted(DeferOptions.__optional_keys__))
            raise TypeError(f"there is no option {min(unknown)!r}; there are {known}")
        self._task, self._options = task, options

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> TaskEntry[T]:
        """What `defer_many` takes."""
        return TaskEntry(self._task, self._task.binding.written(args, kwargs), self._options)

    async def defer(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskRun[T]:
        """Have the run made."""
        return await self.entry(*args, **kwargs).defer()

    def defer_sync(self, *args: P.args, **kwargs: P.kwargs) -> TaskRun[T]:
        """As `defer`, for code without a loop."""
        return self.entry(*args, **kwargs).defer_sync()


class Task(Generic[P, R, T]):
    """A function that an app has declared, as a job of its name.

    Calling it calls the function. `defer` has a worker call it:

        run = await remind.defer(Reminder("anna"))
        await remind.options(in_=timedelta(minutes=10), key="remind:7").defer(Reminder("anna"))
    """

    __name__: str

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        *,
        name: str,
        schedules: Sequence[When],
        payload: object,
        inline: bool,
        words: Mapping[str, Any],
    ) -> None:
        self.app, self.function = app, function
        self.name = checked_name(name or function.__name__)
        self.schedules = tuple(schedules)
        self.binding = PayloadBinding(self.name, function)
        # As the worker sees it: says what is wrong with the function where it is declared.
        self.handler = Handler(self.name, function, inline=inline, provides_given=True)
        # What the function returns, to read a result by; None: it is not annotated.
        self.returns: Any = self.binding.parameters.returns
        self._words = {**_described(function), **words}
        self._payload = self._checked_payload(payload)
        functools.update_wrapper(self, function)

    def _checked_payload(self, given: object) -> Payload | None:
        """What runs carry that nobody defers: it must be what the function takes."""
        made = payload(given)
        happens = self.schedules or self._words.get("after")
        if made is None and not happens:
            return None
        try:
            return self.binding.checked(made)
        except TypeError as wrong:
            if made is not None:
                raise
            raise TypeError(
                f"{wrong}. Nobody hands in arguments where it happens by itself: give them as "
                "payload={...}, or give the parameters defaults"
            ) from None

    @property
    def queue(self) -> str:
        """In which its runs wait, unless whoever defers it names another."""
        return str(self._words.get("queue") or "default")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[DeferOptions]) -> TaskOptions[P, T]:
        """Say more about the run, and then defer it.

        await remind.options(in_=timedelta(minutes=10), key="remind:7").defer(Reminder("anna"))
        """
        return TaskOptions(self, options)

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> TaskEntry[T]:
        """What `defer_many` takes."""
        return TaskEntry(self, self.binding.written(args, kwargs), {})

    async def defer(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskRun[T]:
        """Have a worker call it, with these arguments."""
        return await self.entry(*args, **kwargs).defer()

    def defer_sync(self, *args: P.args, **kwargs: P.kwargs) -> TaskRun[T]:
        """As `defer`, for code without a loop: it blocks until the cluster has the run."""
        return self.entry(*args, **kwargs).defer_sync()

    async def defer_many(self, entries: Iterable[TaskEntry[T]]) -> list[AsyncTaskRun[T]]:
        """Have thousands of runs made, in few calls; those of other tasks may be among them.

        await remind.defer_many(remind.entry(Reminder(name)) for name in names)
        """
        return await self.app.defer_many(entries)

    def defer_many_sync(self, entries: Iterable[TaskEntry[T]]) -> list[TaskRun[T]]:
        """As `defer_many`, for code without a loop."""
        return self.app.defer_many_sync(entries)

    def job(self) -> job_pb2.Job:
        """What is declared to the cluster."""
        words: Any = dict(self._words)
        if self._payload is not None:
            words["payload"] = encoded(self.app.codec, self._payload)
        if self.schedules:
            words["schedule"] = self.schedules
        return job_of(self.name, namespace=self.app.namespace, handler=self.name, **words)


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"the job of this function would be {name!r}; a job's name is 1 to 128 of a-z, 0-9, "
            "'-' and '_', first a letter or digit: give it another one, as in name='send-mail'"
        )
    if name in EXECUTORS:
        raise ValueError(f"{name!r} is the name of an executor; give the task another: name='...'")
    return name


def _described(function: Callable[..., object]) -> dict[str, str]:
    """The first line of its documentation describes the job."""
    first = (function.__doc__ or "").strip().partition("\n")[0].strip()
    return {"description": first} if first else {}


class Declare:
    """Makes a task of the function that it stands over."""

    def __init__(self, declare: Callable[[Callable[..., Any]], Task[Any, Any, Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Task[Any, Any, Any]:
        return self._declare(function)
