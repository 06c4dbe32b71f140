"""The client against nodes as processes: what the stage of tests/client plays, here it is real."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raftsched.client import (
    AsyncClient,
    Client,
    Conflict,
    InvalidArgument,
    NotFound,
    RaftschedError,
    cron,
    job_of,
)
from raftsched.client.errors import Forbidden, Unauthenticated
from raftsched.proto.v1 import cluster_pb2, job_pb2

from .handlers import working
from .processes import Cluster, cluster, until


@pytest.mark.slow
async def test_every_service_answers(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running, working(running.endpoints):
        await asyncio.to_thread(use_everything, running)


def use_everything(running: Cluster) -> None:
    with Client(running.endpoints, timeout=10) as client:
        use_jobs(client)
        use_settings(client)
        use_cluster(client)


def use_jobs(client: Client) -> None:
    client.jobs.create("report", handler="note", payload={"day": 1}, priority="high")
    run = client.jobs.trigger("report")
    assert run.result(str, timeout=10) == "noted"
    assert [one.id for one in client.jobs.history("report")] == [run.id]
    assert client.jobs.status("report").succeeded == 1

    client.jobs.create("daily", handler="note", schedule=cron("30 2 * * *", zone="Europe/Berlin"))
    start = datetime(2027, 3, 27, 12, tzinfo=UTC)
    [summer] = client.jobs.preview("daily", start=start, count=1).occurrences
    assert summer.local_time == "2027-03-28T03:00:00+02:00"
    client.jobs.skip("daily", summer.scheduled_time.ToDatetime(tzinfo=UTC))
    client.jobs.revert("daily", summer.scheduled_time.ToDatetime(tzinfo=UTC))
    assert client.jobs.pause("daily", "repair").status.pause_reason == "repair"
    assert client.jobs.explain("daily").obstacles
    client.jobs.resume("daily")
    client.jobs.update("daily", priority="low")
    past = datetime.now(UTC) - timedelta(days=3)
    assert client.jobs.backfill("daily", past, past + timedelta(days=2)).planned == 2
    client.jobs.drop_backlog("daily")
    assert client.jobs.audit("daily").sound
    assert client.jobs.forecast().minutes
    many = [job_of(f"job-{number:04}", handler="nobody") for number in range(1_500)]
    assert len(client.jobs.import_(many)) == 1_500
    assert len([*client.jobs.list("name=job-*")]) == 1_500
    waiting = client.jobs.trigger("job-0001")
    assert waiting.cancel("enough").ended
    assert next(client.runs.list("job=job-0001 AND state=CANCELLED")).id == waiting.id
    client.jobs.delete("job-0001")
    with pytest.raises(NotFound):
        client.jobs.get("job-0001")
    with pytest.raises(InvalidArgument) as caught:
        client.jobs.create("A", handler="x", schedule=cron("61 * * * *"))
    assert len(caught.value.faults) == 2


def use_settings(client: Client) -> None:
    assert client.queues.update("mail", concurrency=3).concurrency == 3
    assert client.queues.pause("mail").paused
    client.queues.resume("mail")
    assert client.queues.get("mail").name in [queue.name for queue in client.queues.list()]
    client.calendars.create("holidays", ["12-25", "sunday"])
    assert client.calendars.update("holidays", days=["12-26"]).rules[0].yearly == "12-26"
    client.calendars.delete("holidays")
    assert client.namespaces.create("shop", jobs=5).quota.jobs == 5
    assert client.namespaces.update("shop", jobs=6).quota.jobs == 6
    client.jobs.create("a", handler="x", namespace="shop")
    with pytest.raises(Conflict):
        client.namespaces.delete("shop")
    client.jobs.create("load", handler="note", after="report")
    assert client.flows.graph("load").jobs == ["report", "load"]
    client.jobs.trigger("report").wait(10)
    assert [*client.flows.list("job=load")]
    assert client.alerts.put("late", lateness_above=60).name == "late"
    assert [alert.name for alert in client.alerts.list()] == ["late"]
    client.alerts.delete("late")
    assert {record.method for record in client.access.records()} >= {"CreateJob", "UpdateQueue"}
    assert [*client.dead.list()] == []
    assert client.dead.requeue_all() == client.dead.purge() == 0


def use_cluster(client: Client) -> None:
    status = client.cluster.status()
    assert (status.leader, len(status.nodes), status.quorum) == ("n1", 1, True)
    assert client.cluster.verify().sound
    assert client.cluster.snapshot().size
    [worker] = client.workers.list()
    client.workers.drain(worker.worker, "enough")
    assert next(client.workers.list()).draining
    jobs = [event.job for event in client.events.list("kind=JOB_CREATED", limit=2)]
    assert jobs == ["report", "daily"]
    answer = client.ask(job_pb2.GetJobRequest(job="report"), stale=True)
    assert answer.age_ms is not None
    seen = client.ask(job_pb2.GetJobRequest(job="report"), min_revision=answer.revision)
    assert seen.message.name == "report"


@pytest.mark.slow
async def test_access_tokens_open_what_they_are_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=10) as nobody:
        await nobody.namespaces.create("shop")
        root = (await nobody.access.create_token("root", "admin", namespace="")).secret
        with pytest.raises(Unauthenticated):
            await nobody.jobs.create("a", handler="x")

        async with AsyncClient(running.endpoints, token=root) as admin:
            ci = (await admin.access.create_token("ci", "editor", namespace="shop")).secret
            assert [token.name async for token in admin.access.list_tokens()] == ["ci", "root"]

            async with AsyncClient(running.endpoints, token=ci, namespace="shop") as editor:
                assert (await editor.jobs.create("a", handler="x")).creator
                with pytest.raises(Forbidden) as caught:
                    await editor.jobs.create("a", handler="x", namespace="default")
                await admin.access.revoke_token("ci")
                with pytest.raises(Unauthenticated):
                    await editor.jobs.get("a")

    assert caught.value.reason == "FORBIDDEN"


@pytest.mark.slow
async def test_a_watch_is_told_everything_once_while_leaders_die(tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(60)]
    seen: list[str] = []

    async with (
        cluster(tmp_path) as running,
        AsyncClient(running.endpoints, timeout=20) as writer,
        AsyncClient(running.endpoints, timeout=20) as reader,
        aclosing(reader.events.watch("kind=JOB_CREATED", after="0.0")) as events,
    ):

        async def write() -> None:
            for place, name in enumerate(names):
                if place in (20, 40):
                    node = running.nodes[await running.leader()]
                    node.kill()
                    node.start()
                await writer.jobs.create(name, handler="nobody")

        writing = asyncio.create_task(write())
        async with asyncio.timeout(60):
            while len(seen) < len(names):
                seen.append((await anext(events)).job)
        await writing

    assert seen == names


@pytest.mark.slow
@pytest.mark.parametrize("known", ["all", "only a follower"])
async def test_a_leader_that_hangs_costs_a_call_seconds_and_not_its_deadline(
    tmp_path: Path, known: str
) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        follower = next(name for name in running.nodes if name != leader)
        known_to = running.endpoints if known == "all" else running.address(follower)
        async with AsyncClient(known_to, timeout=100) as client:
            await client.jobs.create("before", handler="nobody")

            os.kill(running.nodes[leader].pid, signal.SIGSTOP)
            began = time.monotonic()
            job = await client.jobs.create("after", handler="nobody")
            seconds = time.monotonic() - began
            os.kill(running.nodes[leader].pid, signal.SIGCONT)

            listed = [job.name async for job in client.jobs.list()]

    assert job.name == "after"
    assert listed == ["after", "before"]
    assert seconds < 80


@pytest.mark.slow
async def test_a_blocking_client_outlives_the_death_of_a_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        failed: list[RaftschedError] = []
        done: list[str] = []

        def write(part: int) -> None:
            for number in range(50):
                try:
                    done.append(client.jobs.create(f"job-{part}-{number}", handler="x").name)
                except RaftschedError as error:
                    failed.append(error)

        with Client(running.endpoints, timeout=20) as client:
            writers = [asyncio.to_thread(write, part) for part in range(8)]
            writing = asyncio.gather(*writers)
            while len(done) < 100:
                await asyncio.sleep(0.01)
            running.nodes[leader].kill()
            await writing
            names = {job.name for job in client.jobs.list()}

    assert failed == []
    assert len(done) == 400
    assert names == set(done)


@pytest.mark.slow
async def test_membership_and_leadership_are_changed_through_any_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, AsyncClient(running.endpoints, timeout=20) as client:
        leader = await running.leader()
        other = next(name for name in running.nodes if name != leader)

        here = running.address(other)

        await client.cluster.transfer(other, endpoint=here)

        async def leads() -> bool:
            status = await client.cluster.status(endpoint=here)
            roles = {node.name: node.role for node in status.nodes}
            return status.leader == other and roles[other] == cluster_pb2.Node.ROLE_LEADER

        await until(leads, 5)
        with pytest.raises(NotFound):
            await client.cluster.remove("nobody")
        assert (await client.cluster.verify()).sound
