"""The way of each stream: who asks, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc
from google.protobuf.message import Message

from ...statemachine.rejection import Refused, Rejection
from .. import refusals
from .call import Call, Context
from .calls import Pairs, fail, refuse
from .methods import Method
from .observer import Observer
from .status import code_of

STREAMS_MAX = 25_000  # More than there may be sessions and watchers.
LOOK_AGAIN_S = 5.0  # After so long it is looked again whether a caller may still have its stream.
LOOKED_AT = 100  # Of them in one look, of which there are fifty a second.
Follow = Callable[[Call, Any], Awaitable[None]]


@dataclass(slots=True)
class Opened:
    """A stream that is open."""

    ending: asyncio.Timeout
    looked_at: float
    # Why it is ended from outside.
    refusal: Rejection | None = None


class Streams:
    """Serves the calls that are streams. What a stream raises ends it with a named refusal."""

    def __init__(
        self, observer: Observer, trailing: Callable[[], Pairs], check: Callable[[Call], None]
    ) -> None:
        self.observer = observer
        self.trailing = trailing
        # Refuses a caller whose access token is valid no more.
        self.check = check
        # The one that was looked at longest ago is first.
        self.open: OrderedDict[Call, Opened] = OrderedDict()

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
        try:
            if len(self.open) >= STREAMS_MAX:
                raise refusals.backlog_full(f"{STREAMS_MAX} streams are open on this node")
            await self._follow(call, follow, request)
            call.context.set_trailing_metadata(self.trailing())
            code = "OK"
        except Refused as refusal:
            code = code_of(refusal.rejection).name
            refuse(call.context, refusal.rejection, self.trailing())
        except Exception:
            code = fail(call.context, name, self.trailing())
        finally:
            self.observer.called(name, code, time.monotonic() - call.began)

    async def _follow(self, call: Call, follow: Follow, request: object) -> None:
        """A stream, as long as whoever opened it may have it."""
        opened = Opened(asyncio.timeout(None), call.began)
        self.open[call] = opened
        try:
            async with opened.ending:
                await follow(call, request)
        except TimeoutError:
            if opened.refusal is None:
                raise
            raise Refused(opened.refusal) from None
        finally:
            del self.open[call]

    def look(self, now: float) -> None:
        """End some of those whose access token is valid no more; soon it was all of them."""
        for call, opened in list(islice(self.open.items(), LOOKED_AT)):
            if opened.looked_at > now - LOOK_AGAIN_S:
                break
            self.open.move_to_end(call)
            opened.looked_at = now
            if opened.refusal is None:
                try:
                    self.check(call)
                except Refused as refusal:
                    opened.refusal = refusal.rejection
                    opened.ending.reschedule(asyncio.get_running_loop().time())
