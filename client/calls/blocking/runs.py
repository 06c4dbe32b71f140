# Made from aio/runs.py by generate.py; write there.
"""Runs: the occasions of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from ....proto.v1 import common_pb2, run_pb2
from ...sdk.errors import RunNotEnded
from ...sdk.options import ReadOptions, Writing
from ...sdk.results import result_of
from ...sdk.values import Length, ListCount, choice, duration
from .service import Service

if TYPE_CHECKING:
    from ...sdk.sync_client import Client

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
        return f"<{type(self).__name__} {self.namespace}/{self.id} {self.state}>"

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


class Runs(Service):
    """Look at runs, and end them."""

    def get(self, run: str, **options: Unpack[ReadOptions]) -> Run:
        """Show a run.

        run = client.runs.get("report.17.1763456400000")
        """
        return self._run(run_pb2.GetRunRequest(run=run), options)

    def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> ListCount:
        """How many runs are under way, or fit the filter.

        print(client.runs.count("state=FAILED AND kind=ValueError").number)
        """
        return self._count(run_pb2.ListRunsRequest(filter=filter), options)

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> Iterator[Run]:
        """The runs that are under way, or those that the filter names, newest first, or in the
        order of "scheduled_time" or, for dead letters, "end_time"; "end_time desc" is backwards.

        for run in client.runs.list("state=FAILED AND job=report", limit=10):
            print(run.id)
        """
        request = run_pb2.ListRunsRequest(filter=filter, order_by=order_by)
        for run in self._items(request, "runs", limit, options):
            yield Run(self._client, run)

    def wait(self, run: str, timeout: float | None = None, *, namespace: str | None = None) -> Run:
        """Wait until a run has ended; RunNotEnded if it has not within `timeout` seconds.

        run = client.runs.wait("report.17.1763456400000", 60)
        """
        whose = self._client.namespace if namespace is None else namespace
        unseen = run_pb2.Run(id=run, namespace=whose)
        return Run(self._client, unseen).wait(timeout)

    def cancel(
        self,
        run: str,
        reason: str = "",
        *,
        grace: Length | None = None,
        **options: Unpack[Writing],
    ) -> Run:
        """End a run; a running one is told and has `grace` (30 s) to stop.

        client.runs.cancel("report.17.1763456400000", "wrong day")
        """
        request = run_pb2.CancelRunRequest(run=run, reason=reason, grace=duration(grace))
        return self._run(request, options)

    def change_all(
        self,
        change: Literal["cancel", "terminate", "retry"],
        filter: str,
        reason: str = "",
        *,
        grace: Length | None = None,
        **options: Unpack[Writing],
    ) -> common_pb2.BulkChange:
        """Do the same to all runs under way that fit a filter (an empty one: all), each alone.

        The answer counts them, and names some; with `validate_only` it counts what fits.

        print(client.runs.change_all("cancel", "job=report AND state=PENDING").changed)
        """
        request = run_pb2.ChangeRunsRequest(filter=filter, reason=reason, grace=duration(grace))
        request.change = choice(run_pb2.ChangeRunsRequest.Change, "CHANGE_", change)
        return self._change_all(request, options)

    def terminate(self, run: str, reason: str = "", **options: Unpack[Writing]) -> Run:
        """End a run now, without asking its worker.

        client.runs.terminate("report.17.1763456400000")
        """
        return self._run(run_pb2.TerminateRunRequest(run=run, reason=reason), options)

    def retry(self, run: str, **options: Unpack[Writing]) -> Run:
        """Begin the next attempt of a run that waits for it now.

        client.runs.retry("report.17.1763456400000")
        """
        return self._run(run_pb2.RetryRunRequest(run=run), options)

    def explain(self, run: str, **options: Unpack[ReadOptions]) -> run_pb2.Explanation:
        """Why a run has not started or does not go on.

        print(client.runs.explain("report.17.1763456400000").summary)
        """
        request = run_pb2.ExplainRunRequest(run=run)
        return self._send(request, run_pb2.Explanation, options)

    def _run(self, request: Any, options: ReadOptions | Writing) -> Run:  # noqa: ANN401
        return Run(self._client, self._send(request, run_pb2.Run, options))
