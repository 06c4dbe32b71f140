"""A client in JavaScript that knows HTTP alone: no event is missed, and none comes twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from raftsched.client.testing import LocalCluster

from .test_process import gateway

CLIENT = Path(__file__).with_name("browser.mjs")
COUNT = 60
OLDEST = 20


def node() -> str:
    """Where Node.js is; the test is skipped where it is not, or older than fetch in it."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed; the client in JavaScript needs 20 or newer")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").split(".")[0]) < OLDEST:
        pytest.skip(f"Node.js is {version.stdout.strip()}; the client needs {OLDEST} or newer")
    return found


@pytest.mark.slow
def test_a_page_sees_each_event_once_over_a_killed_leader_and_two_gateways() -> None:
    program = node()
    with (
        LocalCluster(3) as cluster,
        gateway("--server", ",".join(cluster.endpoints)) as one,
        gateway("--server", ",".join(reversed(cluster.endpoints))) as other,
        subprocess.Popen(
            [program, CLIENT, f"http://{one.address}", f"http://{other.address}", str(COUNT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as page,
    ):
        assert page.stdin is not None
        assert page.stdout is not None
        told: dict[str, Any] = {}
        try:
            for line in page.stdout:
                told |= json.loads(line)
                if "kill" in line:
                    cluster.kill_leader()
                    page.stdin.write("\n")
                    page.stdin.flush()
        finally:
            page.kill()
        assert page.wait(10) == 0
    assert told["kill"]
    assert told["seen"] == [f"job-{number}" for number in range(COUNT)]
