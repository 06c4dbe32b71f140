"""Whatever happens on the way, a call ends in time and says rightly whether it was done."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from raftsched.client.errors import CallerError, OutcomeUnknown, RaftschedError, Unavailable
from raftsched.client.sdk.course import Course
from raftsched.client.sdk.endpoints import Endpoints
from raftsched.client.sdk.refusals import FailedTry
from raftsched.proto.contract import method_of
from raftsched.proto.v1 import job_pb2, run_pb2

NODES = ("a:1", "b:1", "c:1")
# The shortest wait is 10 ms, and it doubles: more tries than this do not fit into a minute.
TRIES_MAX = 120
REASONS = (
    "NO_QUORUM", "NOT_LEADER", "DRAINING", "CLOCK_SKEW", "STATE_DIVERGED", "RATE_LIMITED",
    "BACKLOG_FULL", "DISK_FULL", "LEADER_CHANGED", "COMMIT_TIMEOUT", "JOB_EXISTS",
)  # fmt: skip
SILENT = (
    FailedTry("UNAVAILABLE", "Socket closed"),
    FailedTry("UNAVAILABLE", "failed to connect to all addresses"),
    FailedTry("CANCELLED", "CANCELLED"),
    FailedTry("UNKNOWN", "Unexpected"),
    FailedTry("INTERNAL", "Received RST_STREAM with error code 2"),
)
refusals = st.builds(
    lambda reason, wait, leader: FailedTry("UNAVAILABLE", "no", reason, {}, (), wait, leader),
    st.sampled_from(REASONS),
    st.sampled_from([None, 0.0, 0.2, 5.0]),
    st.sampled_from(["", "a:1", "d:1"]),
)
# What a try comes to, and what share of its time it takes.
happenings = st.lists(
    st.tuples(st.sampled_from(SILENT) | refusals, st.floats(0.0, 1.0)), max_size=40
)
WRITE = job_pb2.CreateJobRequest(request_id="r")
REQUESTS = (WRITE, job_pb2.GetJobRequest(), run_pb2.WaitRunRequest())


@dataclass
class End:
    """How a call ended."""

    at: float
    error: RaftschedError
    seen: list[FailedTry]


def follow(request: Message, timeout: float, told: list[tuple[FailedTry, float]]) -> End:
    """Nobody ever answers: first the given things happen, then every try lasts its time."""
    kind = method_of(type(request))
    course = Course(kind, request, Endpoints(NODES), started=0.0, timeout=timeout)
    now, tries, seen = 0.0, 0, list[FailedTry]()
    while True:
        attempt = course.next_try(now)
        tries += 1
        assert tries <= TRIES_MAX
        failure, share = told.pop(0) if told else (FailedTry("DEADLINE_EXCEEDED", "late"), 1.0)
        assert attempt.timeout <= max(timeout - now, 0.001)
        now += attempt.timeout * share
        seen.append(failure)
        try:
            wait = course.failed(failure, now)
        except RaftschedError as error:
            return End(now, error, seen)
        assert wait >= 0.0
        now += wait


@given(st.sampled_from(REQUESTS), st.floats(0.01, 60.0), happenings)
def test_every_call_ends_in_time_with_the_right_word(
    request: Message, timeout: float, told: list[tuple[FailedTry, float]]
) -> None:
    end = follow(request, timeout, told)

    assert end.at <= timeout + 0.002
    last = end.seen[-1]
    refused = last.reason == "JOB_EXISTS"
    perhaps = request is WRITE and any(not failure.outcome_known for failure in end.seen)
    if refused:
        assert isinstance(end.error, (CallerError, Unavailable))
    elif perhaps:
        assert type(end.error) is OutcomeUnknown
    else:
        assert isinstance(end.error, Unavailable)
