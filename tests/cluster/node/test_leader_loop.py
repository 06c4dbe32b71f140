"""The leader's loop on a consensus that answers when it is told to."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from raftsched.cluster.node import alert_work, troubles
from raftsched.cluster.node import leader_loop as leaders
from raftsched.cluster.node.alert_work import NodeHealth
from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.leader_loop import AGAIN_MS, Leader
from raftsched.cluster.node.offer_queue import OFFERED
from raftsched.cluster.node.pending import PendingRequest
from raftsched.cluster.node.worker_session import WorkerSession
from raftsched.cluster.node.worker_sessions import WorkerSessions
from raftsched.cluster.raft import faults
from raftsched.cluster.raft.journal import JournalLimits
from raftsched.cluster.raft.port import Reply
from raftsched.proto.v1 import (
    alert_pb2,
    dead_letter_pb2,
    job_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from raftsched.statemachine import rules
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.budget import Share, Steps
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Refused, Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.firing import dispatch
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.layer import Layer
from raftsched.statemachine.model.request import (
    FireTimer,
    FireTimers,
    Note,
    Observe,
    Observed,
    Report,
)
from raftsched.statemachine.model.view import View
from raftsched.statemachine.reads import reads

from .ear import Ear, success

START_MS = 1_767_225_600_000
UNKNOWN = "unknown"


class Bench:
    """A leader with its clock and its consensus in hand."""

    def __init__(self, leader_address: Callable[[], str] = str) -> None:
        self.now_ms = START_MS
        self.seconds: Callable[[], float] = lambda: 0.0
        self.index = 0
        self.applied = Applied(MemoryStore())
        self.sent: list[tuple[bytes, Reply]] = []
        self.asked: list[Reply] = []
        self.refusal = ""
        self.woken = False
        self.sessions = WorkerSessions(
            lambda: self.now_ms, lambda: self.now_ms, self.wake, state=lambda: self.applied.store
        )
        self.leader = Leader(
            "n1", self.applied, self, self.sessions, lambda: self.now_ms,
            lambda: self.seconds(),
            leader_address=leader_address,
        )  # fmt: skip
        self.replies: list[object] = []

    def wake(self) -> None:
        self.woken = True

    # What the loop takes for consensus.

    def submit(self, data: bytes, reply: Reply) -> None:
        if self.refusal:
            raise faults.CallRefused(self.refusal)
        self.sent.append((data, reply))

    def confirm(self, reply: Reply) -> None:
        self.asked.append(reply)

    # What a test does.

    def commit(self) -> None:
        [(data, reply)] = self.sent
        self.sent = []
        self.index += 1
        self.applied.apply(self.index, data)
        reply(self.index)

    def run(self, steps: int = 100) -> None:
        """Step and commit until there is nothing to do now."""
        for _ in range(steps):
            self.woken = False
            self.leader.step()
            if self.sent:
                self.commit()
            elif self.asked:
                self.asked.pop()(self.index)
            elif not self.woken:
                return
        raise AssertionError(f"it goes on after {steps} changes")

    def ask(self, body: object) -> None:
        self.leader.ask(body, "", self.replies.append, lambda: self.replies.append(UNKNOWN))

    def worker(self, name: str, credits: int) -> tuple[WorkerSession, Ear]:
        ear = Ear()
        hello = worker_pb2.WorkerHello(worker=name)
        session = self.sessions.open(hello, ear, stream=True)
        session.credit(credits)
        return session, ear


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.leader.gained()
    return bench


def due(name: str, at_ms: int, payload: int = 0) -> job_pb2.CreateJobRequest:
    request = job_pb2.CreateJobRequest(job=job_pb2.Job(name=name))
    request.job.spec.action.handler = "build"
    request.job.spec.payload.data = bytes(payload)
    request.job.spec.schedules.add().once.time.CopyFrom(timestamp(at_ms))
    return request


def test_what_arrives_while_a_change_is_in_flight_goes_into_the_next_one(bench: Bench) -> None:
    bench.ask(due("a", START_MS + 1_000))
    bench.leader.step()
    bench.ask(due("b", START_MS + 1_000))
    bench.ask(due("c", START_MS + 1_000))
    bench.leader.step()

    assert len(bench.sent) == 1
    assert bench.replies == []
    bench.commit()
    assert [reply.name for reply in bench.replies] == ["a"]  # type: ignore[attr-defined]
    bench.run()
    assert [reply.name for reply in bench.replies] == ["a", "b", "c"]  # type: ignore[attr-defined]
    assert bench.leader.done.changes == 2


def test_a_due_run_is_fired_and_leased_in_one_change(bench: Bench) -> None:
    _, ear = bench.worker("w1", 3)
    bench.ask(due("a", START_MS + 1_000))
    bench.run()
    assert bench.leader.next_ms() == START_MS + 1_000
    before = bench.leader.done.changes

    bench.now_ms = START_MS + 1_000
    bench.run()

    assert [lease.job for lease in ear.got] == ["a"]
    assert bench.leader.done.changes == before + 1


@pytest.mark.parametrize(
    ("calls", "is_urgent"),
    [(leaders.BATCHING_THRESHOLD, True), (leaders.BATCHING_THRESHOLD + 1, False)],
)
def test_a_few_callers_are_urgent_and_many_gather(
    bench: Bench, calls: int, is_urgent: bool
) -> None:
    for number in range(calls):
        bench.ask(due(f"j{number}", START_MS + 1_000))
    assert bench.leader.is_urgent
    bench.leader.step()
    bench.ask(due("next", START_MS + 1_000))
    assert not bench.leader.is_urgent, "a change is in flight"

    bench.commit()

    assert bench.leader.is_urgent == is_urgent
    bench.leader.step()
    bench.commit()
    bench.ask(due("alone", START_MS + 1_000))
    assert bench.leader.is_urgent


def test_an_idle_leader_waits_for_nothing(bench: Bench) -> None:
    bench.run()
    assert bench.leader.next_ms() is None
    assert bench.leader.done.changes == 0


def test_a_reply_without_a_change_waits_until_leadership_is_sure(bench: Bench) -> None:
    bench.ask(job_pb2.DeleteJobRequest(job="nothing"))
    bench.leader.step()

    assert (bench.sent, bench.replies) == ([], [])
    [confirm] = bench.asked
    confirm(0)
    [refusal] = bench.replies
    assert isinstance(refusal, Rejection)
    assert refusal.word == "JOB_NOT_FOUND"


def test_losing_leadership_answers_everybody() -> None:
    bench = Bench(leader_address=lambda: "n2.example:7400")
    bench.leader.gained()
    bench.ask(due("a", START_MS))
    bench.leader.step()
    bench.ask(due("b", START_MS))
    _, ear = bench.worker("w1", 1)

    bench.leader.lost()
    [(_, reply)] = bench.sent
    reply(None)

    waiting, in_flight = bench.replies
    assert isinstance(waiting, Rejection)
    assert (waiting.word, waiting.values) == ("NOT_LEADER", {"leader": "n2.example:7400"})
    assert in_flight == UNKNOWN
    assert ear.redirected == ["n2.example:7400"]
    with pytest.raises(Refused, match=r"n2\.example:7400"):
        bench.ask(due("c", START_MS))


def test_what_an_earlier_term_left_in_flight_does_not_disturb_the_next(bench: Bench) -> None:
    bench.ask(due("a", START_MS + 1))
    bench.leader.step()
    [(_, late)] = bench.sent
    bench.sent = []
    bench.leader.lost()
    bench.leader.gained()
    bench.ask(due("b", START_MS + 1))
    bench.leader.step()

    late(None)
    bench.leader.step()

    assert len(bench.sent) == 1, "two changes are in flight"


def test_a_change_that_was_overtaken_is_unknown(bench: Bench) -> None:
    """Its entry is committed, but decided on a state that another leader has changed since."""
    bench.ask(due("a", START_MS + 1))
    bench.leader.step()
    [(data, reply)] = bench.sent
    other = Bench()
    other.leader.gained()
    other.ask(due("b", START_MS + 1))
    other.leader.step()
    bench.applied.apply(1, other.sent[0][0])

    bench.applied.apply(2, data)
    reply(2)

    assert bench.replies == [UNKNOWN]
    assert bench.applied.meta.applied_index == 2
    assert bench.applied.meta.revision == 1


def test_a_full_backlog_refuses_and_says_when_to_come_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.leader._next.calls.items, "maximum", 2)
    bench.ask(due("a", START_MS + 1))
    bench.ask(due("b", START_MS + 1))

    with pytest.raises(Refused) as refused:
        bench.ask(due("c", START_MS + 1))

    assert refused.value.rejection.word == "BACKLOG_FULL"
    assert refused.value.rejection.retry_after_ms > 0
    bench.run()
    assert len(bench.replies) == 2


def test_a_tenant_whose_calls_wait_leaves_room_for_those_of_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tokens it has: by the number of calls, and by their bytes."""
    small, large = due("a", START_MS + 1), due("b" * 60, START_MS + 1)
    for what, maximum, body in (("items", 8, small), ("bytes", 8 * large.ByteSize(), large)):
        room = getattr(bench.leader._next.calls, what)
        monkeypatch.setattr(room, "maximum", maximum)

        def ask(tenant: str, token: str, body: job_pb2.CreateJobRequest = body) -> None:
            bench.leader.ask(body, token, bench.replies.append, lambda: None, tenant)

        for token in ("one", "two", "three"):
            ask("red", token)
        with pytest.raises(Refused, match="of red wait for n1 already"):
            ask("red", "four")
        ask("blue", "one")
        ask("green", "one")
        with pytest.raises(Refused, match="of blue wait for n1 already"):
            ask("blue", "two")
        bench.run()
        assert room.taken == 0
        assert len(bench.replies) == 5
        bench.replies.clear()


def test_a_call_whose_caller_went_away_is_never_decided(bench: Bench) -> None:
    part = bench.leader.ask(due("a", START_MS + 1), "", bench.replies.append, lambda: None)
    part.withdrawn = True
    bench.run()
    assert bench.replies == []
    assert bench.leader.done.changes == 0


def test_a_change_over_its_limit_is_made_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ENTRY_BYTES", 5_000)
    for number in range(8):
        bench.ask(due(f"job-{number}", START_MS + 1, payload=1_000))
    bench.run()

    names = [reply.name for reply in bench.replies]  # type: ignore[attr-defined]
    assert names == [f"job-{number}" for number in range(8)]
    assert bench.leader.done.changes > 2

    bench.ask(due("large", START_MS + 1, payload=6_000))
    bench.run()
    refusal = bench.replies[-1]
    assert isinstance(refusal, Rejection)
    assert (refusal.word, refusal.values["maximum"]) == ("LIMIT_EXCEEDED", "5000")


def test_what_does_not_fit_into_a_full_change_comes_first_in_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, ear = bench.worker("w1", 8)
    for number in range(8):
        bench.ask(due(f"job-{number}", START_MS))
    bench.run()
    before = bench.leader.done.changes
    monkeypatch.setattr(limits, "CHANGE_BYTES", 5_000)

    results = [success(lease) for lease in ear.got]
    for result in results:
        result.success.result.data = bytes(2_000)
    session.report(results)
    bench.ask(due("late", START_MS + 1))
    bench.run()

    assert [ack.token for ack in ear.acked] == [lease.token for lease in ear.got]
    assert {ack.reason for ack in ear.acked} == {""}
    assert len(bench.replies) == 9
    assert bench.leader.done.changes > before + 2


def test_a_rule_that_breaks_on_one_call_refuses_that_call_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(view: object, request: object, actor: str) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(rules.RULES, queue_pb2.PauseQueueRequest, broken)
    bench.ask(due("a", START_MS + 1))
    bench.ask(queue_pb2.PauseQueueRequest(queue="default"))
    bench.ask(due("b", START_MS + 1))
    bench.run()

    first, broke, last = bench.replies
    assert (first.name, last.name) == ("a", "b")  # type: ignore[attr-defined]
    assert isinstance(broke, Rejection)
    assert broke.word == "RULE_FAILED"
    assert bench.leader.troubles.counts == {"refused": 1}


def test_a_rule_that_breaks_on_its_own_lets_the_node_live(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(view: object, request: object, actor: str) -> object:
        raise ZeroDivisionError("a bug")

    bench.ask(due("a", START_MS))
    bench.leader.step()
    bench.commit()
    bench.ask(due("b", START_MS))
    monkeypatch.setitem(rules.RULES, FireTimers, broken)
    monkeypatch.setitem(rules.RULES, FireTimer, broken)
    bench.run()

    # Each job is set aside; what else fails at its timer alone is given up.
    assert bench.leader.leading
    assert bench.leader.troubles.counts["set aside"] == 2
    bench.ask(due("c", START_MS + limits.DAY_MS))
    bench.run()
    assert not isinstance(bench.replies[-1], Rejection)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Of a node it looks for cycles so seldom that they are memory, for all anybody sees."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def views() -> int:
    """What decisions have left: each view holds all that its decision wrote."""
    return sum(isinstance(one, View | Layer | Share) for one in gc.get_objects())


def test_decisions_leave_nothing_to_the_collector(bench: Bench, no_collector: None) -> None:
    bench.worker("w1", 100)
    before = views()
    for number in range(20):
        # Something is due soon, so what calls may write beside it is counted.
        bench.ask(due(f"job-{number}", START_MS + 1 + number))
        bench.run()
        bench.now_ms += 1
    assert len(bench.replies) == 20
    assert views() == before


def test_imports_leave_nothing_to_the_collector(bench: Bench, no_collector: None) -> None:
    def left() -> int:
        return sum(isinstance(one, PendingRequest) for one in gc.get_objects())

    before = left()
    for number in range(5):
        jobs = [due(f"job-{number}-{n}", START_MS + limits.DAY_MS).job for n in range(10)]
        bench.ask(job_pb2.ImportJobsRequest(jobs=jobs))
        bench.ask(dead_letter_pb2.PurgeDeadLettersRequest(filter="job=none"))
        bench.run()
    assert len(bench.replies) == 10
    assert left() == before


def test_decisions_that_fail_leave_nothing_to_the_collector(
    bench: Bench, no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(view: object, request: object, actor: str) -> object:
        raise ZeroDivisionError("a bug")

    # The records of a test's log hold what was raised.
    monkeypatch.setattr(troubles.logger, "disabled", True)
    monkeypatch.setitem(rules.RULES, FireTimers, broken)
    monkeypatch.setitem(rules.RULES, FireTimer, broken)
    before = views()
    for number in range(20):
        bench.ask(due(f"job-{number}", START_MS + number))
        bench.run()
        bench.now_ms += 1
    assert bench.leader.troubles.counts["set aside"] == 20
    assert views() == before


def test_an_answer_that_breaks_keeps_no_other_from_its_own(bench: Bench) -> None:
    def broken(reply: object) -> None:
        raise ZeroDivisionError("a bug")

    bench.leader.ask(due("a", START_MS + limits.DAY_MS), "", broken, lambda: None)
    bench.ask(due("b", START_MS + limits.DAY_MS))
    bench.run()

    assert len(bench.replies) == 1
    assert bench.leader.leading
    [trouble] = bench.leader.troubles.last
    assert trouble.what == "the answer to CreateJobRequest"
    assert bench.leader.troubles.recent() == 1


def test_deciding_that_breaks_altogether_lets_the_node_live(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as planted:
        planted.setattr(leaders, "decide", broken)
        bench.ask(due("a", START_MS + limits.DAY_MS))
        bench.run()
    bench.ask(due("b", START_MS + limits.DAY_MS))
    bench.run()

    broke, fine = bench.replies
    assert isinstance(broke, Rejection)
    assert broke.word == "RULE_FAILED"
    assert not isinstance(fine, Rejection)
    assert bench.leader.leading


def test_the_largest_change_is_what_the_log_takes() -> None:
    assert JournalLimits().entry == limits.ENTRY_BYTES


def test_consensus_that_takes_nothing_refuses_calls(bench: Bench) -> None:
    bench.refusal = "leadership is going to n2"
    bench.ask(due("a", START_MS + 1))
    bench.leader.step()
    [refusal] = bench.replies
    assert isinstance(refusal, Rejection)
    assert refusal.word == "NO_QUORUM"
    assert "leadership is going to n2" in refusal.message


def test_a_clock_that_is_off_fires_nothing_but_takes_writes(bench: Bench) -> None:
    _, ear = bench.worker("w1", 1)
    bench.leader.clock_compared(5_000, is_sure=True)
    bench.ask(due("a", START_MS))
    bench.run()
    assert ear.got == []
    assert bench.leader.next_ms() == bench.sessions.next_lapse_ms()

    bench.leader.clock_compared(0, is_sure=True)
    bench.now_ms += 5_000
    bench.run()
    assert [lease.job for lease in ear.got] == ["a"]


def test_a_clock_that_is_off_does_not_move_the_time_of_the_state(bench: Bench) -> None:
    bench.now_ms = START_MS + 3_600_000
    bench.leader.clock_compared(-3_600_000, is_sure=True)
    bench.ask(due("a", START_MS))
    bench.run()

    assert bench.applied.meta.now_ms == START_MS


def test_nothing_is_decided_before_the_clock_was_compared(bench: Bench) -> None:
    bench.leader.clock_compared(0, is_sure=False)
    bench.ask(due("a", START_MS))
    bench.run()
    assert bench.replies == []
    assert bench.leader.next_ms() is None

    bench.leader.clock_compared(0, is_sure=True)
    bench.run()
    assert len(bench.replies) == 1


def test_alerts_are_looked_at_by_steps_when_there_are_any(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.leader.watch(NodeHealth(margin=False, skew_ms=0))
    bench.run()
    assert bench.leader.done.changes == 0
    monkeypatch.setattr(alert_work, "ALERTS", 2)
    for number in range(5):
        alert = alert_pb2.Alert(name=f"alert-{number}")
        alert.condition.no_margin = True
        bench.ask(alert_pb2.PutAlertRequest(alert=alert))
    bench.run()
    assert not [reply for reply in bench.replies if isinstance(reply, Rejection)]
    before = bench.leader.done.changes

    bench.leader.watch(NodeHealth(margin=False, skew_ms=0))
    bench.run()
    bench.now_ms += 5_600
    bench.leader.watch(NodeHealth(margin=False, skew_ms=0))
    bench.run()

    assert bench.leader.done.changes >= before + 3
    reply = reads.read(View(bench.applied.store, bench.now_ms), alert_pb2.ListAlertsRequest())
    assert isinstance(reply, alert_pb2.ListAlertsResponse)
    assert [bool(alert.HasField("raised_time")) for alert in reply.alerts] == [True] * 5


@pytest.mark.parametrize(("lanes", "rest_s"), [(200, 0.0), (500, 4.5), (20_000, 10.0)])
@pytest.mark.parametrize("look_s", [0.001, 0.2])
def test_a_look_at_many_lanes_is_followed_by_a_long_rest_however_busy_the_machine_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lanes: int, rest_s: float, look_s: float
) -> None:
    clock, looks = [0.0], list[float]()
    rule = rules.RULES[Observe]

    def counts(view: View, request: object, actor: str) -> object:
        looks.append(clock[0])
        clock[0] += look_s
        observed = rule(view, request, actor)
        assert isinstance(observed, Observed)
        return replace(observed, lanes=lanes)

    alert = alert_pb2.Alert(name="late")
    alert.condition.lateness_above.FromSeconds(10)
    bench.ask(alert_pb2.PutAlertRequest(alert=alert))
    bench.run()
    bench.seconds = lambda: clock[0]
    monkeypatch.setitem(rules.RULES, Observe, counts)
    for after_s in (0.0, rest_s - 0.05, 0.1):
        clock[0] += max(after_s, 0.0)
        bench.leader.watch(NodeHealth())
        bench.run()

    if rest_s:
        assert looks == pytest.approx([0.0, look_s + rest_s + 0.05])
    else:
        assert len(looks) == 3


def test_a_look_counts_the_lanes_that_it_takes(bench: Bench) -> None:
    alert = alert_pb2.Alert(name="late")
    alert.condition.lateness_above.FromSeconds(10)
    bench.ask(alert_pb2.PutAlertRequest(alert=alert))
    for number in range(3):
        waiting = due(f"d{number}", START_MS)
        waiting.job.spec.queue = f"q{number}"
        bench.ask(waiting)
    bench.run()
    view = View(bench.applied.store, START_MS)
    asked = Observe(bench.sessions.connected, True, 0, 10, b"")
    observed = rules.RULES[Observe](view, asked, "")
    assert isinstance(observed, Observed)
    assert observed.lanes == 3


def test_a_queue_with_a_rate_is_looked_at_when_it_may_give_again(bench: Bench) -> None:
    _, ear = bench.worker("w1", 10)
    bench.ask(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", rate=4, burst=1)))
    for number in range(3):
        bench.ask(due(f"job-{number}", START_MS))
    bench.run()
    assert len(ear.got) == 1

    for count in (2, 3):
        next_ms = bench.leader.next_ms()
        assert next_ms == bench.now_ms + 250
        bench.now_ms = next_ms
        bench.run()
        assert len(ear.got) == count


def test_a_new_leader_gives_every_worker_a_full_period(bench: Bench) -> None:
    _, ear = bench.worker("w1", 1)
    bench.ask(due("a", START_MS))
    bench.run()
    [lease] = ear.got
    bench.now_ms += bench.sessions.lapse_ms - 1
    bench.leader.lost()
    bench.leader.gained()

    bench.now_ms += bench.sessions.lapse_ms - 1
    bench.run()
    hello = worker_pb2.WorkerHello(worker="w1")
    hello.held.add(run=lease.run, token=lease.token)
    again = Ear()
    session = bench.sessions.open(hello, again, stream=True)
    session.report([success(lease)])
    bench.run()

    assert [(ack.token, ack.reason) for ack in again.acked] == [(lease.token, "")]


def test_a_crowd_has_longer_to_come_back_to_a_new_leader(bench: Bench) -> None:
    ears = {f"w{number}": bench.worker(f"w{number}", 1)[1] for number in range(100)}
    for number in range(100):
        bench.ask(due(f"j{number}", START_MS))
    bench.run()
    bench.leader.lost()
    bench.leader.gained()

    bench.now_ms += bench.sessions.lapse_ms + 100
    bench.run()
    for name, ear in ears.items():
        hello = worker_pb2.WorkerHello(worker=name)
        hello.held.extend(worker_pb2.HeldLease(run=one.run, token=one.token) for one in ear.got)
        ears[name] = again = Ear()
        bench.sessions.open(hello, again, stream=True)
    bench.run()

    assert len(ears) == 100
    assert [ear.stopped for ear in ears.values() if ear.stopped] == []
    # Who does not come back lapses all the same.
    bench.now_ms += bench.sessions.lapse_ms + 100
    bench.run()
    assert bench.sessions.by_worker == {}


def test_hellos_of_a_crowd_are_taken_some_in_each_change(bench: Bench) -> None:
    for number in range(3_000):
        bench.worker(f"w{number}", 0)
    bench.leader.step()
    assert sum(session.resume is not None for session in bench.sessions.by_worker.values()) == 3_000
    bench.asked.pop()(bench.index)
    waiting = sum(session.resume is not None for session in bench.sessions.by_worker.values())
    bench.run()

    assert waiting == 2_000
    assert not any(session.resume for session in bench.sessions.by_worker.values())


def test_leases_that_never_arrived_go_to_another(bench: Bench) -> None:
    session, ear = bench.worker("w1", 1)
    bench.ask(due("a", START_MS))
    bench.run()
    [lease] = ear.got
    session.close()

    _, again = bench.worker("w1", 0)
    _, other = bench.worker("w2", 1)
    bench.run()

    assert again.got == []
    assert [(found.run, found.attempt) for found in other.got] == [(lease.run, 1)]


def test_drain_is_told_behind_the_last_lease(bench: Bench) -> None:
    said: list[str] = []

    class Order(Ear):
        def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
            said.extend("lease" for _ in leases)

        def drain(self, reason: str) -> None:
            said.append(reason)

    session = bench.sessions.open(worker_pb2.WorkerHello(worker="w1"), Order(), stream=True)
    bench.run()
    session.credit(1)
    bench.ask(due("a", START_MS - 1))
    bench.leader.step()
    bench.commit()
    bench.leader.step()
    session.drain("bye")
    bench.commit()
    bench.run()
    session.credit(5)
    bench.ask(due("b", START_MS - 1))
    bench.run()

    assert said == ["lease", "bye"]


def test_workers_of_one_kind_take_turns(bench: Bench) -> None:
    count = OFFERED * 2
    ears = [bench.worker(f"w{number}", 1)[1] for number in range(count)]
    for number in range(count):
        bench.ask(due(f"job-{number}", START_MS))
    bench.run()
    assert [len(ear.got) for ear in ears] == [1] * count


def test_a_worker_with_many_credits_gets_more_than_one_grant(bench: Bench) -> None:
    request = job_pb2.ImportJobsRequest()
    for start in range(0, 1_200, 600):
        del request.jobs[:]
        for number in range(start, start + 600):
            request.jobs.append(due(f"job-{number}", START_MS).job)
        bench.ask(job_pb2.ImportJobsRequest.FromString(request.SerializeToString()))
    bench.run()
    _, ear = bench.worker("w1", 5_000)
    bench.run()
    assert len(ear.got) == 1_200


def test_the_worker_of_a_deleted_job_is_told_to_stop(bench: Bench) -> None:
    _, ear = bench.worker("w1", 1)
    bench.ask(due("a", START_MS))
    bench.run()
    bench.ask(job_pb2.DeleteJobRequest(job="a"))
    bench.now_ms += 1
    bench.run()
    bench.now_ms += 1
    bench.run()
    assert [(stop.token, stop.kind) for stop in ear.stopped] == [
        (ear.got[0].token, worker_pb2.Stop.KIND_LOST)
    ]


def leased(bench: Bench) -> tuple[WorkerSession, Ear, worker_pb2.Result]:
    """A worker with its first attempt of two, and how that one will fail."""
    create = due("a", START_MS)
    create.job.spec.retry.max_attempts = 2
    bench.ask(create)
    session, ear = bench.worker("w1", 2)
    bench.run()
    failure = worker_pb2.Result(run=ear.got[0].run, token=ear.got[0].token)
    failure.failure.error.kind = "busy"
    return session, ear, failure


def test_a_listed_lease_whose_result_comes_along_is_answered_once(bench: Bench) -> None:
    _, ear = bench.worker("w1", 3)
    for name in ("done", "lost", "silent"):
        bench.ask(due(name, START_MS))
    bench.run()
    done, gone, silent = ear.got
    bench.ask(Report("", (success(done),)))  # As by the call Complete.
    for lease in (gone, silent):
        bench.ask(run_pb2.TerminateRunRequest(run=lease.run))
    bench.run()

    hello, again = worker_pb2.WorkerHello(worker="w1"), Ear()
    for lease in (done, gone, silent):
        hello.held.add(run=lease.run, token=lease.token)
    session = bench.sessions.open(hello, again, stream=True)
    session.report([success(done), success(gone)])
    bench.run()

    assert [(ack.token, ack.reason) for ack in again.acked] == [
        (done.token, ""), (gone.token, "LEASE_LOST")
    ]  # fmt: skip
    assert [stop.token for stop in again.stopped] == [silent.token]


def said(lease: worker_pb2.Lease, checkpoint: bytes) -> worker_pb2.ProgressReport:
    return worker_pb2.ProgressReport(run=lease.run, token=lease.token, checkpoint=checkpoint)


def test_a_checkpoint_that_waits_beside_the_failure_reaches_the_next_attempt(bench: Bench) -> None:
    session, ear, failure = leased(bench)

    session.report([failure])
    session.note([said(ear.got[0], b"page 7")])
    bench.run()
    bench.now_ms += 5_600
    bench.run()

    assert [one.checkpoint for one in ear.got] == [b"", b"page 7"]
    assert ear.stopped == []


def test_a_word_that_found_no_room_does_not_replace_a_later_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, ear, failure = leased(bench)
    monkeypatch.setitem(rules.RULES, Note, lambda view, request, actor: [])

    session.note([said(ear.got[0], b"early")])
    bench.leader.step()
    session.note([said(ear.got[0], b"late")])
    monkeypatch.undo()
    bench.asked.pop()(bench.index)
    session.report([failure])
    bench.run()
    bench.now_ms += 5_600
    bench.run()

    assert [one.checkpoint for one in ear.got] == [b"", b"late"]


def go_on(bench: Bench) -> None:
    """As `run`, with the time used in which changes are on their way."""
    for _ in range(10):
        bench.leader.step()
        if bench.leader.is_busy:
            bench.leader.prepare()
        if bench.sent:
            bench.commit()
        elif bench.asked:
            bench.asked.pop()(bench.index)


def test_a_worker_is_told_the_very_words_that_it_could_foresee(bench: Bench) -> None:
    told: list[object] = []

    class Exact(Ear):
        def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
            super().leases(leases)
            told.append(leases)

        def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
            super().acks(acks)
            told.append(acks)

    ear = Exact()
    session = bench.sessions.open(worker_pb2.WorkerHello(worker="w1"), ear, stream=True)
    session.credit(1)
    bench.ask(due("a", START_MS))
    go_on(bench)
    session.report([success(ear.got[0])])
    go_on(bench)

    assert [ack.token for ack in ear.acked] == [lease.token for lease in ear.got]
    assert [id(words) for words in ear.pre_serialized] == [id(words) for words in told if words]
    assert bench.leader._under_way == []


def test_what_was_foreseen_is_not_told_when_leadership_goes(bench: Bench) -> None:
    _, ear = bench.worker("w1", 1)
    bench.run()
    bench.ask(due("a", START_MS))
    while not ear.pre_serialized:
        bench.leader.step()
        bench.leader.prepare()
        if not ear.pre_serialized:
            bench.commit()
    [(_, reply)] = bench.sent
    reply(None)
    bench.leader.lost()

    assert [len(words) for words in ear.pre_serialized] == [1]
    assert ear.got == []


def turned_down_once(bench: Bench) -> None:
    """Leadership was to go to somebody who did not take it, so this node leads on."""
    bench.refusal = "leadership goes to n2; try there"
    bench.leader.step()
    bench.refusal = ""
    bench.now_ms += AGAIN_MS
    bench.run()


def test_what_was_turned_down_is_not_tried_again_at_once(bench: Bench) -> None:
    """A transfer may last, and a disk be full for long."""
    leased(bench)
    bench.worker("w1", 3)
    bench.refusal = "leadership goes to n2; try there"
    bench.leader.step()
    bench.refusal = ""
    changes = bench.leader.done.changes

    bench.leader.step()
    assert bench.leader.done.changes == changes
    assert bench.leader.next_ms() == bench.now_ms + AGAIN_MS

    bench.now_ms += AGAIN_MS
    bench.leader.step()
    assert bench.leader.done.changes == changes + 1


def test_a_worker_that_was_offered_runs_in_vain_is_offered_them_again(bench: Bench) -> None:
    _, ear = bench.worker("w1", 3)
    bench.ask(due("a", START_MS + 1_000))
    bench.run()
    bench.now_ms = START_MS + 1_000

    turned_down_once(bench)

    assert [lease.job for lease in ear.got] == ["a"]


def test_what_workers_said_while_leadership_was_to_go_is_not_lost(bench: Bench) -> None:
    session, ear, _ = leased(bench)
    session.report([success(ear.got[0])])

    turned_down_once(bench)

    assert [ack.reason for ack in ear.acked] == [""]


def test_a_hello_while_leadership_was_to_go_gets_its_leases(bench: Bench) -> None:
    leased(bench)
    _, again = bench.worker("w1", 3)

    turned_down_once(bench)
    bench.ask(due("b", START_MS + 2_000))
    bench.run()
    bench.now_ms += 2_000
    bench.run()

    assert "b" in [lease.job for lease in again.got]


def test_a_lapse_while_leadership_was_to_go_happens_and_the_worker_may_come_back(
    bench: Bench,
) -> None:
    _, ear, _ = leased(bench)
    bench.now_ms += 60_000

    turned_down_once(bench)

    assert [refusal.word for refusal in ear.gone] == ["SESSION_LOST"]
    bench.worker("w1", 1)


def test_a_caller_is_told_at_once_that_leadership_is_to_go(bench: Bench) -> None:
    bench.ask(due("a", START_MS + 1_000))

    turned_down_once(bench)

    [told] = bench.replies
    assert isinstance(told, Rejection)
    assert bench.leader.done.changes == 1


def test_the_answer_of_a_lapse_that_comes_behind_the_loss_ends_nothing(bench: Bench) -> None:
    """As when a leader removes itself: what it commits, and that it leads no more, come at once."""
    _, ear, _ = leased(bench)
    bench.now_ms += 60_000
    bench.leader.step()
    [(data, reply)] = bench.sent
    bench.index += 1
    bench.applied.apply(bench.index, data)
    bench.leader.lost()

    reply(bench.index)

    assert ear.redirected
    assert bench.sessions.lapses(10) == []


def test_a_decision_without_any_time_goes_on_all_the_same(bench: Bench) -> None:
    """Each does one step, however long what was before it took."""
    bench.leader.new_budget = lambda: Steps(0)
    session, ear = bench.worker("w1", credits=3)
    bench.run()
    for name in ("a", "b", "c"):
        bench.ask(due(name, bench.now_ms + limits.HOUR_MS))
        bench.ask(job_pb2.TriggerJobRequest(job=name))
    bench.run()
    assert len(ear.got) == 3

    session.report([success(lease) for lease in ear.got])
    bench.run()

    assert [ack.reason for ack in ear.acked] == ["", "", ""]


def slow(bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: type, seconds: float) -> None:
    """Let each request of a kind take some time of the loop's clock."""
    rule = rules.RULES[kind]
    clock = [0.0]
    bench.seconds = lambda: clock[0]

    def takes_its_time(view: View, request: object, actor: str) -> object:
        clock[0] += seconds
        return rule(view, request, actor)

    monkeypatch.setitem(rules.RULES, kind, takes_its_time)


def test_what_is_due_is_fired_and_leased_before_the_calls_that_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten calls of which each takes 25 ms: a change takes one of them, and all that is due."""
    session, ear = bench.worker("w1", credits=9)
    for number in range(3):
        bench.ask(due(f"d{number}", START_MS + 1_000))
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.025)
    bench.replies.clear()
    bench.now_ms += 1_000
    for _ in range(10):
        bench.ask(job_pb2.PauseJobRequest(job="d0"))

    bench.leader.step()
    bench.commit()

    assert [lease.job for lease in ear.got] == ["d0", "d1", "d2"]
    assert len(bench.replies) == 1
    bench.run()
    assert len(bench.replies) == 10
    assert session.credits == 6


def test_what_is_due_goes_ahead_of_others_that_last_long_in_a_change_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who falls due while a change is under way waits for its end, and not for the next one."""
    _, ear = bench.worker("w1", credits=9)
    for number in range(3):
        bench.ask(due(f"d{number}", START_MS + 1_000 * number))
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.004)
    for _ in range(10):
        bench.ask(job_pb2.PauseJobRequest(job="d0"))
    bench.leader.step()
    bench.now_ms += 1_000
    bench.commit()
    began = bench.leader.seconds()
    waiting = bench.leader._next.calls.items.taken

    bench.leader.step()
    bench.commit()

    assert [lease.job for lease in ear.got] == ["d0", "d1"]
    assert bench.leader.seconds() == began
    assert bench.leader._next.calls.items.taken == waiting > 0
    # However many are due, the others come forward in each second change.
    bench.now_ms += 1_000
    bench.leader.step()
    assert bench.leader._next.calls.items.taken < waiting
    bench.commit()
    bench.run()
    assert [lease.job for lease in ear.got] == ["d0", "d1", "d2"]


def test_the_last_change_before_somebody_is_due_waits_for_him_where_changes_last_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He would else wait for the end of it; if many are due, others come forward all the same."""
    _, ear = bench.worker("w1", credits=9)
    for number in range(3):
        bench.ask(due(f"d{number}", START_MS + 1_000 + 10 * number))
    bench.run()
    bench.now_ms += 985
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.012)
    pause = job_pb2.PauseJobRequest(job="d2")
    for _ in range(10):
        bench.ask(pause)
    bench.leader.step()
    bench.commit()
    waiting = bench.leader._next.calls.items.taken

    bench.now_ms = START_MS + 990
    bench.leader.step()
    assert bench.sent == []
    assert bench.leader.next_ms() == START_MS + 1_000

    bench.now_ms = START_MS + 1_000
    bench.leader.step()
    bench.commit()
    assert [lease.job for lease in ear.got] == ["d0"]
    assert bench.leader._next.calls.items.taken == waiting
    # The next one is near as well, and others do not wait for him too.
    bench.leader.step()
    bench.commit()
    assert bench.leader._next.calls.items.taken < waiting


def test_a_change_that_lasts_long_does_not_wait_where_nobody_is_due_before_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ask(due("d", START_MS + 1_000))
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.012)
    bench.now_ms += 970
    for _ in range(10):
        bench.ask(job_pb2.PauseJobRequest(job="d"))
        bench.leader.step()
        bench.commit()

    assert bench.leader._next.calls.items.taken == 0


def test_what_is_due_goes_together_with_others_that_are_quick(bench: Bench) -> None:
    bench.ask(due("d", START_MS + 1_000))
    bench.run()
    bench.replies.clear()
    bench.ask(due("j", START_MS + limits.HOUR_MS))
    bench.now_ms += 1_000

    bench.leader.step()
    bench.commit()

    assert len(bench.replies) == 1
    assert runs_due(bench) == 0


def test_what_a_change_says_leaves_before_the_next_one_is_decided(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears that a word of his counts has the loop look again; his lease comes behind."""
    session, ear = bench.worker("w1", 1)
    bench.ask(due("a", START_MS))
    bench.ask(due("b", START_MS + 1_000))
    bench.run()
    busy: list[bool] = []
    monkeypatch.setattr(bench.sessions, "wake", lambda: busy.append(bench.leader.is_busy))
    session.report([success(lease) for lease in ear.got])
    session.credit(1)
    monkeypatch.setattr(ear, "acks", lambda acks: session.credit(1))
    bench.now_ms += 1_000
    bench.leader.step()
    busy.clear()

    bench.commit()

    assert [lease.job for lease in ear.got] == ["a", "b"]
    assert busy == [True, False]


def test_calls_have_the_time_of_a_change_where_nothing_is_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ask(due("a", START_MS + limits.HOUR_MS))
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.005)
    bench.replies.clear()
    for _ in range(10):
        bench.ask(job_pb2.PauseJobRequest(job="a"))

    bench.leader.step()
    bench.commit()

    assert len(bench.replies) == 4
    bench.run()
    assert len(bench.replies) == 10


@pytest.mark.parametrize(("in_ms", "most"), [(250, 20), (60, 15), (20, 5), (4, 2)])
def test_calls_have_the_less_of_a_change_the_sooner_somebody_is_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, in_ms: int, most: int
) -> None:
    """A quarter of the time until then: agreeing on a change may take longer than to decide it."""
    bench.ask(due("a", START_MS + in_ms))
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.001)
    bench.replies.clear()
    for _ in range(30):
        bench.ask(job_pb2.PauseJobRequest(job="a"))

    bench.leader.step()
    bench.commit()

    assert most <= len(bench.replies) <= most + 1


def test_what_was_left_over_keeps_its_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ask(due("z", START_MS + limits.HOUR_MS))
    bench.run()
    slow(bench, monkeypatch, job_pb2.CreateJobRequest, 0.015)
    bench.replies.clear()
    for number in range(7):
        bench.ask(due(f"j{number}", START_MS + limits.HOUR_MS))
    bench.leader.step()
    bench.ask(due("last", START_MS + limits.HOUR_MS))
    bench.commit()
    bench.run()

    names = [reply.name for reply in bench.replies]  # type: ignore[attr-defined]
    assert names == [*(f"j{number}" for number in range(7)), "last"]


def test_calls_write_little_where_something_is_due(bench: Bench) -> None:
    """A change of a megabyte takes long to agree on, and what is due is in it."""
    bench.ask(due("d", START_MS + 1_000))
    bench.run()
    bench.replies.clear()
    for number in range(20):
        bench.ask(due(f"j{number}", START_MS + limits.HOUR_MS, payload=60_000))
    bench.now_ms += 1_000

    bench.leader.step()

    [(data, _)] = bench.sent
    assert len(data) < 400_000
    bench.commit()
    bench.run()
    assert len(bench.replies) == 20


def herd(bench: Bench, count: int, at_ms: int) -> None:
    for number in range(count):
        bench.ask(due(f"h{number}", at_ms))


def test_a_herd_alone_fills_a_change(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    herd(bench, 300, START_MS + 1_000)
    bench.run()
    firing_takes(bench, monkeypatch, 0.0002)
    bench.now_ms += 1_000
    bench.leader.step()
    bench.commit()
    left = runs_due(bench)

    bench.leader.step()
    bench.commit()

    assert 95 <= left - runs_due(bench) <= 105


@pytest.mark.parametrize("in_ms", [1, 40])
def test_a_change_is_short_where_somebody_beside_the_herd_is_due_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, in_ms: int
) -> None:
    """Of a herd, what is due takes 20 ms of a change: whoever falls due meanwhile waits for it,
    and for the next one."""
    herd(bench, 300, START_MS + 1_000)
    bench.ask(due("other", START_MS + 1_000 + in_ms))
    bench.run()
    firing_takes(bench, monkeypatch, 0.0002)
    bench.now_ms += 1_000
    bench.leader.step()
    bench.commit()
    left = runs_due(bench)

    bench.leader.step()
    bench.commit()

    assert left - runs_due(bench) == 32


def test_who_found_no_room_beside_a_herd_goes_before_the_rest_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change takes 16 of those that fell due behind it, and there are 40 of them."""
    _, ear = bench.worker("w1", credits=400)
    herd(bench, 300, START_MS + 1_000)
    for number in range(40):
        bench.ask(due(f"o{number}", START_MS + 1_001))
    bench.run()
    firing_takes(bench, monkeypatch, 0.0002)
    bench.now_ms += 1_000
    bench.leader.step()
    bench.commit()
    bench.now_ms += 5

    for _ in range(3):
        bench.leader.step()
        bench.commit()

    assert sum(lease.job.startswith("o") for lease in ear.got) == 40
    assert len(ear.got) < 150
    bench.run()
    assert len(ear.got) == 340


def firing_takes(bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each timer that rings take some time of the loop's clock."""
    clock = [0.0]
    bench.seconds = lambda: clock[0]
    ring = dispatch._wake

    def takes_its_time(view: View, key: bytes) -> None:
        clock[0] += seconds
        ring(view, key)

    monkeypatch.setattr(dispatch, "_wake", takes_its_time)


def runs_due(bench: Bench) -> int:
    end = keys.timers_from(bench.now_ms)
    return sum(1 for _ in bench.applied.store.scan(keys.TIMER, end + b"\xff"))


def test_a_refused_call_keeps_nobody_from_being_leased_in_the_same_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the leader does by itself is then done again; it has its time for that, and so have
    leases behind it."""
    _, ear = bench.worker("w1", credits=9)
    herd(bench, 3, START_MS + 1_000)
    bench.run()
    firing_takes(bench, monkeypatch, 0.020)
    bench.replies.clear()
    bench.now_ms += 1_000
    for _ in range(10):
        bench.ask(job_pb2.PauseJobRequest(job="nobody"))

    bench.leader.step()
    bench.commit()

    assert [lease.job for lease in ear.got] == ["h0"]
    assert bench.replies
    bench.run()
    assert [lease.job for lease in ear.got] == ["h0", "h1", "h2"]
    assert len(bench.replies) == 10


def test_refused_calls_take_no_more_of_a_change_than_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs 1 ms, and calls have 2 where something is due."""
    _, ear = bench.worker("w1", credits=9)
    herd(bench, 1, START_MS + 1_000)
    bench.run()
    slow(bench, monkeypatch, job_pb2.PauseJobRequest, 0.001)
    bench.replies.clear()
    bench.now_ms += 1_000
    for _ in range(30):
        bench.ask(job_pb2.PauseJobRequest(job="nobody"))

    bench.leader.step()
    bench.commit()

    assert [lease.job for lease in ear.got] == ["h0"]
    assert len(bench.replies) == 2
    bench.run()
    assert len(bench.replies) == 30
