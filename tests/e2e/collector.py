"""A collector of spans on loopback, by either form of OTLP, that keeps what it is given."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.trace.v1 import trace_pb2

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
KINDS = trace_pb2.Span.SpanKind
BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Seen:
    """A span as it came."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    failed: bool
    attributes: Mapping[str, Any]
    start: int
    end: int


@dataclass
class Collector:
    """What came."""

    endpoint: str = ""
    spans: list[Seen] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def take(self, data: bytes) -> None:
        request = otlp.ExportTraceServiceRequest.FromString(data)
        with self._turn:
            self.raw.append(data)
            for resource in request.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self.spans += [_seen(service, span) for span in scope.spans]

    def of(self, name: str, trace: str = "", **attributes: object) -> list[Seen]:
        """Those of this name that say so, in the order in which they began."""
        wanted = {f"raftsched.{key}": value for key, value in attributes.items()}
        with self._turn:
            found = [
                one for one in self.spans
                if one.name == name and trace in ("", one.trace)
                and wanted.items() <= dict(one.attributes).items()
            ]  # fmt: skip
        return sorted(found, key=lambda one: one.start)

    def lacks_nothing(self, outside: str) -> bool:
        """Whether each parent has come, but for this span of somebody else."""
        with self._turn:
            known = {one.id for one in self.spans} | {outside, ""}
            return {one.parent for one in self.spans} <= known

    def tree(self) -> str:
        """All of them, each below its parent, with its links, for people."""
        with self._turn:
            spans = sorted(self.spans, key=lambda one: one.start)
        known = {one.id for one in spans}
        lines: list[str] = []

        def show(one: Seen, depth: int) -> None:
            links = "".join(f" -> {to[1][:4]}" for to in one.links)
            mark = " FAILED" if one.failed else ""
            lines.append(
                f"{'  ' * depth}{one.id[:4]} {one.name} ({one.kind}, {one.service}, "
                f"{(one.end - one.start) / 1e6:.1f} ms){mark}{links}"
            )
            for child in spans:
                if child.parent == one.id:
                    show(child, depth + 1)

        for one in spans:
            if one.parent not in known:
                show(one, 0)
        return "\n".join(lines)


def _seen(service: str, span: trace_pb2.Span) -> Seen:
    return Seen(
        service=service, name=span.name, kind=KINDS.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(), id=span.span_id.hex(), parent=span.parent_span_id.hex(),
        links=tuple((one.trace_id.hex(), one.span_id.hex()) for one in span.links),
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
        start=span.start_time_unix_nano, end=span.end_time_unix_nano,
    )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:  # noqa: ANN401  # A repeated field.
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
        for one in attributes
    }


@contextmanager
def collecting(protocol: str) -> Iterator[Collector]:
    """One that listens as long as this lasts."""
    collector = Collector()
    with _over_grpc(collector) if protocol == "grpc" else _over_http(collector):
        yield collector


@contextmanager
def _over_grpc(collector: Collector) -> Iterator[None]:
    def export(data: bytes, context: grpc.ServicerContext) -> bytes:
        collector.take(data)
        return otlp.ExportTraceServiceResponse().SerializeToString()

    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    handler: Any = grpc.unary_unary_rpc_method_handler(export)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),)
    )
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextmanager
def _over_http(collector: Collector) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = min(int(self.headers["content-length"]), BYTES_MAX)
            collector.take(self.rfile.read(size))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
