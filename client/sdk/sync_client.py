"""The blocking client."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

import grpc
from google.protobuf.message import Message

from ...proto.contract import Method
from ..calls.blocking.services import Services
from .course import Course
from .links import (
    SILENCE_S,
    Answer,
    CallOptions,
    ClientLinks,
    Metadata,
    Tls,
    answer_of,
    failure_of,
    trailing,
)
from .refusals import NEVER_SENT, FailedTry
from .silence import Silence

# Begins as gRPC's own words do when nothing was sent.
NEVER_BEGUN = FailedTry("UNAVAILABLE", f"{NEVER_SENT[0]}; the connection was let go")


class Client(Services):
    """Talks to a cluster, blocking the calling thread. Safe to share between threads.

    with Client("node-1:7400,node-2:7400,node-3:7400", namespace="shop") as client:
        client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
        run = client.jobs.trigger("report")
        print(run.result(timeout=60))

    Nothing is connected before the first call. Each call has a deadline, goes to the leader where
    that is known, and is tried again at another node, with the same request_id, as long as that
    can help and the deadline allows.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] = "127.0.0.1:7400",
        *,
        namespace: str = "default",
        timeout: float = 30.0,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """`insecure` lets a token go to other machines without TLS."""
        self._links = ClientLinks(
            endpoints, namespace=namespace, timeout=timeout, token=token, tls=tls,
            insecure=insecure,
        )  # fmt: skip
        self._channels: dict[str, grpc.Channel] = {}
        self._calls: dict[tuple[str, Method], Any] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def _self(self) -> Client:
        return self

    @property
    def namespace(self) -> str:
        """The namespace of typed calls that name none."""
        return self._links.namespace

    @property
    def timeout(self) -> float:
        """The timeout of calls that name none, in seconds."""
        return self._links.timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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

    def call(self, request: Message, **options: Unpack[CallOptions]) -> Any:  # noqa: ANN401
        """Send any request of the contracts and return its response; for options see CallOptions.

        An empty namespace in the request is not filled in: it means what the contract says.

        job = client.call(job_pb2.GetJobRequest(namespace="shop", job="report"), timeout=5)
        """
        return self.ask(request, **options).message

    def ask(self, request: Message, **options: Unpack[CallOptions]) -> Answer[Any]:
        """As `call`, with what the answer's metadata say: leader, term, revision, age.

        answer = client.ask(job_pb2.ListJobsRequest(), stale=True)
        print(answer.endpoint, answer.age_ms)
        """
        course = self._links.begin(request, options)
        metadata = self._links.metadata(options)
        while True:
            attempt = course.next_try(monotonic())
            send = self._sender(attempt.address, course.method)
            try:
                message, call = send.with_call(
                    course.request, timeout=attempt.timeout, metadata=metadata
                )
            except grpc.RpcError as error:
                failed = failure_of(error)
            except ValueError:
                # Another thread has closed this connection in between.
                failed = NEVER_BEGUN
            else:
                answer = answer_of(message, attempt.address, trailing(call.trailing_metadata()))
                course.answered(answer.leader)
                return answer
            self._links.check_open()
            self.pause(course.failed(failed, monotonic()))

    def stream(
        self, request: Message, *, silence: float = SILENCE_S, **options: Unpack[CallOptions]
    ) -> Generator[Any, None, None]:
        """Send a request that is answered by a stream, and yield the responses.

        Until the first response other nodes are tried, within the timeout. After it a broken
        stream raises Unavailable, and so does a server that is silent for `silence` seconds.

        for response in client.stream(event_pb2.WatchEventsRequest(filter="kind=RUN_FAILED")):
            ...
        """
        course = self._links.begin(request, options)
        if not course.method.streams_out:
            raise TypeError(f"{course.method.verb} is answered once; use call()")
        return self._responses(course, self._links.metadata(options), silence)

    def _responses(
        self, course: Course, metadata: Metadata, silence: float
    ) -> Generator[Any, None, None]:
        while True:
            address = course.next_try(monotonic()).address
            call = self._sender(address, course.method)(course.request, metadata=metadata)
            watch = Silence(call.cancel, silence)
            begun = False
            try:
                while (response := watch.next(call)) is not None:
                    if not begun:
                        begun = True
                        course.answered("")
                    yield response
                return
            except grpc.RpcError as error:
                failed = watch.failure() or failure_of(error)
            finally:
                watch.end()
                call.cancel()
            self._links.check_open()
            if begun:
                raise course.broke_off(failed, monotonic())
            self.pause(course.failed(failed, monotonic()))

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

    def pause(self, seconds: float) -> None:
        """Wait so long; raises Closed when the client is closed meanwhile."""
        self._closed.wait(seconds)
        self._links.check_open()
