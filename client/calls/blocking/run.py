# Made from aio/run.py by calls/generate.py; write there.
"""A run, as a handle: look at it again, wait for it, take its result."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from ....proto.v1 import run_pb2
from ...sdk.errors import RunNotEnded
from ...sdk.options import ReadOptions, Writing
from ...sdk.readable import run_text
from ...sdk.results import result_of
from ...sdk.values import Length, duration

if TYPE_CHECKING:
    from .client import Client

Kind = TypeVar("Kind")
# The longest a server is asked to hold its answer back.
WAIT_S = 30.0
# What the way there and back may add to a wait.
WAY_S = 1.0


class Run:
    """A run as it was when it was last looked at, and what can be done with it.

    run = client.jobs.trigger("report")
    total = run.result(int, timeout=60)
    """

    def __init__(self, client: Client, message: run_pb2.Run) -> None:
        self._client = client
        # All that the cluster says about it.
        self.message = message

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {run_text(self.message)}>"

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def namespace(self) -> str:
        return self.message.namespace

    @property
    def job(self) -> str:
        return self.message.job

    @property
    def state(self) -> str:
        """Such as "PENDING" or "SUCCEEDED"."""
        return run_pb2.RunState.Name(self.message.state).removeprefix("RUN_STATE_")

    @property
    def warning(self) -> str:
        """What its handler wants people to look at although it succeeded; empty: nothing."""
        return self.message.warning

    @property
    def ended(self) -> bool:
        return self.message.HasField("end_time")

    def refresh(self, **options: Unpack[ReadOptions]) -> Self:
        """Look at it again.

        print(run.refresh().state)
        """
        options["namespace"] = self.namespace
        self.message = self._client.runs.get(self.id, **options).message
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until it has ended; raise RunNotEnded if it has not within `timeout` seconds.

        run = client.jobs.trigger("report").wait(timeout=60)
        """
        deadline = None if timeout is None else monotonic() + timeout
        while not self.ended:
            left = WAIT_S if deadline is None else min(WAIT_S, deadline - monotonic())
            if left <= 0:
                raise RunNotEnded(f"run {self.id} is {self.state} after {timeout:g} s; it goes on")
            request = run_pb2.WaitRunRequest(
                namespace=self.namespace, run=self.id, timeout=duration(left)
            )
            way = self._client.timeout if deadline is None else WAY_S
            self.message = self._client.call(request, timeout=left + way)
        return self

    @overload
    def result(self, kind: type[Kind], *, timeout: float | None = None) -> Kind: ...
    @overload
    def result(self, kind: None = None, *, timeout: float | None = None) -> Any: ...  # noqa: ANN401
    def result(self, kind: Any = None, *, timeout: float | None = None) -> Any:
        """Wait until it has ended and return what its handler returned; RunFailed if it did not.

        JSON is decoded, as `kind` if one is given; None if the handler returned nothing. What is of
        another kind raises ResultMismatch.

        rows = run.result(list[dict[str, int]], timeout=60)
        """
        self.wait(timeout)
        return result_of(self.message, kind)

    def cancel(
        self, reason: str = "", *, grace: Length | None = None, **options: Unpack[Writing]
    ) -> Self:
        """As `client.runs.cancel`.

        run.cancel("not needed any more")
        """
        options["namespace"] = self.namespace
        ended = self._client.runs.cancel(self.id, reason, grace=grace, **options)
        self.message = ended.message
        return self
