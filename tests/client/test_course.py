"""The policy of a call, step by step: whom it asks, how long it waits, what it tells."""

from __future__ import annotations

import math

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from raftsched.client.errors import (
    CallerError,
    ClusterError,
    Conflict,
    Forbidden,
    InvalidArgument,
    LeaseLost,
    OutcomeUnknown,
    QuotaExceeded,
    RaftschedError,
    RateLimited,
    RevisionGone,
    SessionLost,
    Unavailable,
)
from raftsched.client.sdk.backoff import backoff
from raftsched.client.sdk.course import BACKOFF_CAP_S, HINTS_MAX, TRY_FIRST_S, Course
from raftsched.client.sdk.endpoints import (
    LEARNED_MAX,
    SUSPECT_CAP_S,
    SUSPECT_FIRST_S,
    Endpoints,
    parse,
)
from raftsched.client.sdk.refusals import BY_CODE, BY_REASON, FailedTry, failure
from raftsched.proto.contract import Next, method_of, methods, reasons
from raftsched.proto.v1 import cluster_pb2, job_pb2, run_pb2, worker_pb2

from ..rows import each

WRITE = job_pb2.CreateJobRequest(request_id="r")
READ = job_pb2.GetJobRequest()
BROKEN = FailedTry("UNAVAILABLE", "Socket closed")
GIVEN_UP = FailedTry("CANCELLED", "CANCELLED")
REFUSED = FailedTry("UNAVAILABLE", "failed to connect to all addresses; last error: refused")
DISTRUST = FailedTry(
    "UNAVAILABLE",
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Tls handshake "
    "failed: CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
)
LATE = FailedTry("DEADLINE_EXCEEDED", "Deadline Exceeded")


def refusal(reason: str, code: str = "UNAVAILABLE", **more: object) -> FailedTry:
    return FailedTry(code, "no", reason, **more)  # type: ignore[arg-type]


def course(
    request: Message = WRITE,
    nodes: Endpoints | None = None,
    *,
    timeout: float = 30.0,
    retry: bool = True,
    leaderless: float = math.inf,
) -> Course:
    endpoints = nodes or Endpoints(("a:1", "b:1", "c:1"))
    return Course(
        method_of(type(request)), request, endpoints, started=0.0, timeout=timeout, retry=retry,
        leaderless=leaderless,
    )  # fmt: skip


def test_whoever_asks_for_it_is_told_soon_that_no_node_knows_a_leader() -> None:
    nobody = refusal("NO_QUORUM")
    for failures, ends in (
        ((nobody, REFUSED, BROKEN), True), ((nobody, nobody, nobody), True),
        # Not all were asked; another word; nobody is there, which is something else.
        ((nobody,), False), ((nobody, refusal("DRAINING"), nobody), False),
        ((REFUSED, REFUSED, REFUSED), False),
    ):  # fmt: skip
        asked = course(READ, leaderless=5.0)
        for failed in failures:
            asked.next_try(0.0)
            asked.failed(failed, 0.0)
        asked.next_try(5.0)
        if ends:
            with pytest.raises(Unavailable, match="no node knows a leader") as caught:
                asked.failed(failures[0], 5.0)
            assert caught.value.reason == "NO_QUORUM"
        else:
            asked.failed(failures[0], 5.0)
    usual = course()
    for _ in range(4):
        usual.next_try(29.0)
        usual.failed(nobody, 28.0)


# Whom.


def test_each_try_asks_the_next_node() -> None:
    tried = course()
    asked = []
    for _ in range(6):
        asked.append(tried.next_try(0.0).address)
        tried.failed(refusal("NO_QUORUM"), 0.0)

    assert asked == ["a:1", "b:1", "c:1"] * 2


def elsewhere(addresses: str) -> FailedTry:
    return refusal("NAMESPACE_ELSEWHERE", "FAILED_PRECONDITION", values={"addresses": addresses})


def test_a_namespace_that_lives_elsewhere_is_followed_there_once() -> None:
    nodes = Endpoints(("a:1", "b:1"))
    tried = course(nodes=nodes)
    assert tried.next_try(0.0).address == "a:1"
    assert tried.failed(elsewhere("x:1,y:1"), 0.0) == 0.0
    assert tried.next_try(0.0).address == "x:1"
    tried.failed(refusal("NO_QUORUM"), 0.0)
    assert tried.next_try(0.0).address == "y:1"

    with pytest.raises(Conflict, match="no"):
        tried.failed(elsewhere("a:1"), 0.0)
    # What other namespaces need has not changed.
    assert course(nodes=nodes).next_try(0.0).address in ("a:1", "b:1")
    assert not nodes.leader


@pytest.mark.parametrize("addresses", ["", "http://x/y", "x:1"])
def test_another_cluster_that_may_not_be_asked_is_not(addresses: str) -> None:
    tried = course(nodes=Endpoints(("a:1",), may_learn=lambda address: False))
    tried.next_try(0.0)

    with pytest.raises(Conflict, match="no"):
        tried.failed(elsewhere(addresses), 0.0)


def test_the_next_call_asks_who_answered_last_and_then_the_leader() -> None:
    nodes = Endpoints(("a:1", "b:1", "c:1"))
    first = course(nodes=nodes)
    first.next_try(0.0)
    first.failed(REFUSED, 0.0)
    assert first.next_try(0.0).address == "b:1"

    first.answered("")
    assert course(nodes=nodes).next_try(0.0).address == "b:1"

    first.answered("d:1")
    assert course(nodes=nodes).next_try(0.0).address == "d:1"


def test_a_node_that_broke_is_passed_over_for_longer_each_time() -> None:
    nodes = Endpoints(("a:1", "b:1"))

    for count in range(1, 9):
        nodes.broke("a:1", 100.0)
        rest = min(SUSPECT_CAP_S, SUSPECT_FIRST_S * 2 ** (count - 1))
        nodes.answered("b:1", "")
        assert nodes.pick(100.0 + rest - 0.01, ("b:1",)) == "b:1"
        assert nodes.pick(100.0 + rest + 0.01, ("b:1",)) == "a:1"


def test_a_node_that_answers_again_is_no_longer_suspect() -> None:
    nodes = Endpoints(("a:1", "b:1"))
    nodes.broke("a:1", 0.0)
    nodes.answered("a:1", "")

    assert nodes.pick(0.0, ()) == "a:1"


def test_whom_a_live_node_names_as_leader_is_asked_though_it_failed_often() -> None:
    endpoints = Endpoints(("a:1", "b:1", "c:1"))
    for _ in range(8):
        endpoints.broke("b:1", 0.0)
    assert endpoints.pick(1.0, ()) != "b:1"

    endpoints.learn("b:1")

    assert endpoints.pick(1.0, ()) == "b:1"
    # It fails again, and is named again: not at once, but soon.
    endpoints.broke("b:1", 1.0)
    endpoints.learn("b:1")
    assert endpoints.pick(1.1, ()) != "b:1"
    assert endpoints.pick(1.5, ()) == "b:1"
    endpoints.answered("b:1", "b:1")
    assert not endpoints.suspect("b:1", 1.1)


def test_when_all_are_suspect_all_are_asked_in_turn() -> None:
    tried = course()
    asked = []
    for _ in range(6):
        asked.append(tried.next_try(0.0).address)
        tried.failed(REFUSED, 0.0)

    assert sorted(asked[:3]) == sorted(asked[3:]) == ["a:1", "b:1", "c:1"]


def test_a_word_on_the_leader_is_followed_at_once_but_not_for_ever() -> None:
    tried = course()
    waits = []
    for number in range(HINTS_MAX + 1):
        tried.next_try(0.0)
        waits.append(tried.failed(refusal("NOT_LEADER", leader=f"x{number}:1"), 0.0))

    assert waits[:-1] == [0.0] * HINTS_MAX
    assert waits[-1] > 0.0


def test_a_hint_to_a_node_that_just_broke_is_not_followed() -> None:
    nodes = Endpoints(("a:1", "b:1"))
    nodes.broke("b:1", 0.0)
    tried = course(nodes=nodes)
    tried.next_try(0.0)

    assert tried.failed(refusal("NOT_LEADER", leader="b:1"), 0.0) > 0.0
    assert tried.next_try(0.0).address == "a:1"


def test_a_draining_node_is_left_alone_by_the_next_calls() -> None:
    nodes = Endpoints(("a:1", "b:1"))
    tried = course(nodes=nodes)
    tried.next_try(0.0)
    tried.failed(refusal("DRAINING"), 0.0)

    assert course(nodes=nodes).next_try(0.0).address == "b:1"


def test_a_leader_that_lost_its_majority_is_forgotten() -> None:
    nodes = Endpoints(("a:1", "b:1"))
    nodes.learn("x:1")
    tried = course(nodes=nodes)
    assert tried.next_try(0.0).address == "x:1"
    tried.failed(refusal("NO_QUORUM"), 0.0)

    assert nodes.leader == ""


def test_a_read_of_any_node_is_spread_over_those_that_answer() -> None:
    nodes = Endpoints(("a:1", "b:1", "c:1"))
    nodes.answered("b:1", "b:1")
    nodes.broke("c:1", 0.0)

    asked = {nodes.pick(0.0, (), any_node=True) for _ in range(100)}

    assert asked == {"a:1", "b:1"}
    assert nodes.pick(0.0, ()) == "b:1"


def test_only_so_many_leaders_are_remembered() -> None:
    nodes = Endpoints(("a:1",))
    for number in range(3 * LEARNED_MAX):
        nodes.learn(f"x{number}:1")

    assert len(nodes.known) == LEARNED_MAX + 1


# How long.


def test_tries_get_longer_and_end_with_the_deadline() -> None:
    tried = course(timeout=30.0)
    lengths, now = [], 0.0
    for _ in range(5):
        attempt = tried.next_try(now)
        lengths.append(attempt.timeout)
        now += attempt.timeout
        if now < 30.0:
            now += tried.failed(LATE, now)

    assert lengths[:3] == [TRY_FIRST_S * 2**number for number in range(3)]
    assert sum(lengths) == pytest.approx(30.0, abs=0.5)


@each(
    ("request_", "first"),
    [
        (run_pb2.WaitRunRequest(timeout=Duration(seconds=20)), TRY_FIRST_S + 20),
        (run_pb2.WaitRunRequest(), TRY_FIRST_S + 30),
        (run_pb2.WaitRunRequest(timeout=Duration(seconds=600)), TRY_FIRST_S + 60),
        (worker_pb2.LeaseRequest(wait=Duration(seconds=20)), TRY_FIRST_S + 20),
        (worker_pb2.LeaseRequest(), TRY_FIRST_S),
        (cluster_pb2.VerifyStateRequest(), 100.0),
        (cluster_pb2.GetClusterStatusRequest(), TRY_FIRST_S),
    ],
)
def test_a_try_lasts_as_long_as_its_request_asks_the_server_to_take(
    request_: Message, first: float
) -> None:
    assert course(request_, timeout=100.0).next_try(0.0).timeout == first


def test_waits_grow_differ_and_have_a_cap() -> None:
    one, other = (
        [_wait(tried, refusal("NO_QUORUM")) for _ in range(12)] for tried in (course(), course())
    )

    assert one != other
    assert one[0] < 0.1
    assert one[5] > one[0]
    assert BACKOFF_CAP_S / 2 <= one[-1] <= BACKOFF_CAP_S


def _wait(tried: Course, said: FailedTry) -> float:
    tried.next_try(0.0)
    return tried.failed(said, 0.0)


def test_a_wait_that_was_asked_for_is_kept() -> None:
    said = refusal("BACKLOG_FULL", "RESOURCE_EXHAUSTED", retry_after=3.0)

    assert 3.0 <= _wait(course(), said) <= 3.75


def test_no_wait_is_no_wait_at_all() -> None:
    assert _wait(course(), refusal("NO_QUORUM", retry_after=0.0)) > 0.0


# What is told.


def last_word(tried: Course, *said: FailedTry, now: float = 31.0) -> RaftschedError:
    """What the caller is told when the last of these comes after the deadline."""
    for one in said[:-1]:
        tried.next_try(0.0)
        tried.failed(one, 0.0)
    tried.next_try(0.0)
    with pytest.raises(RaftschedError) as caught:
        tried.failed(said[-1], now)
    return caught.value


def test_one_try_that_may_have_done_it_makes_the_outcome_unknown() -> None:
    error = last_word(course(), BROKEN, refusal("NO_QUORUM"))

    assert type(error) is OutcomeUnknown
    assert error.request_id == "r"
    assert "'r'" in error.message


@each(
    ("request_", "said", "told"),
    [
        (WRITE, REFUSED, Unavailable),
        (WRITE, refusal("NO_QUORUM"), Unavailable),
        (WRITE, refusal("BACKLOG_FULL", "RESOURCE_EXHAUSTED"), RateLimited),
        (WRITE, refusal("DISK_FULL", "RESOURCE_EXHAUSTED"), Unavailable),
        (
            WRITE,
            FailedTry("RESOURCE_EXHAUSTED", "Too many pending requests for this server"),
            RateLimited,
        ),
        (WRITE, BROKEN, OutcomeUnknown),
        (WRITE, LATE, OutcomeUnknown),
        (WRITE, GIVEN_UP, OutcomeUnknown),
        (WRITE, refusal("LEADER_CHANGED", "ABORTED"), OutcomeUnknown),
        (WRITE, refusal("COMMIT_TIMEOUT", "DEADLINE_EXCEEDED"), OutcomeUnknown),
        (READ, BROKEN, Unavailable),
        (READ, LATE, Unavailable),
    ],
)
def test_the_deadline_tells_whether_anything_was_done(
    request_: Message, said: FailedTry, told: type[RaftschedError]
) -> None:
    assert type(last_word(course(request_), said)) is told


@each(
    ("said", "told"),
    [
        (refusal("FIELD_INVALID", "INVALID_ARGUMENT"), InvalidArgument),
        (refusal("ETAG_MISMATCH", "ABORTED"), Conflict),
        (refusal("LEASE_LOST", "FAILED_PRECONDITION"), LeaseLost),
        (refusal("SESSION_LOST", "FAILED_PRECONDITION"), SessionLost),
        (refusal("QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED"), QuotaExceeded),
        (refusal("FORBIDDEN", "PERMISSION_DENIED"), Forbidden),
        (refusal("REVISION_GONE", "OUT_OF_RANGE"), RevisionGone),
        (FailedTry("RESOURCE_EXHAUSTED", "Received message larger than max"), InvalidArgument),
        # A fault of the server, which says nothing about what was done.
        (FailedTry("UNKNOWN", "Unexpected <class 'KeyError'>"), OutcomeUnknown),
        (FailedTry("INTERNAL", "it broke"), OutcomeUnknown),
    ],
)
def test_what_no_other_try_can_change_is_told_at_once(
    said: FailedTry, told: type[RaftschedError]
) -> None:
    error = last_word(course(), said, now=0.0)

    assert type(error) is told
    assert said.message in error.message


def test_who_is_not_trusted_is_not_asked_again_and_the_others_are() -> None:
    tried = course(nodes=Endpoints(("a:1", "b:1")))
    tried.next_try(0.0)
    tried.failed(DISTRUST, 0.0)
    assert tried.next_try(0.1).address == "b:1"

    with pytest.raises(
        Unavailable, match="not signed by an authority that is trusted here"
    ) as told:
        tried.failed(DISTRUST, 0.1)

    assert "It was not done" in told.value.message


def test_the_last_word_is_that_of_a_node_that_was_reached() -> None:
    error = last_word(course(), refusal("NO_QUORUM"), REFUSED)

    assert error.reason == "NO_QUORUM"
    assert "the last word was: no." in error.message


def test_a_try_that_the_deadline_cut_off_does_not_hide_what_the_same_node_came_to() -> None:
    error = last_word(course(nodes=Endpoints(("a:1",))), REFUSED, LATE)

    assert type(error) is OutcomeUnknown
    assert f"the last word was: {REFUSED.message}" in error.message


def test_silence_of_another_node_is_told_as_it_is() -> None:
    error = last_word(course(nodes=Endpoints(("a:1", "b:1"))), REFUSED, LATE)

    assert f"the last word was: {LATE.message}" in error.message


def test_a_fault_of_the_server_in_a_read_is_no_unknown_outcome() -> None:
    assert type(last_word(course(READ), FailedTry("UNKNOWN", "x"), now=0.0)) is Unavailable


def test_a_stream_that_was_reset_is_tried_again() -> None:
    assert _wait(course(), FailedTry("INTERNAL", "Received RST_STREAM with error code 2")) > 0.0


def test_one_try_is_one_try() -> None:
    assert type(last_word(course(retry=False), BROKEN, now=0.0)) is OutcomeUnknown
    assert type(last_word(course(retry=False), REFUSED, now=0.0)) is Unavailable


# The contracts.


def test_all_calls_of_the_contracts_are_found_by_their_request() -> None:
    assert all(method_of(method.request) is method for method in methods())
    with pytest.raises(TypeError, match=r"raftsched\.v1\.Job is not the request of any call"):
        method_of(job_pb2.Job)


def test_every_reason_of_the_contracts_makes_an_error_that_says_whose_fault_it_is() -> None:
    kinds: dict[int, type[RaftschedError]] = {
        Next.NEXT_CHANGE: CallerError,
        # Followed once, and then no other try helps.
        Next.NEXT_OTHER_CLUSTER: CallerError,
        Next.NEXT_STOP: LeaseLost,
        Next.NEXT_HELLO: SessionLost,
    }
    for rules in reasons():
        said = refusal(rules.word, rules.code)
        wanted = kinds.get(rules.next, ClusterError)
        # A defect of the rules is nobody's fault who calls.
        wanted = ClusterError if rules.word == "RULE_FAILED" else wanted
        assert issubclass(said.error_kind, wanted), rules
        assert said.outcome_known == (rules.next != Next.NEXT_REPEAT)
        assert said.retryable == (rules.next not in kinds)
    assert set(BY_REASON) <= {rules.word for rules in reasons()}
    assert all(kind is not ClusterError for kind in BY_CODE.values())


def test_details_of_another_domain_are_no_reason_of_ours() -> None:
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.rpc import error_details_pb2, status_pb2

    packed = AnyMessage()
    packed.Pack(error_details_pb2.ErrorInfo(reason="LEASE_LOST", domain="proxy.example"))
    status = status_pb2.Status(details=[packed]).SerializeToString()

    said = failure("UNAVAILABLE", "no", {"grpc-status-details-bin": status})

    assert (said.reason, said.broken) == ("", True)


# Endpoints.


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a", ("a:7400",)),
        ("a:1, b ,c:3,", ("a:1", "b:7400", "c:3")),
        (["a:1", "a:1"], ("a:1",)),
        ("[::1]:7401,[fe80::1]", ("[::1]:7401", "[fe80::1]:7400")),
    ],
)
def test_endpoints_are_read(given: str | list[str], read: tuple[str, ...]) -> None:
    assert parse(given) == read


@each("wrong", ["", ",", "http://a:1", "a:b", "a:0", "a:65536", ":1", "::1"])
def test_an_endpoint_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"host:port"):
        parse(wrong)


def test_a_word_on_the_leader_is_followed_to_a_node_that_was_asked_before() -> None:
    tried = course()
    tried.next_try(0.0)
    tried.failed(refusal("NO_QUORUM"), 0.0)
    assert tried.next_try(0.0).address == "b:1"

    assert tried.failed(refusal("NOT_LEADER", leader="a:1"), 0.0) == 0.0
    assert tried.next_try(0.0).address == "a:1"


def test_a_wait_for_a_leader_is_told_once_when_it_is_longer_than_an_election(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = course(READ)
    for now in (0.1, 0.5, 0.9, 1.2, 2.0, 9.0):
        waits.next_try(now)
        waits.failed(refusal("NO_QUORUM"), now)
        assert len(caplog.records) == (now > 1.0)

    [told] = caplog.records
    assert told.getMessage() == "GetJob at a:1 waits, for up to 29 s: no"


def test_a_limit_that_makes_a_call_wait_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    one = course()
    one.next_try(0.0)
    one.failed(refusal("RATE_LIMITED", "RESOURCE_EXHAUSTED", retry_after=0.01), 0.0)
    assert caplog.records == []
    for _ in range(3):
        one.next_try(1.0)
        one.failed(refusal("NODE_LIMIT", "RESOURCE_EXHAUSTED", retry_after=1.0), 1.0)
    [told] = caplog.records
    assert "waits, for up to 29 s: no" in told.getMessage()


@pytest.mark.parametrize(
    ("failures", "growth", "wanted"),
    [(1, 2.0, 0.5), (3, 2.0, 2.0), (3, 1.5, 1.125), (9**9, 2.0, 5)],
)
def test_waits_grow_up_to_the_longest(failures: int, growth: float, wanted: float) -> None:
    assert backoff(failures, 0.5, 5.0, growth) == wanted
