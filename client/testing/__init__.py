"""Helpers for tests of programs that use raftsched.

    from raftsched.client.testing import Attempt

    def test_a_full_disk_is_tried_again_later() -> None:
        outcome = Attempt(attempt=2).run(build_report, {"day": "2026-11-18"})

        assert outcome.retry_after == 60

`Attempt` carries out a handler without any cluster; `LocalCluster` is a real cluster of one or
three processes, on free ports, with `kill_leader()`. With a virtual clock a test goes through days
within milliseconds:

    from raftsched.client import Context, Worker, cron
    from raftsched.client.testing import LocalCluster

    def test_the_report_is_built_each_morning() -> None:
        worker, days = Worker(), list[str]()

        @worker.handler("build-report")
        def build_report(context: Context) -> None:
            days.append(context.scheduled_time.date().isoformat())

        with LocalCluster(virtual_clock=True) as cluster, cluster.client() as client:
            client.jobs.create("report", handler="build-report", schedule=cron("0 6 * * *"))
            with cluster.work(worker):
                cluster.clock.advance(days=7)

        assert days == [f"2026-01-0{day}" for day in range(1, 8)]

`raftsched.client.testing.fixtures` has clusters as fixtures for pytest. All of it is in
`raftsched.client`, and not at the top of the package, as it is a part of the client's folder.
"""

from __future__ import annotations

from ...cluster.local.virtual_clock import Clock
from .attempt import Attempt, Outcome
from .cluster import LocalCluster, wait_until

__all__ = ["Attempt", "Clock", "LocalCluster", "Outcome", "wait_until"]
