"""What the log shows of runs: at any level those that failed for good, at "debug" every step."""

from __future__ import annotations

import structlog

from ...proto.v1 import event_pb2
from ...statemachine.machine import Prepared
from ...statemachine.model import keys
from ...statemachine.model.record import Change, JobRecord, MetaRecord, RunRecord, parse
from ...statemachine.reads.events import events
from ..node.node import Node

# Of one change; there may be thousands, and the log would hold back the others anyway.
LOGGED_MAX = 20

logs = structlog.get_logger("raftsched.cluster.ops.run_log")


def log_dead_letters(node: Node, change: Change) -> None:
    """A line for each run that used up its attempts."""
    store = node.replica.store
    dead = [key for key in change.keys if key[:1] == keys.DEAD][:LOGGED_MAX]
    for jid, occurrence in map(keys.run_of, dead):
        found = store.get(keys.ended(jid, occurrence)), store.get(keys.job(jid))
        if found[0] is None or found[1] is None:
            continue
        run, job = parse(b"", found[0], RunRecord), parse(b"", found[1], JobRecord)
        logs.warning(
            "run failed for good", job=job.name, run=keys.run_id(job.name, jid, occurrence),
            attempt=run.attempt, token=run.token,
            worker=keys.worker_id(run.worker),
            error=run.error.message[:200] if run.error is not None else "",
        )  # fmt: skip


def log_steps(node: Node) -> None:
    """Have each change logged by the leader; each event is looked up in the state for it."""

    def log_change(index: int, prepared: Prepared, meta: MetaRecord) -> None:
        if node.leads:
            for event in events(prepared.data, meta.revision, node.replica.store):
                words = event_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_")
                fields = {"job": event.job, "run": event.run.id, "token": event.run.token,
                        "attempt": event.run.attempt, "worker": event.run.worker}  # fmt: skip
                logs.debug(
                    words.lower().replace("_", " "), revision=meta.revision,
                    **{name: value for name, value in fields.items() if value},
                )  # fmt: skip

    node.replica.on_change(log_change)
