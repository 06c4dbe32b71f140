"""What is written wrongly is refused before it is sent, with its name and what to write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from raftsched.client import Client, Worker
from raftsched.client.sdk.days import rules
from raftsched.client.sdk.policies import After, Concurrency, Retry, Timeouts
from raftsched.client.sdk.schedules import every
from raftsched.client.sdk.specs import job_of
from raftsched.client.sdk.values import payload

from ..rows import each
from .stage import Stage

NAN = float("nan")


def job(**options: Any) -> object:  # noqa: ANN401
    return job_of("a", **{"handler": "x", **options})


LETTERS: list[tuple[str, Callable[[], object]]] = [
    (r"retry: fatal is 'ValueError', a single text; write a list: \['ValueError'\]",
     lambda: job(retry=Retry(fatal="ValueError"))),
    (r"after: jobs is 'charge'.* write a list", lambda: job(after=After("charge"))),
    (r"exclude_calendars: it is 'holidays'.* write a list",
     lambda: job(exclude_calendars="holidays")),
    (r"queues is 'mail'.* write a list: \['mail'\]", lambda: Worker(queues="mail")),
    (r"namespaces is 'billing'.* write a list", lambda: Worker(namespaces="billing")),
    (r"days is 'sunday'.* write a list", lambda: rules("sunday")),
    (r"shell: it is 'echo hi'; write program and arguments", lambda: job_of("a", shell="echo hi")),
    (r"shell: it holds 3; write a list of texts", lambda: job_of("a", shell=["ls", 3])),  # type: ignore[list-item]
]  # fmt: skip
WRONG: list[tuple[str, Callable[[], object]]] = [
    ("jitter: '30s' is no length of time; write seconds", lambda: job(jitter="30s")),
    (r"schedule: '0 9 \* \* \*' is no schedule; write cron\('0 9 ",
     lambda: job(schedule="0 9 * * *")),
    (r"schedule: '@daily' is no schedule; write cron\('@daily'\)",
     lambda: job(schedule=["@daily"])),
    ("schedule: 5 is no schedule", lambda: job(schedule=5)),
    ("priority: 5 is not known here; write one of 'high'", lambda: job(priority=5)),
    (r"labels: it is \['a'\]; write a mapping", lambda: job(labels=["a"])),
    ("labels: it holds 'a': 1; both must be texts", lambda: job(labels={"a": 1})),
    ("worker_labels: it is 'a=b'; write a mapping", lambda: job(worker_labels="a=b")),
    (r"retry: '5' is not understood; write a number of attempts", lambda: job(retry="5")),
    ("concurrency: '5' is not understood", lambda: job(concurrency="5")),
    (r"timeouts: 5 is not understood; write Timeouts\(", lambda: job(timeouts=5)),
    ("overlap: 5 is not understood", lambda: job(overlap=5)),
    ("misfire: 5 is not understood", lambda: job(misfire=5)),
    ("max_runs: max_runs is '5'; write a whole number", lambda: job(max_runs="5")),
    ("queue: queue is 5; write a text", lambda: job(queue=5)),
    ("start: '2026-01-01' is no instant; write datetime", lambda: job(start="2026-01-01")),
    ("start: .* is no instant", lambda: job(start=date(2026, 1, 1))),
    ("retry: factor is '2'; write a number", lambda: job(retry=Retry(factor="2"))),  # type: ignore[arg-type]
    ("timeouts: '5m' is no length of time", lambda: job(timeouts=Timeouts(attempt="5m"))),  # type: ignore[arg-type]
    ("after: 5 is not understood; write the name of a job", lambda: job(after=5)),
    ("labels is .* write a mapping", lambda: Worker(labels=["a"])),  # type: ignore[arg-type]
    ("slots is '4'; write a whole number", lambda: Worker(slots="4")),  # type: ignore[arg-type]
]  # fmt: skip
RANGES: list[tuple[str, Callable[[], object]]] = [
    ("retry: max_attempts is 1099511627776", lambda: job(retry=Retry(attempts=2**40))),
    ("concurrency: job is 1099511627776", lambda: job(concurrency=Concurrency(job=2**40))),
    ("max_runs: max_runs is 1", lambda: job(max_runs=2**70)),
    (r"1e\+30 is no length", lambda: every(1e30)),
    (r"timeouts: 1e\+20 is no length", lambda: job(timeouts=Timeouts(attempt=1e20))),
    ("payload: a payload holds nan, which JSON cannot say", lambda: job(payload={"n": NAN})),
    ("a payload holds inf", lambda: payload([{"deep": (1, float("inf"))}])),
]


@each(("words", "write"), LETTERS)
def test_a_text_is_no_list_of_its_letters(words: str, write: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=words):
        write()


@each(("words", "write"), WRONG)
def test_what_is_of_another_kind_is_refused_by_name(
    words: str, write: Callable[[], object]
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        write()


@each(("words", "write"), RANGES)
def test_numbers_that_cannot_be_sent_are_refused(words: str, write: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=words):
        write()


def test_a_payload_may_hold_nothing_in_places() -> None:
    kept = payload({"a": None, "b": 1.5})
    assert kept is not None
    assert kept.data == b'{"a":null,"b":1.5}'


def test_numbers_of_calls_are_refused_by_name(stage: Stage) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with Client(stage.endpoints) as client:
        with pytest.raises(ValueError, match="count is 1"):
            client.jobs.preview("a", count=2**40)
        with pytest.raises(ValueError, match="runs_per_minute is 1"):
            client.jobs.backfill("a", now, now, runs_per_minute=2**40)


def test_a_limit_below_nothing_is_refused(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        with pytest.raises(ValueError, match="limit is -3; write how many"):
            list(client.jobs.history("report", limit=-3))
        with pytest.raises(ValueError, match="limit is -3"):
            list(client.events.list(limit=-3))
