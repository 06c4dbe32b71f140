"""Days of the rules: what people ask for meets outages, and each mistake in a rule is found out."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from raftsched.chaos.sim import moves, reckoning
from raftsched.chaos.sim.__main__ import main
from raftsched.chaos.sim.days import FAULTS
from raftsched.chaos.sim.days_run import MUTANTS, DaysMutant, draw, hunt, run_days
from raftsched.chaos.sim.lives import Lives
from raftsched.chaos.sim.moves import MOVES
from raftsched.chaos.sim.orders import PARTS
from raftsched.chaos.sim.reach import read
from raftsched.proto.v1 import calendar_pb2, job_pb2, namespace_pb2, schedule_pb2
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.record import parse_change
from raftsched.statemachine.model.request import FireTimers

from ...sampled import some
from ...statemachine.driver import Machine, job_of

Schedule, Timing = schedule_pb2.Schedule, schedule_pb2.Timing


@pytest.mark.parametrize("seed", some(range(1, 13), 6))
def test_nothing_is_lost_whatever_people_ask_for(seed: int) -> None:
    outcome = run_days(seed)

    assert outcome.violation == "", outcome.options
    assert outcome.counts["runs"] > 0


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_days(7, story=10**6) == run_days(7, story=10**6)


def test_every_move_part_and_fault_is_drawn() -> None:
    drawn = [draw(seed) for seed in range(60)]

    assert {name for one in drawn for name in one.moves} == set(MOVES)
    assert {name for one in drawn for name in one.parts} == set(PARTS)
    assert {name for one in drawn for name in one.faults} == set(FAULTS)
    assert set.intersection(*(set(one.moves) for one in drawn)) >= moves.ALWAYS


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=pytest.mark.slow if m.budget > 40 else (), id=m.name) for m in MUTANTS],
)
def test_a_mistake_in_a_rule_is_found_by_its_own_reason(mutant: DaysMutant) -> None:
    found = hunt(mutant)

    assert found["seeds"] is not None, found


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("expression", "rule", "hours"),
    [
        ("30 2 * * *", schedule_pb2.GAP_RULE_NEXT, ["01:00"]),
        ("30 2 * * *", schedule_pb2.GAP_RULE_SKIP, []),
        ("0 * * * *", schedule_pb2.GAP_RULE_SKIP, ["00:00", "01:00"]),
    ],
)
def test_times_are_counted_by_hand_where_clocks_go_forward(
    expression: str, rule: schedule_pb2.GapRule.ValueType, hours: list[str]
) -> None:
    timing = Timing(zone="Europe/Berlin", gap_rule=rule)
    cron = Schedule(cron=schedule_pb2.Cron(expression=expression))
    first_ms, end_ms = at("2026-03-29T00:00"), at("2026-03-29T01:30")

    found = reckoning.times([cron], timing, 0, first_ms, end_ms)

    assert sorted(found) == [at(f"2026-03-29T{hour}") for hour in hours]


@pytest.mark.parametrize(
    ("rule", "hours"),
    [
        (schedule_pb2.FOLD_RULE_FIRST, ["00:30"]),
        (schedule_pb2.FOLD_RULE_SECOND, ["01:30"]),
        (schedule_pb2.FOLD_RULE_BOTH, ["00:30", "01:30"]),
    ],
)
def test_times_are_counted_by_hand_where_clocks_go_back(
    rule: schedule_pb2.FoldRule.ValueType, hours: list[str]
) -> None:
    timing = Timing(zone="Europe/Berlin", fold_rule=rule)
    cron = Schedule(cron=schedule_pb2.Cron(expression="30 2 * * *"))
    first_ms, end_ms = at("2026-10-25T00:00"), at("2026-10-25T12:00")

    found = reckoning.times([cron], timing, 0, first_ms, end_ms)

    assert sorted(found) == [at(f"2026-10-25T{hour}") for hour in hours]


def test_a_calendar_is_read_by_the_wall_of_its_zone() -> None:
    off = calendar_pb2.Calendar(rules=[calendar_pb2.CalendarRule(date="2026-03-29")])

    assert reckoning.leaves_out(off, "Europe/Berlin", at("2026-03-28T23:30"))
    assert not reckoning.leaves_out(off, "", at("2026-03-28T23:30"))


def test_the_command_plays_days(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--days", "--seeds", "2", "--first", "3", "--jobs", "1", "--json"]) == 0

    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["seeds"], found["violations"]) == (2, 0)
    assert found["days"]["runs"] > 0


def test_what_was_never_entered_is_named() -> None:
    taken = {"num_statements": 2, "covered_lines": 2, "num_branches": 4, "covered_branches": 1}
    never = {"num_statements": 2, "covered_lines": 0, "num_branches": 4, "covered_branches": 0}
    report = {"files": {"statemachine/runs/slots.py": {
        "summary": taken, "functions": {"full": {"summary": never}, "": {"summary": taken}},
    }}}  # fmt: skip

    found = read(report)["statemachine/runs"]

    assert (found.branches_taken, found.branches) == (1, 4)
    assert found.never == ["slots.full"]


def test_what_fires_in_the_change_that_sets_the_first_quota_is_not_above_it() -> None:
    machine, lives = Machine(MemoryStore()), Lives(100)

    def change(*bodies: object) -> None:
        decided = machine.decide(*bodies).change
        assert decided is not None
        machine.do_all(*bodies)
        lives.changed(parse_change(decided, 1))

    request = namespace_pb2.UpdateNamespaceRequest()
    request.namespace.name = "default"
    request.namespace.quota.live_runs = 1
    request.update_mask.paths.append("quota.live_runs")
    for name in ("a", "b"):
        change(job_pb2.CreateJobRequest(job=job_of(name, once=machine.now_ms + 1_000)))
    machine.advance(1_000)
    change(FireTimers(100), request)

    assert len(machine.live("a") + machine.live("b")) == 2
