"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

import grpc
import grpc.aio
from google.protobuf.message import Message

from ...proto.contract import Method, method_of
from ..calls.aio.services import AsyncServices
from .course import Course
from .endpoints import Endpoints
from .errors import Closed
from .links import (
    SILENCE_S,
    Answer,
    CallOptions,
    ClientLinks,
    Metadata,
    Tls,
    answer_of,
    failure_of,
    trailing,
)
from .refusals import FailedTry


class AsyncClient(AsyncServices):
    """Talks to a cluster from one asyncio loop. The same methods as Client, to be awaited.

    async with AsyncClient("node-1:7400,node-2:7400", namespace="shop") as client:
        run = await client.jobs.trigger("report")
        print(await run.result(timeout=60))

    It belongs to the loop of its first call.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] = "127.0.0.1:7400",
        *,
        namespace: str = "default",
        timeout: float = 30.0,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """`insecure` lets a token go to other machines without TLS."""
        self._links = ClientLinks(
            endpoints, namespace=namespace, timeout=timeout, token=token, tls=tls,
            insecure=insecure,
        )  # fmt: skip
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._calls: dict[tuple[str, Method], Any] = {}
        # Connections that are let go of while the client lives.
        self._closing: set[asyncio.Task[None]] = set()

    def _self(self) -> AsyncClient:
        return self

    @property
    def namespace(self) -> str:
        """The namespace of typed calls that name none."""
        return self._links.namespace

    @property
    def timeout(self) -> float:
        """The timeout of calls that name none, in seconds."""
        return self._links.timeout

    @property
    def endpoints(self) -> Endpoints:
        """The nodes this client knows, and which of them leads."""
        return self._links.endpoints

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls that are under way and let go of the connections."""
        self._links.closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._calls.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    async def call(self, request: Message, **options: Unpack[CallOptions]) -> Any:  # noqa: ANN401
        """Send any request of the contracts and return its response; for options see CallOptions.

        An empty namespace in the request is not filled in: it means what the contract says.

        job = await client.call(job_pb2.GetJobRequest(namespace="shop", job="report"), timeout=5)
        """
        return (await self.ask(request, **options)).message

    async def ask(self, request: Message, **options: Unpack[CallOptions]) -> Answer[Any]:
        """As `call`, with what the answer's metadata say: leader, term, revision, age.

        answer = await client.ask(job_pb2.ListJobsRequest(), stale=True)
        print(answer.endpoint, answer.age_ms)
        """
        course = self._links.begin(request, options)
        metadata = self._links.metadata(options)
        while True:
            attempt = course.next_try(monotonic())
            send = self._sender(attempt.address, course.method)
            call = send(course.request, timeout=attempt.timeout, metadata=metadata)
            try:
                message = await call
                said = trailing(await call.trailing_metadata())
            except grpc.aio.AioRpcError as error:
                failed = failure_of(error)
            except asyncio.CancelledError:
                self._check_not_closed_meanwhile()
                raise
            else:
                answer = answer_of(message, attempt.address, said)
                course.answered(answer.leader)
                return answer
            await self.pause(course.failed(failed, monotonic()))

    def stream(
        self, request: Message, *, silence: float = SILENCE_S, **options: Unpack[CallOptions]
    ) -> AsyncGenerator[Any, None]:
        """Send a request that is answered by a stream, and yield the responses.

        Until the first response other nodes are tried, within the timeout. After it a broken
        stream raises Unavailable, and so does a server that is silent for `silence` seconds.

        async for response in client.stream(event_pb2.WatchEventsRequest()):
            ...
        """
        course = self._links.begin(request, options)
        if not course.method.streams_out:
            raise TypeError(f"{course.method.verb} is answered once; use call()")
        return self._responses(course, self._links.metadata(options), silence)

    async def _responses(
        self, course: Course, metadata: Metadata, silence: float
    ) -> AsyncGenerator[Any, None]:
        while True:
            address = course.next_try(monotonic()).address
            call = self._sender(address, course.method)(course.request, metadata=metadata)
            begun = False
            try:
                while (response := await _read(call, silence)) is not grpc.aio.EOF:
                    if not begun:
                        begun = True
                        course.answered("")
                    yield response
                return
            except TimeoutError:
                failed = FailedTry("DEADLINE_EXCEEDED", f"nothing was heard for {silence:g} s")
            except grpc.aio.AioRpcError as error:
                failed = failure_of(error)
            except asyncio.CancelledError:
                self._check_not_closed_meanwhile()
                raise
            finally:
                call.cancel()
            if begun:
                raise course.broke_off(failed, monotonic())
            await self.pause(course.failed(failed, monotonic()))

    def duplex(self, request_type: type[Message], endpoint: str) -> Any:  # noqa: ANN401
        """Open a call that streams both ways, at one node; what gRPC gives comes back as it is.

        work = client.duplex(worker_pb2.WorkRequest, client.endpoints.pick(monotonic(), ()))
        """
        self._links.check_open()
        return self._sender(endpoint, method_of(request_type))(metadata=self._links.authorization)

    def _sender(self, address: str, method: Method) -> Any:  # noqa: ANN401  # By the method.
        self._links.check_open()
        key = (address, method)
        if key not in self._calls:
            channel = self._channels.get(address) or self._connect(address)
            way = ("unary", "stream")
            kind = f"{way[method.streams_in]}_{way[method.streams_out]}"
            self._calls[key] = getattr(channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._calls[key]

    def _connect(self, address: str) -> grpc.aio.Channel:
        for old in self._links.superfluous(self._channels):
            self._calls = {key: call for key, call in self._calls.items() if key[0] != old}
            task = asyncio.create_task(self._channels.pop(old).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        credentials = self._links.credentials
        options = self._links.options(address)
        if credentials is None:
            channel = grpc.aio.insecure_channel(address, options)
        else:
            channel = grpc.aio.secure_channel(address, credentials, options)
        self._channels[address] = channel
        return channel

    async def pause(self, seconds: float) -> None:
        """Wait so long; raises Closed when the client is closed meanwhile."""
        await asyncio.sleep(seconds)
        self._links.check_open()

    def _check_not_closed_meanwhile(self) -> None:
        """Closing a channel cancels its calls, which must not look as if the task was cancelled."""
        task = asyncio.current_task()
        if self._links.closed and task is not None and not task.cancelling():
            raise Closed("the client was closed while the call was under way") from None


async def _read(call: Any, limit: float) -> Any:  # noqa: ANN401  # What the stream carries.
    async with asyncio.timeout(limit):
        return await call.read()
