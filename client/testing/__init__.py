"""Helpers for tests of programs that use raftsched.

    from raftsched.client.testing import Attempt

    def test_a_full_disk_is_tried_again_later() -> None:
        outcome = Attempt(attempt=2).run(build_report, {"day": "2026-11-18"})

        assert outcome.retry_after == 60

`Attempt` carries out a handler without any cluster; `LocalCluster` is a real cluster of one or
three processes. `raftsched.client.testing.fixtures` is a plug-in for pytest.
"""

from __future__ import annotations

from .attempt import Attempt, Outcome
from .cluster import LocalCluster, wait_until

__all__ = ["Attempt", "LocalCluster", "Outcome", "wait_until"]
