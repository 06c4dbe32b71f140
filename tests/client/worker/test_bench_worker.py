"""The benchmark runs; its figures are for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_benchmark_counts_every_kind_of_handler() -> None:
    command = [sys.executable, "-m", "raftsched.client.worker.bench", "--json", "--runs", "2500"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".src")}

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["handler"] for one in found] == ["async", "sync", "inline"]
    assert all(one["runs"] == 2_500 and one["cpu_us_per_run"] > 0 for one in found)
