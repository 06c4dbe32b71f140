"""What may be said about jobs, namespaces, alerts, calendars, queues, secrets and access tokens,
and the messages made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from ...proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    namespace_pb2,
    options_pb2,
    queue_pb2,
    secret_pb2,
)
from . import fields
from .days import Days, rules
from .fields import Fields, same, word
from .options import Writing
from .specs import SpecOptions
from .values import Length, duration, timestamp, words

RoleWord = Literal["admin", "editor", "worker", "viewer"]


class SpecWriting(SpecOptions, Writing, total=False):
    """What may be said where a job is written."""


class NamespaceOptions(TypedDict, total=False):
    """What may be said about a namespace; namespace.proto has the defaults."""

    description: str
    # How long things are kept.
    keep_succeeded: Length | None
    keep_failed: Length | None
    keep_ledger: Length | None
    keep_audit: Length | None
    # Its share of the leases where namespaces compete.
    weight: int
    # Missed scheduled times that become runs in a second, after an outage.
    backlog_rate: int
    # Quotas; 0: no limit.
    jobs: int
    live_runs: int
    leases: int
    calls_per_second: int
    payload_bytes: int


class NamespaceWriting(NamespaceOptions, Writing, total=False):
    """What may be said where a namespace is written."""


class AlertOptions(TypedDict, total=False):
    """What may be said about an alert: one condition, and what to do."""

    dead_letters_above: int
    lateness_above: Length
    # Queue and minimum.
    workers_below: tuple[str, int]
    broken_jobs_above: int
    # From here on for the cluster only: `namespace=""`.
    no_margin: bool
    clock_skew_above: Length
    no_quorum: bool
    long_step_above: Length
    leader_changes_above: int
    members_differ: bool
    set_aside_above: int
    # For all of them.
    hold: Length
    webhook: str
    etag: str


class AlertWriting(AlertOptions, Writing, total=False):
    """What may be said where an alert is written."""


class CalendarOptions(TypedDict, total=False):
    """What may be said about a calendar beside its days."""

    description: str
    # Whose days they are; empty: those of each job's zone.
    zone: str


class CalendarWriting(CalendarOptions, Writing, total=False):
    """What may be said where a calendar is created."""


class CalendarChanging(CalendarWriting, total=False):
    """What may be said where a calendar is changed."""

    # All of them: those that are there are replaced.
    days: Sequence[Days]


class QueueOptions(TypedDict, total=False):
    """What may be said about a queue: limits of what is leased from it."""

    # Runs that may be leased at once.
    concurrency: int | None
    # Leases granted in a second, and how many may come at once.
    rate: int | None
    burst: int | None


class QueueWriting(QueueOptions, Writing, total=False):
    """What may be said where a queue is changed."""


class SecretOptions(TypedDict, total=False):
    """What may be said about a secret beside its value."""

    labels: Mapping[str, str]
    etag: str


class SecretWriting(SecretOptions, Writing, total=False):
    """What may be said where a secret is written."""


class TokenOptions(TypedDict, total=False):
    """What may be said about an access token beside its role."""

    # Of a viewer: payloads, results and logs are shown to it.
    see_payloads: bool
    # 0: any number.
    calls_per_second: int
    # None: never.
    expires: datetime | None


class TokenWriting(TokenOptions, Writing, total=False):
    """What may be said where an access token is created."""


def namespace_of(
    name: str, _within: str, options: Mapping[str, Any]
) -> tuple[namespace_pb2.Namespace, list[str]]:
    """The namespace, and the paths of the fields that the options speak of; it is in none."""
    made = namespace_pb2.Namespace(name=name)
    return made, fields.write(made, options, _NAMESPACE)


def alert_of(
    name: str, within: str, options: Mapping[str, Any]
) -> tuple[alert_pb2.Alert, list[str]]:
    """The alert, and the paths of the fields that the options speak of."""
    made = alert_pb2.Alert(namespace=within, name=name)
    return made, fields.write(made, options, _ALERT)


def calendar_of(
    name: str, within: str, options: Mapping[str, Any]
) -> tuple[calendar_pb2.Calendar, list[str]]:
    """The calendar, and the paths of the fields that the options speak of."""
    made = calendar_pb2.Calendar(namespace=within, name=name)
    return made, fields.write(made, options, _CALENDAR)


def queue_of(
    name: str, within: str, options: Mapping[str, Any]
) -> tuple[queue_pb2.Queue, list[str]]:
    """The queue, and the paths of the fields that the options speak of."""
    made = queue_pb2.Queue(namespace=within, name=name)
    return made, fields.write(made, options, _QUEUE)


def secret_of(
    name: str, within: str, options: Mapping[str, Any]
) -> tuple[secret_pb2.Secret, list[str]]:
    """The secret without its value, and the paths of the fields that the options speak of."""
    made = secret_pb2.Secret(namespace=within, name=name)
    return made, fields.write(made, options, _SECRET)


def token_of(
    name: str, within: str, options: Mapping[str, Any]
) -> tuple[access_pb2.AccessToken, list[str]]:
    """The access token, and the paths of the fields that the options speak of."""
    made = access_pb2.AccessToken(namespace=within, name=name)
    return made, fields.write(made, options, _TOKEN)


def _workers_below(value: tuple[str, int]) -> alert_pb2.WorkersBelow:
    return alert_pb2.WorkersBelow(queue=value[0], minimum=value[1])


_ALERT: Fields = {
    "dead_letters_above": ("condition.dead_letters_above", same),
    "lateness_above": ("condition.lateness_above", duration),
    "workers_below": ("condition.workers_below", _workers_below),
    "no_margin": ("condition.no_margin", same),
    "clock_skew_above": ("condition.clock_skew_above", duration),
    "no_quorum": ("condition.no_quorum", same),
    "broken_jobs_above": ("condition.broken_jobs_above", same),
    "long_step_above": ("condition.long_step_above", duration),
    "leader_changes_above": ("condition.leader_changes_above", same),
    "members_differ": ("condition.members_differ", same),
    "set_aside_above": ("condition.set_aside_above", same),
    "hold": ("hold", duration),
    "webhook": ("webhook", same),
    "etag": ("etag", same),
}
_CALENDAR: Fields = {
    "days": ("rules", rules),
    "description": ("description", same),
    "zone": ("zone", same),
}
_QUEUE: Fields = {
    "concurrency": ("concurrency", same),
    "rate": ("rate", same),
    "burst": ("burst", same),
}
_SECRET: Fields = {
    "labels": ("labels", lambda labels: words(labels, "it")),
    "etag": ("etag", same),
}
_TOKEN: Fields = {
    "role": ("role", word(options_pb2.Role, "ROLE_")),
    "see_payloads": ("see_payloads", same),
    "calls_per_second": ("calls_per_second", same),
    "expires": ("expire_time", timestamp),
}
_NAMESPACE: Fields = {
    "description": ("description", same),
    "keep_succeeded": ("keep_succeeded", duration),
    "keep_failed": ("keep_failed", duration),
    "keep_ledger": ("keep_ledger", duration),
    "keep_audit": ("keep_audit", duration),
    "weight": ("weight", same),
    "backlog_rate": ("backlog_rate", same),
    "jobs": ("quota.jobs", same),
    "live_runs": ("quota.live_runs", same),
    "leases": ("quota.leases", same),
    "calls_per_second": ("quota.calls_per_second", same),
    "payload_bytes": ("quota.payload_bytes", same),
}
