"""When a scheduled time becomes a run, exactly."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.model.request import FireTimers

from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Machine, job_of, with_mask

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
Misfire = job_pb2.MisfirePolicy
Timing = schedule_pb2.Timing
Edit = schedule_pb2.OccurrenceEdit


def outcomes(machine: Machine, name: str) -> list[str]:
    return [
        run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
        for _, entry in sorted(machine.ledger(name).items())
    ]


def audited(machine: Machine) -> bool:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse).sound


def move(machine: Machine, scheduled_ms: int, to_ms: int) -> None:
    edit = Edit(
        scheduled_time=timestamp(scheduled_ms), kind=Edit.KIND_MOVE, moved_to=timestamp(to_ms)
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))


def test_nothing_fires_early(machine: Machine) -> None:
    machine.create("a", once=START_MS + 5_000)

    machine.advance(4_999)
    machine.fire()
    assert machine.live("a") == []

    machine.advance(1)
    machine.fire()
    assert len(machine.live("a")) == 1


def test_the_grace_is_met_to_the_millisecond(machine: Machine) -> None:
    for name in ("within", "beyond"):
        misfire = Misfire(rule=Misfire.RULE_SKIP, grace=duration(10_000))
        machine.create(name, every_ms=HOUR_MS, misfire=misfire)
        machine.do(job_pb2.PauseJobRequest(job=name))

    machine.advance(HOUR_MS + 10_000)
    machine.do(job_pb2.ResumeJobRequest(job="within"))
    machine.fire()
    machine.advance(1)
    machine.do(job_pb2.ResumeJobRequest(job="beyond"))
    machine.fire()

    assert outcomes(machine, "within") == ["RAN"]
    assert outcomes(machine, "beyond") == ["MISSED"]


def test_a_job_fires_no_more_than_its_maximum(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, timing=Timing(max_runs=2))
    for _ in range(5):
        machine.advance(MINUTE_MS)
        machine.fire()

    assert len(machine.live("a")) == 2
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (Misfire.RULE_ALL, ["LATE", "LATE", "LATE"]),
        (Misfire.RULE_LATEST, ["COALESCED", "LATE"]),
        (Misfire.RULE_EARLIEST, ["LATE", "COALESCED"]),
        (Misfire.RULE_SKIP, ["MISSED"]),
    ],
)
def test_a_job_catches_up_with_no_more_than_its_maximum(
    machine: Machine, rule: Misfire.Rule.ValueType, wanted: list[str]
) -> None:
    misfire, timing = Misfire(rule=rule), Timing(max_runs=3)
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=timing, misfire=misfire)
    machine.at("2026-01-01T10:30")
    machine.fire()
    machine.advance(1_000)
    machine.fire()

    ledger = machine.ledger("a")
    assert outcomes(machine, "a") == wanted
    assert sum(entry.count or 1 for entry in ledger.values()) == 3
    last = max(max(at_ms, entry.last_at_ms) for at_ms, entry in ledger.items())
    assert last == START_MS + 3 * HOUR_MS
    status = machine.job("a").status
    assert (status.fired, status.state) == (3, job_pb2.JobStatus.STATE_FINISHED)


@pytest.mark.parametrize("most", [1, 2, 9_999, 10_000, 10_001, 10_002, 15_000, 90_000])
@pytest.mark.parametrize("every", [(1_000,), (2_000, 3_000)])
def test_the_last_of_many_times_is_found_whatever_the_maximum(
    machine: Machine, most: int, every: tuple[int, ...]
) -> None:
    job = job_of("a", timing=Timing(max_runs=most))
    for every_ms in every:
        job.spec.schedules.add().interval.every.CopyFrom(duration(every_ms))
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.advance(DAY_MS)
    machine.fire()

    every_second = len(every) == 1
    # Of a union over 10,000 times are counted as "at least".
    if every_second or most <= 10_001:
        times = [s for s in range(1, 86_401) if every_second or not s % 2 or not s % 3]
        [run] = machine.live("a")
        at_ms = run.scheduled_time.ToMilliseconds()
        assert at_ms == START_MS + 1_000 * times[min(most, len(times)) - 1]
        assert machine.job("a").status.fired == min(most, len(times))
    else:
        assert machine.job("a").status.fired <= most


def test_a_time_that_ran_early_is_one_of_the_maximum_and_no_other(machine: Machine) -> None:
    misfire, timing = Misfire(rule=Misfire.RULE_ALL), Timing(max_runs=4)
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=timing, misfire=misfire)
    move(machine, START_MS + 2 * HOUR_MS, START_MS + 30 * MINUTE_MS)
    machine.at("2026-01-01T00:30")
    machine.fire()

    machine.at("2026-01-01T10:30")
    machine.fire()

    assert machine.job("a").status.fired == 4
    assert max(machine.ledger("a")) == START_MS + 4 * HOUR_MS


def test_a_time_that_was_moved_to_later_is_one_of_the_maximum(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=3))
    move(machine, START_MS + 2 * HOUR_MS, START_MS + 8 * HOUR_MS)
    for _ in range(10):
        machine.advance(HOUR_MS)
        machine.fire()

    assert len(machine.live("a")) == 3
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


def test_a_backfill_of_times_before_the_job_uses_up_no_maximum(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=3))
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS - 5 * HOUR_MS), to_time=timestamp(START_MS),
        runs_per_minute=60_000,
    ))  # fmt: skip
    for _ in range(5):
        machine.advance(HOUR_MS)
        machine.fire()

    assert len(machine.live("a")) == 5 + 3
    assert machine.job("a").status.fired == 3


def test_a_backfill_of_times_behind_the_maximum_uses_up_no_more_of_it(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=2))
    machine.at("2026-01-01T06:30")
    machine.fire()
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS + 4 * HOUR_MS), to_time=timestamp(machine.now_ms),
        runs_per_minute=60_000,
    ))  # fmt: skip
    for _ in range(3):
        machine.advance(10)
        machine.fire()

    assert len(machine.live("a")) == 1 + 3
    assert machine.job("a").status.fired == 2
    machine.do(with_mask("spec.timing", name="a", timing=Timing(max_runs=3)))
    for _ in range(3):
        machine.advance(HOUR_MS)
        machine.fire()
    assert len(machine.live("a")) == 1 + 3 + 1


def test_a_job_after_the_end_is_finished_with_its_last_run(machine: Machine) -> None:
    timing, hour = Timing(max_runs=2), duration(HOUR_MS)
    machine.create("a", after_end_ms=MINUTE_MS, timing=timing, delete_after=hour)
    states = []
    for _ in range(2):
        machine.advance(MINUTE_MS)
        machine.fire()
        states.append(machine.job("a").status.state)
        [lease] = machine.grant()
        machine.succeed(lease)

    assert states == [job_pb2.JobStatus.STATE_ACTIVE, job_pb2.JobStatus.STATE_FINISHED]
    machine.advance(HOUR_MS)
    machine.fire()
    assert machine.refused(job_pb2.PauseJobRequest(job="a")).word == "JOB_NOT_FOUND"


def test_a_queue_of_runs_holds_no_more_than_its_limit(machine: Machine) -> None:
    queue = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_QUEUE, limit=2)
    machine.create("a", every_ms=MINUTE_MS, overlap=queue)
    for _ in range(5):
        machine.advance(MINUTE_MS)
        machine.fire()

    assert [run.held for run in machine.live("a")] == [False, True, True]
    assert outcomes(machine, "a")[3:] == ["SKIPPED_OVERLAP", "SKIPPED_OVERLAP"]


def test_a_time_in_the_past_runs_at_once(machine: Machine) -> None:
    machine.create("a", once=START_MS - DAY_MS, misfire=Misfire(rule=Misfire.RULE_SKIP))
    machine.fire()

    assert outcomes(machine, "a") == ["RAN"]


def test_a_week_of_missed_seconds_is_one_entry_and_one_run(machine: Machine) -> None:
    machine.create("a", every_ms=1_000)
    machine.advance(7 * DAY_MS)
    before = len(machine.log)

    machine.fire()

    assert len(machine.log) - before == 1
    assert len(machine.log[-1]) < 1_000
    assert machine.job("a").status.fired == 7 * 86_400
    assert [run.outcome for run in machine.live("a")] == [run_pb2.OUTCOME_RAN]


def test_a_long_backlog_is_released_at_a_rate_and_shown(machine: Machine) -> None:
    misfire = Misfire(rule=Misfire.RULE_ALL, maximum=1_000)
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW, misfire=misfire)
    machine.advance(1_000 * MINUTE_MS)
    machine.fire()

    shown = [machine.job("a").status.backlog]
    for _ in range(4):
        machine.advance(10)
        machine.fire()
        shown.append(machine.job("a").status.backlog)

    # The first 101 for the 100 ms in which there were none; then one each ms.
    assert shown == [899, 889, 879, 869, 859]


def test_an_excluded_day_is_left_out_and_recorded(machine: Machine) -> None:
    holidays = calendar_pb2.Calendar(
        name="holidays", rules=[calendar_pb2.CalendarRule(date="2026-01-02")]
    )
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=holidays))
    timing = Timing(exclude_calendars=["holidays"])
    machine.create("a", cron="0 9 * * *", timing=timing, overlap=ALLOW)
    for day in (1, 2, 3):
        machine.at(f"2026-01-0{day}T09:00")
        machine.fire()

    assert outcomes(machine, "a") == ["RAN", "SKIPPED_CALENDAR", "RAN"]


def test_single_occurrences_are_skipped_moved_and_added(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    hour = [START_MS + number * HOUR_MS for number in range(6)]

    def edit(scheduled_ms: int, kind: Edit.Kind.ValueType, moved_ms: int = 0) -> None:
        wanted = Edit(scheduled_time=timestamp(scheduled_ms), kind=kind)
        if moved_ms:
            wanted.moved_to.CopyFrom(timestamp(moved_ms))
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=wanted))

    edit(hour[1], Edit.KIND_SKIP)
    edit(hour[2], Edit.KIND_MOVE, hour[3] + MINUTE_MS)
    edit(hour[3] + 30 * MINUTE_MS, Edit.KIND_ADD)
    fired = []
    for step in range(1, 9):
        machine.at(hour[0] + step * 30 * MINUTE_MS + MINUTE_MS)
        machine.fire()
        fired.append(len(machine.live("a")))

    assert fired == [0, 0, 0, 0, 0, 2, 3, 4]
    assert outcomes(machine, "a") == ["SKIPPED_MANUALLY", "RAN", "RAN", "RAN", "RAN"]


def test_a_backfill_runs_what_did_not_run_and_leaves_the_rest_alone(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.at("2026-01-01T10:30")
    machine.fire()
    assert outcomes(machine, "a") == ["RAN", "COALESCED", "LATE"]

    request = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS), to_time=timestamp(START_MS + 10 * HOUR_MS),
        runs_per_minute=60_000,
    )  # fmt: skip
    reply = machine.ask(request, job_pb2.BackfillJobResponse)
    for _ in range(20):
        machine.advance(1_000)
        machine.fire()

    # Midnight, before the job was made, and the eight hours that were missed.
    assert (reply.planned, reply.left_alone) == (9, 1)
    causes = [run.cause for run in machine.live("a")]
    assert causes.count(run_pb2.CAUSE_BACKFILL) == 9
    assert len({run.id for run in machine.live("a")}) == 11


def test_a_delay_after_the_end_counts_from_the_end(machine: Machine) -> None:
    machine.create("a", after_end_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)
    machine.fire()
    [lease] = machine.grant()
    machine.advance(10 * MINUTE_MS)
    machine.fire()
    assert machine.job("a").status.fired == 1

    machine.succeed(lease)

    due_ms = machine.job("a").status.next_scheduled_time.ToMilliseconds()
    assert due_ms == machine.now_ms + MINUTE_MS


def test_a_job_after_the_end_goes_on_when_its_first_time_is_left_out(machine: Machine) -> None:
    """Nothing ran at it, so there was no end to count from, and the job stood still for ever."""
    holidays = calendar_pb2.Calendar(
        name="holidays", rules=[calendar_pb2.CalendarRule(date="2026-01-01")]
    )
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=holidays))
    machine.create("a", after_end_ms=HOUR_MS, timing=Timing(exclude_calendars=["holidays"]))
    for _ in range(25):
        machine.advance(HOUR_MS)
        machine.fire()

    assert len(machine.live("a")) == 1


def test_a_finished_job_is_deleted_when_it_wished_so(machine: Machine) -> None:
    machine.create("a", once=START_MS + 1_000, delete_after=duration(HOUR_MS))
    machine.advance(1_000)
    machine.fire()
    [lease] = machine.grant()
    machine.succeed(lease)

    machine.advance(HOUR_MS - 1)
    machine.fire()
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED

    machine.advance(1)
    machine.fire()
    assert machine.refused(job_pb2.PauseJobRequest(job="a")).word == "JOB_NOT_FOUND"


def test_a_firing_waits_for_no_job_or_run_that_is_to_be_deleted(machine: Machine) -> None:
    for number in range(40):
        gone, hour = f"gone{number}", duration(HOUR_MS)
        machine.create(gone, once=START_MS + 1_000, delete_after=hour, keep_history=hour)
    machine.advance(1_000)
    machine.fire()
    for lease in machine.grant():
        machine.succeed(lease)
    machine.create("punctual", once=machine.now_ms + HOUR_MS)
    machine.advance(HOUR_MS)

    machine.do_all(FireTimers(10))

    assert len(machine.live("punctual")) == 1
    machine.fire()
    assert len(list(machine.store.scan(b"J", b"K"))) == 1


def test_new_schedules_close_the_books_of_the_old_ones(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(3 * HOUR_MS + 1)
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"))
    update.job.spec.schedules.add().cron.expression = "30 * * * *"

    machine.do(update)
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.advance(30 * MINUTE_MS)
    machine.fire()

    assert outcomes(machine, "a") == ["MISSED", "RAN"]
    assert machine.job("a").status.fired == 4


def with_jitter(machine: Machine) -> tuple[str, int]:
    """A job whose time at 09:00 has passed and is not due yet, and when it is."""
    for number in range(20):
        name = f"a{number}"
        machine.create(name, cron="0 9 * * *", timing=Timing(jitter=duration(HOUR_MS)))
        due_ms = machine.job(name).status.next_due_time.ToMilliseconds()
        if due_ms > START_MS + 9 * HOUR_MS + 30 * MINUTE_MS:
            break
    machine.at("2026-01-01T09:10")
    machine.fire()
    return name, due_ms


def test_a_time_that_was_not_due_yet_is_missed_when_the_schedules_change(machine: Machine) -> None:
    name, _ = with_jitter(machine)

    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name=name))
    update.job.spec.schedules.add().cron.expression = "0 12 * * *"
    machine.do(update)
    machine.at("2026-01-01T13:00")
    machine.fire()

    assert outcomes(machine, name) == ["MISSED", "LATE"]
    assert min(machine.ledger(name)) == START_MS + 9 * HOUR_MS


@pytest.mark.parametrize(
    "timing",
    [
        Timing(jitter=duration(HOUR_MS), max_runs=50),
        Timing(jitter=duration(HOUR_MS), exclude_calendars=["off"]),
    ],
)
def test_a_time_that_was_not_due_yet_still_runs_when_no_scheduled_time_changes(
    machine: Machine, timing: Timing
) -> None:
    off = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(date="2026-06-01")])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    name, due_ms = with_jitter(machine)

    machine.do(with_mask("spec.timing", name=name, timing=timing))
    machine.at(due_ms - 1)
    machine.fire()
    early = outcomes(machine, name)
    machine.at(due_ms)
    machine.fire()

    assert (early, outcomes(machine, name)) == ([], ["RAN"])
    assert min(machine.ledger(name)) == START_MS + 9 * HOUR_MS


@pytest.mark.parametrize("jitter_ms", [0, MINUTE_MS, 2 * HOUR_MS])
def test_another_jitter_moves_the_due_time_and_nothing_else(
    machine: Machine, jitter_ms: int
) -> None:
    name, _ = with_jitter(machine)

    machine.do(with_mask("spec.timing", name=name, timing=Timing(jitter=duration(jitter_ms))))

    status = machine.job(name).status
    due_ms = status.next_due_time.ToMilliseconds()
    assert status.next_scheduled_time.ToMilliseconds() == START_MS + 9 * HOUR_MS
    assert machine.now_ms <= due_ms <= max(machine.now_ms, START_MS + 9 * HOUR_MS + jitter_ms)
    machine.at(due_ms)
    machine.fire()
    assert outcomes(machine, name) == ["RAN"]


def test_a_job_that_used_up_its_most_of_runs_goes_on_from_now_when_it_may(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=2))
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.at("2026-01-01T02:00")
    machine.fire()
    machine.at("2026-01-01T10:30")

    machine.do(with_mask("spec.timing", name="a", timing=Timing(max_runs=3)))
    for _ in range(5):
        machine.advance(HOUR_MS)
        machine.fire()

    hours = [(at_ms - START_MS) // HOUR_MS for at_ms in machine.ledger("a")]
    assert hours == [1, 2, 11]
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED
    assert audited(machine)


@pytest.mark.parametrize("most", [0, 5])
def test_a_job_goes_on_from_what_was_decided_when_it_may(machine: Machine, most: int) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=4))
    move(machine, START_MS + 2 * HOUR_MS, START_MS + 15 * HOUR_MS)
    for _ in range(4):
        machine.advance(HOUR_MS)
        machine.fire()
    assert not machine.job("a").status.HasField("next_scheduled_time")

    machine.do(with_mask("spec.timing", name="a", timing=Timing(max_runs=most)))

    status = machine.job("a").status
    assert status.fired == 3
    assert status.next_scheduled_time.ToMilliseconds() == START_MS + 5 * HOUR_MS


def test_a_job_is_finished_when_its_most_of_runs_becomes_what_it_had(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=Timing(max_runs=5))
    machine.at("2026-01-01T01:00")
    machine.fire()

    machine.do(with_mask("spec.timing", name="a", timing=Timing(max_runs=1)))

    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED
    machine.at("2026-01-01T05:00")
    machine.fire()
    assert outcomes(machine, "a") == ["RAN"]


def test_a_run_under_way_goes_on_counting_for_a_job_after_the_end(machine: Machine) -> None:
    machine.create("a", after_end_ms=MINUTE_MS, timing=Timing(max_runs=5))
    machine.advance(MINUTE_MS)
    machine.fire()
    [lease] = machine.grant()

    machine.do(with_mask("spec.timing", name="a", timing=Timing(max_runs=6)))
    machine.advance(HOUR_MS)
    machine.fire()
    machine.succeed(lease)

    status = machine.job("a").status
    assert status.fired == 1
    assert status.next_scheduled_time.ToMilliseconds() == machine.now_ms + MINUTE_MS


RULES = [Misfire.RULE_SKIP, Misfire.RULE_LATEST, Misfire.RULE_EARLIEST, Misfire.RULE_ALL]


@pytest.mark.parametrize("rule", RULES)
def test_a_time_that_was_moved_behind_an_outage_runs_when_it_is_due(
    machine: Machine, rule: Misfire.Rule.ValueType
) -> None:
    machine.create("a", cron="0 9 * * *", misfire=Misfire(rule=rule))
    move(machine, START_MS + 9 * HOUR_MS, START_MS + 15 * HOUR_MS)

    machine.at("2026-01-01T10:00")
    machine.fire()
    early = outcomes(machine, "a")
    machine.at("2026-01-01T15:00")
    machine.fire()

    assert (early, outcomes(machine, "a")) == ([], ["RAN"])
    assert audited(machine)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("hour", [1, 3, 6])
def test_a_time_that_was_moved_is_no_part_of_a_stretch(
    machine: Machine, rule: Misfire.Rule.ValueType, hour: int
) -> None:
    misfire = Misfire(rule=rule, maximum=1)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    scheduled_ms = START_MS + hour * HOUR_MS
    move(machine, scheduled_ms, START_MS + 15 * HOUR_MS)

    machine.at("2026-01-01T06:30")
    machine.fire()
    assert scheduled_ms not in machine.ledger("a")
    assert machine.job("a").status.fired == 5
    assert audited(machine)
    machine.at("2026-01-01T15:00")
    machine.fire()
    machine.fire()

    assert machine.ledger("a")[scheduled_ms].outcome == run_pb2.OUTCOME_RAN
    assert machine.job("a").status.fired == 15
    assert audited(machine)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("hour", [1, 3, 6])
def test_a_time_that_ran_before_an_outage_keeps_its_outcome(
    machine: Machine, rule: Misfire.Rule.ValueType, hour: int
) -> None:
    misfire = Misfire(rule=rule, maximum=1)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    scheduled_ms = START_MS + hour * HOUR_MS
    move(machine, scheduled_ms, START_MS + 30 * MINUTE_MS)
    machine.at("2026-01-01T00:30")
    machine.fire()

    machine.at("2026-01-01T06:30")
    machine.fire()

    assert machine.ledger("a")[scheduled_ms].outcome == run_pb2.OUTCOME_RAN
    assert machine.job("a").status.fired == 6
    assert audited(machine)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("hour", [1, 3, 6])
def test_a_time_that_was_skipped_by_hand_is_not_missed(
    machine: Machine, rule: Misfire.Rule.ValueType, hour: int
) -> None:
    misfire = Misfire(rule=rule, maximum=1)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    scheduled_ms = START_MS + hour * HOUR_MS
    edit = Edit(kind=Edit.KIND_SKIP, scheduled_time=timestamp(scheduled_ms))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.at("2026-01-01T06:30")
    machine.fire()

    assert machine.ledger("a")[scheduled_ms].outcome == run_pb2.OUTCOME_SKIPPED_MANUALLY
    status = machine.job("a").status
    assert (status.fired, list(status.edits)) == (6, [])
    assert audited(machine)


@pytest.mark.parametrize("rule", RULES)
def test_the_first_time_of_a_job_after_the_end_that_was_skipped_is_not_missed(
    machine: Machine, rule: Misfire.Rule.ValueType
) -> None:
    machine.create("a", after_end_ms=HOUR_MS, misfire=Misfire(rule=rule))
    edit = Edit(kind=Edit.KIND_SKIP, scheduled_time=timestamp(START_MS + HOUR_MS))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.at("2026-01-01T06:30")
    machine.fire()

    assert outcomes(machine, "a") == ["SKIPPED_MANUALLY"]
    assert machine.job("a").status.HasField("next_scheduled_time")


def test_an_added_time_takes_nothing_out_of_a_stretch(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", misfire=Misfire(rule=Misfire.RULE_SKIP), overlap=ALLOW)
    added_ms = START_MS + 3 * HOUR_MS + 30 * MINUTE_MS
    edit = Edit(kind=Edit.KIND_ADD, scheduled_time=timestamp(added_ms))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.at("2026-01-01T06:30")
    machine.fire()

    ledger = machine.ledger("a")
    assert ledger[added_ms].outcome == run_pb2.OUTCOME_MISSED
    assert sum(entry.count for entry in ledger.values()) == 6
    assert machine.job("a").status.fired == 7
    assert audited(machine)


@pytest.mark.parametrize("cron", ["0 20 * * *", "0 1,20 * * *"])
def test_a_moved_time_still_runs_when_the_new_schedules_name_it(
    machine: Machine, cron: str
) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    machine.do(job_pb2.PauseJobRequest(job="a"))
    move(machine, START_MS + HOUR_MS, START_MS + 15 * HOUR_MS)
    machine.at("2026-01-01T04:30")

    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron=cron, overlap=ALLOW)))
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.at("2026-01-01T15:00")
    machine.fire()

    named = "1" in cron
    assert outcomes(machine, "a") == ["RAN" if named else "MISSED", "MISSED"]
    assert machine.ledger("a")[START_MS + 2 * HOUR_MS].count == 3
    assert audited(machine)


def revert(machine: Machine, scheduled_ms: int) -> None:
    request = job_pb2.RevertOccurrenceRequest(job="a", scheduled_time=timestamp(scheduled_ms))
    machine.do(request)


def test_a_move_that_is_taken_back_too_late_is_missed(machine: Machine) -> None:
    machine.create("a", cron="0 9 * * *")
    scheduled_ms = START_MS + 9 * HOUR_MS
    move(machine, scheduled_ms, START_MS + 15 * HOUR_MS)
    machine.at("2026-01-01T10:00")
    machine.fire()

    revert(machine, scheduled_ms)

    assert outcomes(machine, "a") == ["MISSED"]
    assert audited(machine)
    machine.at("2026-01-01T15:00")
    machine.fire()
    assert outcomes(machine, "a") == ["MISSED"]


def test_a_job_whose_only_time_is_given_up_is_finished(machine: Machine) -> None:
    machine.create("a", once="2026-01-01T09:00")
    scheduled_ms = START_MS + 9 * HOUR_MS
    move(machine, scheduled_ms, START_MS + 15 * HOUR_MS)
    machine.at("2026-01-01T10:00")
    machine.fire()

    revert(machine, scheduled_ms)

    assert outcomes(machine, "a") == ["MISSED"]
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


def test_a_move_that_is_taken_back_in_time_runs_at_its_time(machine: Machine) -> None:
    machine.create("a", cron="0 9 * * *", timing=Timing(max_runs=1))
    scheduled_ms = START_MS + 9 * HOUR_MS
    move(machine, scheduled_ms, START_MS + 15 * HOUR_MS)
    machine.at("2026-01-01T08:00")

    revert(machine, scheduled_ms)
    machine.at("2026-01-01T09:00")
    machine.fire()

    assert outcomes(machine, "a") == ["RAN"]


@pytest.mark.parametrize("halted", ["paused", "busy"])
@pytest.mark.parametrize("rule", [Misfire.RULE_ALL, Misfire.RULE_LATEST, Misfire.RULE_SKIP])
def test_the_end_of_a_run_passes_over_no_time_of_the_clock(
    machine: Machine, halted: str, rule: Misfire.Rule.ValueType
) -> None:
    """A job with times of the clock and a delay after the end: what was missed while it was paused,
    or is due in the very change in which the run ends, is not decided on yet."""
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.create(
        "a", every_ms=MINUTE_MS, after_end_ms=HOUR_MS, overlap=overlap, misfire=Misfire(rule=rule)
    )
    machine.advance(MINUTE_MS)
    machine.fire()
    [lease] = machine.grant()
    if halted == "paused":
        machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(8 * MINUTE_MS)

    machine.succeed(lease)
    if halted == "paused":
        machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    machine.advance(MINUTE_MS)
    machine.fire_all()
    known = sum(max(1, entry.count) for entry in machine.ledger("a").values())
    assert known == 10
    machine.check()
