"""A server of worker streams in the test's own process: judges as the contract says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from raftsched.cluster.api.status import DETAILS, code_of, details_of
from raftsched.proto.v1 import worker_pb2
from raftsched.proto.v1.worker_pb2 import Lease, Result, ResultAck, Stop, WorkRequest, WorkResponse
from raftsched.statemachine.core.rejection import Reason, Rejection

T = TypeVar("T")

SERVICE = "raftsched.v1.WorkerService"
PATIENCE_S = 20.0


class Node:
    """One node. Leases wait in `line` for credits; what is heard stands in `results` and so on."""

    def __init__(self, *, heartbeat_s: float = 10.0, lapse_s: float = 30.0) -> None:
        self.heartbeat_s, self.lapse_s = heartbeat_s, lapse_s
        self.line: list[Lease] = []
        self.hellos: list[worker_pb2.WorkerHello] = []
        self.metadata: dict[str, str | bytes] = {}
        self.results: dict[int, Result] = {}
        self.reports = 0
        self.progress: list[worker_pb2.ProgressReport] = []
        self.extensions: list[worker_pb2.ExtendRequest] = []
        self.drained = False
        self.closed_well = 0
        self.credits = 0
        # Tokens in the worker's hands.
        self.standing: set[int] = set()
        # What the test changes: whether reports are acknowledged, where to redirect, how to refuse.
        self.acknowledges = True
        self.leader = ""
        self.refusal: grpc.StatusCode | None = None
        # Where the namespaces live instead.
        self.elsewhere = ""
        self.mute = False
        # Whom this node names to who asks it, and how often it was asked.
        self.names, self.inquiries = "", 0
        # What leases may ask for, or why they may not; and who has asked.
        self.secrets: dict[str, str] = {}
        self.refuses_secrets: Reason.ValueType | None = None
        self.resolved: list[worker_pb2.ResolveSecretsRequest] = []
        self._outbox: asyncio.Queue[WorkResponse | None] = asyncio.Queue()
        self._news = asyncio.Condition()
        self._token = 0
        self.asked = 0
        self.address = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        work = grpc.stream_stream_rpc_method_handler(
            self._work,
            request_deserializer=WorkRequest.FromString,
            response_serializer=WorkResponse.SerializeToString,
        )
        asked: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self._not_leader, request_deserializer=worker_pb2.HeartbeatRequest.FromString
        )
        secrets: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self._resolve,
            request_deserializer=worker_pb2.ResolveSecretsRequest.FromString,
            response_serializer=worker_pb2.ResolveSecretsResponse.SerializeToString,
        )
        handlers = {"Work": work, "Heartbeat": asked, "ResolveSecrets": secrets}
        service = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((service,))
        port = self._server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        await self._server.stop(None)

    def lease(
        self, handler: str = "h", payload: bytes = b"", content_type: str = "",
        **fields: Any,  # noqa: ANN401  # Fields of a message.
    ) -> Lease:  # fmt: skip
        """Put a lease into the line."""
        self._token += 1
        lease = Lease(
            namespace="default",
            job="j",
            run=f"run-{self._token}",
            token=self._token,
            attempt=1,
            max_attempts=4,
            **fields,
        )
        if not lease.HasField("action"):
            lease.action.handler = handler
        lease.payload.data, lease.payload.content_type = payload, content_type
        self.line.append(lease)
        self._grant()
        return lease

    def say(self, **fields: Any) -> None:  # noqa: ANN401  # Fields of a message.
        self._outbox.put_nowait(WorkResponse(**fields))

    def stop_run(self, lease: Lease, kind: Stop.Kind.ValueType, message: str = "") -> None:
        self.say(stops=[Stop(token=lease.token, run=lease.run, kind=kind, message=message)])

    def drop(self) -> None:
        """Break the stream."""
        self._outbox.put_nowait(None)

    async def until(self, reached: Callable[[], T]) -> T:
        """Wait for what the test waits for."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(reached)
            return reached()

    async def ended(self, lease: Lease) -> Result:
        await self.until(lambda: lease.token in self.results)
        return self.results[lease.token]

    async def _work(
        self, requests: AsyncIterator[WorkRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[WorkResponse]:
        self.metadata = dict(context.invocation_metadata() or ())
        if self.refusal is not None:
            await context.abort(self.refusal, "not you")
        if self.elsewhere:
            await self._refuse_as_elsewhere(context)
        if self.leader:
            yield WorkResponse(redirect=worker_pb2.Redirect(leader=self.leader, reason="follower"))
            return
        self._outbox = asyncio.Queue()
        reading = asyncio.create_task(self._read(requests, context))
        try:
            while (frame := await self._outbox.get()) is not None:
                yield frame
        finally:
            reading.cancel()
        if not self.closed_well:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")

    async def _not_leader(
        self, _: worker_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.HeartbeatResponse:
        assert dict(context.invocation_metadata() or ())["raftsched-no-forward"]
        async with self._news:
            self.inquiries += 1
            self._news.notify_all()
        context.set_trailing_metadata((("raftsched-leader", self.names),) if self.names else ())
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this node does not lead")
        return worker_pb2.HeartbeatResponse()

    async def _resolve(
        self,
        request: worker_pb2.ResolveSecretsRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> worker_pb2.ResolveSecretsResponse:
        self.resolved.append(request)
        if self.refuses_secrets is not None:
            rejection = Rejection(self.refuses_secrets, "not now", {})
            context.set_trailing_metadata(((DETAILS, details_of(rejection)),))
            await context.abort(code_of(rejection), "not now")
        return worker_pb2.ResolveSecretsResponse(secrets=self.secrets)

    async def _refuse_as_elsewhere(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        rejection = Rejection(
            Reason.ERROR_REASON_NAMESPACE_ELSEWHERE,
            "it lives elsewhere",
            {"namespace": "default", "cluster": "c-2", "addresses": self.elsewhere},
        )
        self.asked += 1
        context.set_trailing_metadata(((DETAILS, details_of(rejection)),))
        await context.abort(code_of(rejection), "it lives elsewhere")

    async def _read(
        self, requests: AsyncIterator[WorkRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        async for request in requests:
            if self.mute:
                continue
            async with self._news:
                self._heard(request)
                self._news.notify_all()
        async with self._news:
            self.closed_well += not context.cancelled()
            self._news.notify_all()
        self._outbox.put_nowait(None)

    def _heard(self, request: WorkRequest) -> None:
        out = WorkResponse(beat=request.beat)
        if request.HasField("hello"):
            self._welcome(request.hello, out)
        self.credits += request.credits
        self.progress += request.progress
        self.extensions += request.extensions
        for result in request.results:
            self._judge(result, out)
        if request.drain:
            self.drained = out.drain = True
            self.credits = 0
        self._outbox.put_nowait(out)
        self._grant()

    def _welcome(self, hello: worker_pb2.WorkerHello, out: WorkResponse) -> None:
        self.hellos.append(hello)
        self.credits = 0
        out.welcome.heartbeat.FromMilliseconds(int(self.heartbeat_s * 1000))
        out.welcome.lapse.FromMilliseconds(int(self.lapse_s * 1000))
        out.welcome.server_time.GetCurrentTime()
        held = {one.token for one in hello.held}
        for token in held - self.standing:
            out.stops.add(token=token, kind=Stop.KIND_LOST)

    def _judge(self, result: Result, out: WorkResponse) -> None:
        self.reports += 1
        if not self.acknowledges:
            return
        ack = out.acks.add(token=result.token, subject=ResultAck.SUBJECT_RESULT)
        if result.token in self.standing:
            self.standing.discard(result.token)
            self.results[result.token] = result
        elif result.token not in self.results:
            ack.reason = "LEASE_LOST"

    def _grant(self) -> None:
        taken, self.line = self.line[: self.credits], self.line[self.credits :]
        if taken:
            self.credits -= len(taken)
            self.standing |= {lease.token for lease in taken}
            self._outbox.put_nowait(WorkResponse(leases=taken))
