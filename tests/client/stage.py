"""Nodes that speak the contract in this process: the real rules on a store in memory, gRPC before
it, and faults on demand.

    stage = Stage(3)
    stage.nodes[0].faults.append(lost_after_commit)
    Client(stage.endpoints).call(...)

All nodes share one machine, as if a follower passed calls on to the leader.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from raftsched.cluster.api.access_calls import grant
from raftsched.proto.contract import methods, reason
from raftsched.proto.v1 import (
    access_pb2,
    cluster_pb2,
    event_pb2,
    options_pb2,
    run_pb2,
)
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Reason, Refused, Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model.hiding import hidden
from raftsched.statemachine.model.view import View
from raftsched.statemachine.reads import events
from raftsched.statemachine.reads.reads import READS, read
from raftsched.statemachine.rules import RULES

from ..statemachine.driver import Machine

TERM = 7
EXPIRES = timestamp(1_800_000_000_000)
THREADS = 32
# What a fault gets: the node, the request, gRPC's context, and how the call would be answered.
Fault = Callable[["Node", Any, grpc.ServicerContext, Callable[[], Message]], Message]


class Stage:
    """Some nodes, one of which leads."""

    def __init__(self, count: int = 1, credentials: grpc.ServerCredentials | None = None) -> None:
        self.machine = Machine(MemoryStore())
        self.turn = threading.Condition()
        self.token = ""
        # Whoever calls is a viewer that may not see payloads.
        self.views = False
        # Watches that have begun.
        self.watching = 0
        self.nodes = [Node(self, credentials) for _ in range(count)]
        self.leader = self.nodes[0]

    @property
    def endpoints(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def act(self, what: Callable[[Machine], object]) -> None:
        """Do something to the machine; whoever waits for a change is woken."""
        with self.turn:
            what(self.machine)
            self.turn.notify_all()

    def finish(self, data: bytes = b"") -> None:
        """A worker takes all that is ready, and succeeds."""

        def work(machine: Machine) -> None:
            machine.fire()
            for lease in machine.grant("w1"):
                machine.succeed(lease, data)

        self.act(work)

    def close(self) -> None:
        for node in self.nodes:
            node.stop()
        self.machine.check()


class Node:
    """A gRPC server of its own port."""

    def __init__(self, stage: Stage, credentials: grpc.ServerCredentials | None) -> None:
        self.stage = stage
        # Each is used up by one call.
        self.faults: deque[Fault] = deque()
        # Likewise, of watches before they stand.
        self.turned_away: deque[Fault] = deque()
        self.heard: list[Message] = []
        self.stopped = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((Handlers(self),))
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """The process is gone: its port is closed and its calls have broken off."""
        self.stopped.set()
        self.stage.act(lambda machine: None)
        self._server.stop(None).wait()
        self._pool.shutdown()

    def unary(self, request: Message, context: grpc.ServicerContext) -> Message:
        with self.stage.turn:
            self.heard.append(request)
            self.stage.turn.notify_all()
        self._greet(context)
        if self.faults:
            return self.faults.popleft()(self, request, context, lambda: self.answer(request))
        try:
            return self.answer(request)
        except Refused as refused:
            refuse(context, refused.rejection)

    def _greet(self, context: grpc.ServicerContext) -> None:
        said = dict(context.invocation_metadata())
        self._trailing(context)
        if self.stage.token and said.get("authorization") != f"Bearer {self.stage.token}":
            refuse(context, rejection("UNAUTHENTICATED", "the token is not valid"))
        if "raftsched-no-forward" in said and self.stage.leader is not self:
            refuse(context, rejection("NOT_LEADER", "ask the leader", leader=self.leader))

    @property
    def leader(self) -> str:
        return self.stage.leader.address

    def _trailing(self, context: grpc.ServicerContext) -> None:
        with self.stage.turn:
            revision = read_meta(self.stage.machine.store).revision
        context.set_trailing_metadata(
            (
                ("raftsched-leader", self.leader),
                ("raftsched-term", str(TERM)),
                ("raftsched-revision", f"{revision}.0"),
                ("raftsched-age-ms", "12"),
                ("raftsched-cluster", "c-1"),
            )
        )

    def answer(self, request: Any) -> Message:  # noqa: ANN401  # Any request of the contracts.
        """What the rules say; Refused if they refuse."""
        if isinstance(request, run_pb2.WaitRunRequest):
            return self._wait(request)
        if isinstance(request, cluster_pb2.GetClusterStatusRequest):
            return cluster_pb2.ClusterStatus(node=self.address, leader=self.leader)
        if isinstance(request, event_pb2.ListEventsRequest):
            return self._past(request)
        if isinstance(request, access_pb2.WhoAmIRequest):
            return self._caller()
        with self.stage.turn:
            machine = self.stage.machine
            if type(request) in READS:
                reply: object = read(View(machine.store.snapshot(), machine.now_ms), request)
            elif self.stage.views:
                reply = rejection("FORBIDDEN", "look may not do this: it needs EDITOR")
            elif type(request) in RULES:
                [reply] = machine.do_all(request)
                self.stage.turn.notify_all()
            else:
                reply = rejection("FIELD_INVALID", f"the stage does not play {type(request)}")
        if isinstance(reply, Rejection):
            raise Refused(reply)
        assert isinstance(reply, Message)
        if self.stage.views:
            reply = hidden(reply)
        return reply

    def _caller(self) -> access_pb2.Caller:
        if not self.stage.views:
            given = grant(options_pb2.ROLE_ADMIN, "")
            kind = access_pb2.Caller.KIND_ANONYMOUS
            return access_pb2.Caller(kind=kind, grants=[given], see_payloads=True)
        given = grant(options_pb2.ROLE_VIEWER, "default")
        kind = access_pb2.Caller.KIND_TOKEN
        return access_pb2.Caller(kind=kind, name="look", grants=[given], expire_time=EXPIRES)

    def _wait(self, request: run_pb2.WaitRunRequest) -> run_pb2.Run:
        asked = run_pb2.GetRunRequest(namespace=request.namespace, run=request.run)
        limit = request.timeout.ToMilliseconds() / 1000
        with self.stage.turn:
            self.stage.turn.wait_for(lambda: self._ended(asked), limit)
            return self._run(asked)

    def _ended(self, asked: run_pb2.GetRunRequest) -> bool:
        return self._run(asked).HasField("end_time") or self.stopped.is_set()

    def _run(self, asked: run_pb2.GetRunRequest) -> run_pb2.Run:
        machine = self.stage.machine
        found = read(machine.view(), asked)
        if isinstance(found, Rejection):
            raise Refused(found)
        assert isinstance(found, run_pb2.Run)
        return found

    def _past(self, request: event_pb2.ListEventsRequest) -> event_pb2.ListEventsResponse:
        events.parse_filter(request.filter)
        if request.after.change > len(self.stage.machine.log):
            raise Refused(rejection("FIELD_INVALID", "after has not come yet"))
        found = self._events((request.after.change, request.after.position))
        page = event_pb2.ListEventsResponse(events=found[: request.page_size or 50])
        page.end = len(page.events) == len(found)
        page.progress.CopyFrom(page.events[-1].revision if page.events else request.after)
        return page

    def _events(self, after: tuple[int, int]) -> list[event_pb2.Event]:
        with self.stage.turn:
            machine = self.stage.machine
            return [
                event
                for number, change in enumerate(machine.log, 1)
                for event in events.events(change, number, machine.store)
                if (event.revision.change, event.revision.position) > after
            ]

    def backup(
        self, request: cluster_pb2.BackupRequest, context: grpc.ServicerContext
    ) -> Iterator[cluster_pb2.BackupResponse]:
        """Three pieces; a fault comes before the last."""
        self._greet(context)
        for number in range(3):
            if number == 2 and self.faults:
                self.faults.popleft()(self, request, context, cluster_pb2.BackupResponse)
                return
            yield cluster_pb2.BackupResponse(data=b"piece", total=0 if number else 15)

    def watch(
        self, request: event_pb2.WatchEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[event_pb2.WatchEventsResponse]:
        self.heard.append(request)
        self._greet(context)
        if self.turned_away:
            self.turned_away.popleft()(self, request, context, event_pb2.WatchEventsResponse)
        after = (request.after.change, request.after.position)
        if not request.HasField("after"):
            after = (len(self.stage.machine.log), 1_000_000)
        context.add_callback(self._wake)
        # The first word is empty, so that the caller knows that the watch stands.
        yield _progress([], after)
        with self.stage.turn:
            self.stage.watching += 1
            self.stage.turn.notify_all()
        while self._wait_for_events(after, context):
            if self.faults:
                self.faults.popleft()(self, request, context, event_pb2.WatchEventsResponse)
            found = self._events(after)
            after = (found[-1].revision.change, found[-1].revision.position)
            yield _progress(found, after)

    def _wait_for_events(self, after: tuple[int, int], context: grpc.ServicerContext) -> bool:
        """Whether there are events, or a fault, before the caller or the node goes away."""

        def gone() -> bool:
            return self.stopped.is_set() or not context.is_active()

        with self.stage.turn:
            self.stage.turn.wait_for(lambda: self._events(after) or self.faults or gone())
        return not gone()

    def _wake(self) -> None:
        with self.stage.turn:
            self.stage.turn.notify_all()


def _progress(
    found: list[event_pb2.Event], after: tuple[int, int]
) -> event_pb2.WatchEventsResponse:
    answer = event_pb2.WatchEventsResponse(events=found)
    answer.progress.change, answer.progress.position = after
    return answer


class Handlers(grpc.GenericRpcHandler):
    """Every call of the contracts, by its path."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._methods = {method.path: method for method in methods()}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = self._methods.get(details.method)
        if method is None or method.streams_in:
            return None
        if method.streams_out:
            play: Any = self._node.backup if method.verb == "Backup" else self._node.watch
            return grpc.unary_stream_rpc_method_handler(
                play, method.request.FromString, method.response.SerializeToString
            )
        return grpc.unary_unary_rpc_method_handler(
            self._node.unary, method.request.FromString, method.response.SerializeToString
        )


def rejection(word: str, message: str, retry_after_ms: int = 0, **values: str) -> Rejection:
    number = Reason.Value(f"ERROR_REASON_{word}")
    return Rejection(number, message, values, retry_after_ms=retry_after_ms)


class Status(grpc.Status):
    """What abort_with_status wants."""

    def __init__(self, code: grpc.StatusCode, details: str, packed: bytes) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = (("grpc-status-details-bin", packed),)


def refuse(context: grpc.ServicerContext, rejected: Rejection) -> NoReturn:
    """End the call as the contract says a refusal looks."""
    rules = reason(rejected.word)
    assert rules is not None
    code = grpc.StatusCode[rules.code]
    parts: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=rejected.word, domain="raftsched", metadata=dict(rejected.values)
        )
    ]
    if rejected.faults:
        wrong = [
            error_details_pb2.BadRequest.FieldViolation(
                field=fault.field,
                description=fault.message,
                reason=Reason.Name(fault.reason).removeprefix("ERROR_REASON_"),
            )
            for fault in rejected.faults
        ]
        parts.append(error_details_pb2.BadRequest(field_violations=wrong))
    if rejected.retry_after_ms:
        delay = Duration()
        delay.FromMilliseconds(rejected.retry_after_ms)
        parts.append(error_details_pb2.RetryInfo(retry_delay=delay))
    said = status_pb2.Status(code=code.value[0], message=rejected.message)
    for part in parts:
        packed = AnyMessage()
        packed.Pack(part)
        said.details.append(packed)
    kept = tuple(context.trailing_metadata() or ())
    status = Status(code, rejected.message, said.SerializeToString())
    status.trailing_metadata = (*kept, *status.trailing_metadata)
    context.abort_with_status(status)
    raise AssertionError("abort does not return")


# Faults.


def refusing(word: str, message: str = "no", retry_after_ms: int = 0, **values: str) -> Fault:
    """Refuse without doing anything."""

    def fault(
        node: Node, request: object, context: grpc.ServicerContext, answer: Callable[[], Message]
    ) -> NoReturn:
        refuse(context, rejection(word, message, retry_after_ms, **values))

    return fault


def losing_the_answer(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> Fault:
    """Do it, and break off before the answer."""

    def fault(
        node: Node, request: object, context: grpc.ServicerContext, answer: Callable[[], Message]
    ) -> NoReturn:
        answer()
        context.abort(code, "Socket closed")
        raise AssertionError("abort does not return")

    return fault


def breaking_off(
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, message: str = "Socket closed"
) -> Fault:
    """Break off without doing anything."""

    def fault(
        node: Node, request: object, context: grpc.ServicerContext, answer: Callable[[], Message]
    ) -> NoReturn:
        context.abort(code, message)
        raise AssertionError("abort does not return")

    return fault


def silent(
    node: Node, request: object, context: grpc.ServicerContext, answer: Callable[[], Message]
) -> Message:
    """Say nothing until the caller or the node goes away."""
    with node.stage.turn:
        gone = context.add_callback(node._wake)
        node.stage.turn.wait_for(
            lambda: not gone or not context.is_active() or node.stopped.is_set()
        )
    context.abort(grpc.StatusCode.CANCELLED, "gone")
    raise AssertionError("abort does not return")


# Endpoints that are no node.


def dead_endpoint() -> str:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


class BlackHole:
    """Takes connections and never says anything."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(self._listener.accept()[0])

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for taken in self._taken:
            taken.close()
