"""The columns of each kind of message; `wide` shows all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from ..times import now_ms, rough_text
from . import node_cells
from .formats import (
    Cell,
    Column,
    ValueFormats,
    action,
    condition,
    enum_word,
    few,
    length,
    pairs,
    paused,
    payload,
    schedules,
    state,
    warned,
)


def text(title: str, field: str, *, wide: bool = False) -> Column:
    """A field as it is; nought and nothing are left empty."""
    return Column(title, lambda message, _: Cell(str(_at(message, field) or "")), wide)


def count(title: str, field: str, *, wide: bool = False) -> Column:
    return Column(title, lambda message, _: Cell(str(_at(message, field))), wide)


def when(title: str, field: str, *, wide: bool = False) -> Column:
    """An instant, or nothing while it is unset."""

    def cell(message: Message, formats: ValueFormats) -> Cell:
        *parents, last = field.split(".")
        owner = _at(message, ".".join(parents)) if parents else message
        return Cell(formats.time(getattr(owner, last)) if owner.HasField(last) else "")

    return Column(title, cell, wide)


def enum(title: str, field: str, *, wide: bool = False) -> Column:
    def cell(message: Message, _: ValueFormats) -> Cell:
        *parents, last = field.split(".")
        return state(enum_word(_at(message, ".".join(parents)) if parents else message, last))

    return Column(title, cell, wide)


def made(title: str, write: Callable[[Any], str], *, wide: bool = False) -> Column:
    return Column(title, lambda message, _: Cell(write(message)), wide)


def _at(message: Any, path: str) -> Any:  # Fields of any message.
    for name in path.split("."):
        message = getattr(message, name)
    return message


def _last(job: Any, formats: ValueFormats) -> Cell:
    """How the last run ended; "never ran" is no failure, so it is not shown with a word of one."""
    if not job.status.last_run:
        return state("-")
    return warned(enum_word(job.status, "last_state"), job.status.last_warning, formats)


def _why(run: Any) -> str:
    """What went wrong in a run, or what it warns of."""
    return f"{run.error.kind}: {run.error.message}" if run.error.kind else str(run.warning)


def _job_note(job: Any, formats: ValueFormats) -> Cell:
    """What the other columns of a job leave open: why it stands still, what does not run."""
    status = job.status
    parts = [paused(status, formats)]
    parts += [f"left out: {status.left_out}"] if status.left_out else []
    parts += [status.broken_reason] if status.broken_reason else []
    parts += [f"the last run warns: {status.last_warning}"] if status.last_warning else []
    return Cell("; ".join(part for part in parts if part))


def _queue_age(queue: Any) -> str:
    if not queue.HasField("oldest_ready_time"):
        return ""
    return rough_text(now_ms() - queue.oldest_ready_time.ToMilliseconds())


def _stretch(entry: Any, formats: ValueFormats) -> Cell:
    return Cell(
        formats.time(entry.last_scheduled_time) if entry.HasField("last_scheduled_time") else ""
    )


def _what(event: Any) -> str:
    for text in (
        event.run.id,
        event.job,
        event.queue.name,
        event.flow,
        event.calendar,
        event.alert,
    ):
        if text:
            return str(text)
    return ""


def _more(event: Any) -> str:
    """What there is to say beyond the kind: who took it, why it went wrong."""
    run = event.run
    kind = enum_word(event, "kind")
    ended_badly = kind in ("run retrying", "run failed", "run cancelled", "run skipped")
    parts = [
        event.message,
        enum_word(event.ledger, "outcome"),
        f"{run.error.kind}: {run.error.message}" if run.error.kind and ended_badly else "",
        run.warning,
        f"worker {run.worker}" if kind == "run leased" else "",
    ]
    return "; ".join(part for part in parts if part)


def _worker(run: Any) -> str:
    """Who holds it, or held it last."""
    return str(run.worker or (run.attempts[-1].worker if run.attempts else ""))


def worked_ms(run: Any) -> int | None:
    """How long handlers have worked on it, in all attempts that have ended."""
    spans = [
        one.end_time.ToMilliseconds() - one.start_time.ToMilliseconds()
        for one in run.attempts
        if one.HasField("start_time") and one.HasField("end_time")
    ]
    return max(sum(spans), 0) if spans else None


def _worked(run: Any, formats: ValueFormats) -> Cell:
    ms = worked_ms(run)
    return Cell("" if ms is None else formats.length(ms))


def _because(step: Any) -> str:
    return few(step.because)


def _waits_for(flow: Any) -> str:
    waiting = (step for step in flow.steps if step.state == step.STATE_WAITING)
    return few(name for step in waiting for name in step.because)


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "Job": (
        text("NAME", "name"),
        enum("STATE", "status.state"),
        made("SCHEDULE", lambda job: schedules(job.spec)),
        made("ZONE", lambda job: job.spec.timing.zone),
        when("NEXT", "status.next_due_time"),
        Column("LAST", _last),
        count("RUNNING", "status.running"),
        made("WAITING", lambda job: str(job.status.live - job.status.running)),
        made("ACTION", lambda job: action(job.spec.action), wide=True),
        made("QUEUE", lambda job: job.spec.queue or "default", wide=True),
        made("PRIORITY", lambda job: enum_word(job.spec, "priority") or "medium", wide=True),
        count("FIRED", "status.fired", wide=True),
        count("FAILED", "status.failed", wide=True),
        count("WARNED", "status.warned", wide=True),
        made("LABELS", lambda job: pairs(job.spec.labels), wide=True),
        text("OWNER", "spec.owner", wide=True),
        count("VERSION", "version", wide=True),
        Column("NOTE", _job_note),
    ),
    "Run": (
        text("RUN", "id"),
        Column("STATE", lambda run, formats: warned(enum_word(run, "state"), run.warning, formats)),
        when("DUE", "due_time"),
        Column("DURATION", lambda run, formats: Cell(formats.since(run, "start_time", "end_time"))),
        count("ATTEMPT", "attempt"),
        made("WORKER", _worker),
        made("ERROR", _why),
        text("JOB", "job", wide=True),
        enum("CAUSE", "cause", wide=True),
        when("SCHEDULED", "scheduled_time", wide=True),
        when("STARTED", "start_time", wide=True),
        Column("HANDLER TIME", _worked, wide=True),
        when("ENDED", "end_time", wide=True),
        made("QUEUE", lambda run: run.queue or "default", wide=True),
        enum("OUTCOME", "outcome", wide=True),
        text("FLOW", "flow", wide=True),
        made("RESULT", lambda run: payload(run.result), wide=True),
    ),
    "Attempt": (
        count("ATTEMPT", "number"),
        enum("END", "end"),
        when("STARTED", "start_time"),
        Column("DURATION", lambda one, formats: Cell(formats.since(one, "start_time", "end_time"))),
        text("WORKER", "worker"),
        count("TOKEN", "token"),
        made(
            "ERROR", lambda one: f"{one.error.kind}: {one.error.message}" if one.error.kind else ""
        ),
    ),
    "Queue": (
        text("NAME", "name"),
        Column("STATE", lambda queue, _: state("paused" if queue.paused else "open")),
        count("READY", "ready"),
        made("OLDEST", _queue_age),
        count("LEASED", "leased"),
        count("WORKERS", "workers"),
        text("CONCURRENCY", "concurrency"),
        text("RATE", "rate"),
        text("BURST", "burst", wide=True),
        text("REASON", "pause_reason", wide=True),
    ),
    "Worker": (
        text("WORKER", "worker"),
        Column("STATE", lambda one, _: state("draining" if one.draining else "pulling")),
        made("BUSY", lambda one: f"{one.leased}/{one.slots}"),
        made("QUEUES", lambda one: few(one.queues)),
        made("HANDLERS", lambda one: few(one.handlers)),
        when("SEEN", "last_seen_time"),
        made("NAMESPACES", lambda one: few(one.namespaces), wide=True),
        made("LABELS", lambda one: pairs(one.labels), wide=True),
        text("PROGRAM", "program", wide=True),
        when("CONNECTED", "connect_time", wide=True),
    ),
    "Flow": (
        text("FLOW", "id"),
        enum("STATE", "state"),
        when("SCHEDULED", "scheduled_time"),
        Column(
            "DURATION", lambda flow, formats: Cell(formats.since(flow, "create_time", "end_time"))
        ),
        made(
            "STEPS", lambda flow: f"{sum(bool(step.run) for step in flow.steps)}/{len(flow.steps)}"
        ),
        made("WAITS FOR", _waits_for),
    ),
    "FlowStep": (
        text("JOB", "job"),
        enum("STEP", "state"),
        enum("RUN STATE", "run_state"),
        text("RUN", "run"),
        made("BECAUSE", _because),
    ),
    "GraphEdge": (
        text("UPSTREAM", "upstream"),
        text("DOWNSTREAM", "downstream"),
        made("ON", lambda edge: enum_word(edge, "condition") or "success"),
        made("HOW", lambda edge: "triggers" if edge.triggers else "waits", wide=True),
    ),
    "Node": (
        text("NODE", "name"),
        Column("ROLE", lambda node, _: state(enum_word(node, "role") if node.reachable else "")),
        Column("STATE", lambda node, _: state(node_cells.condition(node))),
        text("ADDRESS", "client_address"),
        # Of a node that does not answer nobody knows it.
        made("APPLIED", lambda node: str(node.applied_index) if node.reachable else ""),
        made("CLOCK", node_cells.skew),
        Column("SYNC", node_cells.slowest_sync),
        Column("CERTIFICATE", node_cells.certificate),
        text("VERSION", "version"),
        text("PEER", "peer_address", wide=True),
        count("MATCH", "match_index", wide=True),
        text("ZONES", "zone_edition", wide=True),
        count("LEVEL", "feature_level", wide=True),
        text("BUILD", "build", wide=True),
        made("KEYS", lambda node: few(node.key_ids), wide=True),
    ),
    "Event": (
        made("REVISION", lambda event: f"{event.revision.change}.{event.revision.position}"),
        when("TIME", "time"),
        enum("EVENT", "kind"),
        made("WHAT", _what),
        made("MORE", _more),
        text("NAMESPACE", "namespace", wide=True),
    ),
    "Calendar": (
        text("NAME", "name"),
        made("RULES", lambda one: str(len(one.rules))),
        text("ZONE", "zone"),
        count("JOBS", "jobs"),
        text("DESCRIPTION", "description"),
        when("UPDATED", "update_time", wide=True),
    ),
    "Namespace": (
        text("NAME", "name"),
        count("JOBS", "usage.jobs"),
        count("RUNS", "usage.live_runs"),
        count("DEAD", "usage.dead_letters"),
        text("MAX JOBS", "quota.jobs"),
        text("MAX RUNS", "quota.live_runs"),
        text("MAX LEASES", "quota.leases"),
        text("CALLS/S", "quota.calls_per_second"),
        text("DESCRIPTION", "description"),
        count("BACKLOG", "usage.backlog", wide=True),
        made(
            "KEEPS",
            lambda one: length(one.keep_succeeded) if one.HasField("keep_succeeded") else "7d",
            wide=True,
        ),
    ),
    "Alert": (
        text("NAME", "name"),
        Column("STATE", lambda one, _: state("raised" if one.HasField("raised_time") else "calm")),
        when("SINCE", "raised_time"),
        made("CONDITION", lambda one: condition(one.condition)),
        made("HOLD", lambda one: length(one.hold) if one.HasField("hold") else ""),
        text("WEBHOOK", "webhook"),
        made("NAMESPACE", lambda one: one.namespace or "cluster", wide=True),
        text("ETAG", "etag", wide=True),
    ),
    "AuditRecord": (
        when("TIME", "time"),
        text("ACTOR", "actor"),
        text("METHOD", "method"),
        text("SUBJECT", "subject"),
        text("CHANGED", "change"),
        text("NAMESPACE", "namespace", wide=True),
        made("REVISION", lambda one: f"{one.revision.change}.{one.revision.position}", wide=True),
        text("REQUEST", "request_id", wide=True),
    ),
    "AccessToken": (
        text("NAME", "name"),
        enum("ROLE", "role"),
        made("NAMESPACE", lambda one: one.namespace or "all"),
        when("EXPIRES", "expire_time"),
        when("LAST USED", "last_use_time"),
        made("PAYLOADS", lambda one: "yes" if one.see_payloads else ""),
        when("FORMER UNTIL", "former_secret_expire_time", wide=True),
        made("CALLS/S", lambda one: str(one.calls_per_second or ""), wide=True),
        when("CREATED", "create_time", wide=True),
    ),
    "IdentityProvider": (
        text("NAME", "name"),
        made("ISSUES", lambda one: "tokens" if one.HasField("jwt") else "certificates"),
        made("ISSUER", lambda one: one.jwt.issuer),
        made("AUDIENCES", lambda one: few(one.jwt.audiences, 3)),
        made("RULES", lambda one: str(len(one.rules))),
        when("CREATED", "create_time", wide=True),
        text("ETAG", "etag", wide=True),
    ),
    "Secret": (
        text("NAME", "name"),
        count("VALUE", "value_version"),
        when("UPDATED", "update_time"),
        text("BY", "updater"),
        text("KEY", "key_id"),
        made("LABELS", lambda one: pairs(one.labels)),
        when("CREATED", "create_time", wide=True),
        text("ETAG", "etag", wide=True),
    ),
    "LedgerEntry": (
        when("SCHEDULED", "scheduled_time"),
        Column("TO", _stretch),
        count("TIMES", "count"),
        enum("OUTCOME", "outcome"),
    ),
    "OutcomeCount": (enum("OUTCOME", "outcome"), count("TIMES", "count")),
    "Obstacle": (
        enum("OBSTACLE", "kind"),
        when("UNTIL", "until"),
        text("MESSAGE", "message"),
    ),
    "ImportResult": (
        text("JOB", "job"),
        enum("VERDICT", "verdict"),
        made("CHANGED", lambda one: few(one.changed_paths, 5, ", ")),
        text("REASON", "reason"),
        text("MESSAGE", "message"),
    ),
    "ForecastMinute": (
        when("MINUTE", "start_time"),
        count("FIRINGS", "firings"),
        count("PEAK/S", "peak"),
    ),
}
