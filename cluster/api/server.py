"""The gRPC server of a node: all services of the contracts on one port.

server = Server(node, "127.0.0.1:7400")
address = await server.start()
...
await server.drain("the node stops")
await server.stop(grace=1.0)
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Mapping
from typing import cast

import grpc
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection

from ...proto.contract import Method, methods, services
from ...statemachine.reads.reads import READS
from ...statemachine.rules import RULES
from ..node.event_feed import EventFeed
from ..node.limits import CallerLimits
from ..node.node import Node as RealNode
from .access_calls import AccessCalls
from .admin import ClusterCalls
from .auth import AccessCheck
from .backup_calls import BackupCalls
from .call import Call
from .caller_limits import MESSAGE_MAX, CallerShare, CallerShares
from .cluster_status import StatusView
from .events import EventCalls
from .figure_calls import FigureCalls
from .forward import ForwardPeers
from .health import SERVICE, Health
from .lasting import Lasting
from .leadership import Leadership
from .node_port import NodePort
from .observer import Nobody, Observer
from .rates import CallRates
from .refused import RefusedCalls
from .secret_calls import SecretCalls
from .strangers import Strangers
from .streaming import Follow, ServerStreams
from .unary import Calls, OwnCall
from .unread import Unread
from .wait_run import RunWaits
from .worker_streams import LOOK_S, Work
from .worker_unary import WorkerCalls

STREAMS_MAX = 20_000  # On one connection.
# Calls that may wait to be heard. Each has 14 KB, and up to 50 KB with as many headers as may be:
# whoever begins calls and resets them at once fills this and no more.
PENDING_MAX = 500
METADATA_MAX = 8 << 10
# What may come of a stream before somebody reads it. Who reads lets the rest of a message come.
AHEAD_BYTES = (64 << 10) - 1
HANDSHAKE_MS = 5_000  # From a connection to its first words.
IDLE_MS = 300_000  # Without a call. Clients connect again when they need it.
REQUESTS_AT_A_READ = 8
# Descriptors that are not for connections of clients: store, journal, peers, HTTP.
DESCRIPTORS_KEPT = 192
OPTIONS: tuple[tuple[str, int], ...] = (
    # Else a second node on the same port would start without a word and get half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.server.max_pending_requests", PENDING_MAX),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
    ("grpc.http2.max_requests_per_read", REQUESTS_AT_A_READ),
    # Else gRPC widens the windows of a fast caller to many MiB a stream, which it fills unread.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", AHEAD_BYTES),
    ("grpc.max_metadata_size", METADATA_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    # Clients ping every 20 s; without these lines they would be sent away for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that is gone without a word is noticed as well.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
DEPOSED_S = 1.0  # What a deposed leader has to answer the calls that were passed on to it.


class Server:
    """See the head of this file."""

    def __init__(
        self,
        node: NodePort,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
        peer_credentials: grpc.ChannelCredentials | None = None,
        metrics: Observer | None = None,
        limits: CallerLimits | None = None,
        *,
        reflects: bool = True,
    ) -> None:
        # Whoever reaches the port may ask for the contracts.
        self._reflects = reflects
        self.node = node
        self.shares, self.refused = CallerShares(limits), RefusedCalls()
        self._unread = Unread(self.shares.answers, self.refused.note)
        self._address = address
        self._credentials = credentials
        observer = metrics or Nobody()
        self._peers = ForwardPeers(node.name, peer_credentials)
        self._leadership = Leadership(node)
        self._strangers = Strangers()
        self._health = Health(services(), self.shares.limits, self._strangers)
        self._access = AccessCheck(node, self.shares.limits.failures)
        self.feed = EventFeed(node.replica, node.journal, node.leader.troubles.failed)
        self.rates = CallRates(node)
        self.events = EventCalls(node, self.feed, self._admit, self.shares.answers, self._unread)
        self._lasting = Lasting(self._access.check)
        self._waits = RunWaits(node, self.shares.waits, self._lasting)
        self._leadership.on_change(self._waits.wake_all)
        # The cluster itself is asked of real nodes only.
        real = cast("RealNode", node)
        view = StatusView(real, self.feed, self._leadership, observer, self.refused)
        self._cluster = ClusterCalls(real, view, self._peers, self._leadership, self._shed)
        self.calls = Calls(
            node, self._peers, self._leadership, observer, self._own_calls(real),
            self._access.identify, self._admit, self.shares, self.refused, self._unread,
            self._strangers,
        )  # fmt: skip
        self.work = Work(
            node, node.sessions, self._leadership, self._access.admit, self.shares, self._strangers
        )
        self._streams = ServerStreams(self.calls, self._lasting)
        self._following: dict[str, tuple[Follow, CallerShare]] = {
            "EventService/WatchEvents": (self.events.watch, self.shares.watchers),
            "ClusterService/Backup": (
                BackupCalls(real, self._admit).stream, self.shares.streams,
            ),
        }  # fmt: skip
        self._looking: asyncio.Task[None] | None = None
        self._stopped = False

    def _admit(self, call: Call, request: Message) -> None:
        self._access.admit(call, request)
        self.rates.count(call, request)

    def _own_calls(self, real: RealNode) -> dict[str, OwnCall]:
        """Those that are neither a request of the rules nor a read of the state."""
        return {
            "EventService/ListEvents": self.events.list,
            "RunService/WaitRun": self._waits.wait,
            **AccessCalls(self.node).calls(),
            **SecretCalls(self.node).calls(),
            **WorkerCalls(self.node, self.shares.waits, self._lasting).calls(),
            **self._cluster.calls(),
            "ClusterService/GetFigures": FigureCalls(real).get,
        }

    async def start(self, beside: str = "") -> str:
        """Serve; the address that was bound. OSError when it is taken. `beside` is the path of a
        socket for programs of the same owner on this machine."""
        most = connections_max(self.shares.limits.connections)
        self._server = grpc.aio.server(
            options=(*OPTIONS, ("grpc.max_allowed_incoming_connections", most))
        )
        self._server.add_generic_rpc_handlers((self._handlers(), self._health.handlers()))
        if self._reflects:
            reflection.enable_server_reflection(
                (*services(), SERVICE, reflection.SERVICE_NAME), self._server
            )
        port = self._bind()
        if beside:
            self._bind_beside(beside)
        await self._server.start()
        self._strangers.serve(port)
        self._strangers.start()
        self._looking = asyncio.create_task(self._look(), name="look")
        self._looking.add_done_callback(self._looked)
        self._publish_health()
        return f"{self._address.rsplit(':', 1)[0]}:{port}"

    def _bind(self) -> int:
        try:
            if self._credentials is None:
                return self._server.add_insecure_port(self._address)
            return self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise OSError(
                f"cannot listen for clients on {self._address}: the port is in use, or the address "
                "is not one of this machine. Stop the other program, or choose another address"
            ) from error

    def _bind_beside(self, path: str) -> None:
        before = os.umask(0o177)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot make the socket {path} for the gateway: {error}") from error
        finally:
            os.umask(before)

    def _handlers(self) -> grpc.GenericRpcHandler:
        served: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        for method in methods():
            served[method.path] = self._handler(method)
        return Served(served)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        if method.name == "WorkerService/Work":
            return self._streams.talking(method, self.work.talk)
        if method.name in self._following:
            return self._streams.following(method, *self._following[method.name])
        ruled = method.request in (READS if method.harmless else RULES)
        assert ruled or method.name in self.calls.own, f"nothing serves {method.name}"
        return self.calls.handler(method)

    async def _look(self) -> None:
        """The one clock of the services."""
        loop = asyncio.get_running_loop()
        while True:
            self._peers.follow(self.node.leader_address, loop.time(), DEPOSED_S)
            self.work.look(loop.time())
            self._lasting.look(loop.time())
            self.calls.bodies.look(self._leadership.clock())
            self._health.look(loop.time())
            self._unread.look(loop.time())
            self._access.look(loop.time())
            self._strangers.turn()
            self._publish_health()
            await asyncio.sleep(LOOK_S)

    def _looked(self, looking: asyncio.Task[None]) -> None:
        """Without its clock a server would hang in odd ways, so the node ends with it."""
        error = None if looking.cancelled() else looking.exception()
        if error is not None:
            self.node.fail(error)

    def _publish_health(self) -> None:
        node = self.node
        self._health.publish(
            serving=node.serves,
            ready=node.leads or bool(node.leader_address),
            leads=node.leads,
        )

    def _shed(self, reason: str) -> None:
        """Send workers and watchers elsewhere, if this node drains."""
        self._publish_health()
        self.node.introduce()
        if self.node.draining:
            self.work.drain(reason)
            self.events.look()

    async def drain(self, reason: str) -> None:
        """This node stops: new calls are refused, streams end with a word."""
        self.node.drain()
        self._shed(reason)
        self._health.close()

    async def stop(self, grace: float) -> None:
        """End; calls that are under way have so many seconds."""
        if self._stopped:
            return
        self._stopped = True
        await self._server.stop(grace)
        self._strangers.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self.feed.close()
        self._waits.close()
        self._access.identities.close()
        self._cluster.verifier.close()
        await self._peers.close()


def connections_max(wanted: int) -> int:
    """As many as are wanted, if so many files may be open; half of the rest, if few may."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(soft - DESCRIPTORS_KEPT, soft // 4))


class Served(grpc.GenericRpcHandler):
    """All calls by their path, in one dictionary."""

    def __init__(self, served: Mapping[str, grpc.RpcMethodHandler[bytes, bytes]]) -> None:
        self._served = served

    def service(
        self, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._served.get(details.method)
