"""The same change to all that fits a filter: step by step, each item alone."""

from __future__ import annotations

from random import Random

import pytest

from raftsched.proto.v1 import access_pb2, common_pb2, flow_pb2, job_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps, unlimited
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Bulk, SetAside

from ..rows import each
from . import asking, filter_oracle
from .driver import MINUTE_MS, SECOND_MS, Machine, image

Answer = common_pb2.BulkChange
Jobs = job_pb2.ChangeJobsRequest
Runs = run_pb2.ChangeRunsRequest
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
PAUSED = job_pb2.JobStatus.STATE_PAUSED


@pytest.fixture
def machine() -> Machine:
    return Machine(MemoryStore())


def one_step(machine: Machine, request: Jobs | Runs) -> tuple[Answer, int]:
    """What comes of a step, and in how many decisions."""
    body: object = Bulk(request)
    for decisions in range(1, 1_000):
        [body] = machine.do_all(body)
        if not isinstance(body, Bulk):
            assert isinstance(body, Answer), body
            return body, decisions
    raise AssertionError("it looks for ever")


def all_steps(machine: Machine, request: Jobs | Runs) -> list[Answer]:
    found = []
    for _ in range(1_000):
        answer, _ = one_step(machine, request)
        found.append(answer)
        if not answer.next_page_token:
            return found
        request = asking.but(request, page_token=answer.next_page_token)
    raise AssertionError("it has no end")


def notes(machine: Machine) -> list[access_pb2.AuditRecord]:
    request, kind = access_pb2.ListAuditRecordsRequest(), access_pb2.ListAuditRecordsResponse
    return [record for page in asking.pages(machine, request, kind) for record in page.records]


def names(*steps: Answer) -> list[str]:
    return [name for step in steps for name in step.sample]


def test_all_that_fit_are_paused_in_steps_and_noted(machine: Machine) -> None:
    for name in ("a-1", "a-2", "a-3", "b-1"):
        machine.create(name, owner="ann" if name != "a-2" else "")

    found = all_steps(machine, Jobs(
        filter='owner=ann AND (name="a*" OR name=b-1)', change=Jobs.CHANGE_PAUSE, reason="move",
        page_size=2,
    ))  # fmt: skip

    assert [step.changed for step in found] == [2, 1]
    assert names(*found) == ["a-1", "a-3", "b-1"]
    assert {name: machine.job(name).status.pause_reason for name in ("a-1", "a-2", "b-1")} == {
        "a-1": "move", "a-2": "", "b-1": "move",
    }  # fmt: skip
    steps = [note for note in notes(machine) if note.method == "ChangeJobs"]
    assert [note.change for note in steps] == [
        'pause: 1 changed, 0 refused; owner=ann AND (name="a*" OR name=b-1)',
        'pause: 2 changed, 0 refused; owner=ann AND (name="a*" OR name=b-1)',
    ]
    assert sum(note.method == "PauseJob" for note in notes(machine)) == 3
    machine.check()


def test_what_is_refused_is_named_and_the_others_are_changed(machine: Machine) -> None:
    for name in ("a", "c", "d"):
        machine.create(name)
    machine.create("b", after=["a"])
    machine.do(SetAside(machine.jid("d"), "planted"))

    [answer] = all_steps(machine, Jobs(change=Jobs.CHANGE_TRIGGER))
    assert names(answer) == ["a", "b", "c"]
    [failure] = answer.failures
    assert (failure.name, failure.reason) == ("d", "JOB_BROKEN")
    assert "planted" in failure.message

    [answer] = all_steps(machine, Jobs(change=Jobs.CHANGE_DELETE))
    assert (answer.changed, answer.failed) == (3, 1)
    [failure] = answer.failures
    assert (failure.name, failure.reason) == ("a", "HAS_DEPENDENTS")
    # Those that are being deleted have their names still, and nothing finds them.
    [answer] = all_steps(machine, Jobs(change=Jobs.CHANGE_DELETE))
    assert (names(answer), answer.failed) == (["a"], 0)
    machine.check()


def test_those_that_are_paused_are_resumed_and_no_others(machine: Machine) -> None:
    for name in ("a", "b", "c"):
        machine.create(name, cron="0 * * * *")
    all_steps(machine, Jobs(filter="NOT name=b", change=Jobs.CHANGE_PAUSE))
    before = machine.job("b").version

    [answer] = all_steps(machine, Jobs(change=Jobs.CHANGE_RESUME))

    assert names(answer) == ["a", "c"]
    assert machine.job("b").version == before
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_ACTIVE


@pytest.mark.parametrize("request_id", ["", "once"])
def test_a_step_on_trial_counts_and_changes_nothing(machine: Machine, request_id: str) -> None:
    for number in range(60):
        machine.create(f"job-{number:02}", owner="ann" if number % 2 else "")
    machine.create("last", owner="ann", after=["job-01"])
    machine.new_budget = lambda: Steps(12)
    before = image(machine.store)

    request = Jobs(filter="owner=ann", change=Jobs.CHANGE_DELETE, page_size=5,
                   request_id=request_id, validate_only=True)  # fmt: skip
    answer, decisions = one_step(machine, request)

    assert image(machine.store) == before
    assert decisions > 1
    assert (answer.matched, answer.matched_is_exact) == (31, True)
    assert answer.next_page_token == ""
    assert answer.failures[0].name == "job-01"
    assert list(answer.sample)[:2] == ["job-03", "job-05"]


def test_a_count_on_trial_ends_and_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOKED_AT", 10)
    for number in range(20):
        machine.create(f"job-{number:02}")

    answer, _ = one_step(machine, Jobs(change=Jobs.CHANGE_PAUSE, validate_only=True))

    assert (answer.matched, answer.matched_is_exact) == (10, False)


def test_few_among_many_are_found_in_many_decisions(machine: Machine) -> None:
    for number in range(200):
        machine.create(f"job-{number:03}")
    machine.create("rare", owner="ann")
    machine.new_budget = lambda: Steps(2)
    before = image(machine.store)
    request = Jobs(filter="owner=ann", change=Jobs.CHANGE_PAUSE, request_id="once")

    [rest] = machine.do_all(Bulk(request))
    assert isinstance(rest, Bulk)
    assert image(machine.store) == before

    answer, decisions = one_step(machine, request)
    assert (names(answer), decisions > 4) == (["rare"], True)
    # Sent again it is answered as the first time, and nothing is done twice.
    before = image(machine.store)
    assert one_step(machine, request) == (answer, 1)
    assert image(machine.store) == before


def test_a_step_goes_on_over_changes_and_what_was_done_is_remembered_in_each(
    machine: Machine,
) -> None:
    """Seen before: a step ended with the time of its first change, so of 79,000 runs 170 calls
    ended 1,949."""
    machine.create("a", overlap=ALLOW)
    for _ in range(30):
        machine.trigger("a")
        machine.advance(1)
    machine.new_budget = lambda: Steps(4)
    request = Runs(change=Runs.CHANGE_TERMINATE, page_size=20, request_id="once")

    [rest] = machine.do_all(Bulk(request))
    assert isinstance(rest, Bulk)
    begun, _ = one_step(machine, request)
    # As if the leader was lost: who asks again hears what was done, and goes on behind that.
    assert 0 < begun.changed == 30 - len(machine.live("a")) < 20
    left = asking.but(request, page_token=begun.next_page_token, request_id="two")
    answer, decisions = one_step(machine, left)

    assert (answer.changed, decisions > 2) == (20, True)
    assert len(machine.live("a")) == 30 - begun.changed - 20
    again, _ = one_step(machine, left)
    assert again == answer
    noted = [note.change for note in notes(machine) if note.method == "ChangeRuns"]
    assert sum(int(text.split()[1]) for text in noted) == begun.changed + 20
    machine.check()


def test_what_the_ends_of_many_runs_mean_for_flows_takes_none_of_their_time(
    machine: Machine,
) -> None:
    machine.create("root", overlap=ALLOW)
    for number in range(10):
        machine.create(f"leaf-{number}", after=["root"])
    flows = [machine.trigger("root").flow for _ in range(5)]
    machine.new_budget = lambda: Steps(8)

    answer, decisions = one_step(machine, Runs(filter="job=root", change=Runs.CHANGE_TERMINATE))

    assert (answer.changed, decisions) == (5, 1)
    machine.new_budget = lambda: unlimited
    machine.fire_all()
    for flow in flows:
        found = asking.ask(machine, flow_pb2.GetFlowRequest(flow=flow), flow_pb2.Flow)
        assert found.state == flow_pb2.Flow.STATE_FAILED
        assert len(found.steps) == 11
    machine.check()


def test_a_step_that_looked_in_vain_has_an_end(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LETTERS_LOOKED_AT", 20)
    for number in range(50):
        machine.create(f"job-{number:02}")
    machine.create("rare")

    found = all_steps(machine, Jobs(filter="name:rare", change=Jobs.CHANGE_PAUSE))

    assert [step.changed for step in found] == [0, 0, 1]


def test_runs_of_one_job_are_cancelled_step_by_step(machine: Machine) -> None:
    """What goes moves the beginning of those under way behind the token of the step before."""
    machine.create("a", overlap=ALLOW)
    machine.create("b", overlap=ALLOW)
    for _ in range(7):
        machine.trigger("a")
        machine.trigger("b")
        machine.advance(1)
    [lease] = machine.grant("w1", credits=1)

    found = all_steps(
        machine,
        Runs(filter="job=a", change=Runs.CHANGE_CANCEL, page_size=3, grace=duration(SECOND_MS)),
    )

    assert [step.changed for step in found] == [3, 3, 1]
    assert machine.run(lease.run).cancel_requested
    machine.advance(2 * SECOND_MS)
    machine.fire_all()
    assert machine.live("a") == []
    assert len(machine.live("b")) == 7
    machine.check()


def test_held_runs_that_an_end_lets_go_are_cancelled_too(machine: Machine) -> None:
    machine.create("a")
    for _ in range(5):
        machine.trigger("a")
        machine.advance(1)

    all_steps(machine, Runs(change=Runs.CHANGE_TERMINATE, page_size=1, reason="enough"))

    assert machine.live("a") == []
    assert {run.error.message for run in machine.ended("a")} == {"enough"}
    machine.check()


def test_those_that_wait_for_an_attempt_are_retried(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name)
        machine.trigger(name)
    [lease] = machine.grant("w1", credits=1)
    machine.fail(lease, kind="ValueError")

    [answer] = all_steps(machine, Runs(filter="kind=ValueError", change=Runs.CHANGE_RETRY))

    assert names(answer) == [lease.run]
    assert machine.run(lease.run).state == run_pb2.RUN_STATE_PENDING


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (Jobs(), "change"),
        (Jobs(change=Jobs.Change.ValueType(99)), "change"),
        (Jobs(change=Jobs.CHANGE_RESUME, reason="why"), "reason"),
        (Jobs(change=Jobs.CHANGE_DELETE, until=timestamp(0)), "until"),
        (Jobs(change=Jobs.CHANGE_PAUSE, reason="x" * 257), "reason"),
        (Runs(change=Runs.CHANGE_RETRY, reason="why"), "reason"),
        (Runs(change=Runs.CHANGE_TERMINATE, grace=duration(1)), "grace"),
        (Runs(change=Runs.CHANGE_CANCEL, page_size=-1), "page_size"),
    ],
)
def test_what_does_not_belong_to_a_change_is_refused(
    machine: Machine, request_: Jobs | Runs, field: str
) -> None:
    assert machine.refused(request_).values["field"] == field


def test_a_token_is_for_its_own_change(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name)
    answer, _ = one_step(machine, Jobs(change=Jobs.CHANGE_PAUSE, page_size=1))

    other = Jobs(change=Jobs.CHANGE_DELETE, page_token=answer.next_page_token)

    assert machine.refused(other).word == "PAGE_TOKEN_INVALID"


# Worlds by chance: what a bulk call leaves is what single calls leave.


def grown(seed: int) -> Machine:
    random, machine = Random(seed), Machine(MemoryStore())
    for number in range(8):
        waits = ["job-0"] if number == 3 else []
        rule = random.choice([1, 2, 3])
        machine.create(
            f"job-{number}",
            owner=random.choice(["ann", "ben"]),
            cron="*/5 * * * *" if random.randrange(2) and not waits else (),
            overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.Rule.ValueType(rule)),
            after=waits,
        )
    for _ in range(random.randrange(6)):
        machine.advance(random.randrange(4) * MINUTE_MS)
        machine.fire_all()
        name = f"job-{random.randrange(8)}"
        if random.randrange(3):
            machine.do_all(job_pb2.TriggerJobRequest(job=name))
        else:
            machine.do_all(job_pb2.PauseJobRequest(job=name))
        for lease in machine.grant("w1", credits=random.randrange(3)):
            if random.randrange(2):
                machine.fail(lease, kind="ValueError")
    if random.randrange(3) == 0:
        machine.do(SetAside(machine.jid("job-5"), "planted"))
    return machine


SINGLE = {
    Jobs.CHANGE_PAUSE: job_pb2.PauseJobRequest, Jobs.CHANGE_RESUME: job_pb2.ResumeJobRequest,
    Jobs.CHANGE_TRIGGER: job_pb2.TriggerJobRequest, Jobs.CHANGE_DELETE: job_pb2.DeleteJobRequest,
}  # fmt: skip


@each("seed", range(40))
def test_a_bulk_call_leaves_what_single_calls_leave(seed: int) -> None:
    random, bulk, single = Random(seed), grown(seed), grown(seed)
    assert image(bulk.store) == image(single.store)
    change = random.choice(list(SINGLE))
    tree: filter_oracle.Tree = ("or", ("is", "owner", "=", "ann"), ("is", "name", ":", "5"))
    [page] = asking.pages(single, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse)
    fitting = [
        job.name for job in page.jobs
        if filter_oracle.lets_pass(tree, filter_oracle.of_job(job))
        and (change != Jobs.CHANGE_RESUME or job.status.state == PAUSED)
    ]  # fmt: skip
    request = Jobs(filter=filter_oracle.text_of(tree), change=change, page_size=random.randrange(4))
    steps = random.randrange(1, 9)
    bulk.new_budget = lambda: Steps(steps)

    found = all_steps(bulk, request)
    bulk.new_budget = lambda: unlimited
    done = [name for name in fitting
            if not isinstance(single.do_all(SINGLE[change](job=name))[0], Rejection)]  # fmt: skip

    assert names(*found) == done
    assert sum(step.failed for step in found) == len(fitting) - len(done)
    for one in (bulk, single):
        one.fire_all()
        one.check()
    shown = [
        [
            (job.name, job.status.state, job.status.live, job.status.held)
            for page in asking.pages(one, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse)
            for job in page.jobs
        ]
        for one in (bulk, single)
    ]
    assert shown[0] == shown[1]
