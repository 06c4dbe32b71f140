"""The way of each stream: who asks, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from ...statemachine.rejection import Refused
from .. import refusals
from .call import Call, Context
from .calls import Pairs, fail, refuse
from .methods import Method
from .observer import Observer
from .status import code_of

STREAMS_MAX = 25_000  # More than there may be sessions and watchers.
Follow = Callable[[Call, Any], Awaitable[None]]


class Streams:
    """Serves the calls that are streams. What a stream raises ends it with a named refusal."""

    def __init__(self, observer: Observer, trailing: Callable[[], Pairs]) -> None:
        self.observer = observer
        self.trailing = trailing
        self.open = 0

    def following(self, method: Method, follow: Follow) -> grpc.RpcMethodHandler[Any, Any]:
        """One request, many answers."""

        async def answer(request: Message, context: Context) -> None:
            await self._run(Call(method, context, stream=True), follow, request)

        return grpc.unary_stream_rpc_method_handler(
            answer, method.request.FromString, method.response.SerializeToString
        )

    def talking(self, method: Method, talk: Follow) -> grpc.RpcMethodHandler[Any, Any]:
        """Bytes both ways, as they are."""

        async def answer(requests: object, context: Context) -> None:
            await self._run(Call(method, context, stream=True), talk, requests)

        return grpc.stream_stream_rpc_method_handler(answer)

    async def _run(self, call: Call, follow: Follow, request: object) -> None:
        name = call.method.name
        code = "CANCELLED"
        self.open += 1
        try:
            if self.open > STREAMS_MAX:
                raise refusals.backlog_full(f"{STREAMS_MAX} streams are open on this node")
            await follow(call, request)
            call.context.set_trailing_metadata(self.trailing())
            code = "OK"
        except Refused as refusal:
            code = code_of(refusal.rejection).name
            refuse(call.context, refusal.rejection, self.trailing())
        except Exception:
            code = fail(call.context, name, self.trailing())
        finally:
            self.open -= 1
            self.observer.called(name, code, time.monotonic() - call.began)
