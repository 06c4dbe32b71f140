"""How the cluster has done of late, as this node has it from whoever led."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from ...proto.v1 import cluster_pb2
from ...statemachine.core.instants import set_ms, to_ms
from ...statemachine.core.rejection import Refused
from ...statemachine.model import validate
from ..node.figure_history import Figure, percentile
from ..node.node import Node
from .call import Call

Step = cluster_pb2.Figures
STEPS = {
    Step.STEP_UNSPECIFIED: 1, Step.STEP_SECOND: 1, Step.STEP_TEN_SECONDS: 10, Step.STEP_MINUTE: 60,
}  # fmt: skip


class FigureCalls:
    """Answers GetFigures."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def get(
        self, call: Call, request: cluster_pb2.GetFiguresRequest
    ) -> cluster_pb2.GetFiguresResponse:
        faults = validate.instant("since_time", request, "since_time")
        faults += validate.enum("step", request, "step")
        if faults:
            raise Refused.of(faults)
        since_ms = to_ms(request.since_time) if request.HasField("since_time") else 0
        found = self._node.figures.history.since(STEPS[request.step], -(-since_ms // 1_000))
        return cluster_pb2.GetFiguresResponse(figures=[shown(one) for one in found])


def shown(figure: Figure) -> cluster_pb2.Figures:
    seconds = max(figure.seconds, 0.001)
    made = cluster_pb2.Figures(
        leader=figure.leader, fired=round(figure.fired / seconds, 3),
        started=round(figure.started / seconds, 3), ended=round(figure.ended / seconds, 3),
        failed=round(figure.failed / seconds, 3), ready_high=figure.high,
        ready_medium=figure.medium, ready_low=figure.low, workers=figure.workers,
        slots=figure.slots, busy=figure.busy, behind=figure.behind,
    )  # fmt: skip
    set_ms(made.time, figure.second * 1_000)
    made.counted.FromMilliseconds(round(figure.seconds * 1_000))
    _put(made.lateness_p50, percentile(figure.late, 0.50))
    _put(made.lateness_p99, percentile(figure.late, 0.99))
    _put(made.oldest_ready, figure.oldest_ms / 1_000 if figure.oldest_ms else None)
    return made


def _put(field: Duration, seconds: float | None) -> None:
    if seconds is not None:
        field.FromMicroseconds(round(seconds * 1_000_000))
