"""An import: upstream first, in as many changes as it takes, each job once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.calls import imports
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.flows import graph
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.layer import Layer
from raftsched.statemachine.model.record import JobRecord, parse
from raftsched.statemachine.model.request import Imported
from raftsched.statemachine.model.view import View

from ..rows import each
from .driver import MINUTE_MS, START_MS, Machine, job_of

Import = job_pb2.ImportJobsRequest
Result = job_pb2.ImportResult


class Leader:
    """Decides what is left of an import, change by change."""

    def __init__(self, steps: int) -> None:
        self.store, self.steps, self.index = MemoryStore(), steps, 0

    def take(
        self, request: Import, first: int = 0, trial: Layer | None = None
    ) -> Imported | Rejection:
        body = replace(imports.some_of(request), first=first, trial=trial)
        view = View(self.store, START_MS, is_spent=Steps(self.steps))
        decision = decide(view, [Request(body)])
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        [reply] = decision.replies
        return cast("Imported | Rejection", reply)

    def whole(self, request: Import, *, meanwhile: bool = False) -> job_pb2.ImportJobsResponse:
        parts: list[job_pb2.ImportJobsResponse] = []
        reply = Imported(job_pb2.ImportJobsResponse(), 0)
        while reply.next < len(request.jobs):
            taken = self.take(request, reply.next, reply.trial)
            assert isinstance(taken, Imported), taken
            reply = taken
            parts.append(reply.answer)
            if meanwhile:
                self.take(Import(jobs=[job_of(f"other-{reply.next}")]))
        return imports.joined(imports.some_of(request), parts)

    def jobs(self) -> list[JobRecord]:
        found = self.store.scan(keys.JOB, keys.after(keys.JOB))
        return [parse(key, value, JobRecord) for key, value in found]


def chain(length: int, seed: int = 0) -> list[job_pb2.Job]:
    jobs = [job_of("job-0")]
    jobs += [job_of(f"job-{n}", after=[f"job-{n - 1}"]) for n in range(1, length)]
    random.Random(seed).shuffle(jobs)
    return jobs


def verdicts(answer: job_pb2.ImportJobsResponse) -> list[tuple[str, str]]:
    return [(one.job, Result.Verdict.Name(one.verdict)[8:]) for one in answer.results]


@each("steps", [1, 5, 1_000_000])
@each("request_id", ["", "once"])
def test_a_chain_in_any_order_is_imported_in_one_go(steps: int, request_id: str) -> None:
    jobs = chain(40, seed=steps)
    leader = Leader(steps)

    answer = leader.whole(Import(jobs=jobs, request_id=request_id))

    assert verdicts(answer) == [(job.name, "CREATED") for job in jobs]
    Machine(leader.store).check()


def test_what_is_taken_as_it_is_given_is_answered_without_a_copy() -> None:
    """A copy of the results of a thousand jobs is a thirtieth of what the import costs."""
    whole = imports.some_of(Import(jobs=[job_of("a"), job_of("b")]))
    answer = job_pb2.ImportJobsResponse(results=[Result(job="a"), Result(job="b")])

    assert imports.in_order(answer, whole.order) is answer


def test_an_import_that_is_repeated_with_its_id_goes_on_and_gets_the_same_answer() -> None:
    request = Import(jobs=chain(30), request_id="once")
    leader = Leader(4)

    reply = leader.take(request)
    assert isinstance(reply, Imported)
    assert reply.next == 5  # One is done before it asks.
    leader.take(request, reply.next)
    again = leader.whole(request)

    assert verdicts(again) == [(job.name, "CREATED") for job in request.jobs]
    before = leader.index
    assert leader.whole(request) == again
    assert leader.index == before
    other = leader.take(Import(jobs=chain(3), request_id="once"))
    assert isinstance(other, Rejection)
    assert other.word == "REQUEST_ID_REUSED"


def test_jobs_that_wait_for_each_other_are_refused_and_the_others_are_taken(
    machine: Machine,
) -> None:
    jobs = [job_of("a", after=["b"]), job_of("b", after=["a"]), job_of("c"), job_of("s", after="s")]

    reply = machine.ask(Import(jobs=jobs), job_pb2.ImportJobsResponse)

    words = [(one.job, one.reason) for one in reply.results]
    assert words == [("a", "JOB_NOT_FOUND"), ("b", "JOB_NOT_FOUND"), ("c", ""), ("s", "CYCLE")]


@each("seed", range(10))
def test_an_import_on_trial_goes_in_parts_as_well(seed: int) -> None:
    """It says what the import itself would, though others make jobs between its parts."""
    dice = random.Random(seed)
    jobs = chain(20, seed)
    for job in dice.choices(jobs, k=5):
        wrong = job_of(job.name, cron=dice.choice(("* * * * *", "wrong")))
        jobs.insert(dice.randrange(len(jobs)), wrong)
    mode = dice.choice((Import.MODE_CREATE_ONLY, Import.MODE_UPSERT))
    trial, real = Leader(dice.randrange(1, 5)), Leader(1_000_000)
    for leader in (trial, real):
        leader.whole(Import(jobs=[job_of("job-3", cron="0 * * * *"), job_of("job-7")]))

    found = trial.whole(Import(jobs=jobs, mode=mode, validate_only=True), meanwhile=True)

    assert found == real.whole(Import(jobs=jobs, mode=mode)), f"seed {seed}"
    assert not any(one.name == "job-5" for one in trial.jobs())


def test_a_new_job_looks_for_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can wait for a job that is not there yet; the walk made chains quadratic."""
    walks = []
    monkeypatch.setattr(graph, "_check_circle", lambda *all: walks.append(all))
    leader = Leader(1_000_000)

    leader.whole(Import(jobs=chain(100)))

    assert walks == []


def test_a_circle_is_found_when_an_upstream_is_added(machine: Machine) -> None:
    for job in sorted(chain(10), key=lambda job: int(job.name[4:])):
        machine.do(job_pb2.CreateJobRequest(job=job))

    refusal = machine.refused(job_pb2.UpdateJobRequest(job=job_of("job-0", after=["job-3"])))

    assert refusal.values["path"] == "job-0 -> job-3 -> job-2 -> job-1 -> job-0"
    # What a job waits for already closes none, and is not walked again.
    machine.do(job_pb2.UpdateJobRequest(job=job_of("job-5", after=["job-4"], owner="me")))
    assert next(machine.store.scan(keys.EDGE, keys.after(keys.EDGE)), None) is not None


def test_an_import_warns_as_the_calls_for_one_job_do(machine: Machine) -> None:
    odd = job_of("odd", cron="59/15 * * * *")
    [alone] = machine.ask(job_pb2.CreateJobRequest(job=odd), job_pb2.Job).status.warnings
    mode = Import.MODE_UPSERT
    jobs = [job_of("other", cron="59/15 * * * *"), job_of("odd", cron="58/15 * * * *"),
            job_of("plain", cron="0 * * * *")]  # fmt: skip

    answer = machine.ask(Import(jobs=jobs, mode=mode), job_pb2.ImportJobsResponse)

    assert [len(result.warnings) for result in answer.results] == [1, 1, 0]
    assert answer.results[0].warnings[0] == alone
    again = machine.ask(Import(jobs=jobs, mode=mode), job_pb2.ImportJobsResponse)
    assert not any(result.warnings for result in again.results)


def test_an_import_says_what_an_update_gives_up_and_not_too_much(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    for number in range(limits.IMPORT_WARNINGS + 2):
        skip = schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.KIND_SKIP,
            scheduled_time=timestamp(START_MS + (number + 1) * MINUTE_MS),
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=skip))
    new = Import(jobs=[job_of("a", cron="30 9 * * *")], mode=Import.MODE_UPSERT)

    [result] = machine.ask(new, job_pb2.ImportJobsResponse).results

    assert len(result.warnings) == limits.IMPORT_WARNINGS
    assert all("which was to be skipped" in warning for warning in result.warnings)
