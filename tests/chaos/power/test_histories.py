"""Nodes on real files whose power is cut; where no file system can be mounted, nothing is tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from raftsched.chaos.power.__main__ import missing

pytestmark = pytest.mark.slow


def test_a_node_that_forgets_a_sync_is_found_out() -> None:
    """With all syncs the same histories hold."""
    if why := missing():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-m", "raftsched.chaos.power", "--mutants", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == [], found
    assert len(found["mutants"]) == 6
