"""What becomes of all leases of a session: hello after a broken stream, silence, a new leader."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.instants import duration, to_ms
from raftsched.statemachine.machine import Request, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import SessionRecord, parse
from raftsched.statemachine.model.request import (
    Again,
    Grant,
    Lapse,
    Offer,
    Resume,
    Resumed,
    WorkDone,
)
from raftsched.statemachine.runs import leases
from raftsched.statemachine.selfcheck.verify import verify

from .driver import HOUR_MS, MINUTE_MS, Machine, image

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
CANCEL = worker_pb2.Stop.KIND_CANCEL
LOST = worker_pb2.Stop.KIND_LOST


def leased(machine: Machine, count: int, worker: str = "w1") -> list[worker_pb2.Lease]:
    """So many runs of one job, leased to a worker."""
    if not [key for key in image(machine.store) if key[:1] == keys.JOB]:
        machine.create("a", overlap=ALLOW)
    for _ in range(count):
        machine.trigger("a")
    return machine.grant(worker, count)


def hello(
    machine: Machine, *held: worker_pb2.Lease, worker: str = "w1", most: int = 1_000
) -> Resumed:
    listed = {lease.token: lease.run for lease in held}
    return machine.ask(Resume(worker, listed, most), Resumed)


def test_leases_that_never_arrived_go_back_and_do_not_count(machine: Machine) -> None:
    first, second, third = leased(machine, 3)

    answer = hello(machine, second)

    assert answer == Resumed((), None)
    assert machine.run(second.run).state == run_pb2.RUN_STATE_RUNNING
    again = machine.grant("w2")
    assert [lease.run for lease in again] == [first.run, third.run]
    assert [lease.attempt for lease in again] == [1, 1]
    ends = [attempt.end for attempt in machine.run(first.run).attempts]
    assert ends[0] == run_pb2.Attempt.END_RELEASED


def test_a_run_that_never_arrived_keeps_its_turn(machine: Machine) -> None:
    [old] = leased(machine, 1)
    machine.advance(MINUTE_MS)
    new = machine.trigger("a")

    hello(machine)

    assert [lease.run for lease in machine.grant("w2")] == [old.run, new.id]


def test_an_end_that_was_asked_for_comes_to_a_run_that_never_arrived(machine: Machine) -> None:
    [lease] = leased(machine, 1)
    machine.do(run_pb2.CancelRunRequest(run=lease.run))

    assert hello(machine).stops == ()

    assert machine.run(lease.run).state == run_pb2.RUN_STATE_CANCELLED


def test_a_run_that_is_delivered_at_most_once_does_not_go_back(machine: Machine) -> None:
    """A worker that stopped its handlers by itself says hello with none held as well."""
    machine.create("a", delivery=job_pb2.DELIVERY_AT_MOST_ONCE)
    machine.trigger("a")
    [lease] = machine.grant("w1")

    hello(machine)

    run = machine.run(lease.run)
    assert (run.state, run.error.kind) == (run_pb2.RUN_STATE_FAILED, "lapsed")
    assert machine.grant("w2") == []


def test_a_worker_is_told_what_it_may_not_keep(machine: Machine) -> None:
    kept, ended, other = leased(machine, 3)
    machine.do(run_pb2.TerminateRunRequest(run=ended.run))
    machine.succeed(other)
    fake = worker_pb2.Lease(run="no run at all", token=7)

    answer = hello(machine, kept, ended, other, fake)

    assert [(stop.token, stop.run, stop.kind) for stop in answer.stops] == [
        (ended.token, ended.run, LOST), (other.token, other.run, LOST), (7, fake.run, LOST),
    ]  # fmt: skip
    assert all(stop.message for stop in answer.stops)


def test_a_listed_lease_that_ended_as_its_worker_reported_says_that_this_was_recorded(
    machine: Machine,
) -> None:
    well, badly, elsewhere = leased(machine, 3)
    machine.succeed(well)
    machine.fail(badly)
    machine.do(run_pb2.TerminateRunRequest(run=elsewhere.run))

    first, second, third = hello(machine, well, badly, elsewhere).stops

    assert first.message == (
        f"the lease {well.token} of run {well.run} has ended as its worker reported (the run is "
        f"SUCCEEDED, its last token {well.token}); that was recorded, and there is nothing left "
        "to do"
    )
    assert "as its worker reported" in second.message
    assert f"its last token {elsewhere.token}" in third.message
    assert "nothing was recorded" in third.message


def test_the_lease_of_another_worker_is_not_kept(machine: Machine) -> None:
    [lease] = leased(machine, 1, worker="w2")
    [mine] = leased(machine, 1, worker="w1")

    answer = hello(machine, lease, mine)

    assert [(stop.token, stop.kind) for stop in answer.stops] == [(lease.token, LOST)]
    assert machine.run(lease.run).worker == "w2"


def test_an_old_token_of_a_run_that_the_worker_has_again_is_not_kept(machine: Machine) -> None:
    [old] = leased(machine, 1)
    machine.release(old)
    [new] = machine.grant("w1")

    answer = hello(machine, old, new)

    assert [(stop.token, stop.kind) for stop in answer.stops] == [(old.token, LOST)]
    assert machine.run(new.run).state == run_pb2.RUN_STATE_RUNNING


def test_a_lease_whose_token_is_listed_with_another_run_is_not_held(machine: Machine) -> None:
    first, second = leased(machine, 2)
    crossed = worker_pb2.Lease(run=first.run, token=second.token)

    answer = hello(machine, crossed)

    assert [stop.kind for stop in answer.stops] == [LOST]
    assert len(machine.grant("w2")) == 2


def test_a_wish_to_cancel_is_said_again_with_hello(machine: Machine) -> None:
    [lease] = leased(machine, 1)
    machine.do(run_pb2.CancelRunRequest(run=lease.run, reason="enough", grace=duration(5_000)))

    answer = hello(machine, lease)

    [stop] = answer.stops
    assert (stop.kind, stop.token, stop.message) == (CANCEL, lease.token, "enough")
    assert to_ms(stop.deadline) == machine.now_ms + 5_000


def test_a_hello_is_answered_in_steps(machine: Machine) -> None:
    kept, *others = leased(machine, 6)
    gone = dict.fromkeys(range(1000, 1004), "no run at all")
    rest: Resume | None = Resume("w1", {kept.token: kept.run} | gone, 2)
    steps: list[Resumed] = []

    while rest is not None:
        steps.append(machine.ask(rest, Resumed))
        rest = steps[-1].rest

    # Five that it lists and six of its session, two at a time.
    assert [len(step.stops) for step in steps] == [1, 2, 1, 0, 0, 0]
    assert {stop.token for step in steps for stop in step.stops} == set(gone)
    assert machine.run(kept.run).state == run_pb2.RUN_STATE_RUNNING
    assert len(machine.grant("w2")) == len(others)


@pytest.mark.parametrize("held", [True, False])
def test_a_step_of_a_hello_ends_when_its_time_is_over(machine: Machine, *, held: bool) -> None:
    """However many leases its worker lists, or its session has."""
    found = leased(machine, 20)
    listed = {lease.token: lease.run for lease in found} if held else {}
    view = machine.view()
    view.spend(Steps(4))

    [step] = decide(view, [Request(Resume("w1", listed, 1_000))]).replies

    assert isinstance(step, Resumed)
    assert step.rest is not None
    assert (step.rest.looked, step.rest.token_from) == ((5, 0) if held else (0, found[5].token))


def test_a_lease_of_the_same_change_is_not_ended(machine: Machine) -> None:
    """It was granted after the hello, so the worker could not list it."""
    [lease] = leased(machine, 1)
    machine.trigger("a")

    machine.do_all(Grant((Offer("w1", 1),), 1), Resume("w1", {}, 10))

    [_, new] = machine.live("a")
    assert machine.run(new.id).state == run_pb2.RUN_STATE_RUNNING
    assert machine.run(lease.run).state == run_pb2.RUN_STATE_PENDING


def test_hello_of_an_unknown_worker_changes_nothing(machine: Machine) -> None:
    before = image(machine.store)

    assert hello(machine) == Resumed((), None)

    assert image(machine.store) == before


def test_a_new_leader_finds_who_holds_leases(machine: Machine) -> None:
    leased(machine, 3, "w1")
    leased(machine, 1, "w2")
    for lease in leased(machine, 1, "w3"):
        machine.succeed(lease)

    assert dict(leases.holders(machine.store)) == {"w1": 3, "w2": 1, "w3": 0}
    for worker in ("w1", "w2", "w3"):
        machine.lapse(worker)
    assert dict(leases.holders(machine.store)) == {}


def test_the_wishes_to_cancel_are_found_again(machine: Machine) -> None:
    first, second, third = leased(machine, 3)
    assert leases.cancels(machine.view(), "w1") == []
    machine.do(run_pb2.CancelRunRequest(run=second.run))
    machine.do(run_pb2.CancelRunRequest(run=third.run))
    machine.do(run_pb2.CancelRunRequest(run=third.run))

    told = leases.cancels(machine.view(), "w1")
    assert [(stop.token, stop.kind) for stop in told] == [
        (second.token, CANCEL), (third.token, CANCEL),
    ]  # fmt: skip
    machine.succeed(second)
    assert [stop.token for stop in leases.cancels(machine.view(), "w1")] == [third.token]
    machine.do(run_pb2.TerminateRunRequest(run=third.run))
    assert leases.cancels(machine.view(), "w1") == []
    assert leases.cancels(machine.view(), "nobody") == []
    machine.succeed(first)


def test_an_attempt_that_times_out_after_it_was_cancelled_is_not_tried_again(
    machine: Machine,
) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(MINUTE_MS)))
    machine.trigger("a")
    [lease] = machine.grant()
    machine.do(run_pb2.CancelRunRequest(run=lease.run, grace=duration(HOUR_MS)))

    machine.advance(MINUTE_MS)
    machine.fire()

    assert machine.run(lease.run).state == run_pb2.RUN_STATE_CANCELLED


@pytest.mark.parametrize("ends", [2, 3])
def test_a_session_is_walked_from_its_oldest_lease_on(machine: Machine, ends: int) -> None:
    """What ended in order is not walked over again."""
    held = leased(machine, 4)
    for lease in held[:ends]:
        machine.succeed(lease)

    value = machine.store.get(keys.session("w1"))
    assert value is not None

    assert parse(keys.session("w1"), value, SessionRecord).token_from == held[ends].token


def test_a_lapse_after_a_hello_ends_what_is_left(machine: Machine) -> None:
    kept, lost = leased(machine, 2)
    hello(machine, kept)

    fired = machine.ask(Lapse("w1", limits.STEP), WorkDone)

    assert fired == WorkDone(1, more=False)
    assert verify(machine.store) == []
    again = {lease.run: lease.attempt for lease in machine.grant("w2")}
    assert again == {kept.run: 2, lost.run: 1}


def lease_call(maximum: int = 10, request_id: str = "r1") -> worker_pb2.LeaseRequest:
    hello = worker_pb2.WorkerHello(worker="w1")
    return worker_pb2.LeaseRequest(hello=hello, maximum=maximum, request_id=request_id)


def take(
    machine: Machine, *calls: worker_pb2.LeaseRequest, most: int = 100
) -> list[list[worker_pb2.Lease]]:
    offers = tuple(Offer("w1", call.maximum, request=call) for call in calls)
    return machine.offer(*offers, most=most)


def test_leases_come_again_under_their_request_id(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(5):
        machine.trigger("a")
    [taken] = take(machine, lease_call(3))
    before = image(machine.store)

    [again] = take(machine, lease_call(3))

    assert len(taken) == 3
    assert again == taken
    assert machine.do(Again(lease_call(3))) == taken
    assert image(machine.store) == before
    assert machine.do(Again(lease_call(3, "r2"))) is None


def test_leases_come_again_as_far_as_they_still_stand(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(3):
        machine.trigger("a")
    [taken] = take(machine, lease_call())
    machine.succeed(taken[1])

    assert machine.do(Again(lease_call())) == [taken[0], taken[2]]
    machine.lapse("w1")
    machine.grant("w2")
    assert machine.do(Again(lease_call())) == []
    assert take(machine, lease_call()) == [[]]


def test_a_call_that_got_nothing_may_still_take_leases(machine: Machine) -> None:
    machine.create("a")
    before = image(machine.store)
    assert take(machine, lease_call()) == [[]]
    assert image(machine.store) == before

    machine.trigger("a")

    assert len(take(machine, lease_call())[0]) == 1


def test_a_request_id_of_a_lease_is_for_one_request(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(4):
        machine.trigger("a")
    take(machine, lease_call(1))

    refusal = machine.refused(Again(lease_call(2)))

    assert (refusal.word, refusal.values) == ("REQUEST_ID_REUSED", {"request_id": "r1"})
    assert take(machine, lease_call(2)) == [[]]
    # The ids of a worker are not those of a namespace.
    machine.do(job_pb2.PauseJobRequest(job="a", request_id="r1"))


def test_the_same_call_twice_in_one_change_takes_leases_once(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(4):
        machine.trigger("a")

    first, second = take(machine, lease_call(2), lease_call(2))

    assert (len(first), second) == (2, [])


def test_two_calls_of_a_new_worker_share_one_session(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(4):
        machine.trigger("a")

    first, second = take(machine, lease_call(2), lease_call(2, "r2"))

    assert dict(leases.holders(machine.store)) == {"w1": 4}
    assert machine.do(Again(lease_call(2))) == first
    assert machine.do(Again(lease_call(2, "r2"))) == second
    machine.lapse("w1")
    assert len(machine.grant("w2")) == 4


def test_remembered_leases_are_small_and_have_their_time(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(100):
        machine.trigger("a")
    take(machine, lease_call(100))

    [size] = [
        len(value) for key, value in image(machine.store).items() if key[:1] == keys.IDEMPOTENCY
    ]
    assert size < 150
    machine.advance(limits.IDEMPOTENCY_MS)
    machine.do(job_pb2.PauseJobRequest(job="a", request_id="r2"))
    assert machine.do(Again(lease_call(100))) is None


def test_a_lapse_in_the_change_of_the_first_lease_ends_it_in_the_next(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")

    _, fired = machine.do_all(Grant((Offer("w1", 1),), 1), Lapse("w1", 10))

    assert fired == WorkDone(0, more=True)
    machine.lapse("w1")
    assert [lease.attempt for lease in machine.grant("w2")] == [2]
