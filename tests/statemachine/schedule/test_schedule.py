"""Compiling schedules: every wrong field is named at once, and nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.proto.v1 import error_pb2, schedule_pb2
from raftsched.proto.v1.schedule_pb2 import Schedule, Timing
from raftsched.statemachine.core.field_fault import FieldFault
from raftsched.statemachine.schedule import compiler as engine
from raftsched.statemachine.schedule import cron
from raftsched.statemachine.schedule.calendar_days import CalendarDays
from raftsched.statemachine.schedule.compiler import compile_plan, lints, restore_plan, shape_of
from raftsched.statemachine.schedule.plan import BEFORE_ALL, Plan, next_scheduled
from raftsched.statemachine.schedule.zoned_cron import zoned_cron

if TYPE_CHECKING:
    from .conftest import Compile, MakePlan

Instant = Callable[[str], int]
Stamp = Callable[[str], Timestamp]
INVALID = error_pb2.ERROR_REASON_FIELD_INVALID
REQUIRED = error_pb2.ERROR_REASON_FIELD_REQUIRED
LIMIT = error_pb2.ERROR_REASON_LIMIT_EXCEEDED
NEVER = error_pb2.ERROR_REASON_SCHEDULE_NEVER_FIRES
CRON = error_pb2.ERROR_REASON_CRON_INVALID
ZONE = error_pb2.ERROR_REASON_ZONE_UNKNOWN
CALENDAR = error_pb2.ERROR_REASON_CALENDAR_NOT_FOUND


def every(seconds: int, **rest: int) -> Schedule:
    return Schedule(interval=schedule_pb2.Interval(every=Duration(seconds=seconds, **rest)))


def after_end(seconds: int) -> Schedule:
    return Schedule(after_end=schedule_pb2.AfterEnd(delay=Duration(seconds=seconds)))


def once(stamp: Timestamp) -> Schedule:
    return Schedule(once=schedule_pb2.Once(time=stamp))


def faults_of(outcome: Plan | list[FieldFault]) -> list[FieldFault]:
    assert isinstance(outcome, list), outcome
    return outcome


BEYOND = Timestamp(seconds=1 << 40)
TOO_FAR = Schedule(once=schedule_pb2.Once(time=BEYOND))
BAD_ANCHOR = Schedule(
    interval=schedule_pb2.Interval(every=Duration(seconds=60), anchor=Timestamp(seconds=-1))
)


@pytest.mark.parametrize(
    ("schedule", "path", "reason", "value"),
    [
        (Schedule(), "schedules[0]", REQUIRED, ""),
        (Schedule(once=schedule_pb2.Once()), "schedules[0].once.time", REQUIRED, ""),
        (TOO_FAR, "schedules[0].once.time", INVALID, "1099511627776 s since 1970"),
        (Schedule(interval=schedule_pb2.Interval()), "schedules[0].interval.every", REQUIRED, ""),
        (every(0), "schedules[0].interval.every", INVALID, "0 ms"),
        (every(0, nanos=999_000_000), "schedules[0].interval.every", INVALID, "999 ms"),
        (every(-60), "schedules[0].interval.every", INVALID, "-1 minutes"),
        (every(3661 * 86_400), "schedules[0].interval.every", INVALID, "3661 days"),
        (BAD_ANCHOR, "schedules[0].interval.anchor", INVALID, "-1 s since 1970"),
        (after_end(-1), "schedules[0].after_end.delay", INVALID, "-1 seconds"),
        (after_end(3661 * 86_400), "schedules[0].after_end.delay", INVALID, "3661 days"),
        ("", "schedules[0].cron.expression", REQUIRED, ""),
        ("0 25 * * *", "schedules[0].cron.expression", CRON, "0 25 * * *"),
        ("@every 5x", "schedules[0].cron.expression", CRON, "@every 5x"),
        ("0 0 31 2 *", "schedules[0].cron.expression", NEVER, "0 0 31 2 *"),
        ("0 0 30 feb *", "schedules[0].cron.expression", NEVER, "0 0 30 feb *"),
        ("0 0 31 4,6,9,11 *", "schedules[0].cron.expression", NEVER, "0 0 31 4,6,9,11 *"),
        ("0 0 0 1 1 * 2025", "schedules[0].cron.expression", NEVER, "0 0 0 1 1 * 2025"),
        ("0 0 0 29 2 * 2027", "schedules[0].cron.expression", NEVER, "0 0 0 29 2 * 2027"),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_field(
    schedule: str | Schedule, path: str, reason: int, value: str, compile_: Compile
) -> None:
    [fault] = faults_of(compile_(schedule))

    assert (fault.path, fault.reason, fault.value) == (path, reason, value)
    assert fault.why in fault.message


def test_an_expression_has_at_most_256_characters(compile_: Compile) -> None:
    longest = "0 0 1 1 " + ",".join(["1"] * 124) + " "
    assert len(longest) == 256

    [fault] = faults_of(compile_(longest + "x"))
    outcome = compile_(longest)

    assert isinstance(outcome, Plan)
    assert (fault.path, fault.reason) == ("schedules[0].cron.expression", LIMIT)
    assert "257" in fault.why
    assert len(fault.value) < 300


def test_a_job_has_at_most_16_schedules(compile_: Compile) -> None:
    outcome = compile_(*["@daily"] * 16)
    [fault] = faults_of(compile_(*["@daily"] * 17))

    assert isinstance(outcome, Plan)
    assert (fault.path, fault.reason, fault.value) == ("schedules", LIMIT, "17")


@pytest.mark.parametrize(
    ("timing", "path", "reason", "instead"),
    [
        (Timing(zone="Berlin"), "timing.zone", ZONE, "Europe/Berlin"),
        (Timing(zone="Mars/Phobos"), "timing.zone", ZONE, "a name such as Europe/Berlin"),
        (Timing(gap_rule=7), "timing.gap_rule", INVALID, "NEXT"),  # type: ignore[arg-type]
        (Timing(fold_rule=7), "timing.fold_rule", INVALID, "FIRST"),  # type: ignore[arg-type]
        (Timing(start_time=BEYOND), "timing.start_time", INVALID, "an instant"),
        (Timing(jitter=Duration(seconds=86_401)), "timing.jitter", INVALID, "24h"),
        (Timing(jitter=Duration(seconds=-1)), "timing.jitter", INVALID, "0s"),
        (Timing(max_runs=-1), "timing.max_runs", INVALID, "0 for no maximum"),
        (Timing(exclude_calendars=["none"]), "timing.exclude_calendars[0]", CALENDAR, ""),
    ],
)
def test_wrong_timing_is_refused_with_its_field(
    timing: Timing, path: str, reason: int, instead: str, compile_: Compile
) -> None:
    [fault] = faults_of(compile_("@daily", timing=timing))

    assert (fault.path, fault.reason) == (path, reason)
    assert instead in fault.instead


def test_the_largest_lengths_are_right(compile_: Compile) -> None:
    timing = Timing(jitter=Duration(seconds=86_400))
    longest = 3660 * 86_400

    outcome = compile_(every(longest), after_end(longest), every(1), after_end(0), timing=timing)

    assert isinstance(outcome, Plan)


def test_the_end_lies_after_the_start(compile_: Compile, stamp: Stamp) -> None:
    timing = Timing(start_time=stamp("2026-06-01"), end_time=stamp("2026-06-01"))

    [fault] = faults_of(compile_("@daily", timing=timing))

    assert (fault.path, fault.reason) == ("timing.end_time", INVALID)
    assert fault.value == "2026-06-01T00:00:00Z"


def test_a_calendar_of_a_like_name_is_offered(compile_: Compile) -> None:
    empty = CalendarDays(None, frozenset(), frozenset(), (), ())
    timing = Timing(exclude_calendars=["holidays", "holiday", "holidays"])

    [fault] = faults_of(compile_("@daily", timing=timing, calendars={"holidays": empty}))

    assert (fault.path, fault.instead) == ("timing.exclude_calendars[1]", "holidays")


def test_a_job_names_at_most_8_calendars(compile_: Compile) -> None:
    empty = CalendarDays(None, frozenset(), frozenset(), (), ())
    names = [f"c{number}" for number in range(9)]
    calendars = dict.fromkeys(names, empty)

    outcome = compile_("@daily", timing=Timing(exclude_calendars=names[:8]), calendars=calendars)
    [fault] = faults_of(
        compile_("@daily", timing=Timing(exclude_calendars=names), calendars=calendars)
    )

    assert isinstance(outcome, Plan)
    assert (fault.path, fault.reason) == ("timing.exclude_calendars", LIMIT)


def test_all_faults_come_at_once(compile_: Compile) -> None:
    timing = Timing(zone="Berlin", max_runs=-1, exclude_calendars=["none"])

    faults = faults_of(compile_("0 25 * * *", Schedule(), every(0), "@reboot", timing=timing))

    assert [fault.path for fault in faults] == [
        "timing.zone",
        "timing.max_runs",
        "schedules[0].cron.expression",
        "schedules[1]",
        "schedules[2].interval.every",
        "schedules[3].cron.expression",
        "timing.exclude_calendars[0]",
    ]


def test_a_schedule_that_never_fires_is_named_beside_one_that_cannot_be_read(
    compile_: Compile,
) -> None:
    faults = faults_of(compile_("61 * * * *", "@daily", "0 0 30 2 *"))

    assert [(fault.path, fault.reason) for fault in faults] == [
        ("schedules[0].cron.expression", CRON),
        ("schedules[2].cron.expression", NEVER),
    ]


def test_a_schedule_that_never_fires_is_found_in_a_union(compile_: Compile, stamp: Stamp) -> None:
    timing = Timing(end_time=stamp("2026-06-01"))
    late = once(stamp("2026-07-01"))

    faults = faults_of(
        compile_("@daily", "0 0 30 2 *", late, "0 0 1 12 *", "H H * * *", timing=timing)
    )

    assert [(fault.path, fault.reason, fault.value) for fault in faults] == [
        ("schedules[1].cron.expression", NEVER, "0 0 30 2 *"),
        ("schedules[2].once.time", NEVER, "2026-07-01T00:00:00Z"),
        ("schedules[3].cron.expression", NEVER, "0 0 1 12 *"),
    ]
    assert "no date after" in faults[0].why
    assert "between start_time and end_time" in faults[1].why


def test_a_stored_job_that_has_done_its_work_is_no_fault(instant: Instant) -> None:
    schedules = [Schedule(cron=schedule_pb2.Cron(expression="0 0 0 1 1 * 2025"))]

    plan = restore_plan(
        shape_of(schedules, Timing()), seed="a/b", created_at_ms=instant("2026-01-01"), calendars={}
    )

    assert isinstance(plan, Plan)
    assert next_scheduled(plan, BEFORE_ALL) is None


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 * * thu#2,H",
        "0 0 * * H,friL",
        "0 0 H,L-3,L * *",
        "H(0-9)/3,H H/7 H,1-3 H H",
        "H H H H H",
    ],
)
def test_an_expression_is_good_for_all_names_or_for_none(
    compile_: Compile, expression: str
) -> None:
    outcomes = [compile_(expression, seed=f"default/{number}") for number in range(200)]

    assert [outcome for outcome in outcomes if isinstance(outcome, list)] == []


def test_a_job_without_schedules_is_right_and_never_fires(plan_of: MakePlan) -> None:
    plan = plan_of()

    assert next_scheduled(plan, BEFORE_ALL) is None
    assert lints(plan) == []


def test_warnings_of_all_schedules_are_told(plan_of: MakePlan) -> None:
    assert len(lints(plan_of("59/15 * * * *", "@daily", "H/45 * * * *", "* 9 * * *"))) >= 2


def test_compiling_again_and_without_the_memo_gives_the_same(
    plan_of: MakePlan, instant: Instant
) -> None:
    expressions = ["0 9 * * mon-fri", "H H * * *", "@every 90m"]
    first, again = plan_of(*expressions, zone="Asia/Gaza"), plan_of(*expressions, zone="Asia/Gaza")
    engine._shape.cache_clear()
    fresh = plan_of(*expressions, zone="Asia/Gaza")

    def walk(plan: Plan) -> list[int]:
        found: list[int] = []
        at = next_scheduled(plan, BEFORE_ALL)
        while at is not None and len(found) < 300:
            found.append(at)
            at = next_scheduled(plan, at)
        return found

    assert walk(first) == walk(again) == walk(fresh)


def test_the_memos_have_a_limit() -> None:
    for memo in (engine._shape, zoned_cron, cron._read):
        assert 0 < (memo.cache_info().maxsize or 0) <= 10_000


timestamps = st.builds(
    Timestamp,
    seconds=st.integers(-(1 << 62), 1 << 62) | st.integers(0, 1 << 33),
    nanos=st.integers(-(1 << 31), (1 << 31) - 1),
)
durations = st.builds(
    Duration,
    seconds=st.integers(-(1 << 62), 1 << 62) | st.integers(0, 1 << 20),
    nanos=st.integers(-(1 << 31), (1 << 31) - 1),
)
schedules = st.one_of(
    st.builds(Schedule, once=st.builds(schedule_pb2.Once, time=timestamps)),
    st.builds(
        Schedule,
        interval=st.builds(schedule_pb2.Interval, every=durations, anchor=st.none() | timestamps),
    ),
    st.builds(Schedule, after_end=st.builds(schedule_pb2.AfterEnd, delay=durations)),
    st.builds(
        Schedule,
        cron=st.builds(
            schedule_pb2.Cron,
            expression=st.text(max_size=30)
            | st.sampled_from(["@daily", "H H * * *", "0 0 30 2 *", "@every 5m", "* * * * *"]),
        ),
    ),
    st.just(Schedule()),
)
timings = st.builds(
    Timing,
    zone=st.sampled_from(["", "Europe/Berlin", "Nowhere"]) | st.text(max_size=10),
    gap_rule=st.integers(0, 5),
    fold_rule=st.integers(0, 5),
    start_time=st.none() | timestamps,
    end_time=st.none() | timestamps,
    max_runs=st.integers(-5, 5),
    jitter=st.none() | durations,
    exclude_calendars=st.lists(st.text(max_size=3), max_size=3),
)


@given(st.lists(schedules, max_size=4), timings, st.integers(0, 1 << 42))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_no_input_raises(said: list[Schedule], timing: Timing, created_at_ms: int) -> None:
    outcome = compile_plan(
        said, timing, seed="default/job", created_at_ms=created_at_ms, calendars={}
    )

    if isinstance(outcome, Plan):
        assert not said or next_scheduled(outcome, BEFORE_ALL) is not None
    else:
        assert outcome
        assert all(fault.path and fault.why and fault.message for fault in outcome)
