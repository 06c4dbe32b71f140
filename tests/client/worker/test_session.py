"""The rules at the top of worker.proto, each on a session without network or clock."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from raftsched.client.worker import answer_times, deadlines, outbox
from raftsched.client.worker import frames as frames_within
from raftsched.client.worker import protocol as rules
from raftsched.client.worker.protocol import Orders, Session
from raftsched.proto.v1 import worker_pb2
from raftsched.proto.v1.worker_pb2 import Lease, Result, ResultAck, Stop, WorkRequest, WorkResponse

HEARTBEAT_S, LAPSE_S = 10.0, 30.0
SERVER_EPOCH_S = 1_700_000_000.0


class Talk:
    """A session, its clock, and a server that answers as the test says."""

    def __init__(self, slots: int = 4) -> None:
        self.now = 1_000.0
        hello = worker_pb2.WorkerHello(worker="w-1", slots=slots, handlers=["h"])
        self.session = Session(hello, self.now)
        self.said: list[WorkRequest] = []
        self.said_at = self.now

    def connect(self) -> WorkRequest:
        """Open a stream, be welcomed; the hello comes back."""
        self.session.opened(self.now)
        [hello] = self.say()
        self.hear(self.welcome(beat=hello.beat))
        return hello

    def welcome(self, **more: object) -> WorkResponse:
        frame = WorkResponse(**more)  # type: ignore[arg-type]
        frame.welcome.heartbeat.FromMilliseconds(int(HEARTBEAT_S * 1000))
        frame.welcome.lapse.FromMilliseconds(int(LAPSE_S * 1000))
        frame.welcome.server_time.FromMilliseconds(int((SERVER_EPOCH_S + self.now) * 1000))
        return frame

    def say(self) -> list[WorkRequest]:
        frames = self.session.frames(self.now)
        self.said_at = self.now
        self.said += frames
        return frames

    def hear(self, frame: WorkResponse | None = None, **fields: object) -> Orders:
        return self.session.received(frame or WorkResponse(**fields), self.now)  # type: ignore[arg-type]

    def lease(self, *tokens: int, deadline_in: float | None = None) -> Orders:
        leases = [Lease(run=f"r-{token}", token=token) for token in tokens]
        for lease in leases:
            if deadline_in is not None:
                at = SERVER_EPOCH_S + self.now + deadline_in
                lease.deadline.FromMilliseconds(int(at * 1000))
        return self.hear(leases=leases)

    def succeed(self, *tokens: int) -> None:
        for token in tokens:
            self.session.ended(token, success(token))

    def ack(self, *tokens: int, reason: str = "") -> Orders:
        subject = ResultAck.SUBJECT_RESULT
        return self.hear(acks=[ResultAck(token=t, reason=reason, subject=subject) for t in tokens])

    def break_and_connect(self) -> WorkRequest:
        self.session.closed()
        return self.connect()

    def pass_time(self, seconds: float) -> Orders:
        """Let the time go by with a server that answers nothing."""
        self.now += seconds
        return self.session.tick(self.now)


def success(token: int, data: bytes = b"") -> Result:
    result = Result(run=f"r-{token}", token=token, success=worker_pb2.Success())
    if data:
        result.success.result.data = data
    return result


def failure(token: int) -> Result:
    result = Result(run=f"r-{token}", token=token)
    result.failure.error.kind = "ValueError"
    return result


def results(frames: list[WorkRequest]) -> list[int]:
    return [result.token for frame in frames for result in frame.results]


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_the_first_frame_is_the_hello_with_credits_for_all_slots(talk: Talk) -> None:
    talk.session.opened(talk.now)

    [first] = talk.say()

    assert first.hello.worker == "w-1"
    assert first.credits == 4
    assert not first.hello.held


def test_nothing_but_the_hello_is_said_before_the_welcome(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.session.closed()
    talk.session.opened(talk.now)
    talk.say()

    assert talk.say() == []

    talk.hear(talk.welcome())
    assert results(talk.say()) == [1]


def test_leases_are_handed_out_once_even_if_they_come_twice(talk: Talk) -> None:
    talk.connect()

    assert [lease.token for lease in talk.lease(1, 2).start] == [1, 2]
    assert talk.lease(2, 3).start[0].token == 3
    assert talk.session.busy == 3


def test_each_result_gives_one_credit(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2, 3, 4)
    assert talk.say() == []

    talk.succeed(1, 2)
    [frame] = talk.say()

    assert frame.credits == 2
    assert results([frame]) == [1, 2]


def test_a_handler_of_a_lost_lease_keeps_its_slot_until_it_has_ended(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2, 3, 4)
    talk.hear(stops=[Stop(token=1, kind=Stop.KIND_LOST)])

    assert talk.say() == []

    talk.succeed(1)
    [frame] = talk.say()
    assert frame.credits == 1
    assert results([frame]) == []


def test_credits_stop_where_a_hello_could_not_name_all_leases() -> None:
    talk = Talk(slots=10_000)
    talk.connect()
    talk.lease(*range(1, 10_001))
    talk.succeed(*range(1, 10_001))

    credits = sum(frame.credits for frame in talk.say())
    assert credits == 0

    talk.ack(*range(1, 101))
    assert sum(frame.credits for frame in talk.say()) == 100


def test_credits_stop_while_large_reports_wait() -> None:
    talk = Talk(slots=2_000)
    talk.connect()
    talk.lease(*range(2_000))
    for token in range(2_000):
        talk.session.ended(token, success(token, bytes(65_536)))

    assert sum(frame.credits for frame in talk.say()) == 0

    talk.ack(*range(2_000))
    assert sum(frame.credits for frame in talk.say()) == 2_000


def test_everything_that_is_said_about_a_run_carries_its_token(talk: Talk) -> None:
    talk.connect()
    talk.lease(7)
    talk.session.extend(worker_pb2.ExtendRequest(run="r-7", token=7))
    talk.session.progress(worker_pb2.ProgressReport(run="r-7", token=7))
    talk.now += 1
    frames = talk.say()
    talk.succeed(7)
    frames += talk.say()

    assert [one.token for frame in frames for one in frame.extensions] == [7]
    assert [one.token for frame in frames for one in frame.progress] == [7]
    assert results(frames) == [7]


def test_a_word_refused_with_lease_lost_stops_the_handler_at_once(talk: Talk) -> None:
    talk.connect()
    talk.lease(7)
    talk.session.extend(worker_pb2.ExtendRequest(run="r-7", token=7))
    talk.say()

    refusal = ResultAck(token=7, reason="LEASE_LOST", subject=ResultAck.SUBJECT_EXTENSION)
    orders = talk.hear(acks=[refusal])

    assert [(stop.token, stop.kind) for stop in orders.stop] == [(7, Stop.KIND_LOST)]
    talk.succeed(7)
    assert results(talk.say()) == []


def test_a_stop_for_an_unknown_lease_is_passed_over(talk: Talk) -> None:
    talk.connect()

    stops = [Stop(token=9, kind=Stop.KIND_CANCEL), Stop(token=10, kind=Stop.KIND_LOST)]

    assert talk.hear(stops=stops).stop == []


def test_a_cancel_leaves_the_lease_standing_and_is_reported(talk: Talk) -> None:
    talk.connect()
    talk.lease(7)

    [stop] = talk.hear(stops=[Stop(token=7, kind=Stop.KIND_CANCEL)]).stop

    assert stop.kind == Stop.KIND_CANCEL
    ended = failure(7)
    ended.failure.cancelled = True
    talk.session.ended(7, ended)
    assert talk.say()[0].results[0].failure.cancelled


def test_a_report_is_said_again_on_a_new_stream_until_it_is_acknowledged(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2)
    talk.succeed(1, 2)
    assert results(talk.say()) == [1, 2]
    talk.ack(1)

    talk.break_and_connect()
    assert results(talk.say()) == [2]

    talk.break_and_connect()
    assert results(talk.say()) == [2]

    talk.ack(2)
    talk.break_and_connect()
    assert results(talk.say()) == []
    assert talk.session.idle


def test_a_report_is_said_again_on_the_same_stream_after_a_while(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    assert results(talk.say()) == [1]

    again = []
    for _ in range(25):
        talk.hear(beat=talk.said[-1].beat)
        talk.pass_time(1)
        again += results(talk.say())

    assert again
    assert set(again) == {1}


@pytest.mark.parametrize("reason", ["LEASE_LOST", "ALREADY_REPORTED", "RUN_NOT_FOUND"])
def test_a_report_that_is_refused_for_good_is_forgotten(talk: Talk, reason: str) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    talk.ack(1, reason=reason)

    assert talk.session.idle
    assert not talk.break_and_connect().hello.held


@pytest.mark.parametrize("reason", ["FIELD_INVALID", "PAYLOAD_TOO_LARGE", "LIMIT_EXCEEDED"])
def test_a_result_that_cannot_be_taken_becomes_a_fatal_failure(talk: Talk, reason: str) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    orders = talk.ack(1, reason=reason)

    [frame] = talk.say()
    assert frame.results[0].failure.fatal
    assert reason in frame.results[0].failure.error.message
    assert orders.complaints


def test_when_even_the_failure_cannot_be_taken_the_run_is_given_back_then_left(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()
    talk.ack(1, reason="FIELD_INVALID")
    talk.say()

    talk.ack(1, reason="FIELD_INVALID")
    assert talk.say()[0].results[0].HasField("given_back")

    talk.ack(1, reason="FIELD_INVALID")
    assert talk.session.idle


def test_an_unknown_refusal_keeps_the_report(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    assert talk.ack(1, reason="SOMETHING_NEW").complaints

    talk.break_and_connect()
    assert results(talk.say()) == [1]


def test_a_checkpoint_is_said_before_the_failure_that_follows_it(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.session.progress(worker_pb2.ProgressReport(run="r-1", token=1, checkpoint=b"here"))
    talk.session.ended(1, failure(1))

    for frames in (talk.say(), talk.break_and_connect() and talk.say()):
        assert frames[0].progress[0].checkpoint == b"here"
        assert not frames[0].results
        assert results(frames) == [1]


def test_a_new_stream_names_the_same_worker_and_all_leases_without_an_end(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2, 3)
    talk.succeed(1, 2)
    talk.say()
    talk.ack(1)

    hello = talk.break_and_connect().hello

    assert hello.worker == "w-1"
    assert {held.token: held.run for held in hello.held} == {2: "r-2", 3: "r-3"}


def test_credits_of_the_old_stream_are_void(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)

    again = talk.break_and_connect()

    # Four slots, one taken: all other three are said anew.
    assert again.credits == 3


def test_what_the_server_does_not_leave_us_is_stopped(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2)
    talk.succeed(2)
    talk.break_and_connect()

    stops = [Stop(token=token, kind=Stop.KIND_LOST) for token in (1, 2)]
    orders = talk.hear(stops=stops)

    # The second has ended by itself: there is nothing to stop, and nothing left to report.
    assert [stop.token for stop in orders.stop] == [1]
    assert talk.session.idle


def test_work_goes_on_while_there_is_no_stream(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.session.closed()

    assert not talk.pass_time(5).stop
    talk.succeed(1)

    assert talk.say() == []
    talk.connect()
    assert results(talk.say()) == [1]


def test_a_redirect_names_the_leader(talk: Talk) -> None:
    talk.session.opened(talk.now)
    talk.say()

    orders = talk.hear(redirect=worker_pb2.Redirect(leader="node-2:7400"))

    assert orders.reconnect
    assert orders.leader == "node-2:7400"


def test_a_request_for_more_time_survives_the_stream(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.session.extend(worker_pb2.ExtendRequest(run="r-1", token=1))
    talk.say()

    talk.break_and_connect()

    assert [one.token for frame in talk.say() for one in frame.extensions] == [1]


def test_handlers_are_stopped_before_the_lapse_when_no_word_is_known_to_be_read(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)

    assert not talk.pass_time(LAPSE_S * 0.8).stop
    assert talk.session.next_at() <= talk.now + LAPSE_S * 0.2
    orders = talk.pass_time(LAPSE_S * 0.15)

    assert [(stop.token, stop.kind) for stop in orders.stop] == [(1, Stop.KIND_LOST)]
    assert orders.reconnect
    assert not talk.break_and_connect().hello.held


def test_what_the_server_says_without_a_beat_does_not_prolong_a_lease(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)

    stopped: list[Stop] = []
    for _ in range(30):
        talk.hear()
        stopped += talk.pass_time(1).stop
        talk.say()

    assert [stop.token for stop in stopped] == [1]


def test_a_beat_prolongs_from_when_it_was_said_not_from_when_it_came_back(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.pass_time(5)
    [beat] = talk.say()
    talk.now += 14
    talk.hear(beat=beat.beat)

    # 27 s after the beat was said are 8 s after it came back... plus 5.
    assert not talk.pass_time(12.9).stop
    talk.hear()
    assert talk.pass_time(0.2).stop


def test_a_welcome_shows_that_the_hello_was_read(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.pass_time(20)
    talk.session.closed()
    talk.session.opened(talk.now)
    talk.say()
    talk.hear(talk.welcome())

    assert not talk.pass_time(20).stop


def test_a_hello_after_the_lapse_lists_what_has_ended_and_is_not_acknowledged(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2)
    talk.succeed(1)
    talk.say()
    talk.session.closed()

    assert [stop.token for stop in talk.pass_time(LAPSE_S).stop] == [2]

    # A server that heard nothing of the end may not have let it lapse: were it not listed, the run
    # would be done again.
    assert [(one.token, one.run) for one in talk.connect().hello.held] == [(1, "r-1")]
    assert results(talk.say()) == [1]
    talk.ack(1)
    assert talk.session.idle


def test_a_report_alone_does_not_end_a_stream_when_the_lapse_is_over(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()
    talk.session.closed()
    talk.pass_time(2 * LAPSE_S)
    talk.session.opened(talk.now)
    talk.say()

    assert not talk.pass_time(1).reconnect
    assert talk.session.next_at() > talk.now


def test_a_deadline_by_the_servers_clock_stops_the_handler_by_ours(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, deadline_in=3)

    assert not talk.pass_time(2.9).stop
    assert talk.session.next_at() == pytest.approx(talk.now + 0.1, abs=0.01)
    assert [stop.token for stop in talk.pass_time(0.2).stop] == [1]


def test_an_extension_moves_the_deadline(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, deadline_in=3)
    talk.session.extend(worker_pb2.ExtendRequest(run="r-1", token=1))
    talk.say()
    ack = ResultAck(token=1, subject=ResultAck.SUBJECT_EXTENSION)
    ack.deadline.FromMilliseconds(int((SERVER_EPOCH_S + talk.now + 8) * 1000))

    orders = talk.hear(acks=[ack])

    assert orders.extended == [ack]
    assert not talk.pass_time(7.9).stop
    assert talk.pass_time(0.2).stop


def test_deadlines_of_leases_that_ended_are_not_kept_for_long() -> None:
    talk = Talk(slots=10)
    talk.connect()
    for token in range(10_000):
        talk.lease(token, deadline_in=86_400)
        talk.succeed(token)
        talk.say()
        talk.ack(token)

    assert len(talk.session._deadlines.heap) <= deadlines.STALE_MAX + 1


def test_a_word_is_said_in_each_heartbeat_period(talk: Talk) -> None:
    talk.connect()

    said_at = []
    for _ in range(60):
        talk.hear()
        talk.pass_time(0.5)
        said_at += [talk.now] * len(talk.say())

    gaps = [later - earlier for earlier, later in itertools.pairwise(said_at)]
    assert max(gaps) < HEARTBEAT_S
    # And no more often than needed.
    assert len(said_at) <= 9


def test_two_silent_periods_end_the_stream(talk: Talk) -> None:
    talk.connect()

    assert not talk.pass_time(2 * HEARTBEAT_S - 0.1).reconnect
    assert talk.pass_time(0.2).reconnect


def test_a_node_that_says_no_welcome_is_given_up(talk: Talk) -> None:
    talk.session.opened(talk.now)
    talk.say()

    assert talk.pass_time(rules.WELCOME_S + 0.1).reconnect


def test_a_cluster_that_is_slow_to_say_welcome_gets_more_time_with_each_try(talk: Talk) -> None:
    waited = []
    for _ in range(6):
        talk.session.opened(talk.now)
        talk.say()
        waited.append(talk.session.next_at() - talk.now)
        assert talk.pass_time(waited[-1] + 0.1).reconnect
        talk.session.closed()
    assert waited == pytest.approx([3, 6, 12, 24, 24, 24])

    talk.connect()
    talk.break_and_connect()
    talk.session.closed()
    talk.session.opened(talk.now)
    assert talk.session.next_at() - talk.now == pytest.approx(3)


def answer_beats(talk: Talk, delay: float, seconds: int) -> None:
    """Let the server answer each beat so much later."""
    for _ in range(seconds):
        talk.pass_time(1 - delay)
        for frame in talk.say():
            talk.now += delay
            talk.hear(beat=frame.beat)


def test_a_server_that_always_answered_soon_is_left_soon_when_it_does_not(talk: Talk) -> None:
    talk.connect()
    answer_beats(talk, delay=0.1, seconds=120)
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    assert not talk.pass_time(answer_times.TIMEOUT_MIN_S - 0.1).reconnect
    assert talk.session.next_at() <= talk.now + 0.11
    assert talk.pass_time(0.2).reconnect


def test_a_server_that_takes_its_time_as_the_contract_allows_is_not_left(talk: Talk) -> None:
    talk.connect()
    answer_beats(talk, delay=0.1, seconds=120)

    left = 0
    for _ in range(100):
        talk.pass_time(0.5)
        beats = [frame.beat for frame in talk.say()]
        silent = [talk.pass_time(1).reconnect for _ in range(int(HEARTBEAT_S - 1))]
        if any(silent):
            left += 1
            talk.break_and_connect()
        else:
            talk.hear(beat=max(beats, default=0))

    # A few times it was mistaken for dead, then known as it is.
    assert 0 < left <= 8


def test_quick_answers_to_reports_say_nothing_of_how_soon_a_beat_is_answered(talk: Talk) -> None:
    """A server with very many workers answers each beat within a heartbeat, and reports at once."""
    talk.connect()
    for token in range(1, 100):
        talk.lease(token)
        talk.succeed(token)
        [frame] = talk.say()
        talk.now += 0.01
        talk.hear(beat=frame.beat, acks=[ResultAck(token=token)])

    for _ in range(50):
        silent = [talk.pass_time(0.1) for _ in range(int(8 * HEARTBEAT_S))]
        assert not any(orders.reconnect for orders in silent)
        talk.hear(beat=max(frame.beat for frame in talk.said))
        talk.say()

    talk.lease(100)
    talk.succeed(100)
    talk.say()
    assert talk.pass_time(answer_times.TIMEOUT_MIN_S + 0.1).reconnect


def test_others_are_asked_who_leads_while_an_answer_is_owed_and_the_stream_stays(
    talk: Talk,
) -> None:
    talk.connect()
    answer_beats(talk, delay=0.1, seconds=120)
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    asked = []
    for _ in range(70):
        assert not talk.pass_time(0.01).reconnect
        assert talk.session.next_at() > talk.now - 0.011
        if talk.session.inquires(talk.now):
            asked.append(round(talk.now - talk.said_at, 2))
    assert asked == pytest.approx([0.3, 0.4, 0.52, 0.65], abs=0.021)

    talk.ack(1)
    talk.hear(beat=talk.said[-1].beat)
    assert not any(talk.session.inquires(talk.now + later) for later in (0.1, 0.5, 5.0))


def work(talk: Talk, pause: float, times: int) -> None:
    """Let the server give a lease and acknowledge its report, again and again."""
    for token in range(1, times + 1):
        talk.now += pause
        talk.lease(token)
        talk.succeed(token)
        [report, *_] = talk.say()
        ack = ResultAck(token=token, subject=ResultAck.SUBJECT_RESULT)
        talk.hear(acks=[ack], beat=report.beat)


def test_a_server_that_falls_silent_amid_work_is_asked_once_and_soon(talk: Talk) -> None:
    """It owes no answer then, and would hang unnoticed until the next beat."""
    talk.connect()
    work(talk, pause=0.01, times=100)

    assert talk.session.next_at() == pytest.approx(talk.now + 0.1, abs=0.02)
    talk.pass_time(0.12)
    [beat] = talk.say()
    asked = [step for step in range(60) if talk.session.inquires(talk.now + step / 100)]
    assert asked == pytest.approx([30, 40, 52], abs=3)

    talk.hear(beat=beat.beat)
    assert talk.session.next_at() == pytest.approx(talk.now + HEARTBEAT_S / 3, abs=0.01)
    assert not any(talk.session.inquires(talk.now + later) for later in (0.3, 1.0, 3.0))


def test_a_server_that_answers_such_a_question_late_is_not_doubted(talk: Talk) -> None:
    talk.connect()
    for late in (1.2, 1.1):
        work(talk, pause=0.01, times=100)
        talk.pass_time(0.12)
        [beat] = talk.say()
        talk.now += late
        doubted = talk.session.inquires(talk.now)
        talk.hear(beat=beat.beat)
        talk.now += 1.0
    assert not doubted


def test_a_server_that_seldom_has_work_is_not_asked_early(talk: Talk) -> None:
    talk.connect()
    work(talk, pause=5.0, times=10)

    assert talk.session.next_at() == pytest.approx(talk.now + HEARTBEAT_S / 3, abs=0.01)


def test_nobody_asks_who_leads_while_a_beat_is_answered_as_late_as_it_always_was(
    talk: Talk,
) -> None:
    talk.connect()
    answer_beats(talk, delay=7.0, seconds=240)
    talk.say()
    assert not any(talk.session.inquires(talk.now + later / 10) for later in range(70))


def test_a_leader_that_is_silent_for_long_costs_the_others_few_questions(talk: Talk) -> None:
    """Before it has answered soon for a while, nobody knows that it could."""
    talk.connect()
    talk.lease(1)
    talk.succeed(1)
    talk.say()
    asked = [talk.session.inquires(talk.now + step / 100) for step in range(2_000)]
    assert 15 < sum(asked) < 25


def test_what_crosses_a_beat_shows_that_the_server_lives(talk: Talk) -> None:
    talk.connect()
    answer_beats(talk, delay=0.1, seconds=120)
    talk.lease(1)
    talk.succeed(1)
    talk.say()

    for _ in range(10):
        talk.hear(beat=0)
        assert not talk.pass_time(0.5).reconnect


def test_a_drain_is_said_once_and_voids_the_credits(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.session.drain()

    assert [frame.drain for frame in talk.say()] == [True]
    talk.succeed(1)
    [frame] = talk.say()

    assert not frame.drain
    assert frame.credits == 0


def test_a_lease_that_crossed_our_drain_is_given_back_at_once(talk: Talk) -> None:
    talk.connect()
    talk.session.drain()
    talk.say()

    assert talk.lease(1).start == []

    [frame] = talk.say()
    assert frame.results[0].HasField("given_back")
    assert talk.session.busy == 0


def test_the_rest_is_given_back_and_acknowledged_before_the_end(talk: Talk) -> None:
    talk.connect()
    talk.lease(1, 2)
    talk.session.drain()
    talk.say()
    talk.session.progress(worker_pb2.ProgressReport(run="r-2", token=2, checkpoint=b"half"))
    talk.succeed(1)
    talk.session.give_back_all()
    frames = talk.say()

    ends = {r.token: r for frame in frames for r in frame.results}
    assert ends[1].HasField("success")
    assert ends[2].given_back.checkpoint == b"half"
    assert not talk.session.idle

    # The handler comes to its end all the same: too late.
    talk.succeed(2)
    assert talk.say() == []
    talk.ack(1, 2)
    assert talk.session.idle


def test_a_drain_is_said_again_on_a_new_stream(talk: Talk) -> None:
    talk.connect()
    talk.session.drain()
    talk.say()

    hello = talk.break_and_connect()

    assert hello.drain
    assert hello.credits == 0


def test_the_hello_says_whether_there_was_a_welcome_before(talk: Talk) -> None:
    talk.session.opened(talk.now)
    [unheard] = talk.say()
    talk.session.closed()
    first = talk.connect()
    second = talk.break_and_connect()

    said = [frame.hello.welcomed for frame in (unheard, first, second)]
    assert said == [False, False, True]


def test_a_drain_from_the_server_ends_the_credits_of_that_stream(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.hear(drain=True, drain_reason="upgrade")
    talk.succeed(1)

    [frame] = talk.say()
    assert (frame.credits, frame.drain) == (0, False)
    assert talk.session.drained
    assert talk.session.drain_reason == "upgrade"


def test_a_drain_from_the_server_is_said_to_the_next_leader(talk: Talk) -> None:
    talk.connect()
    talk.hear(drain=True, drain_reason="upgrade")

    hello = talk.break_and_connect()

    assert (hello.credits, hello.drain) == (0, True)
    assert not talk.session.drained


def test_no_frame_holds_more_than_a_thousand_results() -> None:
    talk = Talk(slots=2_500)
    talk.connect()
    talk.lease(*range(2_500))
    talk.succeed(*range(2_500))

    frames = talk.say()

    assert [len(frame.results) for frame in frames] == [1_000, 1_000, 500]
    assert sum(frame.credits for frame in frames) == 2_500


def test_no_frame_is_larger_than_three_mebibytes() -> None:
    talk = Talk(slots=200)
    talk.connect()
    talk.lease(*range(200))
    for token in range(200):
        talk.session.ended(token, success(token, bytes(65_000)))

    frames = talk.say()

    assert results(frames) == list(range(200))
    assert max(frame.ByteSize() for frame in frames) <= frames_within.FRAME_BYTES_MAX


def test_progress_is_gathered_and_the_newest_counts(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    for done in range(100):
        report = worker_pb2.ProgressReport(run="r-1", token=1, checkpoint=b"%d" % (done // 50))
        report.progress.done = done
        talk.session.progress(report)
    late = worker_pb2.ProgressReport(run="r-1", token=1, log_tail=b"log")
    talk.session.progress(late)
    talk.session.progress(worker_pb2.ProgressReport(run="r-1", token=1))
    talk.now += outbox.PROGRESS_S

    [frame] = talk.say()

    [report] = frame.progress
    assert report.progress.done == 99
    assert report.checkpoint == b"1"
    assert report.log_tail == b"log"


def test_progress_of_a_lease_that_is_gone_is_not_said(talk: Talk) -> None:
    talk.connect()
    talk.lease(1)
    talk.hear(stops=[Stop(token=1, kind=Stop.KIND_LOST)])

    talk.session.progress(worker_pb2.ProgressReport(run="r-1", token=1))
    talk.now += 1

    assert not any(frame.progress for frame in talk.say())


class Server:
    """Judges a worker as the contract does, on a network that breaks between any two frames."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.standing: dict[int, int] = {}
        self.recorded: dict[int, str] = {}
        self.credits = 0
        self.token = 0
        self.next_run = 0
        self.back: list[int] = []
        self.out = WorkResponse()

    def read(self, frame: WorkRequest) -> None:
        if frame.HasField("hello"):
            self._hello(frame.hello)
        self.credits += frame.credits
        if frame.drain:
            self.credits, self.out.drain = 0, True
        for result in frame.results:
            self._judge(result)
        self.out.beat = max(self.out.beat, frame.beat)

    def _hello(self, hello: worker_pb2.WorkerHello) -> None:
        held = {one.token for one in hello.held}
        assert len(held) <= 10_000
        for token in [token for token in self.standing if token not in held]:
            self.back.append(self.standing.pop(token))
        for token in held - self.standing.keys():
            self.out.stops.add(token=token, kind=Stop.KIND_LOST)
        self.credits = 0

    def _judge(self, result: Result) -> None:
        token = result.token
        ack = self.out.acks.add(token=token, subject=ResultAck.SUBJECT_RESULT)
        if token in self.standing:
            run = self.standing.pop(token)
            end = result.WhichOneof("end") or ""
            if end == "given_back":
                self.back.append(run)
            else:
                assert token not in self.recorded
            self.recorded[token] = end
        elif token not in self.recorded:
            ack.reason = "LEASE_LOST"

    def answer(self) -> WorkResponse:
        out, self.out = self.out, WorkResponse()
        for _ in range(self.chance.randint(0, min(self.credits, 5))):
            self.credits -= 1
            self.token += 1
            run = self.back.pop() if self.back else self.next_run
            self.next_run = max(self.next_run, run + 1)
            self.standing[self.token] = run
            out.leases.add(run=f"r-{run}", token=self.token)
        return out


@pytest.mark.parametrize("seed", range(30))
def test_no_run_is_lost_or_recorded_twice_over_streams_that_break(seed: int) -> None:
    chance = random.Random(seed)
    talk, server = Talk(slots=chance.randint(1, 20)), Server(chance)
    working: list[int] = []
    done: set[int] = set()

    def obey(orders: Orders) -> None:
        working.extend(lease.token for lease in orders.start)

    def exchange(upset: float) -> None:
        for frame in talk.session.frames(talk.now):
            if chance.random() < upset:
                return talk.session.closed()
            server.read(frame)
        answer = server.answer()
        if chance.random() < upset:
            return talk.session.closed()
        obey(talk.hear(answer))
        return None

    def step(upset: float) -> None:
        if not talk.session._open:
            talk.session.opened(talk.now)
            server.out = talk.welcome()
        exchange(upset)
        talk.now += chance.random()
        obey(talk.session.tick(talk.now))
        chance.shuffle(working)
        while working and chance.random() < 0.7:
            token = working.pop()
            done.add(token)
            talk.session.ended(token, success(token))

    for _ in range(400):
        step(upset=0.1)
        assert talk.session.held <= 20 + len(server.out.acks) + 5
    talk.session.drain()
    for _ in range(400):
        step(upset=0.0)

    assert talk.session.idle, f"seed {seed}"
    assert talk.session.busy == 0
    assert server.standing == {}, f"seed {seed}"
    # Whatever is recorded as a success was done, once.
    succeeded = {token for token, end in server.recorded.items() if end == "success"}
    assert succeeded <= done
    assert len(succeeded) > 50


class Way:
    """One direction of the network: late now and then, and sometimes for very long."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.held_up_until = 0.0
        self.under_way: list[tuple[float, Any]] = []

    def send(self, message: object, now: float) -> None:
        if self.chance.random() < 0.03:
            self.held_up_until = now + self.chance.uniform(0, 120)
        arrival = max(now, self.held_up_until) + self.chance.choice([0.0, 0.0, 0.1])
        self.under_way.append((arrival, message))

    def arrived(self, now: float) -> list[Any]:
        count = sum(arrival <= now for arrival, _ in self.under_way)
        there, self.under_way = self.under_way[:count], self.under_way[count:]
        return [message for _, message in there]


class Strict(Server):
    """A server that ends a session's leases after so long a silence, as the contract says."""

    def __init__(self, chance: random.Random, talk: Talk) -> None:
        super().__init__(chance)
        self.talk = talk
        self.heard_at = self.spoke_at = 0.0

    def read(self, frame: WorkRequest) -> None:
        if frame.HasField("hello"):
            self.out = self.talk.welcome()
        self.heard_at = self.talk.now
        super().read(frame)

    def lapse(self) -> list[int]:
        if self.talk.now < self.heard_at + LAPSE_S:
            return []
        lapsed = list(self.standing)
        self.back += self.standing.values()
        self.standing.clear()
        return lapsed

    def speak(self) -> bool:
        """It has something to say, or has said nothing for long."""
        due = self.talk.now > self.spoke_at + HEARTBEAT_S - 1
        if not self.out.ByteSize() or not (due or self.chance.random() < 0.3):
            return False
        self.spoke_at = self.talk.now
        return True


@pytest.mark.parametrize("seed", range(25))
def test_when_the_server_lets_a_lease_lapse_its_handler_was_told_to_stop(seed: int) -> None:
    chance = random.Random(seed)
    talk = Talk(slots=5)
    server, there, back = Strict(chance, talk), Way(chance), Way(chance)
    lapses = 0
    talk.session.opened(talk.now)

    for _ in range(12_000):
        talk.now += 0.1
        leaves = bool(talk.session.tick(talk.now).reconnect)
        # The worker looks first: it looks at its clock as often as the server at its own.
        for token in server.lapse():
            lapses += 1
            assert not talk.session.holds(token), f"seed {seed}, at {talk.now}"
        for frame in talk.say():
            there.send(frame, talk.now)
        for frame in there.arrived(talk.now):
            server.read(frame)
        if server.speak():
            back.send(server.answer(), talk.now)
        for answer in back.arrived(talk.now):
            leaves = leaves or bool(talk.hear(answer).reconnect)
        if leaves:
            # What is under way on the old stream is gone; the network is as it was.
            there.under_way, back.under_way, server.out = [], [], WorkResponse()
            talk.session.closed()
            talk.session.opened(talk.now)
        for token in [one for one in talk.session._held if talk.session.holds(one)]:
            if chance.random() < 0.01:
                talk.session.ended(token, success(token))
    assert lapses, f"seed {seed} shows nothing"


def test_a_lease_that_comes_behind_the_hello_and_before_its_welcome_is_left_alone(
    talk: Talk,
) -> None:
    """The hello does not list it, so the server gives it to another."""
    talk.connect()
    talk.session.closed()
    assert talk.lease(1).start == []
    talk.session.opened(talk.now)
    [hello] = talk.say()
    assert not hello.hello.held

    late = talk.lease(2)
    talk.hear(talk.welcome())

    assert (late.start, talk.session.held, talk.session.busy) == ([], 0, 0)
    assert late.complaints
    assert [lease.token for lease in talk.lease(3).start] == [3]


def test_a_lease_that_is_lost_by_the_frame_that_brings_it_is_not_begun(talk: Talk) -> None:
    talk.connect()
    orders = talk.hear(
        leases=[Lease(run="r-1", token=1), Lease(run="r-2", token=2)],
        stops=[Stop(run="r-1", token=1, kind=Stop.KIND_LOST)],
    )

    assert [lease.token for lease in orders.start] == [2]
    assert (talk.session.held, talk.session.busy) == (1, 1)
