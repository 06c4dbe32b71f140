"""What somebody asked for by hand runs, or is refused at the call."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.model.view import View
from raftsched.statemachine.runs import overlap

from .driver import MINUTE_MS, SECOND_MS, Machine, with_mask

Overlap = job_pb2.OverlapPolicy
Trigger = job_pb2.TriggerJobRequest
RULES = Overlap.Rule.values()
REFUSE = Trigger.IF_RUNNING_REFUSE


class Counting:
    """A view that notes what is read of it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.read = 0

    def __getattr__(self, name: str) -> object:
        self.read += name in ("get", "need", "get_raw", "scan", "scan_stored")
        return getattr(self.view, name)


def later(machine: Machine, ms: int, **fields: object) -> str:
    return machine.trigger("a", due_time=timestamp(machine.now_ms + ms), **fields).id


def work_off(machine: Machine) -> list[str]:
    """What runs, in rounds: those of a round run at once."""
    ran: list[str] = []
    for _ in range(20):
        leases = machine.grant()
        for lease in leases:
            machine.succeed(lease)
        ran += [lease.run for lease in leases]
        machine.fire_all()
    return ran


@pytest.mark.parametrize("limit", [0, 1, 2])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != Overlap.RULE_REPLACE])
@pytest.mark.parametrize("cron", [(), "0 0 1 1 *"])
def test_each_of_some_reminders_of_one_second_runs(
    machine: Machine, rule: Overlap.Rule.ValueType, limit: int, cron: str | tuple[str, ...]
) -> None:
    machine.create("a", overlap=Overlap(rule=rule, limit=limit), cron=cron)
    wanted = [later(machine, MINUTE_MS + number) for number in range(3)]
    machine.advance(MINUTE_MS + SECOND_MS)
    machine.fire_all()
    wanted += [machine.trigger("a").id for _ in range(3)]
    machine.check()

    assert work_off(machine) == wanted
    assert {run.state for run in machine.ended("a")} == {run_pb2.RUN_STATE_SUCCEEDED}
    machine.check()


def test_a_job_without_schedules_runs_any_number_at_once(machine: Machine) -> None:
    machine.create("a")
    machine.create("two", overlap=Overlap(limit=2))
    machine.create("timed", cron="0 0 1 1 *")
    for name in ("a", "two", "timed"):
        for _ in range(5):
            machine.trigger(name)

    ran = [lease.run.partition(".")[0] for lease in machine.grant()]
    assert [ran.count(name) for name in ("a", "two", "timed")] == [5, 2, 1]
    machine.check()


def test_what_would_wait_is_refused_where_the_caller_says_so(machine: Machine) -> None:
    machine.create("a", cron="0 0 1 1 *")
    first = machine.trigger("a", if_running=REFUSE)

    refusal = machine.refused(Trigger(job="a", if_running=REFUSE))
    due = timestamp(machine.now_ms + MINUTE_MS)
    unclear = machine.refused(Trigger(job="a", if_running=REFUSE, due_time=due))

    assert (refusal.word, refusal.values["live"]) == ("OVERLAP_REFUSED", "1")
    assert (unclear.word, unclear.values["field"]) == ("FIELD_INVALID", "if_running")
    assert work_off(machine) == [first.id]


def test_a_newer_time_takes_the_place_of_an_older_time_only(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", overlap=Overlap(rule=Overlap.RULE_QUEUE_ONE))
    machine.advance(MINUTE_MS)
    machine.fire_all()
    asked = machine.trigger("a").id
    for _ in range(3):
        machine.advance(MINUTE_MS)
        machine.fire_all()

    ran = work_off(machine)

    assert asked in ran
    assert len(ran) == 3
    machine.check()


def test_so_many_wait_and_no_more(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_RUNS", 2)
    machine.create("a", cron="0 0 1 1 *")
    asked = [machine.trigger("a").id for _ in range(3)]

    refusal = machine.refused(Trigger(job="a"))

    assert (refusal.word, refusal.values["limit"]) == ("LIMIT_EXCEEDED", "waiting_runs")
    assert work_off(machine) == asked


def test_a_policy_that_allows_more_lets_those_go_that_wait(machine: Machine) -> None:
    machine.create("a", cron="0 0 1 1 *")
    asked = [machine.trigger("a").id for _ in range(4)]

    machine.do(with_mask("spec.overlap", name="a", overlap=Overlap(limit=3)))
    machine.fire_all()

    assert [lease.run for lease in machine.grant()] == asked[:3]
    machine.check()


def test_a_run_for_later_is_not_held_back(machine: Machine) -> None:
    machine.create("a", cron="0 0 1 1 *")
    waits = later(machine, MINUTE_MS)
    running = machine.trigger("a").id

    run, status = machine.run(waits), machine.job("a").status
    assert (run.held, run.later, status.held, status.later) == (False, True, 0, 1)
    machine.advance(MINUTE_MS)
    machine.fire_all()
    run, status = machine.run(waits), machine.job("a").status
    assert (run.held, run.later, status.held, status.later) == (True, False, 1, 0)
    assert work_off(machine) == [running, waits]


def test_a_queue_counts_what_it_holds_without_a_walk(machine: Machine) -> None:
    machine.create("a", cron="0 0 1 1 *", overlap=Overlap(rule=Overlap.RULE_QUEUE, limit=1))
    for number in range(300):
        later(machine, MINUTE_MS + number)
    machine.trigger("a")
    machine.trigger("a")
    view = machine.view()
    job = jobs.find(view, "", "a")
    steps = Counting(view)

    assert overlap.judge(steps, job) is overlap.SKIP  # type: ignore[arg-type]
    assert not steps.read
