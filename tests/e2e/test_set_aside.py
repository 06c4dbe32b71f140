"""A rule that fails for one job, on real nodes: that job is set aside and nothing else suffers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, cron
from raftsched.cluster.local.process import HOME
from raftsched.proto.v1 import job_pb2

from .handlers import working
from .processes import cluster, fetch, until

# What the test puts in front of the genuine package: each node fails to fire the job "bad".
PATCH = """
from raftsched.statemachine.firing import scheduled_time
genuine = scheduled_time.fire
def fire(view, job, *others, **more):
    if job.definition.name == "bad":
        raise RuntimeError("planted")
    return genuine(view, job, *others, **more)
scheduled_time.fire = fire
"""


@pytest.mark.slow
async def test_a_job_that_breaks_every_leader_is_set_aside_and_comes_back_when_mended(
    tmp_path: Path,
) -> None:
    patched = tmp_path / "patched"
    patched.mkdir()
    (patched / "sitecustomize.py").write_text(PATCH)
    first = {"PYTHONPATH": f"{patched}{os.pathsep}{HOME}"}
    async with (
        cluster(tmp_path, environment=first) as running,
        AsyncClient(running.endpoints, timeout=10) as client,
    ):
        async with working(running.endpoints) as noted:
            leader = await running.leader()
            await client.jobs.create("good", handler="note", schedule=cron("* * * * * *"))
            await client.jobs.create("bad", handler="note", schedule=cron("* * * * * *"))

            async def is_broken() -> bool:
                state = (await client.jobs.get("bad")).status.state
                return state == job_pb2.JobStatus.STATE_BROKEN

            await until(is_broken, 15)
            count = len(noted.runs)
            await until(lambda: len(noted.runs) >= count + 3, 30)

            # All nodes live, and nobody else leads.
            assert all(node.alive for node in running.nodes.values())
            assert await running.leader() == leader
            status = await client.cluster.status()
            assert status.broken_jobs == 1
            assert any("1 job is BROKEN" in problem for problem in status.problems)
            bad = await client.jobs.get("bad")
            assert bad.status.broken_reason == (f"firing failed on {leader}: RuntimeError: planted")
            assert (await client.jobs.audit("good")).sound

            async def raised() -> bool:
                alerts = [alert async for alert in client.alerts.list(namespace="")]
                return any(a.name == "jobs-broken" and a.HasField("raised_time") for a in alerts)

            await until(raised, 20)
            _, figures = await fetch(running.http(leader), "/metrics")
            assert "\nraftsched_broken_jobs 1.0\n" in figures

        # Without the patch it comes back.
        running.end()
        for node in running.nodes.values():
            node.environment = {}
        running.start()
        await running.ready()
        async with working(running.endpoints) as noted:

            async def repaired() -> bool:
                await client.jobs.repair("bad")
                return True

            await until(repaired, 20)
            await until(lambda: any(run.startswith("bad") for run in noted.runs), 30)
            assert not await is_broken()
