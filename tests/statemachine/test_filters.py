"""Filters: what they let pass, against a second reading of the contract by brute force."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from raftsched.proto.v1 import dead_letter_pb2, error_pb2, job_pb2, run_pb2
from raftsched.statemachine.calls import filtered
from raftsched.statemachine.core import filters, limits, pages
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.core.store import MemoryStore, Reading
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.view import View
from raftsched.statemachine.reads.reads import read

from ..rows import each
from ..sampled import examples, play
from . import asking, filter_oracle
from .driver import MINUTE_MS, SECOND_MS, START_MS, Machine
from .filter_oracle import Tree

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
FIELDS = {"name": filters.TEXT, "labels.": filters.TEXT, "at": filters.INSTANT,
          "state": filters.words(run_pb2.RunState.keys(), "RUN_STATE_"),
          "last_state": filters.words(run_pb2.RunState.keys(), "RUN_STATE_"),
          "attempt": filters.NUMBER}  # fmt: skip


@each(
    ("text", "column", "hint"),
    [
        ("name=a AND name=b OR name=c", 19, "OR stands beside AND; write parentheses"),
        ("name=a OR name=b AND name=c", 18, "AND stands beside OR; write parentheses"),
        ("name=a name=b", 8, "write AND or OR before another condition"),
        ("name=a AND", 11, "it ends with AND"),
        ("name=a OR  ", 12, "it ends with OR"),
        ("(name=a", 1, "'(' is never closed"),
        ("name=a)", 7, "')' closes nothing"),
        ("NOT", 4, "cannot read ''"),
        ("name", 1, "write field=value"),
        ("name=", 6, "name= has no value"),
        ('name="a', 6, "a quote that is never closed"),
        (
            "color=red",
            1,
            "there is no field 'color'; there are at, attempt, labels., last_state, name",
        ),
        ("name=a AND labels=red", 12, "there is no field 'labels'"),
        ("name<a", 6, "name has no order; write name=a"),
        ("at:2026", 4, "at is no text"),
        ("at>noon", 4, "'noon' is not an instant; write one such as 2026-03-29T01:00:00Z"),
        ("attempt>many", 9, "'many' is not a number"),
        ("state=DONE", 7, "'DONE' is no state; there are PENDING, RUNNING, RETRYING,"),
        ("name==a", 6, 'write name=a, or name="=a"'),
        ("(" * 20 + "name=a" + ")" * 20, 18, "more than 16 levels deep"),
        ("NOT " * 20 + "name=a", 69, "more than 16 levels deep"),
        (" OR ".join(["name=a"] * 51), 501, "more than 50 conditions"),
        ("name=" + "a" * 1_024, 1_025, "the most is 1024"),
    ],
)
def test_a_refusal_names_the_column_and_what_to_write(text: str, column: int, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        filters.parse(text, FIELDS)

    rejection = refused.value.rejection
    assert rejection.word == "FILTER_INVALID"
    assert hint in rejection.message
    assert rejection.values["column"] == str(column)
    assert f"at column {column}: " in rejection.message


@each(
    ("text", "fits"),
    [
        ("", True),
        ("  ", True),
        ("name=report", True),
        ("NOT name=report", False),
        ("NOT (name=a OR name=b)", True),
        ("name=a OR (name:EPO AND labels.team=red)", True),
        ("name:epo", True),
        ('labels.none="" AND labels.none!=x AND labels.team!=""', True),
        ('labels.quote="a \\"b\\" \\\\"', True),
        ("at>=2026-01-01T00:00:00Z AND at<2026-01-01T00:00:00.001Z", True),
        ("at>2026-01-01T00:00:00Z", False),
        ("NOT(state=RUNNING)", True),
        ('state="" OR attempt=""', False),
        ('last_state="" AND last_state!=FAILED', True),
        ("attempt>=3 AND attempt<=3", True),
        ("name=(a)", None),
    ],
)
def test_what_a_filter_lets_pass(text: str, fits: bool | None) -> None:
    record: dict[str, filters.Value] = {
        "name": "report",
        "at": START_MS,
        "state": "PENDING",
        "attempt": 3,
        "labels.team": "red",
        "labels.quote": 'a "b" \\',
    }

    def passes() -> bool:
        return filters.parse(text, FIELDS).fits(lambda field: record.get(field, ""))

    if fits is None:
        with pytest.raises(Refused):
            passes()
    else:
        assert passes() is fits


def test_a_filter_of_many_terms_looks_at_fewer_records() -> None:
    assert pages.looks(0) == pages.looks(4) == limits.LOOKED_AT
    assert pages.looks(50) == limits.LOOKED_AT * 4 // 50


# A world with runs in every state, and lists of it by brute force.


@cache
def world() -> Machine:
    random, warnings, machine = Random(15), Random(7), Machine(MemoryStore())
    once = job_pb2.RetryPolicy(max_attempts=1)
    for number in range(12):
        machine.advance(random.randrange(3) * SECOND_MS)
        again = once if number % 3 else job_pb2.RetryPolicy(max_attempts=3)
        labels = {"team": "rgb"[number % 3]} if number % 5 else {}
        machine.create(
            f"{'ab'[number % 2]}-{number}",
            cron="*/7 * * * *" if number % 4 else (),
            handler=f"h{number % 3}",
            labels=labels,
            owner=random.choice(["ann", "Ben", ""]),
            queue=random.choice(["", "mail"]),
            description=random.choice(["Bills", 'say "hi"', "a (b)"]),
            retry=again,
            overlap=ALLOW,
            on_failure=job_pb2.OnFailure(job="b-1" if number == 3 else "none-such"),
        )
    machine.do(job_pb2.PauseJobRequest(job="a-0"))
    for number in range(1, 12, 2):
        machine.trigger(
            f"b-{number}",
            unique=run_pb2.UniqueKey(key=f"key-{number % 3}"),
            labels={"team": "own"} if number % 4 == 1 else {},
        )
    for _ in range(6):
        machine.advance(8 * MINUTE_MS)
        machine.fire_all()
        leases = machine.grant(f"w{random.randrange(2)}", credits=4, queues=("default", "mail"))
        for lease in leases:
            if random.randrange(4) == 0:
                continue
            if random.randrange(2):
                machine.succeed(lease, warning=warnings.choice(["", "", "3 rows", "Late"]))
            else:
                kind = random.choice(["ValueError", "KeyError"])
                machine.fail(lease, kind=kind, message=f"{kind} at {lease.job}")
    live = asking.ask(machine, run_pb2.ListRunsRequest(), run_pb2.ListRunsResponse).runs
    machine.do(run_pb2.CancelRunRequest(run=live[0].id))
    machine.check()
    return machine


@cache
def everything() -> tuple[dict[str, job_pb2.Job], dict[str, run_pb2.Run]]:
    machine = world()
    [page] = asking.pages(machine, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse)
    jobs = {job.name: job for job in page.jobs}
    runs = {run.id: run for name in jobs for run in (*machine.live(name), *machine.ended(name))}
    assert {run.state for run in runs.values()} > set(range(1, 6))
    return jobs, runs


def values(field: str, kind: filters.Field) -> st.SearchStrategy[str]:
    jobs, runs = everything()
    seen = [filter_oracle.of_job(job) for job in jobs.values()]
    seen += [filter_oracle.of_run(run, jobs[run.job]) for run in runs.values()]
    found = {str(one) for record in seen for one in _as_list(record.get(field)) if one != ""}
    if kind.words:
        return st.sampled_from(sorted(kind.words))
    if kind.is_instant or kind.is_number:
        near = {
            str(int(one) + step) for one in found for step in (-1, 0, 1) if int(one) + step >= 0
        }
        return st.sampled_from(sorted(near | {"0"}))
    parts = {one[:2] + "*" for one in found} | {one[1:] for one in found} | {"", "none", "*"}
    return st.sampled_from(sorted(found | parts))


def _as_list(value: list[str] | int | None) -> list[str | int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def count_of(request: Message, kind: type[Any]) -> int:
    """How many the list says there are, which must be exact here."""
    answer = asking.ask(world(), asking.but(request, with_count=True), kind)
    assert answer.count_is_exact
    return int(answer.count)


def trees(fields: filters.Fields) -> st.SearchStrategy[Tree]:
    """Trees over the fields of a list, with values that are there, nearly there and not there."""
    names = [name for name in fields if name != "labels."] + ["labels.team", "labels.tier"]

    def terms(name: str) -> st.SearchStrategy[Tree]:
        kind = fields.get(name, filters.TEXT)
        ordered = kind.is_instant or kind.is_number
        signs = ["=", "!=", *(["<", ">", "<=", ">="] if ordered else [":"])]
        return st.tuples(st.just("is"), st.just(name), st.sampled_from(signs), values(name, kind))

    weighty = [name for name in names if name in ("state", "name", "job", "end_time")]
    leaf = st.sampled_from(names + weighty * 3).flatmap(terms)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: ("and", *parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: ("or", *parts)),
        ),
        max_leaves=8,
    )


def jobs_are_those_that_fit(tree: Tree, size: int) -> None:
    jobs, _ = everything()
    request = job_pb2.ListJobsRequest(filter=filter_oracle.text_of(tree), page_size=size)

    found = list(asking.pages(world(), request, job_pb2.ListJobsResponse))

    assert count_of(request, job_pb2.ListJobsResponse) == sum(len(page.jobs) for page in found)
    assert [job.name for page in found for job in page.jobs] == [
        name for name in sorted(jobs)
        if filter_oracle.lets_pass(tree, filter_oracle.of_job(jobs[name]))
    ]  # fmt: skip


def runs_are_those_that_fit(tree: Tree, size: int) -> None:
    jobs, runs = everything()
    request = run_pb2.ListRunsRequest(filter=filter_oracle.text_of(tree), page_size=size)

    pages = asking.pages(world(), request, run_pb2.ListRunsResponse)
    found = [run.id for page in pages for run in page.runs]

    assert count_of(request, run_pb2.ListRunsResponse) == len(found)

    assert len(found) == len(set(found))
    assert set(found) == {
        name for name, run in runs.items()
        if (filter_oracle.names_state(tree) or not run.HasField("end_time"))
        and filter_oracle.lets_pass(tree, filter_oracle.of_run(run, jobs[run.job]))
    }  # fmt: skip


def dead_letters_are_those_that_fit(tree: Tree, size: int) -> None:
    jobs, runs = everything()
    request = dead_letter_pb2.ListDeadLettersRequest(
        filter=filter_oracle.text_of(tree), page_size=size
    )

    pages = asking.pages(world(), request, dead_letter_pb2.ListDeadLettersResponse)
    found = [run.id for page in pages for run in page.runs]

    assert count_of(request, dead_letter_pb2.ListDeadLettersResponse) == len(found)

    assert len(found) == len(set(found))
    assert set(found) == {
        name for name, run in runs.items()
        if run.state == run_pb2.RUN_STATE_FAILED
        and filter_oracle.lets_pass(tree, filter_oracle.of_run(run, jobs[run.job]))
    }  # fmt: skip


@examples(fast=25, slow=100)
@pytest.mark.parametrize(
    ("fit", "fields"),
    [
        (jobs_are_those_that_fit, filtered.JOB_FIELDS),
        (runs_are_those_that_fit, filtered.RUN_FIELDS),
        (dead_letters_are_those_that_fit, filtered.RUN_FIELDS),
    ],
    ids=["jobs", "runs", "dead letters"],
)
def test_what_is_found_is_what_fits_by_brute_force(
    fit: Callable[[Tree, int], None], fields: filters.Fields, many: int
) -> None:
    play(many, given(trees(fields), st.integers(1, 5))(fit))


def test_runs_of_two_states_at_once_are_none() -> None:
    runs_are_those_that_fit(
        ("and", ("is", "state", "=", "CANCELLED"), ("is", "state", "=", "FAILED")), 1
    )


@given(st.text(max_size=60) | st.text('name=a ANDORNOT()"\\:<>!', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = None
    with suppress(Refused):
        found = filters.parse(text, FIELDS)

    assert found is None or found.fits(lambda field: "") in (True, False)


def test_a_filter_by_end_time_looks_at_no_other_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, runs = everything()
    dead = [run for run in runs.values() if run.state == run_pb2.RUN_STATE_FAILED]
    oldest = min(run.end_time.ToMilliseconds() for run in dead)
    monkeypatch.setattr(limits, "LOOKED_AT", sum(
        run.end_time.ToMilliseconds() == oldest for run in dead
    ))  # fmt: skip
    request = dead_letter_pb2.ListDeadLettersRequest(filter=f"end_time<={oldest}")

    [page] = asking.pages(world(), request, dead_letter_pb2.ListDeadLettersResponse)

    assert {run.end_time.ToMilliseconds() for run in page.runs} == {oldest}


class Noted:
    """State that notes of which jobs somebody reads what they do."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self.scan = reading, reading.scan
        self.jobs = set[bytes]()

    def get(self, key: bytes) -> bytes | None:
        if key.startswith(keys.JOB):
            self.jobs.add(key)
        return self._reading.get(key)

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in wanted]


@each("filter", ["name:2", "state=PAUSED", "name:2 AND state=ACTIVE", "NOT name=a*"])
def test_a_search_by_name_and_state_reads_nothing_of_jobs_that_do_not_fit(filter: str) -> None:
    """With a million of them it took a second, twice: for the page and for the count."""
    noted = Noted(world().store.snapshot())
    request = job_pb2.ListJobsRequest(filter=filter, with_count=True, page_size=1_000)

    answer = read(View(noted, world().now_ms), request)

    assert isinstance(answer, job_pb2.ListJobsResponse)
    assert 0 < len(noted.jobs) == len(answer.jobs) == answer.count < len(everything()[0])


@each("descending", [False, True])
@each("field", ["", "name", "create_time", "next_time"])
def test_jobs_are_listed_in_the_order_that_is_asked_for(field: str, descending: bool) -> None:
    jobs, _ = everything()

    def rank(job: job_pb2.Job) -> tuple[int, int, str]:
        if field == "create_time":
            return job.create_time.ToMilliseconds(), job.uid, ""
        if field == "next_time":
            has_one = job.status.HasField("next_due_time")
            return job.status.next_due_time.ToMilliseconds() if has_one else 1 << 62, job.uid, ""
        return 0, 0, job.name

    order = f"{field or 'name'} desc" if descending else field
    request = job_pb2.ListJobsRequest(order_by=order, page_size=5, filter="NOT name=a-2")
    found = list(asking.pages(world(), request, job_pb2.ListJobsResponse))

    assert [len(page.jobs) for page in found][:2] == [5, 5]
    assert [job.name for page in found for job in page.jobs] == [
        job.name for job in sorted(jobs.values(), key=rank, reverse=descending) if job.name != "a-2"
    ]
    token = found[0].next_page_token
    other = asking.but(request, order_by="name" if field == "create_time" else "create_time")
    wrong = asking.refuse(world(), asking.but(other, page_token=token))
    assert wrong == error_pb2.ERROR_REASON_PAGE_TOKEN_INVALID


def test_an_order_that_no_index_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job_pb2.ListJobsRequest(order_by="owner")
    assert asking.refuse(world(), asked) == error_pb2.ERROR_REASON_FIELD_INVALID

    monkeypatch.setattr(limits, "SORTED_JOBS", 11)
    asked = job_pb2.ListJobsRequest(order_by="next_time")
    assert asking.refuse(world(), asked) == error_pb2.ERROR_REASON_LIMIT_EXCEEDED


@pytest.mark.parametrize(("limit", "most"), [("COUNTED", 3), ("LOOKED_AT", 4)])
def test_a_count_has_an_end_and_says_so(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(limits, limit, most)
    for request, kind in (
        (job_pb2.ListJobsRequest(filter="name:a"), job_pb2.ListJobsResponse),
        (run_pb2.ListRunsRequest(filter="NOT state=SKIPPED"), run_pb2.ListRunsResponse),
    ):
        answer: Any = asking.ask(world(), asking.but(request, with_count=True), kind)
        assert answer.count <= most
        assert not answer.count_is_exact


def test_without_a_filter_kept_counters_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOKED_AT", 2)
    jobs, runs = everything()
    live = sum(not run.HasField("end_time") for run in runs.values())

    counted = asking.ask(
        world(), job_pb2.ListJobsRequest(with_count=True), job_pb2.ListJobsResponse
    )
    assert (counted.count, counted.count_is_exact) == (len(jobs), True)
    under_way = asking.ask(
        world(), run_pb2.ListRunsRequest(with_count=True), run_pb2.ListRunsResponse
    )
    assert (under_way.count, under_way.count_is_exact) == (live, True)
