"""The health service of gRPC: whether this node is there, serves, and leads.

"" and each service of the contracts: this node answers calls. "raftsched.ready": it also knows a
leader, so that calls come to something. "raftsched.leader": it leads. The library's own servicer is
not used, since its watchers of one name share a condition that the first to leave takes away, and
since an open watch would hold up the stop of the server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from ...statemachine.core.rejection import Refused
from ..node.limits import CallerLimits
from .body import late, parsed, too_large
from .call import Context
from .caller_limits import CallerShare
from .strangers import HEALTH_BYTES, Strangers
from .unary import refuse

READY = "raftsched.ready"
LEADER = "raftsched.leader"
SERVICE = "grpc.health.v1.Health"
UNREAD_S = 10.0  # How long an answer may be on its way.
# Anybody may ask, and what is being read may be as large as any message: so it has little time, and
# less when more are read than so many.
READ_S, SLOW_S = 2.0, 0.5
READING_MAX = 32
REQUEST_MAX = 1 << 10
Response = health_pb2.HealthCheckResponse


class Health:
    """The state of each name, and who wants to hear of it."""

    def __init__(
        self,
        services: Iterable[str],
        limits: CallerLimits | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        limits = limits or CallerLimits()
        self._services = ("", SERVICE, *services)
        self._known: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._watchers = CallerShare("watchers", limits.watchers, limits.watchers_by_caller)
        # Until when each request may be read, and since when it is; the oldest is first.
        self._reading: OrderedDict[asyncio.Timeout, float] = OrderedDict()
        self._closing = False
        self._strangers = strangers
        self.publish(serving=False, ready=False, leads=False)

    def publish(self, *, serving: bool, ready: bool, leads: bool) -> None:
        """How things are now; called whenever they may have changed."""
        known = dict.fromkeys(self._services, _status(serving))
        known[READY] = _status(serving and ready)
        known[LEADER] = _status(serving and leads)
        if known != self._known:
            self._known = known
            self._wake()

    def look(self, now: float) -> None:
        """End the oldest requests that do not come, while there are too many."""
        over = len(self._reading) - READING_MAX
        for until, began in list(islice(self._reading.items(), max(over, 0))):
            if now - began > SLOW_S and not until.expired():
                until.reschedule(now)

    def close(self) -> None:
        """End all watches."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        # As streams of one message: gRPC hands that over when it is asked for it, not before.
        give = Response.SerializeToString
        unary: Any = grpc.stream_unary_rpc_method_handler(self._check, response_serializer=give)
        stream: Any = grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=give)
        methods = {"Check": unary, "Watch": stream}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _check(self, requests: object, context: Context) -> Any:  # noqa: ANN401
        self._answered(context)
        try:
            service = await self._asked(context)
        except Refused as refusal:
            refuse(context, refusal.rejection, ())
            return Response()
        status = self._known.get(service)
        if status is None:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            names = ", ".join(sorted(name for name in self._known if name))
            context.set_details(f"'{service[:128]}' is not served here; there are {names}")
            return Response()
        return Response(status=status)

    async def _watch(self, requests: object, context: Context) -> None:
        try:
            with self._watchers.taken(_address(context)):
                await self._follow(await self._asked(context), context)
        except Refused as refusal:
            self._answered(context)
            refuse(context, refusal.rejection, ())
        except TimeoutError:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(f"nobody has read from this watch for {UNREAD_S:.0f} s")

    def _answered(self, context: Context) -> None:
        if self._strangers is not None:
            self._strangers.answered(context.peer(), HEALTH_BYTES)

    async def _asked(self, context: Context) -> str:
        """The service that somebody asks for. Raises Refused."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(READ_S) as until:
                self._reading[until] = began
                data = await context.read()
        except TimeoutError:
            raise late(asyncio.get_running_loop().time() - began, READ_S) from None
        finally:
            del self._reading[until]
        if data is grpc.aio.EOF:
            return ""
        assert isinstance(data, bytes)
        if len(data) > REQUEST_MAX:
            raise too_large("the health service", REQUEST_MAX, len(data))
        request = await parsed(health_pb2.HealthCheckRequest, data)
        return str(request.service)

    async def _follow(self, service: str, context: Context) -> None:
        last_sent: int | None = None
        while True:
            changed = self._changed
            status = self._known.get(service, Response.SERVICE_UNKNOWN)
            if status != last_sent:
                last_sent = status
                async with asyncio.timeout(UNREAD_S):
                    await context.write(Response(status=status))
            if self._closing:
                return
            await changed.wait()


def _address(context: Context) -> str:
    peer: str = context.peer()
    return peer.rpartition(":")[0]


def _status(good: bool) -> int:
    status: int = Response.SERVING if good else Response.NOT_SERVING
    return status
