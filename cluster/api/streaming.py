"""The way of each stream: who asks, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from ...proto.contract import Method
from ...statemachine.core.rejection import Refused
from .body import parsed
from .call import Call, Context
from .caller_limits import CallerShare
from .lasting import Lasting
from .status import code_of
from .unary import Calls, fail, refuse

Follow = Callable[[Call, Any], Awaitable[None]]


class ServerStreams:
    """Serves the calls that are streams. What a stream raises ends it with a named refusal."""

    def __init__(self, calls: Calls, lasting: Lasting) -> None:
        # How calls are admitted, read, counted and refused is the same for streams.
        self.calls, self.lasting = calls, lasting

    def following(
        self, method: Method, follow: Follow, share: CallerShare
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """One request, many answers."""

        async def read(call: Call, _: object) -> None:
            with share.taken(call.caller):
                data = await self.calls.bodies.read(call)
                await follow(call, await parsed(method.request, data, caller=call.caller))

        async def answer(requests: object, context: Context) -> None:
            await self._run(Call(method, context, stream=True), read, requests)

        return grpc.stream_stream_rpc_method_handler(
            answer, response_serializer=method.response.SerializeToString
        )

    def talking(self, method: Method, talk: Follow) -> grpc.RpcMethodHandler[Any, Any]:
        """Bytes both ways, as they are."""

        async def answer(requests: object, context: Context) -> None:
            await self._run(Call(method, context, stream=True), talk, requests)

        return grpc.stream_stream_rpc_method_handler(answer)

    async def _run(self, call: Call, follow: Follow, request: object) -> None:
        name, calls = call.method.name, self.calls
        code = "CANCELLED"
        try:
            if (waits := calls.meet(call)) is not None:
                await waits
            await self._follow(call, follow, request)
            call.context.set_trailing_metadata(calls.trailing())
            code = "OK"
        except Refused as refusal:
            code = code_of(refusal.rejection).name
            calls.refused.note(call, refusal.rejection)
            refuse(call.context, refusal.rejection, calls.trailing())
        except Exception:
            code = fail(call.context, name, calls.trailing())
        finally:
            calls.observer.called(name, code, time.monotonic() - call.began)

    async def _follow(self, call: Call, follow: Follow, request: object) -> None:
        """A stream, as long as whoever opened it may have it."""
        try:
            async with asyncio.timeout(None) as call.ending:
                with self.lasting.watched(call):
                    await follow(call, request)
        except TimeoutError:
            if call.ended_by is None:
                raise
            raise Refused(call.ended_by) from None
