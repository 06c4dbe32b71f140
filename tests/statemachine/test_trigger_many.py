"""Many triggers in one call: each as its single call, in as many changes as it takes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from raftsched.proto.v1 import access_pb2, job_pb2, run_pb2
from raftsched.statemachine.calls import triggers
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import Triggered

from . import asking
from .driver import Machine, image

Asked = job_pb2.TriggerJobsRequest
Answer = job_pb2.TriggerJobsResponse
Result = job_pb2.TriggerResult
Trigger = job_pb2.Trigger
Unique = run_pb2.UniqueKey
Overlap = job_pb2.OverlapPolicy
FIELDS = ("payload", "priority", "queue", "force", "unique", "due_time", "if_running",
          "concurrency_key", "trace_context", "labels")  # fmt: skip


def many(names: str, **fields: object) -> Asked:
    asked = Asked(**fields)  # type: ignore[arg-type]
    for name in names:
        asked.triggers.add(job=name)
    return asked


def whole(machine: Machine, request: Asked) -> tuple[Answer, int]:
    """What comes of all of them, and in how many decisions."""
    rest, parts = triggers.some_of(request), list[Answer]()
    while True:
        reply = machine.do(rest)
        assert isinstance(reply, Triggered), reply
        parts.append(reply.answer)
        rest = triggers.rest_of(rest, reply)
        if rest.first == len(request.triggers):
            return triggers.joined(parts), len(parts)


def words(answer: Answer) -> list[str]:
    return [
        one.reason or Result.Verdict.Name(one.verdict).removeprefix("VERDICT_").lower()
        for one in answer.results
    ]


def world(steps: int = 1_000_000) -> Machine:
    machine = Machine(MemoryStore())
    machine.create("a")
    machine.create("b")
    machine.create("one", overlap=Overlap(rule=Overlap.RULE_SKIP))
    machine.create("paused")
    machine.do(job_pb2.PauseJobRequest(job="paused"))
    machine.new_budget = lambda: Steps(steps)
    return machine


def test_each_is_taken_or_refused_alone(machine: Machine) -> None:
    machine.create("a", overlap=Overlap(rule=Overlap.RULE_SKIP))
    machine.create("paused")
    machine.do(job_pb2.PauseJobRequest(job="paused"))
    key = Unique(key="k")
    request = Asked(triggers=[
        Trigger(job="a", unique=key),
        Trigger(job="a", unique=key),
        Trigger(job="a", unique=Unique(key="k", policy=Unique.POLICY_REJECT)),
        Trigger(job="a", if_running=job_pb2.TriggerJobRequest.IF_RUNNING_REFUSE),
        Trigger(job="a"),
        Trigger(job="none"),
        Trigger(job="paused"),
        Trigger(job="paused", force=True),
        Trigger(job="a", queue="no good"),
        Trigger(job="a", unique=Unique(key="k", policy=Unique.POLICY_REPLACE)),
    ])  # fmt: skip

    answer = machine.ask(request, Answer)

    assert words(answer) == [
        "created", "existing", "UNIQUE_KEY_TAKEN", "OVERLAP_REFUSED", "created", "JOB_NOT_FOUND",
        "JOB_PAUSED", "created", "FIELD_INVALID", "created",
    ]  # fmt: skip
    assert answer.results[0].run == answer.results[1].run
    assert answer.results[8].field == "queue"
    assert "none" in answer.results[5].message
    machine.check()


def test_a_trigger_of_many_has_the_fields_of_a_single_one() -> None:
    single = job_pb2.TriggerJobRequest.DESCRIPTOR.fields_by_name
    own = {"namespace", "request_id", "validate_only"}
    assert {*Trigger.DESCRIPTOR.fields_by_name} == {*single} - own == {"job", *FIELDS}


@pytest.mark.parametrize("seed", range(12))
def test_many_do_what_single_ones_do(seed: int) -> None:
    dice = Random(seed)
    names = dice.choices(["a", "b", "one", "paused", "none"], k=40)
    keyed = [dice.choice(["", "", "k", "l"]) for _ in names]
    steps, request_id = dice.choice((1, 3, 1_000_000)), dice.choice(("", "once"))
    alone, together = world(), world(steps)
    singles = list[str]()
    for name, key in zip(names, keyed, strict=True):
        unique = Unique(key=key) if key else None
        [reply] = alone.do_all(job_pb2.TriggerJobRequest(job=name, unique=unique))
        singles.append(reply.word if isinstance(reply, Rejection) else reply.id)  # type: ignore[attr-defined]
    request = Asked(request_id=request_id)
    for name, key in zip(names, keyed, strict=True):
        request.triggers.add(job=name, unique=Unique(key=key) if key else None)

    trial, _ = whole(together, asking.but(request, validate_only=True, request_id=""))
    before = image(together.store)
    answer, decisions = whole(together, request)

    assert [one.run or one.reason for one in answer.results] == singles, f"seed {seed}"
    assert words(trial) == words(answer), f"seed {seed}"
    assert image(together.store) != before
    assert (decisions > 1) == (steps < 40), f"seed {seed}"
    together.check()
    if request_id:
        after = image(together.store)
        assert whole(together, request)[0] == answer
        assert image(together.store) == after


def test_each_change_has_a_note_of_each_job_and_an_audit_counts_by_them() -> None:
    machine = world(steps=4)

    _, decisions = whole(machine, many("aaabaaab"))

    assert decisions > 1
    request, kind = access_pb2.ListAuditRecordsRequest(), access_pb2.ListAuditRecordsResponse
    pages = asking.pages(machine, request, kind)
    notes = [one for page in pages for one in page.records if one.method == "TriggerJobs"]
    assert sum(int(one.change.split()[0]) for one in notes if one.subject == "job/a") == 6
    machine.new_budget = lambda: Steps(1_000_000)
    audited = asking.ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)
    assert audited.sound
    assert (audited.requested, audited.requested_under_way) == (6, 6)


def test_what_is_refused_as_a_whole_changes_nothing(machine: Machine) -> None:
    machine.create("a")
    refused = machine.refused(many("a" * (limits.TRIGGERS + 1)))
    assert refused.word == "LIMIT_EXCEEDED"
    rest = triggers.some_of(many("aa", request_id="once"))
    machine.do(rest)
    other = replace(triggers.some_of(many("a", request_id="once")))
    assert machine.refused(other).word == "REQUEST_ID_REUSED"
