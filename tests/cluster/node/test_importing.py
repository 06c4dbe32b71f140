"""An import goes through the leader's loop part by part, and is answered once."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import common_pb2, dead_letter_pb2, job_pb2
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.schedule import zones

from .test_leader_loop import UNKNOWN, Bench, due

START_MS = 1_767_225_600_000


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.leader.new_budget = lambda: Steps(4)
    bench.leader.gained()
    return bench


def wanted(count: int = 20) -> job_pb2.ImportJobsRequest:
    jobs = [due(f"job-{number}", START_MS + 60_000).job for number in range(count)]
    return job_pb2.ImportJobsRequest(jobs=jobs, request_id="once")


def test_an_import_takes_as_many_changes_as_it_needs_and_others_go_in_between(
    bench: Bench,
) -> None:
    bench.ask(wanted())
    bench.leader.step()
    bench.ask(due("other", START_MS + 60_000))

    bench.run()

    [first, second] = bench.replies
    names = {type(reply).__name__ for reply in (first, second)}
    assert names == {"Job", "ImportJobsResponse"}
    answer = next(reply for reply in bench.replies if isinstance(reply, job_pb2.ImportJobsResponse))
    assert [one.job for one in answer.results] == [f"job-{number}" for number in range(20)]
    assert {one.verdict for one in answer.results} == {job_pb2.ImportResult.VERDICT_CREATED}
    assert bench.leader.done.changes >= 4


def test_an_import_that_was_begun_and_not_ended_is_unknown(bench: Bench) -> None:
    """A refusal says that nothing was done."""
    bench.ask(wanted())
    bench.leader.step()
    bench.commit()

    bench.leader.lost()

    assert bench.replies == [UNKNOWN]


def test_an_import_of_which_nothing_was_done_is_refused(bench: Bench) -> None:
    bench.ask(wanted())

    bench.leader.lost()

    [reply] = bench.replies
    assert isinstance(reply, Rejection)
    assert reply.word == "NOT_LEADER"


def test_an_import_goes_on_under_the_next_leader(bench: Bench) -> None:
    bench.ask(wanted())
    bench.leader.step()
    bench.commit()
    bench.leader.lost()
    bench.leader.gained()

    bench.ask(wanted())
    bench.run()

    answer = bench.replies[-1]
    assert isinstance(answer, job_pb2.ImportJobsResponse)
    assert {one.verdict for one in answer.results} == {job_pb2.ImportResult.VERDICT_CREATED}


def test_a_search_among_dead_letters_goes_on_until_it_finds_some(bench: Bench) -> None:
    trigger = due("rare", START_MS).job
    trigger.spec.timeouts.queue.seconds = 1
    for name in ("rare", *(f"often-{number}" for number in range(70))):
        job = job_pb2.Job(name=name, spec=trigger.spec)
        bench.ask(job_pb2.CreateJobRequest(job=job))
        bench.run()
        bench.now_ms += 2_000
        bench.run()
    bench.replies.clear()
    bench.leader.new_budget = lambda: Steps(1)

    bench.ask(dead_letter_pb2.PurgeDeadLettersRequest(filter="job=rare"))
    bench.ask(dead_letter_pb2.PurgeDeadLettersRequest(filter="job=none"))
    bench.run()

    assert sorted(reply.purged for reply in bench.replies) == [0, 1]  # type: ignore[attr-defined]


def test_zones_are_looked_at_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "_WARM", {})
    names = ["Pacific/Chatham", "", "Pacific/Chatham", "No/Where"]
    # One that is unknown is refused without a look.
    assert zones.cold(names) == ["Pacific/Chatham"]

    zones.warm(names, START_MS // 1000)

    assert zones.cold(["Pacific/Chatham", ""]) == []


def test_a_change_of_few_among_many_goes_on_until_it_finds_some(bench: Bench) -> None:
    for name in (*(f"often-{number:02}" for number in range(70)), "rare"):
        bench.ask(due(name, START_MS + 60_000))
        bench.run()
    bench.replies.clear()
    bench.leader.new_budget = lambda: Steps(1)

    pause = job_pb2.ChangeJobsRequest.CHANGE_PAUSE
    bench.ask(job_pb2.ChangeJobsRequest(filter="name:rare", change=pause))
    bench.ask(job_pb2.ChangeJobsRequest(filter="name:none", change=pause))
    bench.ask(job_pb2.ChangeJobsRequest(change=pause, validate_only=True))
    bench.run()

    answers = [reply for reply in bench.replies if isinstance(reply, common_pb2.BulkChange)]
    assert sorted((one.matched, one.changed) for one in answers)[:2] == [(0, 0), (0, 1)]
    assert max(one.matched for one in answers) == 71
    assert bench.leader.done.changes > 70


def test_many_triggers_take_as_many_changes_as_they_need(bench: Bench) -> None:
    bench.ask(wanted(1))
    bench.run()
    bench.replies.clear()
    triggers = [job_pb2.Trigger(job="job-0", force=True) for _ in range(20)]
    request = job_pb2.TriggerJobsRequest(triggers=triggers, request_id="many")
    changes = bench.leader.done.changes

    bench.ask(request)
    bench.leader.step()
    bench.commit()
    bench.leader.lost()
    bench.leader.gained()
    bench.ask(request)
    bench.run()

    assert bench.leader.done.changes - changes >= 4
    [first, answer] = bench.replies
    assert first == UNKNOWN
    assert isinstance(answer, job_pb2.TriggerJobsResponse)
    assert len({one.run for one in answer.results}) == 20
