"""The checkers themselves: a sound history passes, and each kind of violation is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from raftsched.chaos.real import history
from raftsched.chaos.real.checks import CHECKS, violations_in
from raftsched.chaos.real.history import (
    OK,
    REFUSED,
    UNKNOWN,
    Ack,
    Bounds,
    ClientCall,
    Contention,
    Copy,
    Effect,
    Event,
    FaultSpan,
    FinalJob,
    FinalOutcome,
    FinalRun,
    Follows,
    Lag,
    Lease,
    Limited,
    Observations,
    Probe,
    RecurringJob,
    ReportSent,
    Stop,
    Verified,
)
from raftsched.chaos.real.lateness import TimeSpans
from raftsched.chaos.real.linear import linearizable

from ...rows import each

T0 = 1_800_000_000_000
Events = list[Event]


def call(
    what: str, job: str, began: float, value: str = "", outcome: str = OK, took: float = 0.1
) -> ClientCall:
    return ClientCall("c1", what, job, began, began + took, 5.0, outcome, value)


def sound() -> Events:
    """A job that ran three times (once at the second attempt), a record, a trigger."""
    events: Events = [
        RecurringJob("tick", 1_000, T0, T0 + 2_000, max_attempts=2, prompt=True, must_run=True)
    ]
    token = 0
    for number in range(3):
        scheduled = T0 + 1_000 * number
        run = f"tick.1.{scheduled}"
        tokens = []
        for attempt in range(1, 3 if number == 1 else 2):
            token += 1
            tokens.append(token)
            events.append(
                Lease("w1", run, "tick", token, attempt, scheduled, scheduled, scheduled + 3, token)
            )
            events.append(Effect(run, token, True, token + 0.1))
            last = attempt == (2 if number == 1 else 1)
            end = "success" if last else "failure"
            events.append(ReportSent("w1", run, token, end, token + 0.15))
            events.append(Ack("w1", run, token, end, "", token + 0.2))
        ends = ["FAILED"] * (len(tokens) - 1) + ["SUCCEEDED"]
        events.append(FinalOutcome("tick", scheduled, scheduled, "RAN"))
        events.append(
            FinalRun(
                run,
                "tick",
                "SUCCEEDED",
                scheduled,
                scheduled,
                len(tokens),
                tuple(zip(tokens, ends, strict=True)),
            )
        )
    events += [
        call("create", "a", 1, "one"),
        call("get", "a", 2, "one"),
        call("update", "a", 3, "two"),
        call("update", "a", 4, "three", UNKNOWN),
        call("update", "a", 4.5, "never", REFUSED),
        FinalJob("a", "three"),
        FinalJob("tick", "-"),
        call("trigger", "hand", 5, "hand.2.7.1"),
        Lease("w1", "hand.2.7.1", "hand", 9, 1, T0, T0, T0, 9.0),
        ReportSent("w1", "hand.2.7.1", 9, "success", 9.1),
        FinalRun(
            "hand.2.7.1", "hand", "SUCCEEDED", T0, T0, 1, ((9, "SUCCEEDED"),), scheduled=False
        ),
        call("trigger", "hand", 5, "", UNKNOWN),
        Probe(1.0, 0.1, ok=True, number=1),
        Probe(1.2, 9.0, ok=False, number=2),
        Probe(1.25, 0.1, ok=True, number=3),
        FinalJob("probe", "2"),
        *followed("up", "down", T0),
        Limited(("tick",), 1),
        Bounds(1_000.0, 2.0, 50.0),
        call("pause", "rest", 20, str(T0 + 20_000)),
        call("resume", "rest", 25, str(T0 + 25_000), UNKNOWN),
        call("resume", "rest", 26, str(T0 + 26_000)),
        FinalRun("rest.1.1", "rest", "SKIPPED", T0 + 19_000, T0, 1),
        FinalRun("rest.1.2", "rest", "SKIPPED", T0 + 25_900, T0, 1),
        RecurringJob("noon", 1_000, T0, T0 + 9_000, times=(T0 + 3_000,)),
        FinalOutcome("noon", T0 + 3_000, T0 + 3_000, "MISSED"),
        Stop("n1", 40.0, 41.0, 0),
        Stop("n2", 42.0, 45.2, 3, "not finished: webhooks"),
        Copy("n1", 7, "ab"),
        Copy("n2", 7, "ab"),
        Copy("n3", 6, "cd"),
    ]
    return events


def followed(up: str, down: str, scheduled: int) -> Events:
    """A run, and the run of another job that follows it."""
    events: Events = [RecurringJob(up, 1_000, T0, T0 - 1), Follows(down, (up,))]
    for number, job in enumerate((up, down)):
        run, token, at = f"{job}.1", 20 + number, 30.0 + number
        events += [
            Lease("w1", run, job, token, 1, scheduled, scheduled, scheduled, at),
            ReportSent("w1", run, token, "success", at + 0.1),
            Ack("w1", run, token, "success", "", at + 0.2),
            FinalRun(run, job, "SUCCEEDED", scheduled, scheduled, 1, ((token, "SUCCEEDED"),)),
        ]
    return events


def found(events: Events) -> set[str]:
    return {violation.invariant for violation in violations_in(Observations.of(events))}


def test_a_sound_history_has_no_violations() -> None:
    assert violations_in(Observations.of(sound())) == []


def without(kind: type[Event], which: Callable[[Event], bool]) -> Events:
    events = [event for event in sound() if not (isinstance(event, kind) and which(event))]
    assert len(events) < len(sound())
    return events


def changed(kind: type[Event], number: int, **fields: object) -> Events:
    events = sound()
    place = [at for at, event in enumerate(events) if isinstance(event, kind)][number]
    events[place] = msgspec.structs.replace(events[place], **fields)
    return events


def frail(most: int) -> Events:
    """A run whose first lease was released, though a worker had it, and that was leased again."""
    ends = ((1, "RELEASED"), (2, "SUCCEEDED"))
    leases = [Lease(f"w{n}", "f.1", "f", n, 1, T0, T0, T0, float(n)) for n in (1, 2)]
    report, outcome = ReportSent("w2", "f.1", 2, "success", 2.1), FinalOutcome("f", T0, T0, "RAN")
    run = FinalRun("f.1", "f", "SUCCEEDED", T0, T0, 1, ends)
    return [RecurringJob("f", 1_000, T0, T0, max_attempts=most), *leases, report, outcome, run]


def quiet_firings(count: int, late: int, moments: int = 5) -> Events:
    """On time but for some; at second 5 of the harness's clock, due at so many instants."""
    leases = []
    for number in range(count):
        due, ms = T0 + number % moments, 80 if number < late else 4
        lease = Lease("w1", f"tick.{number}", "tick", number + 1, 1, due, due, due + ms, 0.0)
        leases.append(msgspec.structs.replace(lease, at=5 + (due - T0 + ms) / 1000))
    return [RecurringJob("tick", 1_000, T0, T0, prompt=True), Bounds(1_000.0, 2.0, 50.0), *leases]


LAST = f"tick.1.{T0 + 2_000}"
WRONG: list[tuple[str, str, Events]] = [
    ("a lost firing", "S2", without(FinalOutcome, lambda e: e.scheduled_ms == T0 + 1_000)),  # type: ignore[attr-defined]
    ("two outcomes", "S2", [*sound(), FinalOutcome("tick", T0, T0, "SKIPPED")]),
    (
        "a stretch over a firing",
        "S2",
        [*sound(), FinalOutcome("tick", T0 - 5_000, T0 + 1_000, "MISSED")],
    ),
    ("a run that is gone", "S2", without(FinalRun, lambda e: e.run == LAST)),  # type: ignore[attr-defined]
    (
        "a doubled firing",
        "S2",
        [*sound(), FinalRun("tick.1.x", "tick", "SUCCEEDED", T0, T0, 1)],
    ),
    (
        "a doubled firing that only a worker saw",
        "S2",
        [*sound(), Lease("w2", "tick.9.9", "tick", 50, 1, T0, T0, T0, 50.0)],
    ),
    ("a firing that was skipped", "S2", changed(FinalOutcome, 1, outcome="MISSED")),
    ("a run that was given up", "S2", changed(FinalRun, 2, state="FAILED")),
    ("a run that nobody cancelled", "S2", changed(FinalRun, 2, state="CANCELLED")),
    (
        "a leased run that is gone",
        "S2",
        [*sound(), Lease("w1", "hand.2.7.9", "hand", 60, 1, T0, T0, T0, 60.0)],
    ),
    (
        "two triggers that became one",
        "S2",
        [*sound(), call("trigger", "hand", 6, "hand.2.7.1")],
    ),
    ("a probe that is older", "S1", changed(FinalJob, 2, value="1")),
    ("a probe that nobody wrote", "S1", changed(FinalJob, 2, value="7")),
    ("a job that nobody created", "S1", [*sound(), FinalJob("record-9", "x")]),
    ("a success without an attempt", "S6", changed(FinalRun, 2, attempts=())),
    (
        "a report that counted for another run",
        "S6",
        [*changed(ReportSent, 3, run="tick.9"), ReportSent("w1", "tick.9", 77, "success", 9.0)],
    ),
    (
        "a report taken after a newer lease",
        "S4",
        changed(ReportSent, 1, at=3.05),
    ),
    (
        "a flow that became two",
        "S2",
        [*sound(), Lease("w1", "down.9", "down", 80, 1, T0, T0, T0, 80.0)],
    ),
    ("a lost trigger", "S2", without(FinalRun, lambda e: e.job == "hand")),  # type: ignore[attr-defined]
    (
        "a doubled trigger",
        "S2",
        [
            *sound(),
            FinalRun("hand.2.7.2", "hand", "SUCCEEDED", T0, T0, 1, scheduled=False),
            FinalRun("hand.2.7.3", "hand", "SUCCEEDED", T0, T0, 1, scheduled=False),
        ],
    ),
    ("a run that never ended", "S2", changed(FinalRun, 2, state="RUNNING")),
    ("a lost update", "S1", changed(FinalJob, 0, value="one")),
    ("a lost job", "S1", without(FinalJob, lambda e: e.job == "a")),  # type: ignore[attr-defined]
    ("a refused update that shows", "S1", changed(FinalJob, 0, value="never")),
    ("a stale read", "S1", [*sound(), call("get", "a", 3.5, "one")]),
    ("an early lease", "S3", changed(Lease, 0, wall_ms=T0 - 100)),
    ("a time that nobody planned", "S3", changed(Lease, 0, scheduled_ms=T0 + 1)),
    (
        "a run that nobody asked for",
        "S3",
        [*sound(), Lease("w1", "ghost.1.1", "ghost", 60, 1, T0, T0, T0, 60.0)],
    ),
    ("a token given twice", "S4", changed(Lease, 1, token=1)),
    ("attempts against the order of tokens", "S4", changed(Lease, 1, attempt=3)),
    (
        "an old token at the sink",
        "S5",
        [*sound(), Effect(f"tick.1.{T0 + 1_000}", 2, True, 99.0)],
    ),
    ("two completions", "S6", [*sound(), Ack("w2", LAST, 40, "success", "", 40.0)]),
    ("a success that does not show", "S6", changed(FinalRun, 2, state="FAILED")),
    (
        "a lease after the success",
        "S6",
        [*sound(), Lease("w2", LAST, "tick", 41, 2, T0 + 2_000, T0, T0 + 2_000, 41.0)],
    ),
    (
        "an end that nobody reported",
        "S6",
        changed(FinalRun, 2, attempts=((4, "FAILED"), (7, "SUCCEEDED"))),
    ),
    ("too many attempts", "S7", changed(FinalRun, 1, attempt=3)),
    ("an attempt without a reason", "S7", changed(FinalRun, 1, attempts=((3, "SUCCEEDED"),))),
    (
        "a lease that no attempt records",
        "S7",
        [*sound(), Lease("w2", LAST, "tick", 5, 2, T0 + 2_000, T0, T0 + 2_000, 3.9)],
    ),
    ("two leases of what is to happen once", "S7", frail(most=1)),
    ("a follower that never ran", "S2", without(FinalRun, lambda e: e.job == "down")),  # type: ignore[attr-defined]
    ("a follower before its time", "S3", changed(Lease, 6, at=29.0)),
    ("more leases than the limit", "S5", changed(Lease, 1, at=1.05)),
    ("a run in a pause", "S3", changed(FinalRun, 6, scheduled_ms=T0 + 24_000)),
    ("a listed time that is lost", "S2", without(FinalOutcome, lambda e: e.job == "noon")),  # type: ignore[attr-defined]
    (
        "a time that is not listed",
        "S3",
        [*sound(), Lease("w1", "noon.1", "noon", 70, 1, T0, T0, T0, 70.0)],
    ),
    ("a late lease", "S8", changed(Lease, 0, wall_ms=T0 + 5_000)),
    (
        "a late lease long after a fault",
        "S8",
        [*changed(Lease, 0, wall_ms=T0 + 5_000, at=8.0), FaultSpan("kill", "n1", 3.5, 4.0)],
    ),
    ("one in fifty late in quiet times", "S8", quiet_firings(500, late=10)),
    ("a call that hung", "H1", [*sound(), call("get", "b", 5, took=30.0)]),
    ("a stop that was none", "H1", changed(Stop, 0, code=1, words="a bug")),
    ("two states at one revision", "A1", changed(Copy, 1, fingerprint="xx")),
    ("a state that is not sound", "A1", [*sound(), Verified("n1", 9, ("a mark is late",))]),
]


@each(("story", "invariant", "events"), WRONG)
def test_a_wrong_history_is_found(story: str, invariant: str, events: Events) -> None:
    assert invariant in found(events), story


def test_each_check_finds_something() -> None:
    """A check that nothing trips could be empty."""
    for check in CHECKS:
        assert any(check(Observations.of(events)) for _, _, events in WRONG), check.__name__


def test_what_follows_others_follows_them_from_the_moment_at_which_it_is_there() -> None:
    """While jobs are made, the first of a flow may fire before the last of it is known."""
    early = FinalRun("up.0", "up", "SUCCEEDED", T0 - 5_000, T0 - 5_000, 1)
    events = [*sound(), early]

    assert "S2" in found(events)
    at = next(at for at, event in enumerate(events) if isinstance(event, Follows))
    events[at] = msgspec.structs.replace(events[at], from_ms=T0)
    assert "S2" not in found(events)


def test_a_lease_that_was_released_counts_only_where_there_may_be_no_second() -> None:
    assert "S7" in found(frail(most=1))
    assert "S7" not in found(frail(most=2))


def test_lateness_is_excused_by_a_fault_and_by_a_busy_harness() -> None:
    late = changed(Lease, 0, wall_ms=T0 + 5_000, at=8.0)
    assert "S8" in found(late)
    assert "S8" not in found([*late, FaultSpan("pause", "n1", 3.5, 7.0)])
    assert "S8" not in found([*late, Lag(3.0, 7.99)])
    assert "S8" not in found([*late, Contention(3.0, 7.1, "n1", 2.0)])
    assert "S8" in found([*late, Contention(3.0, 5.0, "n1", 2.0), Lag(4.0, 6.0)])
    hung = [*sound(), call("get", "b", 5, took=10.0)]
    assert "H1" in found(hung)
    assert "H1" not in found([*hung, Lag(6.0, 11.0)])


def test_a_run_that_a_worker_had_before_is_not_late() -> None:
    again = Lease("w2", f"tick.1.{T0}", "tick", 9, 1, T0, T0, T0 + 5_000, 8.0)
    assert "S8" not in found([*sound(), again])
    assert "S8" in found([*sound(), msgspec.structs.replace(again, run="tick.7")])


def test_the_death_of_one_node_excuses_only_until_another_takes_over() -> None:
    late = changed(Lease, 0, wall_ms=T0 + 5_000, at=8.0)
    assert "S8" in found([*late, FaultSpan("kill", "n1", 3.5, 7.9)])
    assert "S8" not in found([*late, FaultSpan("kill", "n1", 6.0, 7.9)])
    # Of three nodes, two that are gone leave nobody to take over.
    assert "S8" not in found([*late, FaultSpan("kill", "n1,n2", 3.5, 7.9)])
    other = FaultSpan("pause", "n2", 3.4, 3.6)
    assert "S8" not in found([*late, FaultSpan("kill", "n1", 3.5, 7.9), other])


def test_one_in_a_hundred_may_be_late_in_quiet_times_and_no_more() -> None:
    assert "S8" not in found(quiet_firings(400, late=3))
    assert "S8" in found(quiet_firings(400, late=5))
    assert "S8" not in found(quiet_firings(200, late=5))
    assert "S8" not in found(quiet_firings(400, late=5, moments=2))
    for excuse in (
        FaultSpan("kill", "n1", 3.9, 4.0),
        Lag(4.5, 5.0),
        Contention(5.02, 5.1, "disk", 0.04),
    ):
        assert "S8" not in found([*quiet_firings(400, late=5), excuse]), excuse
    # Long before or long after, it explains nothing.
    for none in (
        FaultSpan("kill", "n1", 2.0, 3.0),
        FaultSpan("kill", "n1", 9.0, 9.5),
        Lag(2.0, 4.4),
    ):
        assert "S8" in found([*quiet_firings(400, late=5), none]), none


def test_stretches_of_time_are_joined() -> None:
    spans = TimeSpans([(5, 6), (1, 2), (1.5, 3), (8, 9)])
    assert [spans.within(0, 10), spans.within(2, 5.5), spans.within(3.5, 4.5)] == [4, 1.5, 0]
    assert [spans.touch(*span) for span in ((3.5, 4.5), (2.5, 2.6), (0, 1), (9.1, 99))] == [
        False, True, True, False,
    ]  # fmt: skip


def test_a_clock_may_be_a_little_ahead_and_no_more() -> None:
    early = changed(Lease, 0, wall_ms=T0 - 150)
    assert "S3" in found(early)
    assert "S3" not in found([*early, FaultSpan("clock 200", "n1", 0.5, 1.5)])
    assert "S3" not in found([*sound(), FaultSpan("clock -5000", "n1", 0.5, 9)])
    assert "S3" not in found([*early, FaultSpan("clock strobe", "n1", 0.5, 1.5)])
    assert "S3" in found([*early, FaultSpan("clock 5000", "n1", 0.5, 1.5)])
    assert "S3" in found([*early, FaultSpan("clock 200", "n1", 10.0, 11.0)])
    assert "S3" in found([*changed(Lease, 0, wall_ms=T0 - 900), FaultSpan("clock 200", "n1", 0, 9)])


def test_a_leader_whose_clock_is_back_ends_a_pause_by_its_own_time() -> None:
    missed = T0 + 26_000 - 300 - 50 - 100
    late = changed(FinalRun, 6, scheduled_ms=missed)
    late = [
        e for e in late if not (isinstance(e, ClientCall) and e.what == "resume" and e.began == 25)
    ]
    assert "S3" in found(late)
    assert "S3" not in found([*late, FaultSpan("clock -200", "n1", 19.0, 22.0)])
    assert "S3" in found([*late, FaultSpan("clock -5000", "n1", 19.0, 22.0)])
    assert "S3" in found([*late, FaultSpan("clock -200", "n1", 9.0, 10.0)])
    assert "S3" in found([*late, FaultSpan("clock drift", "n1", 19.0, 22.0)])


def test_calls_at_the_same_time_may_come_in_any_order() -> None:
    calls = [
        call("create", "a", 0, "one"),
        call("update", "a", 1, "two", took=2),
        call("update", "a", 1, "three", took=2),
        call("get", "a", 4, "two"),
    ]
    assert linearizable(calls)
    assert not linearizable([*calls, call("get", "a", 5, "three")])


def test_an_unknown_call_may_happen_late_or_never() -> None:
    first = [call("create", "a", 0, "one"), call("update", "a", 1, "two", UNKNOWN)]
    assert linearizable([*first, call("get", "a", 2, "one"), call("get", "a", 3, "two")])
    assert linearizable([*first, call("get", "a", 2, "one"), call("get", "a", 9, "one")])
    seen = [call("get", "a", 2, "two"), call("get", "a", 3, "one")]
    assert not linearizable([*first, *seen])


def test_random_sound_histories_are_found_linearizable() -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    for _ in range(200):
        calls, value, at = [], "", 0.0
        for number in range(30):
            # The instant of effect lies inside; neighbours overlap.
            at += dice.random()
            began, took = at - dice.random(), 2 * dice.random()
            what = dice.choice(["create", "update", "delete", "get"])
            if what == "create" and value:
                continue
            if what in ("update", "delete") and not value:
                continue
            if what in ("create", "update"):
                value = str(number)
            elif what == "delete":
                value = ""
            ended = max(at, began + took)
            calls.append(ClientCall("c", what, "a", began, ended, 5.0, OK, value))
        assert linearizable(calls), f"seed {seed}"


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = history.HistoryFile(tmp_path / "one.jsonl")
    events = sound()
    journal.add(*events)
    journal.close()
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"type":"Call","cli')
    assert list(history.read([tmp_path / "one.jsonl"])) == events
