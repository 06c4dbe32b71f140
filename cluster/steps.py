"""The level "debug" tells every step of every run, as the changes tell it."""

from __future__ import annotations

import structlog

from ..proto.v1 import event_pb2
from ..statemachine.events import events
from ..statemachine.record import MetaRecord
from .node import Node

says = structlog.get_logger("raftsched.cluster.steps")


def tell_steps(node: Node) -> None:
    """Have each change told by the leader; it costs about as much as deciding it."""

    def tell(index: int, change: bytes, meta: MetaRecord) -> None:
        if node.leads:
            for event in events(change, meta.revision, node.replica.store):
                words = event_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_")
                said = {"job": event.job, "run": event.run.id, "token": event.run.token,
                        "attempt": event.run.attempt, "worker": event.run.worker}  # fmt: skip
                says.debug(
                    words.lower().replace("_", " "), revision=meta.revision,
                    **{name: value for name, value in said.items() if value},
                )  # fmt: skip

    node.replica.listeners.append(tell)
