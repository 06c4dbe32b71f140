"""What a blocking client does over gRPC: one try of a call, one stream, one wait.

`async_connections.py` is the same for an asynchronous client.
"""

from __future__ import annotations

import threading
from typing import Any

import grpc
from google.protobuf.message import Message

from ...proto.contract import Method
from .course import Try
from .links import Answer, ClientLinks, Metadata, answer_of, failure_of, trailing
from .refusals import NEVER_SENT, FailedTry
from .silence import Silence

# Begins as gRPC's own words do when nothing was sent.
NEVER_BEGUN = FailedTry("UNAVAILABLE", f"{NEVER_SENT[0]}; the connection was let go")


class Connections:
    """The connections of a client, one for each node that it asks; threads share them."""

    def __init__(self, links: ClientLinks) -> None:
        self._links = links
        self._channels: dict[str, grpc.Channel] = {}
        self._calls: dict[tuple[str, Method], Any] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def ask(
        self, method: Method, request: Message, attempt: Try, metadata: Metadata
    ) -> Answer[Any] | FailedTry:
        """One try of a call that is answered once."""
        send = self._sender(attempt.address, method)
        try:
            message, call = send.with_call(request, timeout=attempt.timeout, metadata=metadata)
        except grpc.RpcError as error:
            return failure_of(error)
        except ValueError:
            # Another thread has closed this connection in between.
            return NEVER_BEGUN
        return answer_of(message, attempt.address, trailing(call.trailing_metadata()))

    def stream(
        self, method: Method, request: Message, address: str, metadata: Metadata, silence: float
    ) -> Responses:
        """One try of a call that is answered by a stream."""
        call = self._sender(address, method)(request, metadata=metadata)
        return Responses(call, silence)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the client is closed."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """End all calls that are under way and let go of the connections."""
        self._closed.set()
        with self._lock:
            self._links.closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._calls.clear()
        for channel in channels:
            channel.close()

    def _sender(self, address: str, method: Method) -> Any:  # noqa: ANN401  # By the method.
        key = (address, method)
        with self._lock:
            self._links.check_open()
            if key not in self._calls:
                channel = self._channels.get(address) or self._connect(address)
                kind = channel.unary_stream if method.streams_out else channel.unary_unary
                self._calls[key] = kind(
                    method.path,
                    request_serializer=method.request.SerializeToString,
                    response_deserializer=method.response.FromString,
                )
            return self._calls[key]

    def _connect(self, address: str) -> grpc.Channel:
        for old in self._links.superfluous(self._channels):
            self._channels.pop(old).close()
            self._calls = {key: call for key, call in self._calls.items() if key[0] != old}
        credentials = self._links.credentials
        options = self._links.options(address)
        if credentials is None:
            channel = grpc.insecure_channel(address, options)
        else:
            channel = grpc.secure_channel(address, credentials, options)
        self._channels[address] = channel
        return channel


class Responses:
    """The responses of one stream."""

    def __init__(self, call: Any, silence: float) -> None:  # noqa: ANN401
        self._call = call
        self._watch = Silence(call.cancel, silence)

    def next(self) -> Any:  # noqa: ANN401  # What the stream carries.
        """The next response, None at the end, or why there is none."""
        try:
            return self._watch.next(self._call)
        except grpc.RpcError as error:
            return self._watch.failure() or failure_of(error)

    def end(self) -> None:
        self._watch.end()
        self._call.cancel()
