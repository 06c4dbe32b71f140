"""A calendar that cannot go names jobs that use it, and a list finds all of them."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, schedule_pb2
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.tenants import calendars

from .asking import ask
from .driver import Machine

HOLIDAYS = schedule_pb2.Timing(exclude_calendars=["company", "holidays"])


@pytest.fixture
def machine(machine: Machine) -> Machine:
    for name in ("company", "holidays"):
        rules = [calendar_pb2.CalendarRule(yearly="12-25")]
        made = calendar_pb2.Calendar(name=name, rules=rules)
        machine.do(calendar_pb2.CreateCalendarRequest(calendar=made))
    machine.create("plain", cron="0 * * * *")
    return machine


def used_by(machine: Machine, *names: str) -> None:
    for name in names:
        machine.create(name, cron="0 * * * *", timing=HOLIDAYS)


DELETE = calendar_pb2.DeleteCalendarRequest(calendar="holidays")


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (["a"], "the job a names"),
        (["c", "b", "a"], "the jobs a, b and c name"),
        (["a", "b", "c", "d", "e"], "the jobs a, b, c and 2 more name"),
    ],
)
def test_up_to_three_jobs_are_named(machine: Machine, users: list[str], said: str) -> None:
    used_by(machine, *users)

    refusal = machine.refused(DELETE)

    assert refusal.reason == Reason.ERROR_REASON_IN_USE
    assert refusal.message == f"{said} the calendar 'holidays'; take it out first"
    assert refusal.values["used_by"] == ",".join(sorted(users)[:3])


def test_one_that_is_far_behind_is_not_searched_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendars, "LOOKED_AT", 1)
    used_by(machine, "z1", "z2")

    assert machine.refused(DELETE).message.startswith("2 jobs name the calendar")


def test_a_list_of_jobs_can_be_of_one_calendar(machine: Machine) -> None:
    used_by(machine, "a", "b")

    def names(text: str) -> list[str]:
        request = job_pb2.ListJobsRequest(filter=text)
        return [job.name for job in ask(machine, request, job_pb2.ListJobsResponse).jobs]

    assert names("calendar=holidays") == names("calendar=company") == ["a", "b"]
    assert names("calendar=holi*") == ["a", "b"]
    assert names("calendar!=holidays") == ["plain"]
    assert names("calendar=other") == []
