"""What all services share: how a request gets its namespace and options, and how pages are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from google.protobuf.message import Message

from ....proto.v1 import common_pb2, run_pb2
from ...sdk.errors import OutcomeUnknown
from ...sdk.options import EachCall, Writing, fill, of_the_call
from ...sdk.values import ListCount
from .run import AsyncRun

if TYPE_CHECKING:
    from .client import AsyncClient

Answer = TypeVar("Answer", bound=Message)
PAGE_SIZE = 1_000
# As the contract has them for one step.
FAILURES, SAMPLE = 100, 20


def checked(limit: int | None) -> int | None:
    """How many items are wanted at most."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit is {limit}; write how many you want at most, or None for all")
    return limit


class AsyncService:
    """Some calls of a client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def _namespace(self, options: EachCall) -> str:
        return options.get("namespace", self._client.namespace)

    async def _send(self, request: Message, kind: type[Answer], options: EachCall) -> Answer:
        fill(request, options, self._client.namespace)
        return cast(Answer, await self._client.call(request, **of_the_call(options)))

    async def _with_secret(
        self, request: Message, kind: type[Answer], lost: str, options: EachCall
    ) -> Answer:
        """Send what is answered with a secret that is shown once; `lost` says that it was."""
        answer: Any = await self._send(request, kind, options)
        if not answer.secret and not options.get("validate_only"):
            raise OutcomeUnknown(lost)
        return cast(Answer, answer)

    async def _run(self, request: Message, options: EachCall) -> AsyncRun:
        return AsyncRun(self._client, await self._send(request, run_pb2.Run, options))

    async def _sum(
        self, request: Message, kind: type[Answer], counted: str, options: Writing
    ) -> int:
        """The cluster does a thousand at a time; on trial it can only speak of the first."""
        request_id, done, steps = options.pop("request_id", ""), 0, 0
        while True:
            if request_id:
                options["request_id"] = f"{request_id}.{steps}"
            answer: Any = await self._send(request, kind, options)
            done, steps = done + int(getattr(answer, counted)), steps + 1
            if not answer.more or options.get("validate_only"):
                return done

    async def _change_all(self, request: Any, options: EachCall) -> common_pb2.BulkChange:  # noqa: ANN401  # Of jobs or of runs.
        """All steps of a change as one; on trial the cluster only speaks of the first."""
        given: Any = dict(options)
        request_id, steps, done = given.pop("request_id", ""), 0, common_pb2.BulkChange()
        while True:
            if request_id:
                given["request_id"] = f"{request_id}.{steps}"
            step = await self._send(request, common_pb2.BulkChange, given)
            if request.validate_only:
                return step
            done.changed, done.failed = done.changed + step.changed, done.failed + step.failed
            done.failures.extend(step.failures[: max(0, FAILURES - len(done.failures))])
            done.sample.extend(step.sample[: max(0, SAMPLE - len(done.sample))])
            request.page_token, steps = step.next_page_token, steps + 1
            if not step.next_page_token:
                return done

    async def _count(self, request: Any, options: EachCall) -> ListCount:  # noqa: ANN401  # Of a list.
        """How many items a list has."""
        request.page_size, request.with_count = 1, True
        fill(request, options, self._client.namespace)
        page = await self._client.call(request, **of_the_call(options))
        return ListCount(page.count, page.count_is_exact)

    async def _items(
        self,
        request: Any,  # noqa: ANN401  # Any request of a list.
        field: str,
        limit: int | None,
        options: EachCall,
    ) -> AsyncIterator[Any]:
        """Everything on all pages of a list, page by page as it is asked for."""
        left = checked(limit)
        fill(request, options, self._client.namespace)
        while left is None or left > 0:
            request.page_size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
            page = await self._client.call(request, **of_the_call(options))
            for item in getattr(page, field):
                yield item
            if left is not None:
                left -= len(getattr(page, field))
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    async def _runs(
        self,
        request: Any,  # noqa: ANN401  # Any request of a list of runs.
        limit: int | None,
        options: EachCall,
    ) -> AsyncIterator[AsyncRun]:
        async for run in self._items(request, "runs", limit, options):
            yield AsyncRun(self._client, run)
