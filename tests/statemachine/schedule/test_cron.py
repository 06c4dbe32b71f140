"""Reading expressions: croniter's traps, the refusals, the place of `H`, the warnings."""

from __future__ import annotations

from collections import Counter

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.proto.v1 import error_pb2
from raftsched.statemachine.schedule.cron import ALIASES, Cron, Refusal, read_cron, read_every

from ...rows import each

CRON_INVALID = error_pb2.ERROR_REASON_CRON_INVALID


def read(expression: str, seed: str = "default/job") -> Cron:
    cron = read_cron(expression, seed)
    assert isinstance(cron, Cron), cron
    return cron


def refuse(expression: str) -> Refusal:
    refusal = read_cron(expression, "default/job")
    assert isinstance(refusal, Refusal), refusal
    return refusal


@each("word", ALIASES)
def test_an_alias_is_never_spread_by_the_name(word: str) -> None:
    """croniter spreads `@daily` over the day as soon as it is given a hash id."""
    assert read(word, "a/b").text == read(word.upper(), "c/d").text == ALIASES[word]


def test_seconds_stand_first() -> None:
    """croniter expects them last unless it is told."""
    fields = read("5 30 9 * * *").fields

    assert (fields.seconds, fields.minutes, fields.hours) == ((5,), (30,), (9,))


def test_the_year_stands_last() -> None:
    fields = read("5 30 9 * * * 2027-2029").fields

    assert fields.seconds == (5,)
    assert fields.years == frozenset({2027, 2028, 2029})


def test_five_fields_mean_second_zero() -> None:
    assert read("30 9 * * *").fields.seconds == (0,)


@each(
    ("expression", "why", "instead"),
    [
        ("R R * * *", "another time on each node", "H"),
        ("R(0-30) 9 * * *", "another time on each node", "H(0-30)"),
        ("1,R/5 9 * * *", "another time on each node", "H"),
        ("@reboot", "no boot", "once"),
        ("@dayly", "@dayly is no word", "@daily"),
        ("@every5m", "is no word", "@every 5m"),
        ("@xyz", "is no word", "one of @hourly, @daily"),
        ("TZ=Europe/Berlin 0 9 * * *", "does not belong", "'0 9 * * *' and, in timing.zone,"),
        ("CRON_TZ=UTC 0 9 * * *", "does not belong", "in timing.zone, 'UTC'"),
        ("* * * *", "not 4", "minute, hour"),
        ("* * * * * * * *", "not 8", "seconds come first"),
        ("99 9 * * *", "'99' cannot stand in the field minute", "0-59"),
        ("0 24 * * *", "'24' cannot stand in the field hour", "0 (midnight)"),
        ("0 0 0 * *", "'0' cannot stand in the field day of month", "1 (the first"),
        ("0 0 * 13 *", "'13' cannot stand in the field month", "1-12"),
        ("0 0 * * 8", "'8' cannot stand in the field day of week", "0-7"),
        ("0 0 * * fry", "'fry' cannot stand in the field day of week", "sun-sat"),
        ("0 0 * * L", "'l' cannot stand", "6L"),
        ("0 0 * * 8L", "'8l' cannot stand in the field day of week", "0-7"),
        ("0 0 * * mon,8L", "'mon,8l' cannot stand in the field day of week", "0-7"),
        ("0 0 * * fri#2,moo", "'fri#2,moo' cannot stand in the field day of week", "sun-sat"),
        ("0 0 L-31 * *", "'l-31' cannot stand in the field day of month", "L-1 to L-30"),
        ("0 0 L-0 * *", "'l-0' cannot stand in the field day of month", "L-1 to L-30"),
        ("0 0 L-3W * *", "'l-3w' cannot stand in the field day of month", "LW"),
        ("L-3 0 * * *", "'l-3' cannot stand in the field minute", "0-59"),
        ("0 0 * * fri#6", "'fri#6' cannot stand", "fri#2"),
        ("*/0 * * * *", "'*/0' cannot stand", "*/n"),
        ("? 0 * * *", "'?' cannot stand in the field minute", "0-59"),
        ("0 0 0 1 1 * 1900", "'1900' cannot stand in the field year", "1970-2099"),
        ("0 0 * * 7-0", "7 and 0 are both Sunday", "sun, or 0-6"),
        ("H(9-3) * * * *", "does not fit the field minute", "H(0-59)"),
        ("H(0-99) * * * *", "does not fit the field minute", "H(0-59)"),
        ("H/0 * * * *", "does not fit the field minute", "H(0-59)"),
        ("Hx * * * *", "'HX' cannot stand in the field minute", "H/15"),
        ("0 0 0 1 1 * H", "'H' cannot stand in the field year", "any field but the year"),
        ("\u0660 9 * * *", "plain ASCII", "0 9"),
        ("0\u00a09 * * *", "plain ASCII", "0 9"),
        ("0 9\n* * *", "plain ASCII", "0 9"),
        ("+5 9 * * *", "'+5' cannot stand", "0-59"),
        ("0 0 L-3, * *", "'l-3,' cannot stand", "L-3"),
        ("0 0 * * fri#2,", "'fri#2,' cannot stand", "fri#2"),
        ("5,,6 9 * * *", "'5,,6' cannot stand", "0-59"),
    ],
)  # fmt: skip
def test_a_refusal_says_why_and_what_to_write(expression: str, why: str, instead: str) -> None:
    refusal = refuse(expression)

    assert refusal.reason == CRON_INVALID
    assert why in refusal.why
    assert instead in refusal.instead


@pytest.mark.parametrize("expression", ["", "  ", "\t"])
def test_an_empty_expression_is_a_missing_field(expression: str) -> None:
    assert refuse(expression).reason == error_pb2.ERROR_REASON_FIELD_REQUIRED


@given(
    st.text(alphabet="0123456789*,-/#LWHR?@ ()jansufridec=TZ", max_size=40)
    | st.lists(
        st.text(alphabet="0123456789*,-/#LWH?()", min_size=1, max_size=8), min_size=5, max_size=7
    ).map(" ".join)
    | st.text(max_size=40)
)
@settings(max_examples=1500, deadline=None, derandomize=True)
def test_any_text_is_read_or_refused_with_a_word(expression: str) -> None:
    outcome = read_cron(expression, "default/job")
    if isinstance(outcome, Refusal):
        assert outcome.why
    else:
        assert outcome.fields.minutes
    read_every(expression)


def test_croniter_takes_an_equal_range_for_the_whole_field() -> None:
    """The reason why such a range is written anew; when this fails, that can go."""
    assert croniter.expand("0 9-9 * * *")[0][1] == ["*"]


@each(
    ("expression", "meaning"),
    [
        ("1-1 9-9 * * *", "1 9 * * *"),
        ("05-5 9 * * *", "5 9 * * *"),
        ("5-5/15 9 * * *", "5 9 * * *"),
        ("0 9 1-1 jan-1 *", "0 9 1 1 *"),
        ("0 9 * * fri-fri,sun-0", "0 9 * * 5,0"),
        ("0 9 * * fri-fri#2", "0 9 * * fri#2"),
    ],
)
def test_a_range_of_one_value_is_that_value(expression: str, meaning: str) -> None:
    assert read(expression).fields.__reduce_ex__(2)[2] == read(meaning).fields.__reduce_ex__(2)[2]


@pytest.mark.parametrize("expression", ["0 0 * * 0-7", "0 0 * * sun-sat", "0 0 * * sun-7"])
def test_a_whole_week_is_no_equal_range(expression: str) -> None:
    assert read(expression).fields.any_weekday or read(expression).fields.weekdays == 0b1111111


@each(
    ("expression", "meaning"),
    [
        ("0 9 1 oct-mar/2 *", "0 9 1 10,12,2 *"),
        ("0 9 28-14/10 * *", "0 9 28,7 * *"),
        ("51-46/17 * * * *", "51,8,25,42 * * * *"),
        ("0 14-10/3 * * *", "0 14,17,20,23,2,5,8 * * *"),
        ("0 9 * * fri-tue/2", "0 9 * * 5,0,2"),
        ("0 9 * * 6-4/3", "0 9 * * 6,2"),
        ("58-1/2,30 5 * * * *", "58,0,30 5 * * * *"),
    ],
)
def test_a_step_goes_on_over_the_end_of_its_field(expression: str, meaning: str) -> None:
    found, expected = read(expression).fields, read(meaning).fields

    for name in ("seconds", "minutes", "hours", "days", "months", "weekdays"):
        assert getattr(found, name) == getattr(expected, name), name


def test_every_step_over_the_end_of_the_hours() -> None:
    for low in range(1, 24):
        for high in range(low):
            for step in range(1, 25):
                hours = sorted({at % 24 for at in range(low, high + 25, step)})
                assert read(f"0 {low}-{high}/{step} * * *").fields.hours == tuple(hours)


@pytest.mark.parametrize("expression", ["0 9 * * MON-FRI", "0  9 * *\tmon-fri ", "0 9 ? * Mon-5"])
def test_case_and_space_do_not_matter(expression: str) -> None:
    fields = read(expression).fields

    assert (fields.weekdays, fields.any_day, fields.hours) == (0b111110, True, (9,))


# `H`.


def test_the_place_of_a_job_is_the_same_for_ever() -> None:
    assert read("H H * * *", "default/report").text == "24 3 * * *"
    assert read("H H H * *", "prod/backup").text == "52 15 21 * *"


def test_another_job_has_another_place() -> None:
    texts = {read("H H * * *", f"default/job-{number}").text for number in range(100)}

    assert len(texts) > 90


def test_the_fields_are_spread_apart_from_each_other() -> None:
    """croniter shifts one checksum, so that its jobs share 240 of the 1,440 minutes of a day."""
    places = {read("H H * * *", f"default/job-{number}").text for number in range(20_000)}

    def croniters(number: int) -> tuple[int, int]:
        cron = croniter("H H * * *", 0.0, hash_id=f"default/job-{number}")
        return cron.expanded[0][0], cron.expanded[1][0]

    assert len(places) == 1440
    assert len({croniters(number) for number in range(3000)}) == 240


def test_the_spread_is_even() -> None:
    counts = Counter(read("H * * * *", f"default/job-{number}").text for number in range(60_000))

    assert len(counts) == 60
    # Chi-square with 59 degrees of freedom: above 101 one time in two thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 101


@given(st.text(min_size=1, max_size=20))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_spread_place_lies_in_its_range(seed: str) -> None:
    fields = read("H(10-20) H(2-3) H * *", seed).fields
    steps = read("H(30-59)/10 H/6 * * *", seed).fields
    wide = read("H/400 * * * H", seed).fields

    assert 10 <= fields.minutes[0] <= 20
    assert fields.hours[0] in (2, 3)
    assert 1 <= fields.days.bit_length() - 1 <= 28
    assert steps.minutes == tuple(range(steps.minutes[0], 60, 10))
    assert 30 <= steps.minutes[0] < 40
    assert steps.hours == tuple(range(steps.hours[0], 24, 6))
    assert steps.hours[0] < 6
    assert len(wide.minutes) == 1


def test_a_list_may_hold_a_spread_place() -> None:
    assert read("0 9,H(12-14) * * *", "a/b").text in {f"0 9,{hour} * * *" for hour in (12, 13, 14)}


def test_an_h_in_a_name_is_no_spread() -> None:
    assert read("0 9 * mar thu", "a/b").text == read("0 9 * mar thu", "c/d").text


# `@every`.


@each(
    ("text", "period"),
    [
        ("@every 5m", 300_000),
        ("@every 1s", 1000),
        ("@every 3660d", 3660 * 86_400_000),
        ("@EVERY  90s", 90_000),
        ("@every 1h30m", 5_400_000),
        ("@every 1500ms", 1500),
        ("@every 2d", 172_800_000),
        ("@hourly", None),
        ("0 9 * * *", None),
    ],
)
def test_every_is_a_period(text: str, period: int | None) -> None:
    assert read_every(text) == period


@each(
    "text",
    ["@every", "@every x", "@every 5", "@every 5 m", "@every -5m", "@every 1.5h", "@every 999ms",
     "@every 3661d", "@every 0s", "@every 9999999999999999999d"],
)  # fmt: skip
def test_a_wrong_period_is_refused(text: str) -> None:
    refusal = read_every(text)

    assert isinstance(refusal, Refusal)
    assert refusal.reason == CRON_INVALID
    assert "@every" in refusal.instead


# Warnings.


@each(
    ("expression", "warning"),
    [
        ("59/15 * * * *", "'59/15' in the field minute means one value, 59"),
        ("0 23/6 * * *", "'23/6' in the field hour means one value, 23"),
        ("0 0 * * 6/1", "'6/1' in the field day of week means one value, 6"),
        ("0 */24 * * *", "'*/24' in the field hour means one value, 0"),
        ("0 0 0 1 1 * 2098/5", "'2098/5' in the field year means one value, 2098"),
        ("*/45 * * * *", "begins again at 0 after 45"),
        ("0 */5 * * *", "begins again at 0 after 20"),
        ("* 9 * * *", "every minute of that hour"),
        ("* 0 9 * * *", "every second of the minute"),
        ("0 0 31 * *", "not every month has a day 31"),
        ("0 0 13 * fri", "either is enough"),
        ("0 9 */2 * mon", "a day must fit it and 'mon', as in Vixie cron"),
        ("0 9 15 * */2", "either is enough where it is written '0-6/2'"),
        ("0 9 1-31 * mon", "so it runs every day"),
        ("0 9 15 * 0-6", "so it runs every day"),
        ("5-1 * * * *", "'5-1' in the field minute goes on from 59 at 0; '1-5' is the other way"),
        ("0 9 25-5 * *", "'25-5' in the field day of month goes on from 31 at 1"),
        ("0 9 31W * *", "LW is the last weekday"),
        ("0 9 29W * *", "not every month has a day 29"),
    ],
)
def test_what_may_surprise_has_a_warning(expression: str, warning: str) -> None:
    [found] = read(expression).warnings

    assert warning in found


@each(
    "expression",
    ["0 9 * * mon-fri", "0 22-2 * * *", "0 0 * * fri-mon", "0 9 15W * *", "0 9 ? * mon",
     "0 9 */1 * mon", "0 9 31W 1 *",
     "*/15 * * * *", "0 */6 * * *", "0 0 L * *", "0 0 31 1 *", "* * * * *",
     "0 0 1/5 * *", "0 0 29 2 *", "0 0 * * fri#2", "* * * * * *", "H H * * *", "@daily"],
)  # fmt: skip
def test_what_is_plain_has_no_warning(expression: str) -> None:
    assert read(expression).warnings == ()
