"""The health service of gRPC: whether this node is there, serves, and leads.

"" and each service of the contracts: this node answers calls. "raftsched.ready": it also knows a
leader, so that calls come to something. "raftsched.leader": it leads. The library's own servicer is
not used, since its watchers of one name share a condition that the first to leave takes away, and
since an open watch would hold up the stop of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from ...statemachine.rejection import Refused
from ..config import Limits
from .call import Context
from .calls import refuse
from .shares import Share

READY = "raftsched.ready"
LEADER = "raftsched.leader"
SERVICE = "grpc.health.v1.Health"
# The share of watchers of one address, and how long a word may be on its way.
UNREAD_S = 10.0
Response = health_pb2.HealthCheckResponse


class Health:
    """What is said of each name, and who wants to hear of it."""

    def __init__(self, services: Iterable[str], limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._services = ("", SERVICE, *services)
        self._known: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._watchers = Share("watchers", limits.watchers, limits.watchers_by_caller)
        self._closing = False
        self.tell(serving=False, ready=False, leads=False)

    def tell(self, *, serving: bool, ready: bool, leads: bool) -> None:
        """How things are now; called whenever they may have changed."""
        known = dict.fromkeys(self._services, _status(serving))
        known[READY] = _status(serving and ready)
        known[LEADER] = _status(serving and leads)
        if known != self._known:
            self._known = known
            self._wake()

    def close(self) -> None:
        """End all watches."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        read = health_pb2.HealthCheckRequest.FromString
        unary = grpc.unary_unary_rpc_method_handler(self._check, read, Response.SerializeToString)
        stream = grpc.unary_stream_rpc_method_handler(self._watch, read, Response.SerializeToString)
        methods = {"Check": unary, "Watch": stream}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _check(self, request: health_pb2.HealthCheckRequest, context: Context) -> Any:  # noqa: ANN401
        status = self._known.get(request.service)
        if status is None:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            names = ", ".join(sorted(name for name in self._known if name))
            context.set_details(f"'{request.service}' is not served here; there are {names}")
            return Response()
        return Response(status=status)

    async def _watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        peer = context.peer()
        try:
            with self._watchers.taken(peer.rpartition(":")[0]):
                await self._follow(request.service, context)
        except Refused as refusal:
            refuse(context, refusal.rejection, ())
        except TimeoutError:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(f"nobody has read from this watch for {UNREAD_S:.0f} s")

    async def _follow(self, service: str, context: Context) -> None:
        told: int | None = None
        while True:
            changed = self._changed
            status = self._known.get(service, Response.SERVICE_UNKNOWN)
            if status != told:
                told = status
                async with asyncio.timeout(UNREAD_S):
                    await context.write(Response(status=status))
            if self._closing:
                return
            await changed.wait()


def _status(good: bool) -> int:
    status: int = Response.SERVING if good else Response.NOT_SERVING
    return status
