"""What is kept of how the cluster has done: bounded, in order, whatever clocks do."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from raftsched.cluster.node.figure_history import (
    KEPT,
    LATENESS,
    SET_BACK_S,
    Figure,
    FigureHistory,
    LeaderCounts,
    percentile,
)
from raftsched.cluster.node.figure_watch import PAST, SENT, FigureWatch
from raftsched.cluster.node.loop_steps import LoopSteps
from raftsched.cluster.node.troubles import Troubles
from raftsched.statemachine.core.store import MemoryStore

from ...rows import each

BEGIN = 1_767_225_600


def figure(second: int, **fields: Any) -> Figure:  # noqa: ANN401
    return Figure(second, "n1", 1.0, **fields)


def test_seconds_become_tens_of_seconds_and_minutes() -> None:
    history = FigureHistory()
    for at in range(120):
        late = (0, 1) if at % 2 else (1,)
        history.add(figure(BEGIN + at, fired=2, late=late, high=at, workers=at, behind={"n2": at}))
    assert [one.second for one in history.since(60, 0)] == [BEGIN, BEGIN + 60]
    minute = history.since(60, BEGIN + 60)[0]
    assert (minute.seconds, minute.fired, minute.late) == (60.0, 120, (30, 30))
    assert (minute.high, minute.workers, minute.behind) == (119, 119, {"n2": 119})
    tens = history.since(10, BEGIN)
    assert [one.fired for one in tens] == [20] * 12
    # One that has begun is not closed yet.
    history.add(figure(BEGIN + 120, fired=5))
    assert history.since(10, BEGIN + 120)[0].fired == 5
    history.add(figure(BEGIN + 121, fired=5))
    assert history.since(10, BEGIN + 120)[0].fired == 10


def test_a_day_is_kept_and_no_more() -> None:
    history = FigureHistory()
    full = {"late": tuple(range(1, 19)), "behind": {f"node-{n}": n for n in range(4)}}
    for at in range(0, 30 * 3_600, 7):
        history.add(figure(BEGIN + at, **full))
    for step, kept in KEPT.items():
        found = history.since(step, 0)
        assert len(found) == kept
        assert [one.second for one in found] == sorted(one.second for one in found)
    size = sum(
        sys.getsizeof(one) + sys.getsizeof(one.late) + sys.getsizeof(one.behind)
        for step in KEPT
        for one in history.since(step, 0)
    )
    assert size < 4 << 20


def test_a_figure_counts_once_however_often_it_comes() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    sent = [figure(BEGIN + at, fired=1) for at in range(200)]
    history = FigureHistory()
    for at in range(len(sent)):
        # Each message holds the last three, and some are lost.
        if at == len(sent) - 1 or chance.random() < 0.7:
            for one in sent[max(0, at - 2) : at + 1]:
                history.add(one)
    seconds = [one.second for one in history.since(1, 0)]
    assert seconds == sorted(set(seconds)), f"seed {seed}"
    assert sum(one.fired for one in history.since(60, 0)) == len(seconds), f"seed {seed}"


def test_a_clock_that_was_set_back_begins_anew_there() -> None:
    history = FigureHistory()
    for at in (0, 1, 3_600):
        history.add(figure(BEGIN + at, fired=1))
    assert not history.add(figure(BEGIN + 3_600 - SET_BACK_S, fired=1))
    assert history.add(figure(BEGIN + 2, fired=1))
    assert [one.second for one in history.since(1, 0)] == [BEGIN, BEGIN + 1, BEGIN + 2]


@each(
    ("late", "share", "wanted"),
    [
        ((), 0.5, None),
        ((10,), 0.5, 0.0005),
        ((0, 100), 0.99, 0.00199),
        ((50, 0, 50), 0.5, 0.001),
        ((0,) * len(LATENESS) + (1,), 0.99, LATENESS[-1]),
    ],
)
def test_a_share_of_leases_is_within_a_lateness(
    late: tuple[int, ...], share: float, wanted: float | None
) -> None:
    found = percentile(late, share)
    assert found == (None if wanted is None else pytest.approx(wanted))


class Stand:
    """A node as the watch sees it."""

    def __init__(self) -> None:
        self.now_ms, self.totals = BEGIN * 1_000, LeaderCounts(0, 0, 0, 0, (0,) * 18)
        steps = LoopSteps("n1", lambda: self.now_ms, lambda: self.now_ms / 1_000)
        self.leader = SimpleNamespace(
            name="n1", leading=True, now_ms=lambda: self.now_ms, steps=steps,
            troubles=Troubles("n1", lambda: self.now_ms, lambda: 0.0),
            applied=SimpleNamespace(store=MemoryStore()),
            sessions=SimpleNamespace(slots=lambda: (2, 20, 5)),
        )  # fmt: skip
        peers = {name: SimpleNamespace(match=match) for name, match in (("n1", 9), ("n2", 4))}
        driver = SimpleNamespace(status=lambda: SimpleNamespace(last_index=9, peers=peers))
        self.watch = FigureWatch(cast(Any, self.leader), cast(Any, driver))
        self.watch.count_by(lambda: self.totals)

    def tick(self, **more: int) -> None:
        self.now_ms += 1_000
        counted = {name: getattr(self.totals, name) + count for name, count in more.items()}
        self.totals = self.totals._replace(**counted)
        self.watch.try_to_look()


def test_the_leader_counts_and_the_others_have_it() -> None:
    leader, follower = Stand(), Stand()
    follower.leader.leading = False
    leader.tick(fired=100)
    follower.tick()
    for _ in range(5):
        leader.tick(fired=3, started=2, ended=1)
        follower.tick()
        follower.watch.received(leader.watch.to_send())
    assert follower.watch.to_send() == ()
    assert len(leader.watch.to_send()) == SENT
    found = leader.watch.history.since(1, 0)
    # What was counted before it was looked at for the first time belongs to no second.
    assert [(one.fired, one.started, one.ended) for one in found] == [(3, 2, 1)] * 5
    assert (found[0].workers, found[0].slots, found[0].busy) == (2, 20, 15)
    assert found[0].behind == {"n2": 5}
    assert follower.watch.history.since(1, 0) == found
    # Whoever leads next goes on where the other one was.
    follower.leader.leading = True
    follower.tick(fired=7)
    assert [one.fired for one in follower.watch.history.since(1, 0)] == [3] * 5 + [7]


def test_whoever_has_just_started_gets_the_past() -> None:
    leader, late, later = Stand(), Stand(), Stand()
    late.leader.leading = later.leader.leading = False
    for _ in range(7_200):
        leader.tick(fired=1)
    begins = leader.watch.history.begins()
    most = 0
    for at in range(60):
        leader.tick(fired=1)
        for one in (late, later) if at > 10 else (late,):
            heard = [late.watch.history.begins(), later.watch.history.begins()]
            past = leader.watch.past_for(heard)
            most = max(most, sum(len(part.figures) for part in past))
            one.watch.received(leader.watch.to_send(), past)
    for one in (late, later):
        found = one.watch.history
        assert found.begins()[1:] == begins[1:]
        assert len(found.since(1, 0)) == KEPT[1]
        for step in KEPT:
            seconds = [figure.second for figure in found.since(step, 0)]
            assert seconds == sorted(set(seconds))
        # All but the stretches in which it began itself.
        assert sum(figure.fired for figure in found.since(60, 0)) > 7_100
    assert most <= 3 * PAST
    assert leader.watch.past_for([one.watch.history.begins()]) == ()
    assert late.watch.past_for([(0, 0, 0)]) == ()


def test_what_a_later_release_adds_is_left_out() -> None:
    sent = msgspec.to_builtins(figure(BEGIN, fired=4))
    newer = msgspec.json.encode([*sent, "of a later release"])
    assert msgspec.json.decode(newer, type=Figure) == figure(BEGIN, fired=4)
    older = msgspec.json.encode(sent[:4])
    assert msgspec.json.decode(older, type=Figure).fired == 4


def test_what_fails_there_is_set_aside() -> None:
    stand = Stand()
    stand.tick()
    stand.leader.sessions.slots = lambda: 1 // 0
    stand.tick()
    [trouble] = stand.leader.troubles.last
    assert trouble.what == "taking the figures"
