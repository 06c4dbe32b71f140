"""The span of a request over HTTP: below that of its caller, or the first of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...proto import otel_spans
from .exchange import METHODS, Exchange

if TYPE_CHECKING:
    from ...proto.otel_spans import Span, Spans


class RequestSpan:
    """The span of a request that is under way, current until it ends."""

    def __init__(self, spans: Spans, exchange: Exchange, route: str) -> None:
        self._spans, self._exchange = spans, exchange
        headers = exchange.headers
        method = str(exchange.scope["method"])
        parent = otel_spans.context_of(
            {name: headers.get(name, "").strip() for name in ("traceparent", "tracestate")}
        )
        attributes = {
            "http.request.method": method if method in METHODS else "_OTHER",
            "http.route": route,
            "url.scheme": str(exchange.scope.get("scheme", "http")),
            "client.address": exchange.address,
        }
        self._span: Span = spans.begin(
            f"{exchange.verb} {route}", "server", attributes,
            parent=otel_spans.NOWHERE if parent is None else otel_spans.below(parent),
        )  # fmt: skip
        self._token = otel_spans.attach(otel_spans.inside(self._span))

    @property
    def traceparent(self) -> str:
        """For the answer, so that whoever asked finds the trace."""
        return otel_spans.carrier_of(self._span).get("traceparent", "")

    def end(self) -> None:
        """The request was answered, or whoever asked has left."""
        otel_spans.detach(self._token)
        span, exchange = self._span, self._exchange
        try:
            if exchange.status:
                span.set_attribute("http.response.status_code", exchange.status)
            if exchange.reason:
                span.set_attribute("raftsched.reason", exchange.reason[: otel_spans.TEXT_MAX])
            # What a caller did wrong is no error of the gateway.
            if exchange.status >= 500:
                otel_spans.fail(span, exchange.reason or str(exchange.status))
            span.end()
        except Exception as error:
            self._spans.failed(error)


def begun(spans: Spans, exchange: Exchange, route: str) -> RequestSpan | None:
    """The span of a request whose route is known; None if it could not be made."""
    try:
        return RequestSpan(spans, exchange, route)
    except Exception as error:
        spans.failed(error)
        return None
