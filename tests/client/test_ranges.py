"""Numbers beyond what a field can hold are refused with the field's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftsched.client.sdk import ranges, specs, values
from raftsched.client.sdk.policies import Concurrency, Misfire, Overlap, Retry, Timeouts
from raftsched.client.sdk.schedules import every
from raftsched.proto.v1 import job_pb2, namespace_pb2

from ..rows import each


@each(
    ("make", "why"),
    [
        (lambda: specs.job_of("x", retry=Retry(attempts=2**40)), "max_attempts is 1099511627776"),
        (lambda: specs.job_of("x", retry=Retry(factor=1e12)), "factor_percent is 1000000000000"),
        (lambda: specs.job_of("x", concurrency=Concurrency(job=2**40)), "job is 1099511627776"),
        (lambda: specs.job_of("x", concurrency=Concurrency(job=-(2**31) - 1)), "the least that"),
        (lambda: specs.job_of("x", overlap=Overlap("queue", 2**31)), "limit is 2147483648"),
        (lambda: specs.job_of("x", misfire=Misfire("all", maximum=2**31)), "maximum is 2147483648"),
        (lambda: specs.job_of("x", max_runs=2**64), "max_runs is 18446744073709551616"),
        (lambda: every(1e30), "1e+30 is no length of time below 10,000 years"),
        (lambda: specs.job_of("x", timeouts=Timeouts(attempt=1e20)), "1e+20 is no length of time"),
        (lambda: values.duration(float("nan")), "nan is no length of time"),
        (lambda: values.duration(float("inf")), "inf is no length of time"),
    ],
)
def test_a_number_out_of_range_is_named(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=r"^.") as raised:
        make()

    assert why in str(raised.value)


def test_the_last_number_that_can_be_said_is_taken() -> None:
    assert ranges.made(job_pb2.RetryPolicy, max_attempts=2**31 - 1).max_attempts == 2**31 - 1
    quota = namespace_pb2.Quota()
    ranges.put(quota, "jobs", 2**63 - 1)
    assert quota.jobs == 2**63 - 1
