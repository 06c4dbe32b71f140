"""A clock that was set is not followed before others agree with it."""

from __future__ import annotations

import pytest

from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.clock import ALONE, SteadyClock
from raftsched.cluster.node.peer_info import PeerDirectory
from raftsched.statemachine.core.store import MemoryStore

from ...rows import each

START_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
VOTERS = ["n1", "n2", "n3"]
MOST_MS = 1_000


class Room:
    """A node's two clocks, and what it knows of others."""

    def __init__(self) -> None:
        self.passed = 100.0
        self.set_by_ms = 0
        self.known = PeerDirectory("n1", Applied(MemoryStore()), self.wall_ms, self.seconds)
        self.clock = SteadyClock(self.wall_ms, self.seconds)

    def seconds(self) -> float:
        return self.passed

    def wall_ms(self) -> int:
        return START_MS + int(self.passed * 1000) + self.set_by_ms

    def true_ms(self) -> int:
        return START_MS + int(self.passed * 1000)

    def hear(self, peer: str, skew_ms: int = 0) -> None:
        wall_ms = self.true_ms() + skew_ms
        other = PeerDirectory(peer, Applied(MemoryStore()), lambda: wall_ms, self.seconds)
        self.known.received(peer, other.message("", "test", serving=True))

    def look(self, voters: list[str] | None = None) -> int:
        return self.clock.look(self.known, VOTERS if voters is None else voters, MOST_MS)


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_jump_is_not_followed_and_time_goes_on(room: Room) -> None:
    room.set_by_ms = HOUR_MS
    assert room.clock.now_ms() == room.true_ms()
    room.passed += 5
    assert room.clock.now_ms() == room.true_ms()


def test_what_a_time_server_does_is_followed(room: Room) -> None:
    for _ in range(10):
        room.set_by_ms += 200
        room.passed += 1
        assert room.clock.now_ms() == room.wall_ms()


def test_a_clock_that_a_majority_agrees_with_is_followed(room: Room) -> None:
    """All nodes were wrong, and are put right one after the other."""
    room.set_by_ms = HOUR_MS
    room.hear("n2", HOUR_MS)

    assert room.look() == 0
    assert room.clock.now_ms() == room.wall_ms()


def test_what_was_heard_before_a_jump_is_no_agreement_with_it(room: Room) -> None:
    room.hear("n2")
    room.hear("n3")
    room.passed += 1
    room.set_by_ms = HOUR_MS

    assert room.look() == 0
    assert room.clock.now_ms() == room.true_ms()


def test_who_was_wrong_from_the_start_is_told_by_how_much(room: Room) -> None:
    late = Room()
    late.set_by_ms = -HOUR_MS
    late.clock = SteadyClock(late.wall_ms, late.seconds)
    late.hear("n2")
    late.hear("n3")

    assert late.look() == HOUR_MS
    assert not late.clock.sure


def test_a_clock_is_sure_when_it_was_compared(room: Room) -> None:
    room.hear("n3")
    room.look()
    assert room.clock.sure


def test_who_heard_nobody_may_be_cut_off_and_is_not_sure(room: Room) -> None:
    """It would lead as soon as it is heard again, an hour early."""
    room.set_by_ms = HOUR_MS
    room.clock = SteadyClock(room.wall_ms, room.seconds)
    room.passed += ALONE + 0.1
    assert room.look() == 0
    assert not room.clock.sure

    room.hear("n2")
    room.hear("n3")
    assert room.look() == -HOUR_MS
    assert not room.clock.sure


# Each clock against the time in the state, which half of those who are there agree on.
TIES = [
    (HOUR_MS, 0, 5_000, False),  # A little behind both: who is an hour ahead is wrong.
    (0, HOUR_MS, 5_000, True),
    (-HOUR_MS, 0, 5_000, False),  # Who is behind what was is wrong,
    (0, -HOUR_MS, 5_000, True),
    (-HOUR_MS, 2 * HOUR_MS, 5_000, False),  # however far the other is ahead.
    (-2 * HOUR_MS, -HOUR_MS, 5_000, False),
    (-HOUR_MS, -2 * HOUR_MS, 5_000, True),
]


@each(("mine", "theirs", "since", "sure"), TIES)
def test_of_two_that_differ_one_is_sure(mine: int, theirs: int, since: int, sure: bool) -> None:
    room = Room()
    room.set_by_ms = mine
    room.clock = SteadyClock(room.wall_ms, room.seconds)
    room.known.replica.meta.now_ms = room.true_ms() - since
    room.hear("n2", theirs)
    room.look()
    assert not room.clock.sure
    room.passed += ALONE + 0.1
    room.hear("n2", theirs)
    skew_ms = room.look()
    assert room.clock.sure is sure
    assert skew_ms == (0 if sure else theirs - mine), "who leads hands over"


def test_who_knows_of_no_voters_yet_has_compared_with_nobody(room: Room) -> None:
    """An empty disk: its node may be a voter, and lead, before it looks again."""
    room.look([])
    room.passed += 2 * ALONE
    room.look([])
    assert not room.clock.sure

    room.hear("n2", HOUR_MS)
    room.look()
    assert not room.clock.sure
    room.hear("n3", 0)
    room.look()
    assert room.clock.sure


def test_one_node_alone_believes_itself(room: Room) -> None:
    room.look(["n1"])
    assert room.clock.sure
    room.set_by_ms = HOUR_MS
    room.look(["n1"])
    assert room.clock.now_ms() == room.wall_ms()


def test_who_was_replaced_does_not_count_when_most_differ(room: Room) -> None:
    def hear_another_state(peer: str) -> None:
        other = Applied(MemoryStore())
        other.meta.fingerprint = b"another"
        words = PeerDirectory(peer, other, room.wall_ms, room.seconds)
        room.known.received(peer, words.message("", "test", serving=True))

    for gone in ("n4", "n5"):
        room.hear(gone)
    room.passed += 60
    hear_another_state("n2")
    assert not room.known.diverged

    hear_another_state("n3")

    assert room.known.diverged
    assert room.known.fresh().keys() == {"n2", "n3"}
