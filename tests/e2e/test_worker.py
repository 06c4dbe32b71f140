"""A worker process and a cluster of three node processes: what is promised when a leader dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftsched.client import Client, Context, NotFound, Worker
from raftsched.client.calls.blocking.run import Run
from raftsched.client.testing import LocalCluster, wait_until
from raftsched.proto.v1 import run_pb2

ROOT = Path(__file__).parents[2]
RUNS = 300
JOBS = 10
PATIENCE_S = 60.0

# Notes each call of its handler with one write, so that no two notes mix.
PROGRAM = """
import asyncio, logging, os, sys
from raftsched.client import Context, Worker

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
endpoints, notes, seconds = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), 0.1
worker = Worker(endpoints, slots=20, grace=5)

@worker.handler("note")
async def note(context: Context) -> str:
    os.write(notes, f"{context.run} {context.attempt} {context.token}\\n".encode())
    await asyncio.sleep(seconds)
    return context.run

@worker.handler("wait")
async def wait(context: Context) -> None:
    os.write(notes, f"{context.run} {context.attempt} {context.token}\\n".encode())
    context.checkpoint({"seen": context.attempt})
    if context.load_checkpoint(dict[str, int]) is not None:
        return
    try:
        await asyncio.sleep(3600)
    finally:
        os.write(notes, f"{context.run} stopped {context.token}\\n".encode())

worker.run()
"""


@contextmanager
def worker_process(cluster: LocalCluster, notes: Path) -> Iterator[subprocess.Popen[bytes]]:
    notes.touch()
    command = [sys.executable, "-c", PROGRAM, ",".join(cluster.endpoints), str(notes)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".src")}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def runs_of(client: Client) -> list[Run]:
    found: list[Run] = []
    for number in range(JOBS):
        found += client.jobs.history(f"job-{number}")
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_leaders_die_and_every_run_is_carried_out_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with (
        # Sessions live longer than any election takes, however busy the machine is.
        LocalCluster(3, settings={"heartbeat-ms": "5000"}) as cluster,
        worker_process(cluster, notes),
        cluster.client() as client,
    ):
        for number in range(JOBS):
            client.jobs.create(f"job-{number}", handler="note", overlap="allow")
        ids = [client.jobs.trigger(f"job-{n % JOBS}").id for n in range(RUNS // 2)]
        killed = cluster.kill_leader()
        ids += [client.jobs.trigger(f"job-{n % JOBS}").id for n in range(RUNS // 2)]
        cluster.revive(killed)
        wait_until(lambda: notes.read_text().count("\n") > RUNS // 2)
        cluster.kill_leader()
        wait_until(lambda: all(run.ended for run in runs_of(client)), PATIENCE_S, "all ends")
        ended = runs_of(client)

    assert {run.id for run in ended} == set(ids)
    states = Counter(run.state for run in ended)
    assert states == {"SUCCEEDED": RUNS}
    calls = Counter(line.split()[0] for line in notes.read_text().splitlines())
    assert calls == dict.fromkeys(ids, 1)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_that_is_told_to_stop_gives_back_what_it_cannot_finish(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with LocalCluster() as cluster, cluster.client() as client:
        client.jobs.create("job-0", handler="wait")
        with worker_process(cluster, notes) as first:
            run = client.jobs.trigger("job-0").id
            wait_until(lambda: notes.read_text())
            first.send_signal(signal.SIGTERM)
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE_S) == 0
        with worker_process(cluster, notes) as second:
            wait_until(lambda: client.runs.get(run).ended, PATIENCE_S, "its end")
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 0
        [ended] = client.jobs.history("job-0")

    assert (ended.id, ended.state) == (run, "SUCCEEDED")
    # Giving back counts no attempt, and leaves what was noted.
    words = [line.split()[1] for line in notes.read_text().splitlines()]
    assert words == ["1", "stopped", "1"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_says_which_namespace_is_missing_and_outlives_one_that_is_deleted() -> None:
    with LocalCluster(3) as cluster, cluster.client() as client:
        worker = Worker(cluster.endpoints, namespaces=["default", "shop"])
        worker.handler("h")(lambda: "done")
        client.namespaces.create("shopp")
        with pytest.raises(NotFound, match="did you mean shopp") as refused:
            asyncio.run(worker.serve())
        assert refused.value.values == {"namespace": "shop"}

        client.namespaces.create("shop")
        client.jobs.create("here", handler="h")
        with cluster.work(worker):
            client.jobs.trigger("here").result(timeout=PATIENCE_S)
            client.namespaces.delete("shop")
            cluster.kill_leader()
            assert client.jobs.trigger("here").result(timeout=PATIENCE_S) == "done"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_drained_worker_gets_nothing_from_the_next_leader_either() -> None:
    drained, other = Worker(), Worker()
    drained.handler("h")(lambda: "drained")
    other.handler("h")(lambda: "other")

    @drained.handler("hear")
    async def hear(context: Context) -> str:
        while not context.draining:
            await asyncio.sleep(0.01)
        return "heard"

    with LocalCluster(3) as cluster, cluster.client() as client, cluster.work(drained):
        client.jobs.create("job", handler="h")
        client.jobs.create("hear", handler="hear")
        heard = client.jobs.trigger("hear")
        wait_until(lambda: heard.refresh().state == "RUNNING", PATIENCE_S, "its lease")
        client.workers.drain(drained.id, "new version")
        assert heard.result(timeout=PATIENCE_S) == "heard"
        cluster.kill_leader()
        wait_until(lambda: there(client, drained), PATIENCE_S, "its next hello")
        run = client.jobs.trigger("job")
        with cluster.work(other):
            assert run.result(timeout=PATIENCE_S) == "other"
        draining = {one.worker: one.draining for one in client.workers.list()}
        assert draining[drained.id]


def there(client: Client, worker: Worker) -> bool:
    """The leader knows it."""
    return worker.id in {one.worker for one in client.workers.list()}


LIVELY = {"heartbeat-ms": "300"}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hung"])
def test_the_runs_of_a_worker_that_falls_silent_go_to_another(
    fault: signal.Signals, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with LocalCluster(settings=LIVELY) as cluster, cluster.client() as client:
        client.jobs.create("job-0", handler="wait")
        with worker_process(cluster, notes) as first, worker_process(cluster, notes) as second:
            run = client.jobs.trigger("job-0")
            wait_until(lambda: run.refresh().message.checkpoint, PATIENCE_S, "the checkpoint")
            holder = run.message.attempts[0].worker
            silent = first if f"-{first.pid}-" in holder else second
            silent.send_signal(fault)
            wait_until(lambda: run.refresh().ended, PATIENCE_S, "its end")
            if fault == signal.SIGSTOP:
                silent.send_signal(signal.SIGCONT)
                wait_until(lambda: "stopped" in notes.read_text(), PATIENCE_S, "the stop")

    ends = [attempt.end for attempt in run.message.attempts]
    assert ends == [run_pb2.Attempt.END_LAPSED, run_pb2.Attempt.END_SUCCEEDED]
    assert run.message.attempts[1].worker != holder
