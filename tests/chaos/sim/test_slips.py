"""A mutant that fails by a slip of its own was never tried, so it does not count as found."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from raftsched.chaos.sim.cluster import Kit
from raftsched.chaos.sim.mutant_table import MUTANTS, Mutant
from raftsched.chaos.sim.rule_mutants import exchanged
from raftsched.chaos.sim.run import hunt
from raftsched.cluster.node.leader_loop import Leader
from raftsched.cluster.node.pending import PendingRequest
from raftsched.cluster.raft.follower import Follower
from raftsched.cluster.raft.message import Append
from raftsched.statemachine.firing import dispatch
from raftsched.statemachine.model.view import View


def fires_with_old_arguments(view: View) -> None:
    """A rule that takes one more by now."""


def old_arguments() -> AbstractContextManager[None]:
    return exchanged(dispatch, "fire_due", fires_with_old_arguments)


class AsksForWhatIsGone(Follower):
    def on_append(self, peer: str, message: Append, now: float) -> None:
        super().on_append(peer, message, now)
        getattr(self, "a_part_of_before")  # noqa: B009  # So that nothing but a run finds it.


class CallsAsBefore(Leader):
    def _decide(self, parts: list[PendingRequest]) -> None:
        super()._decide(parts)
        old: object = self.done
        old()  # type: ignore[operator]  # This is the slip.


def test_what_shows_by_another_reason_than_its_own_is_not_found() -> None:
    [known] = [mutant for mutant in MUTANTS if mutant.name == "occurrence-dropped"]

    row = hunt(replace(known, reason="S99"))

    assert row["seeds"] is None, row
    assert "shows something else" in str(row["found"]), row


@pytest.mark.parametrize(
    ("mutant", "slip"),
    [
        (Mutant("rule", Kit(rules=old_arguments), 2, rules=True), "TypeError"),
        (Mutant("leader", Kit(leader=CallsAsBefore), 2, rules=True), "TypeError"),
        (Mutant("core", Kit(part=AsksForWhatIsGone), 2), "AttributeError"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_slip_of_a_mutant_is_named_and_not_taken_for_its_defect(
    mutant: Mutant, slip: str
) -> None:
    row = hunt(mutant)

    assert row["seeds"] is None, row
    assert "slip in the mutant" in str(row["found"]), row
    assert slip in str(row["found"]), row
