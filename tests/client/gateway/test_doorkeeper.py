"""Whoever the cluster does not know is refused by the gateway itself, once it has heard so."""

from __future__ import annotations

import pytest

from raftsched.client.errors import NotFound, RaftschedError, Unauthenticated, Unavailable
from raftsched.client.gateway.doorkeeper import SAID_S, TRIES, Doorkeeper
from raftsched.client.gateway.problems import GatewayRefusal


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refuse(keeper: Doorkeeper, call: str, token: str, address: str = "a") -> None:
    """The cluster says that it does not know who calls."""
    error = Unauthenticated("nobody says who calls", reason="UNAUTHENTICATED")
    with pytest.raises(RaftschedError), keeper.asking(call, token, address):
        raise error


def test_what_was_said_to_one_without_a_token_is_said_to_the_next_for_a_second() -> None:
    clock = Clock()
    keeper = Doorkeeper(clock)
    keeper.check("ListJobs", "", "a")
    refuse(keeper, "ListJobs", "")
    with pytest.raises(GatewayRefusal) as caught:
        keeper.check("ListJobs", "", "b")
    assert (caught.value.status, caught.value.word) == (401, "UNAUTHENTICATED")
    # Another call may be open to anybody, and a token may be good.
    keeper.check("WhoAmI", "", "b")
    keeper.check("ListJobs", "secret", "b")
    clock.now += SAID_S
    keeper.check("ListJobs", "", "b")


def test_other_refusals_are_not_kept() -> None:
    keeper = Doorkeeper(Clock())
    with pytest.raises(NotFound), keeper.asking("GetJob", "", "a"):
        raise NotFound("there is no job x", reason="JOB_NOT_FOUND")
    keeper.check("GetJob", "", "a")


def test_guesses_at_tokens_end_at_the_gateway_and_good_ones_pass() -> None:
    clock = Clock()
    keeper = Doorkeeper(clock)
    with keeper.asking("ListJobs", "good", "a"):
        pass
    for number in range(TRIES):
        refuse(keeper, "ListJobs", f"guess-{number}")
    with pytest.raises(GatewayRefusal) as caught:
        keeper.check("ListJobs", "another", "a")
    assert (caught.value.status, caught.value.word) == (429, "NODE_LIMIT")
    assert "used up by a" in str(caught.value)
    keeper.check("ListJobs", "good", "a")
    keeper.check("ListJobs", "another", "b")
    clock.now += 1 / TRIES + 0.001
    keeper.check("ListJobs", "another", "a")


def test_what_only_known_callers_are_told_shows_that_a_token_is_good() -> None:
    keeper = Doorkeeper(Clock())
    for number in range(TRIES - 1):
        refuse(keeper, "ListJobs", f"guess-{number}")
    missing = NotFound("there is no job x", reason="JOB_NOT_FOUND", code="NOT_FOUND")
    for _ in range(TRIES):
        with pytest.raises(NotFound), keeper.asking("GetJob", "good", "a"):
            raise missing


def test_a_cluster_that_cannot_be_reached_costs_no_tries() -> None:
    keeper = Doorkeeper(Clock())
    for number in range(10 * TRIES):
        with pytest.raises(Unavailable), keeper.asking("GetJob", f"new-{number}", "a"):
            raise Unavailable("no node answers")
    keeper.check("GetJob", "one more", "a")


def test_a_token_that_is_good_no_more_counts_as_a_guess_again() -> None:
    keeper = Doorkeeper(Clock())
    with keeper.asking("ListJobs", "former", "a"):
        pass
    refuse(keeper, "ListJobs", "former")
    for number in range(TRIES):
        refuse(keeper, "ListJobs", f"guess-{number}")
    with pytest.raises(GatewayRefusal):
        keeper.check("ListJobs", "former", "a")


def test_new_tokens_that_are_good_cost_an_address_nothing() -> None:
    keeper = Doorkeeper(Clock())
    for number in range(10 * TRIES):
        with keeper.asking("ListJobs", f"good-{number}", "a"):
            pass
    keeper.check("ListJobs", "one more", "a")
