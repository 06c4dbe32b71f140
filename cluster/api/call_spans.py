"""The span of a call on a node: of those whose caller is known and has sent one along.

So whoever traces sees what the cluster does for it, a node beside which nobody traces makes no
spans, and a stranger can have none made. A follower that passes a call on names its own span to
the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...proto import otel_spans
from .call import Call

if TYPE_CHECKING:
    from ...proto.otel_spans import Spans

PARENT = "traceparent"
HEADERS = PARENT, "tracestate"
# Codes that say nothing of the node's own health are no errors of it.
SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL",
                           "UNAVAILABLE", "DATA_LOSS"})  # fmt: skip


class NodeCallSpans:
    """Makes them."""

    def __init__(self, spans: Spans, node: str) -> None:
        self._spans, self._node = spans, node

    def begin(self, call: Call) -> NodeCallSpan | None:
        """The span of a call, current from now on."""
        metadata = call.metadata
        if PARENT not in metadata:
            return None
        try:
            return self._begin(call, {name: str(metadata.get(name, "")) for name in HEADERS})
        except Exception as error:
            self._spans.failed(error)
            return None

    def _begin(self, call: Call, carrier: dict[str, str]) -> NodeCallSpan | None:
        parent = otel_spans.context_of(carrier)
        if parent is None:
            return None
        method = call.method.path[1:]
        attributes = {
            "rpc.system.name": "grpc", "rpc.method": method, "raftsched.node": self._node,
        }  # fmt: skip
        span = self._spans.begin(method, "server", attributes, parent=otel_spans.below(parent))
        # What is passed on goes on below this.
        call.metadata.update(otel_spans.carrier_of(span))
        return NodeCallSpan(self._spans, span)


class NodeCallSpan:
    """The span of a call that is under way on this node."""

    def __init__(self, spans: Spans, span: otel_spans.Span) -> None:
        self._spans, self._span = spans, span
        self._token = otel_spans.attach(otel_spans.inside(span))

    def end(self, code: str) -> None:
        """The call has ended with this code."""
        otel_spans.detach(self._token)
        try:
            self._span.set_attribute("rpc.response.status_code", code)
            if code in SERVER_FAULTS:
                otel_spans.fail(self._span, code)
            self._span.end()
        except Exception as error:
            self._spans.failed(error)
