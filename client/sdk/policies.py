"""What a job does when something is late, overlaps, fails or takes too long, as Python says it.

Each is a plain value with the defaults of the contract (job.proto says what they are).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...proto.v1 import job_pb2
from .ranges import made
from .values import Length, choice, duration, percent, texts

OverlapRule = Literal["allow", "skip", "queue_one", "queue", "replace"]
MisfireRule = Literal["skip", "latest", "earliest", "all"]
Condition = Literal["success", "failure", "any_end"]


@dataclass(frozen=True)
class Retry:
    """What happens when an attempt fails.

    Retry(attempts=5, first=2, factor=3, cap=timedelta(minutes=5), fatal=[ValueError])
    """

    # In all, the first included; 1 means no retry.
    attempts: int = 0
    # The first wait, by how much each is longer than the one before, and the longest.
    first: Length | None = None
    factor: float = 0.0
    cap: Length | None = None
    # The share of a wait that may be added to it, from 0 to 1.
    jitter: float | None = None
    # Errors after which no retry is made: classes of exceptions, or what they are called. A class
    # stands for itself alone, not for those that are made of it.
    fatal: Sequence[str | type[BaseException]] = ()
    # No attempt begins later than this after the run became ready.
    total: Length | None = None

    def message(self) -> job_pb2.RetryPolicy:
        return made(
            job_pb2.RetryPolicy,
            max_attempts=self.attempts,
            first=duration(self.first),
            factor_percent=percent(self.factor, "factor"),
            cap=duration(self.cap),
            jitter_percent=percent(self.jitter, "jitter"),
            fatal_kinds=texts(_kinds(self.fatal), "fatal"),
            total=duration(self.total),
        )


def _kinds(fatal: Sequence[str | type[BaseException]]) -> Sequence[str]:
    if isinstance(fatal, str):
        return fatal
    if isinstance(fatal, type):
        raise TypeError(f"fatal is {fatal.__name__}, a single one; write a list")
    return [one.__name__ if isinstance(one, type) else one for one in fatal]


@dataclass(frozen=True)
class Overlap:
    """What happens when a scheduled time comes while runs have not ended.

    Overlap("queue", limit=10)
    """

    rule: OverlapRule
    limit: int = 0

    def message(self) -> job_pb2.OverlapPolicy:
        rule = choice(job_pb2.OverlapPolicy.Rule, "RULE_", self.rule)
        return made(job_pb2.OverlapPolicy, rule=rule, limit=self.limit)


@dataclass(frozen=True)
class Misfire:
    """What becomes of scheduled times that could not be fired in time.

    Misfire("all", maximum=1_000, grace=timedelta(minutes=5))
    """

    rule: MisfireRule
    grace: Length | None = None
    maximum: int = 0
    start_deadline: Length | None = None

    def message(self) -> job_pb2.MisfirePolicy:
        return made(
            job_pb2.MisfirePolicy,
            rule=choice(job_pb2.MisfirePolicy.Rule, "RULE_", self.rule),
            grace=duration(self.grace),
            maximum=self.maximum,
            start_deadline=duration(self.start_deadline),
        )


@dataclass(frozen=True)
class Timeouts:
    """After which time what is given up.

    Timeouts(attempt=timedelta(minutes=10), run=3600)
    """

    queue: Length | None = None
    attempt: Length | None = None
    run: Length | None = None
    heartbeat: Length | None = None

    def message(self) -> job_pb2.Timeouts:
        return job_pb2.Timeouts(
            queue=duration(self.queue),
            attempt=duration(self.attempt),
            run=duration(self.run),
            heartbeat=duration(self.heartbeat),
        )


@dataclass(frozen=True)
class Concurrency:
    """How many runs may be leased at once: of this job, and of all jobs with one key.

    Concurrency(job=1, key="database", key_limit=3)
    Concurrency(key="payload.customer", key_limit=1)  # one at a time for each customer
    """

    job: int = 0
    key: str = ""
    key_limit: int = 0

    def message(self) -> job_pb2.ConcurrencyLimit:
        return made(job_pb2.ConcurrencyLimit, job=self.job, key=self.key, key_limit=self.key_limit)


@dataclass(frozen=True)
class After:
    """Other jobs after which this one happens.

    After({"extract": "success", "clean": "any_end"}, join="any")
    """

    jobs: Mapping[str, Condition] | Sequence[str]
    join: Literal["all", "any"] = "all"
    stuck_after: Length | None = None

    def message(self) -> job_pb2.Upstream:
        wanted: Mapping[str, Condition]
        if isinstance(self.jobs, Mapping):
            wanted = self.jobs
        else:
            wanted = dict.fromkeys(texts(self.jobs, "jobs"), "success")
        conditions = job_pb2.Dependency.Condition
        return job_pb2.Upstream(
            jobs=[
                job_pb2.Dependency(job=job, condition=choice(conditions, "CONDITION_", word))
                for job, word in wanted.items()
            ],
            join=choice(job_pb2.Upstream.Join, "JOIN_", self.join),
            stuck_after=duration(self.stuck_after),
        )
