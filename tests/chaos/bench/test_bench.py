"""The benchmarks as they are typed, small: they work, and say what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.chaos.bench.worker_processes import by_second

MAIN = "from raftsched.client.cli import main; main()"


def bench(*words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "bench", *words, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_small_herd_is_drained_whole(tmp_path: Path) -> None:
    found = bench("herd", "--runs", "2000", "--report", str(tmp_path / "page.html"))
    assert found["runs"] == 2_000
    assert float(str(found["runs_per_s"])) > 500
    assert "runs_per_s" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_steady_load_begins_every_run_once() -> None:
    found = bench("steady", "--rate", "100", "--seconds", "3")
    assert (found["runs"], found["begun"]) == (300, 300)
    over_time = found["over_time"]
    assert isinstance(over_time, dict)
    assert len(over_time["lateness_p99_ms"]) == 3


@pytest.mark.slow
def test_jobs_that_wait_leave_room_for_those_that_are_due(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = bench("idle", "--jobs", "3000", "--rate", "50", "--seconds", "2", "--report", str(page))
    assert found["jobs"] == 3_000
    assert float(str(found["start_after_kill_s"])) > 0
    assert found["steady_begun"] == 100
    assert "<h2>Over time" in page.read_text()


@pytest.mark.slow
def test_a_gateway_is_measured_and_sheds_who_shows_no_token() -> None:
    found = bench("http", "--clients", "4", "--seconds", "2", "--watchers", "10", "--events", "20",
                  "--flood", "3")  # fmt: skip
    assert (found["watched_events"], found["watch_missing_max"]) == (40, 0)
    assert (found["flood_leader_changes"], found["flood_broken"]) == (0, 0)
    assert int(str(found["flood_refused"])) > 0
    assert found["flood_served"] == 0
    assert int(str(found["flood_runs"])) > 0
    assert int(str(found["post_per_s"])) > 0


def test_what_was_late_is_shown_by_the_second() -> None:
    pairs = [(100.0 + n / 10, float(n // 10)) for n in range(30) if not 10 <= n < 20]
    assert by_second([(100.0, 7.0), *pairs], 100.0, 0.95) == [7.0, 0.0, 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["kill", "transfer"])
def test_all_leases_outlive_a_change_of_leader(change: str) -> None:
    found = bench(
        "leases", "--leases", "6000", "--streams", "1200", "--seconds", "2", "--change", change
    )
    assert (found["leases"], found["live_at_end"]) == (6_000, 6_000)
    assert (found["lost"], found["twice"]) == (0, 0)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "bench", "herd", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "is not empty" in done.stderr
