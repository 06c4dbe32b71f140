"""A job as Python says it, made into the message that the cluster takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict, Unpack

from ...proto.v1 import common_pb2, job_pb2, schedule_pb2
from . import fields
from .fields import Fields, same, word
from .policies import (
    After,
    Concurrency,
    Misfire,
    MisfireRule,
    Overlap,
    OverlapRule,
    Retry,
    Timeouts,
)
from .schedules import When
from .values import Length, duration, payload, texts, timestamp, words

PriorityWord = Literal["high", "medium", "low"]


class Named(Protocol):
    """What stands for a job by its name, such as a task of an app."""

    @property
    def name(self) -> str: ...


class JobWords(TypedDict, total=False):
    """What may be said about a job beside what it carries out and when; job.proto says what each
    means and what its default is."""

    zone: str
    gap: Literal["next", "skip"]
    fold: Literal["first", "second", "both"]
    start: datetime | None
    end: datetime | None
    max_runs: int
    jitter: Length | None
    exclude_calendars: Sequence[str]
    # Names of other jobs, or all about them.
    after: str | Named | Sequence[str | Named] | After | None
    queue: str
    priority: PriorityWord
    labels: Mapping[str, str]
    owner: str
    description: str
    # Attempts in all, or all about them.
    retry: int | Retry | None
    overlap: OverlapRule | Overlap | None
    misfire: MisfireRule | Misfire | None
    timeouts: Timeouts | None
    # Runs of this job that may be leased at once, or all about it.
    concurrency: int | Concurrency | None
    delivery: Literal["at_least_once", "at_most_once"]
    worker_labels: Mapping[str, str]
    keep_history: Length | None
    delete_after: Length | None
    # So many runs that failed in a row pause the job; 0: never.
    pause_on_failure: int
    # The job that is triggered when a run FAILED; empty: none.
    on_failure: str | Named


class SpecOptions(JobWords, total=False):
    """All that may be said about a job."""

    # What is carried out: one of these four.
    handler: str
    # A URL to POST to, or all about the call.
    http: str | job_pb2.HttpAction
    grpc: job_pb2.GrpcAction
    # A program and its arguments.
    shell: Sequence[str] | job_pb2.ShellAction
    # Bytes and text as they are, everything else as JSON.
    payload: object
    # When: one schedule or several. None: by hand or after other jobs.
    schedule: When | Sequence[When] | None


def job_of(name: str, *, namespace: str = "", **options: Unpack[SpecOptions]) -> job_pb2.Job:
    """A job as a message, for `jobs.import_` and `client.call`.

    job_of("report", handler="build", schedule=cron("0 6 * * *", zone="Europe/Berlin"))
    """
    return build(name, namespace, options)[0]


def build(name: str, namespace: str, options: SpecOptions) -> tuple[job_pb2.Job, list[str]]:
    """The job, and the paths of the fields that the options speak of."""
    job = job_pb2.Job(namespace=namespace, name=name)
    given = _with_zone(dict(options))
    return job, fields.write(job, given, _FIELDS)


def _with_zone(given: dict[str, Any]) -> dict[str, Any]:
    """Schedules may bring the zone that all schedules of a job share."""
    schedules = _whens(given.get("schedule") or ())
    zones = {when.zone for when in schedules if when.zone} | {given.get("zone") or ""} - {""}
    if len(zones) > 1:
        raise ValueError(
            f"the schedules name the zones {', '.join(sorted(zones))}; a job has one zone, so make "
            "a job for each"
        )
    if zones:
        given["zone"] = zones.pop()
    return given


def _whens(given: When | Sequence[When]) -> list[When]:
    several = hasattr(given, "__iter__") and not isinstance(given, str)
    found: list[Any] = list(given) if several else [given]  # type: ignore[arg-type]
    for one in found:
        if not isinstance(one, When):
            example = repr(one) if isinstance(one, str) else "'0 9 * * *'"
            raise TypeError(
                f"schedule: {one!r} is no schedule; write cron({example}), every(60), "
                "after_end(30) or once(datetime(...))"
            )
    return found


def _one_of(value: Any, kinds: Any, write: str) -> Any:  # noqa: ANN401
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not understood; write {write}")
    return value


def _action(**kind: Any) -> job_pb2.Action:  # noqa: ANN401
    return job_pb2.Action(**kind)


def _http(value: str | job_pb2.HttpAction) -> job_pb2.Action:
    value = _one_of(value, str | job_pb2.HttpAction, "a URL, or HttpAction(url=...)")
    return _action(http=job_pb2.HttpAction(url=value) if isinstance(value, str) else value)


def _shell(value: Sequence[str] | job_pb2.ShellAction) -> job_pb2.Action:
    if isinstance(value, str):
        raise TypeError(f"it is {value!r}; write program and arguments as a list: ['ls', '-l']")
    if not isinstance(value, job_pb2.ShellAction):
        value = job_pb2.ShellAction(argv=texts(value, "it"))
    return _action(shell=value)


def _schedules(value: When | Sequence[When]) -> list[schedule_pb2.Schedule]:
    return [when.message for when in _whens(value)]


def _after(value: str | Named | Sequence[str | Named] | After) -> job_pb2.Upstream:
    if isinstance(value, After):
        return value.message()
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return After(texts([_job_name(one) for one in several], "it")).message()


def _job_name(value: str | Named) -> str:
    name = value if isinstance(value, str) else getattr(value, "name", value)
    return str(_one_of(name, str, "the name of a job"))


def _retry(value: int | Retry) -> job_pb2.RetryPolicy:
    value = _one_of(value, int | Retry, "a number of attempts, or Retry(attempts=5)")
    return (Retry(value) if isinstance(value, int) else value).message()


def _overlap(value: OverlapRule | Overlap) -> job_pb2.OverlapPolicy:
    value = _one_of(value, str | Overlap, "'skip', or Overlap('queue', limit=10)")
    return (Overlap(value) if isinstance(value, str) else value).message()


def _misfire(value: MisfireRule | Misfire) -> job_pb2.MisfirePolicy:
    value = _one_of(value, str | Misfire, "'latest', or Misfire('all', maximum=10)")
    return (Misfire(value) if isinstance(value, str) else value).message()


def _concurrency(value: int | Concurrency) -> job_pb2.ConcurrencyLimit:
    value = _one_of(value, int | Concurrency, "a number of runs, or Concurrency(job=1)")
    return (Concurrency(value) if isinstance(value, int) else value).message()


def _timeouts(value: Timeouts) -> job_pb2.Timeouts:
    kept: Timeouts = _one_of(value, Timeouts, "Timeouts(attempt=60)")
    return kept.message()


_FIELDS: Fields = {
    "handler": ("spec.action", lambda name: _action(handler=_one_of(name, str, "its name"))),
    "http": ("spec.action", _http),
    "grpc": (
        "spec.action",
        lambda call: _action(grpc=_one_of(call, job_pb2.GrpcAction, "GrpcAction(...)")),
    ),
    "shell": ("spec.action", _shell),
    "payload": ("spec.payload", payload),
    "schedule": ("spec.schedules", _schedules),
    "zone": ("spec.timing.zone", same),
    "gap": ("spec.timing.gap_rule", word(schedule_pb2.GapRule, "GAP_RULE_")),
    "fold": ("spec.timing.fold_rule", word(schedule_pb2.FoldRule, "FOLD_RULE_")),
    "start": ("spec.timing.start_time", timestamp),
    "end": ("spec.timing.end_time", timestamp),
    "max_runs": ("spec.timing.max_runs", same),
    "jitter": ("spec.timing.jitter", duration),
    "exclude_calendars": ("spec.timing.exclude_calendars", lambda names: texts(names, "it")),
    "after": ("spec.upstream", _after),
    "queue": ("spec.queue", same),
    "priority": ("spec.priority", word(common_pb2.Priority, "PRIORITY_")),
    "labels": ("spec.labels", lambda labels: words(labels, "it")),
    "owner": ("spec.owner", same),
    "description": ("spec.description", same),
    "retry": ("spec.retry", _retry),
    "overlap": ("spec.overlap", _overlap),
    "misfire": ("spec.misfire", _misfire),
    "timeouts": ("spec.timeouts", _timeouts),
    "concurrency": ("spec.concurrency", _concurrency),
    "delivery": ("spec.delivery", word(job_pb2.Delivery, "DELIVERY_")),
    "worker_labels": ("spec.worker_labels", lambda labels: words(labels, "it")),
    "keep_history": ("spec.keep_history", duration),
    "delete_after": ("spec.delete_after", duration),
    "pause_on_failure": ("spec.pause_on_failure", int),
    "on_failure": ("spec.on_failure.job", _job_name),
}
