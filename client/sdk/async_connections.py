"""What an asynchronous client does over gRPC: one try of a call, one stream, one wait.

`connections.py` is the same for a blocking client. What to do next is the caller's to say.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from ...proto.contract import Method
from .course import Try
from .errors import Closed
from .links import Answer, ClientLinks, Metadata, answer_of, failure_of, trailing
from .refusals import FailedTry


class AsyncConnections:
    """The connections of a client, one for each node that it asks."""

    def __init__(self, links: ClientLinks) -> None:
        self._links = links
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._calls: dict[tuple[str, Method], Any] = {}
        # Connections that are let go of while the client lives.
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(
        self, method: Method, request: Message, attempt: Try, metadata: Metadata
    ) -> Answer[Any] | FailedTry:
        """One try of a call that is answered once."""
        send = self._sender(attempt.address, method)
        call = send(request, timeout=attempt.timeout, metadata=metadata)
        try:
            message = await call
            metadata_of_answer = trailing(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            return failure_of(error)
        except asyncio.CancelledError:
            check_not_closed_meanwhile(self._links)
            raise
        return answer_of(message, attempt.address, metadata_of_answer)

    def stream(
        self, method: Method, request: Message, address: str, metadata: Metadata, silence: float
    ) -> AsyncResponses:
        """One try of a call that is answered by a stream."""
        call = self._sender(address, method)(request, metadata=metadata)
        return AsyncResponses(self._links, call, silence)

    def duplex(self, method: Method, address: str) -> Any:  # noqa: ANN401
        """Open a call that streams both ways; what gRPC gives comes back as it is."""
        self._links.check_open()
        return self._sender(address, method)(metadata=self._links.authorization)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """End all calls that are under way and let go of the connections."""
        self._links.closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._calls.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

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


class AsyncResponses:
    """The responses of one stream."""

    def __init__(self, links: ClientLinks, call: Any, silence: float) -> None:  # noqa: ANN401
        self._links, self._call, self._silence = links, call, silence

    async def next(self) -> Any:  # noqa: ANN401  # What the stream carries.
        """The next response, None at the end, or why there is none."""
        try:
            async with asyncio.timeout(self._silence):
                response = await self._call.read()
        except TimeoutError:
            return FailedTry("DEADLINE_EXCEEDED", f"nothing was heard for {self._silence:g} s")
        except grpc.aio.AioRpcError as error:
            return failure_of(error)
        except asyncio.CancelledError:
            check_not_closed_meanwhile(self._links)
            raise
        return None if response is grpc.aio.EOF else response

    def end(self) -> None:
        self._call.cancel()


def check_not_closed_meanwhile(links: ClientLinks) -> None:
    """Closing a channel cancels its calls, which must not look as if the task was cancelled."""
    task = asyncio.current_task()
    if links.closed and task is not None and not task.cancelling():
        raise Closed("the client was closed while the call was under way") from None
