"""The cluster that users start in their tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.client.testing import LocalCluster, wait_until
from raftsched.client.testing.cluster import NodeEnded
from raftsched.client.testing.fixtures import raftsched_cluster as cluster
from raftsched.cluster.local.process import environment

# What pytest is to find in this module.
__all__ = ["cluster"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_cluster_is_there_for_a_test_and_gone_afterwards(cluster: LocalCluster) -> None:
    with cluster.client() as client:
        client.jobs.create("report", handler="build")

        assert [job.name for job in client.jobs.list()] == ["report"]
    assert cluster.leader() == "n1"
    assert cluster.alive == ("n1",)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_three_nodes_lose_one_and_get_it_back() -> None:
    with LocalCluster(3) as cluster, cluster.client() as client:
        killed = cluster.kill_leader()
        client.jobs.create("report", handler="build")

        assert cluster.leader() != killed
        assert killed not in cluster.alive
        cluster.revive(killed)
        others = [name for name in cluster.names if name not in (killed, cluster.leader())]
        cluster.kill(others[0])
        wait_until(lambda: [job.name for job in client.jobs.list()] == ["report"])
        folder = cluster.folder

    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_folder_of_yours_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    for attempt in range(2):
        with LocalCluster(folder=tmp_path) as cluster, cluster.client() as client:
            client.jobs.create(f"job-{attempt}", handler="build")
            names = [job.name for job in client.jobs.list()]

    assert names == ["job-0", "job-1"]


@pytest.mark.slow
def test_a_node_that_does_not_start_shows_its_own_words() -> None:
    with (
        pytest.raises(NodeEnded, match="heartbeat") as caught,
        LocalCluster(settings={"heartbeat-ms": "1"}),
    ):
        pass

    assert caught.value.code == 2


def test_a_cluster_has_an_odd_number_of_nodes() -> None:
    with pytest.raises(ValueError, match="1, 3 or 5"):
        LocalCluster(2)


KILLED = """
import os, signal
from pathlib import Path
from raftsched.client.testing import LocalCluster
with LocalCluster() as cluster:
    for child in Path(f"/proc/self/task/").glob("*/children"):
        print(child.read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_test_leaves_no_node_behind() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, env=environment(), check=False
    )

    [node] = map(int, ended.stdout.split())
    wait_until(lambda: not Path(f"/proc/{node}").exists(), 10, "the end of the node")
