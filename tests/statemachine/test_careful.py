"""What is refused or fails among others is taken out, and the others come to what they would
without it, each decided twice at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from raftsched.proto.v1 import job_pb2, worker_pb2
from raftsched.statemachine import machine as machine_module
from raftsched.statemachine import piecewise
from raftsched.statemachine.core.budget import Budget, Steps, unlimited
from raftsched.statemachine.core.store import MemoryStore, Reading
from raftsched.statemachine.firing import scheduled_time
from raftsched.statemachine.machine import Request, apply, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import FireTimers, Grant, Offer, Report, WorkDone
from raftsched.statemachine.model.view import View
from raftsched.statemachine.rules import RULES

from .driver import MINUTE_MS, Machine, image, job_of
from .test_aside import plant

SEEDS = 40


def test_what_fails_behind_others_only_is_done_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = RULES[job_pb2.PauseJobRequest]

    def planted(view: View, request: job_pb2.PauseJobRequest, actor: str) -> object:
        if view.writes and request.job == "b":
            view.subject = keys.state(machine.jid("b"))
            raise RuntimeError("planted")
        return genuine(view, request, actor)

    machine = Machine(MemoryStore())
    machine.failing = True
    for name in "abc":
        machine.create(name)
    monkeypatch.setitem(RULES, job_pb2.PauseJobRequest, planted)

    replies = machine.do_all(*(job_pb2.PauseJobRequest(job=name) for name in "abc"))

    assert [getattr(reply, "name", reply) for reply in replies] == ["a", "b", "c"]
    [failure] = machine.failures
    assert failure.what == "PauseJobRequest of b, 1 before and 1 behind it in one change,"
    assert (failure.fate, failure.jid) == ("done alone", machine.jid("b"))
    assert str(failure.error) == "planted"


def test_requests_whose_bytes_cannot_be_made_together_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(MemoryStore())
    for name in "abc":
        machine.create(name)
    requests = [Request(job_pb2.PauseJobRequest(job=name)) for name in "abc"]
    view = View(machine.store, machine.now_ms)
    decide(view, requests[:1])
    of_one, genuine = view.writes, View.seal

    def planted(view: View) -> bytes:
        if view.writes > of_one + 1:
            raise RuntimeError("planted")
        return genuine(view)

    monkeypatch.setattr(View, "seal", planted)
    decision = decide(View(machine.store, machine.now_ms), requests)

    assert [getattr(reply, "name", reply) for reply in decision.replies] == ["a", "b", "c"]
    assert {failure.fate for failure in decision.failures} == {"done alone"}


def alone(view: View, requests: Sequence[Request]) -> piecewise.Stopped:
    """As if none went well with the others."""
    return piecewise.Stopped([])


class Mix:
    """A state, and some requests that were waiting for the same change."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Machine(MemoryStore())
        for name in ("a", "b", "bad", "c"):
            allow = {"rule": job_pb2.OverlapPolicy.RULE_ALLOW}
            self.machine.create(name, cron="* * * * *", overlap=allow)
        for _ in range(3):
            self.machine.advance(MINUTE_MS)
            self.machine.fire()
        leases = self.machine.grant()
        self.machine.advance(MINUTE_MS)
        results = [self.result(lease) for lease in leases]
        self.bodies: list[object] = [Report("w1", tuple(results))]
        for number in range(self.random.randrange(30)):
            self.bodies.append(self.call(number))
        later = FireTimers(100, later=True)
        self.bodies += [FireTimers(100), later, Grant((Offer("w1", 10),), 10)]

    def result(self, lease: worker_pb2.Lease) -> worker_pb2.Result:
        token = lease.token + self.random.choice((0, 0, 0, 1))
        return worker_pb2.Result(run=lease.run, token=token, success=worker_pb2.Success())

    def call(self, number: int) -> object:
        name = self.random.choice(("a", "b", "bad", "c", "none"))
        made = job_of(self.random.choice((f"new-{number}", name)), cron="* * * * *")
        asked: list[object] = [
            job_pb2.CreateJobRequest(job=made),
            job_pb2.CreateJobRequest(job=made, validate_only=True),
            job_pb2.CreateJobRequest(job=made, request_id=self.random.choice("xyz")),
            job_pb2.TriggerJobRequest(job=name),
            job_pb2.PauseJobRequest(job=name),
            job_pb2.DeleteJobRequest(job=name, etag=self.random.choice(("", "v9"))),
        ]
        return self.random.choice(asked)

    def requests(self) -> list[Request]:
        return [Request(body) for body in self.bodies]

    def said(self, replies: Sequence[object]) -> list[object]:
        """Less what is asked on trial, which does not see what others of its change do, and less
        where timers go on, which is the beginning after a failure."""
        pairs = zip(self.bodies, replies, strict=True)
        found = [reply for body, reply in pairs if not getattr(body, "validate_only", False)]
        return [
            replace(reply, fresh_from=b"") if isinstance(reply, WorkDone) else reply
            for reply in found
        ]

    def image(self, change: bytes) -> dict[bytes, bytes]:
        """What the state would be, less what says how the change was written."""
        store = MemoryStore(self.machine.store.items)  # type: ignore[attr-defined]
        if change:
            apply(store, self.machine.index + 1, change)
        after = Machine(store)
        after.now_ms = self.machine.now_ms
        after.check()
        found = image(store)
        del found[keys.META]
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_comes_to_the_same_as_if_each_request_were_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mix = Mix(seed)
    if seed % 3 == 0:
        plant(monkeypatch, scheduled_time, "fire", "bad")

    found = decide(mix.machine.view(), mix.requests())

    one_by_one = piecewise.Careful(
        mix.machine.view(), machine_module._decide_one, alone, "", unlimited
    )
    wanted = one_by_one.decide(mix.requests(), None)
    assert mix.said(found.replies) == mix.said(wanted.replies), f"seed {seed}"
    assert mix.image(found.change) == mix.image(wanted.change), f"seed {seed}"
    assert [f.what for f in found.failures] == [f.what for f in wanted.failures], f"seed {seed}"


def creations(count: int, taken: Sequence[int]) -> list[Request]:
    names = ["taken" if number in taken else f"new-{number}" for number in range(count)]
    return [Request(job_pb2.CreateJobRequest(job=job_of(name))) for name in names]


@pytest.mark.parametrize(
    ("taken", "views"), [((50,), 2), ((99,), 1), ((10, 60), 4), (range(0, 100, 10), 30)]
)
def test_what_is_refused_keeps_the_others_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, taken: Sequence[int], views: int
) -> None:
    machine.create("taken")
    made: list[View] = []

    class Counted(View):
        def __init__(self, store: Reading, now_ms: int, is_spent: Budget) -> None:
            super().__init__(store, now_ms, is_spent=is_spent)
            made.append(self)

    monkeypatch.setattr(piecewise, "View", Counted)

    decision = decide(machine.view(), creations(100, taken))

    answers = [isinstance(reply, job_pb2.Job) for reply in decision.replies]
    assert [place for place, is_job in enumerate(answers) if not is_job] == list(taken)
    assert len(made) <= views


def test_what_found_no_room_is_left_for_the_next_change(machine: Machine) -> None:
    machine.create("taken")
    machine.new_budget = lambda: Steps(5)

    decision = decide(machine.view(), creations(30, [3]), new_budget=lambda: Steps(8))

    assert 4 <= len(decision.replies) < 30
    names = [getattr(reply, "name", "") for reply in decision.replies]
    assert names[:4] == ["new-0", "new-1", "new-2", ""]
