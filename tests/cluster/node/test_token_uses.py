"""Which access tokens were used of late: kept in memory, sent to the leader, written at times."""

from __future__ import annotations

from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.token_uses import SENT_MAX, WRITE_S, TokenUses
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import NoteUses

HOUR_MS = 3_600_000
NOW_MS = 500_000 * HOUR_MS + 5


class Noted:
    """Uses with a clock in hand."""

    def __init__(self) -> None:
        self.now_ms, self.now_s, self.woken = NOW_MS, 1_000.0, 0
        self.applied = Applied(MemoryStore())
        self.uses = TokenUses(self.applied, lambda: self.now_ms, lambda: self.now_s, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def written(self) -> tuple[str, ...]:
        """What goes into the next change."""
        self.uses.look()
        found = self.uses.take()
        if not found:
            return ()
        [part] = found
        assert isinstance(part.body, NoteUses)
        return part.body.names

    def store(self, *names: str) -> None:
        """The state says that these were used in this hour."""
        hour = self.now_ms - self.now_ms % HOUR_MS
        self.applied.store.write(
            [(keys.token_use(name), hour.to_bytes(8, "big")) for name in names], ()
        )


def test_what_was_used_is_written_once_for_many_calls() -> None:
    noted = Noted()
    assert noted.written() == ()
    for name in ("b", "a", "b"):
        noted.uses.note(name)
    assert noted.written() == ("b", "a")
    assert noted.woken == 1
    noted.store("a", "b")

    for _ in range(3):
        noted.uses.note("a")
        noted.now_s += WRITE_S
        assert noted.written() == ()
    noted.uses.note("a")
    noted.now_ms += HOUR_MS
    noted.now_s += WRITE_S
    assert noted.written() == ("a",)


def test_it_is_written_no_more_often_than_every_ten_minutes() -> None:
    noted = Noted()
    noted.uses.note("a")
    assert noted.written() == ("a",)
    noted.uses.note("b")
    noted.now_s += WRITE_S - 1
    assert noted.written() == ()
    noted.now_s += 1
    assert noted.written() == ("b",)


def test_of_very_many_each_change_has_some() -> None:
    noted = Noted()
    every = [f"t{number}" for number in range(limits.USES_NOTED + 5)]
    for name in every:
        noted.uses.note(name)
    first, second = noted.written(), noted.written()
    assert (len(first), len(second)) == (limits.USES_NOTED, 5)
    assert [*first, *second] == every


def test_a_follower_tells_what_the_state_does_not_say() -> None:
    noted = Noted()
    every = [f"t{number:02}" for number in range(SENT_MAX + 2)]
    noted.store("t00")
    for name in every:
        noted.uses.note(name)
    told = [*noted.uses.to_send(), *noted.uses.to_send()]
    assert told == every[1:]
    assert noted.uses.to_send() == ()


def test_a_leader_writes_what_it_is_told_up_to_a_bound() -> None:
    noted = Noted()
    noted.uses.heard(["x", "y"])
    noted.uses.heard(f"t{number}" for number in range(10 * SENT_MAX))
    names = noted.written()
    assert names[:2] == ("x", "y")
    assert len(names) == 2 + SENT_MAX


def test_what_was_not_decided_is_written_later() -> None:
    noted = Noted()
    noted.uses.note("a")
    noted.uses.look()
    [part] = noted.uses.take()
    part.unknown()
    noted.now_s += WRITE_S
    assert noted.written() == ("a",)
