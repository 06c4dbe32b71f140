"""What callers hold of a node."""

from __future__ import annotations

from raftsched.cluster.services.shares import Share


def test_bodies_of_nothing_are_given_back_by_several_at_once() -> None:
    share = Share("body_mb", 100, 50)
    share.take("a", 0)
    share.take("a", 0)
    share.give("a", 0)
    share.give("a", 0)

    assert (share.total, share.held) == (0, {})
