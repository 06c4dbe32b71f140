"""A cluster whose time a test moves: days go by in a moment, and nothing is left out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from raftsched.client import Client, Context, Retry, Timeouts, Worker, cron, testing
from raftsched.client.testing import LocalCluster
from raftsched.client.testing.cluster import NodeEnded
from raftsched.client.testing.fixtures import raftsched_virtual_cluster as cluster

# What pytest is to find in this module.
__all__ = ["cluster"]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


def scheduled_times(client: Client, job: str, state: str = "SUCCEEDED") -> list[datetime]:
    runs = client.jobs.history(job, f"state={state}")
    return sorted(run.message.scheduled_time.ToDatetime(tzinfo=UTC) for run in runs)


@pytest.mark.slow
def test_a_daily_job_over_a_week(cluster: LocalCluster, client: Client) -> None:
    worker = Worker()
    seen: list[datetime] = []

    @worker.handler("build")
    def build(context: Context) -> None:
        seen.append(context.scheduled_time)

    client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
    with cluster.work(worker):
        began = monotonic()
        now = cluster.clock.advance(days=7)
        took = monotonic() - began

    assert now == cluster.clock.now == BEGIN + 7 * DAY
    assert seen == [BEGIN + day * DAY + timedelta(hours=6) for day in range(7)]
    assert scheduled_times(client, "report") == seen
    assert client.jobs.audit("report").sound
    # A second on a machine that has nothing else to do, and no week on any.
    assert took < 100


@pytest.mark.slow
def test_the_example_works_when_it_is_pasted(tmp_path: Path) -> None:
    text = testing.__doc__ or ""
    _, found, rest = text.partition("within milliseconds:\n")
    assert found
    example = textwrap.dedent(rest.partition("\n`raftsched")[0])
    (tmp_path / "test_example.py").write_text(example)

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider",
         f"--rootdir={tmp_path}", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_failure_is_tried_again_when_its_time_has_come(
    cluster: LocalCluster, client: Client
) -> None:
    worker = Worker()

    @worker.handler("build")
    def build(context: Context) -> int:
        if context.attempt < 3:
            raise RuntimeError("not yet")
        return context.attempt

    retry = Retry(attempts=3, first=3600, cap=7200, jitter=0)
    client.jobs.create("report", handler="build", retry=retry)
    with cluster.work(worker):
        run = client.jobs.trigger("report")
        cluster.clock.advance()
        assert run.refresh().state == "RETRYING"
        cluster.clock.advance(minutes=59)
        assert run.refresh().message.attempt == 1
        cluster.clock.advance(hours=12)

    assert run.refresh().state == "SUCCEEDED"
    started = [one.start_time.ToDatetime(tzinfo=UTC) for one in run.message.attempts]
    assert started[1] - started[0] == timedelta(hours=1)


@pytest.mark.slow
def test_a_handler_that_hangs_is_timed_out(cluster: LocalCluster, client: Client) -> None:
    worker = Worker()
    told = Event()

    @worker.handler("hang")
    def hang(context: Context) -> None:
        context.wait_cancelled_sync(60)
        told.set()

    client.jobs.create(
        "hangs", handler="hang", retry=1, timeouts=Timeouts(attempt=timedelta(hours=2))
    )
    with cluster.work(worker):
        run = client.jobs.trigger("hangs")
        cluster.clock.advance(hours=3, handler_timeout=0.2)
        assert told.wait(30)

    assert run.refresh().state == "FAILED"
    assert run.message.error.kind == "timeout.attempt"
    assert run.message.end_time.ToDatetime(tzinfo=UTC) == BEGIN + timedelta(hours=2)


@pytest.mark.slow
def test_deadlines_are_not_told_by_the_time_that_stands_still(
    cluster: LocalCluster, client: Client
) -> None:
    worker = Worker()

    @worker.handler("build")
    def build(context: Context) -> bool:
        return context.wait_cancelled_sync(0.6)

    client.jobs.create("report", handler="build", timeouts=Timeouts(attempt=0.5))
    with cluster.work(worker):
        # By the real clock the worker is there for longer than the timeout, so one that counted on
        # from what the server said at first would stop the handler at once.
        end = monotonic() + 0.6
        while monotonic() < end:
            client.jobs.get("report")
        stopped = client.jobs.trigger("report").result(bool, timeout=60)

    assert stopped is False


@pytest.mark.slow
def test_the_leader_dies_and_the_clock_goes_on() -> None:
    with LocalCluster(3, virtual_clock=BEGIN - DAY) as cluster, cluster.client() as client:
        client.jobs.create("report", handler="build", schedule=cron("0 * * * *"), overlap="allow")
        cluster.clock.advance(hours=12)
        killed = cluster.kill_leader()
        cluster.clock.advance(hours=12)
        cluster.revive(killed)
        cluster.kill_leader()
        now = cluster.clock.advance(hours=12)

        assert now == BEGIN + DAY / 2
        expected = [BEGIN - DAY + timedelta(hours=hour) for hour in range(1, 37)]
        assert scheduled_times(client, "report", "PENDING") == expected
        assert client.jobs.audit("report").sound


@pytest.mark.slow
def test_a_folder_with_a_virtual_clock_is_none_for_real_work(tmp_path: Path) -> None:
    with LocalCluster(folder=tmp_path, virtual_clock=True) as cluster:
        cluster.clock.advance(days=400)
        assert "goes by a virtual clock" in cluster.log("n1")
    with LocalCluster(folder=tmp_path, virtual_clock=True) as cluster:
        assert cluster.clock.now == BEGIN + 400 * DAY

    with pytest.raises(NodeEnded, match=r"virtual clock") as caught, LocalCluster(folder=tmp_path):
        pass

    assert caught.value.code == 12


def test_the_clock_of_the_machine_is_not_to_be_moved() -> None:
    with pytest.raises(RuntimeError, match=r"LocalCluster\(virtual_clock=True\)"):
        _ = LocalCluster().clock
    with pytest.raises(RuntimeError, match="not started"):
        _ = LocalCluster(virtual_clock=True).clock
    with pytest.raises(ValueError, match="without a zone"):
        LocalCluster(virtual_clock=datetime(2026, 1, 1))  # noqa: DTZ001
