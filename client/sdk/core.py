# Made from async_core.py by calls/generate.py; write there.
"""A client without its typed calls: sends any request of the contracts, and says how it went.

`core.py`, for the blocking client, is made from this file by `calls/generate.py`: write here.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

from google.protobuf.message import Message

from ...proto import tracing
from .connections import Connections
from .course import Course
from .endpoints import Endpoints
from .links import SILENCE_S, Answer, CallOptions, ClientLinks, Metadata, Tls
from .refusals import FailedTry


class ClientCore:
    """Knows the nodes of a cluster, asks the right one, and asks again where that can help."""

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
        self.connections = Connections(self._links)

    @property
    def namespace(self) -> str:
        """The namespace of typed calls that name none."""
        return self._links.namespace

    @property
    def timeout(self) -> float:
        """The timeout of calls that name none, in seconds."""
        return self._links.timeout

    @property
    def endpoints(self) -> Endpoints:
        """The nodes this client knows, and which of them leads."""
        return self._links.endpoints

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
        self.connections.close()

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
        spans = tracing.active()
        if spans is None:
            return self._ask(course, metadata)
        from .call_spans import calling  # It loads OpenTelemetry.

        with calling(spans, course) as span:
            answer = self._ask(course, (*metadata, *span.metadata))
            span.answered(answer)
            return answer

    def _ask(self, course: Course, metadata: Metadata) -> Answer[Any]:
        while True:
            attempt = course.next_try(monotonic())
            found = self.connections.ask(course.method, course.request, attempt, metadata)
            if isinstance(found, Answer):
                course.answered(found.leader)
                return found
            self._links.check_open()
            self.pause(course.failed(found, monotonic()))

    def stream(
        self, request: Message, *, silence: float = SILENCE_S, **options: Unpack[CallOptions]
    ) -> Generator[Any, None, None]:
        """Send a request that is answered by a stream, and yield the responses.

        Until the first response other nodes are tried, within the timeout. After it a broken
        stream raises Unavailable, and so does a server that is silent for `silence` seconds.

        for response in client.stream(event_pb2.WatchEventsRequest()):
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
            stream = self.connections.stream(
                course.method, course.request, address, metadata, silence
            )
            begun = False
            try:
                while (response := stream.next()) is not None:
                    if isinstance(response, FailedTry):
                        break
                    if not begun:
                        begun = True
                        course.answered("")
                    yield response
            finally:
                stream.end()
            if response is None:
                return
            self._links.check_open()
            if begun:
                raise course.broke_off(response, monotonic())
            self.pause(course.failed(response, monotonic()))

    def pause(self, seconds: float) -> None:
        """Wait so long; raises Closed when the client is closed meanwhile."""
        self.connections.pause(seconds)
        self._links.check_open()
