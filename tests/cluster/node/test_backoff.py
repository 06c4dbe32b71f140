"""Waits between tries."""

from __future__ import annotations

from itertools import islice

from raftsched.cluster.node.backoff import backoff


def test_waits_double_up_to_the_longest() -> None:
    assert list(islice(backoff(1.0, 5.0), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
