"""What `bench capacity` makes of points: lines, what a cluster holds, what ends first."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.chaos.bench.capacity.answer import (
    START_S,
    WORKERS_MAX,
    CapacityAsked,
    CapacityModel,
    MachineRoom,
)
from raftsched.chaos.bench.capacity.costs import KINDS, CostPoints
from raftsched.chaos.bench.capacity.gauges import TimeLimit
from raftsched.chaos.bench.capacity.lines import fitted
from raftsched.chaos.bench.capacity.page import (
    CapacityReport,
    gigabytes,
    markdown,
    rounded,
    text,
)
from raftsched.chaos.commands.capacity import typed

from ...rows import each

MAIN = "from raftsched.client.cli import main; main()"
GB = 1e9
ROOM = MachineRoom(memory=8 * GB, disk=100 * GB, disk_per_s=100e6, journal=1 * GB)


def cost_points() -> CostPoints:
    """Exact lines: 0.1 ms of the leader a run, 1 kB of memory and 2 kB of disk a job."""
    found = CostPoints(best_rate=30_000.0, journal_bytes=1 * GB)
    for rate in (0, 1_000):
        found.add("rate_leader", rate, 0.02 + rate * 1e-4)
    for jobs in (0, 1_000_000):
        found.add("job_memory", jobs, 0.1 * GB + jobs * 1_000)
        found.add("job_disk", jobs, jobs * 2_000)
        found.add("job_start", jobs, 1 + jobs * 1e-6)
    for workers in (0, 1_000):
        found.add("worker_leader", workers, workers * 1e-5)
        found.add("worker_memory", workers, workers * 20_000)
    for rate in (0, 100):
        found.add("rate_disk", rate, rate * 1_500)
    return found


def capacity_report(asked: CapacityAsked | None = None, headroom: float = 0.5) -> CapacityReport:
    found = cost_points()
    return CapacityReport(
        found=found, model=CapacityModel(found.lines(), ROOM), headroom=headroom, asked=asked,
        left_out=[], around={"cores": 2},
    )  # fmt: skip


def test_a_line_has_the_slopes_that_remain_without_each_point() -> None:
    line = fitted([(0, 10), (10, 30), (20, 50)])
    assert line is not None
    assert (line.base, line.slope, line.low, line.high) == pytest.approx((10, 2, 2, 2))
    bent = fitted([(0, 0), (10, 10), (20, 40)])
    assert bent is not None
    # Without the first it is 3 each, without the last 1: the dearer one is reckoned with.
    assert (bent.slope, bent.low, bent.high) == pytest.approx((2, 1, 3))
    assert bent.dear == pytest.approx(3)
    assert bent.sure


@each("points", [[], [(1.0, 2.0)], [(5.0, 1.0), (5.0, 2.0)]])
def test_one_size_makes_no_line(points: list[tuple[float, float]]) -> None:
    assert fitted(points) is None


def test_a_cost_that_falls_is_none_and_never_a_gain() -> None:
    line = fitted([(0, 10), (10, 9), (20, 8)])
    assert line is not None
    assert (line.sure, line.dear, line.at(1_000)) == (False, 0.0, 10.0)


@each(
    ("counted", "most", "ends"),
    [
        # Half of the memory, less what a node has without any job.
        ("jobs", 3.9e6, "memory of a node"),
        ("rate", 4_800, "processor of the leader"),
        ("workers", WORKERS_MAX / 2, "connections of workers"),
    ],
)
def test_what_ends_first_says_how_many_there_may_be(counted: str, most: float, ends: str) -> None:
    found, name = capacity_report().holds()[counted]
    assert found == pytest.approx(most)
    assert name == ends


def test_what_was_not_measured_is_no_limit() -> None:
    model = CapacityModel({}, ROOM)
    assert model.most("jobs", 0.5) == (math.inf, "")
    asked = CapacityAsked(jobs=1e12)
    assert [use.name for use in model.uses(asked)] == ["connections of workers"]
    # And no answer either.
    assert "job_memory" in model.unmeasured(asked)
    assert not model.fits(asked, 0.0)


def test_a_load_is_held_against_everything_at_once() -> None:
    asked = CapacityAsked(jobs=1e6, rate=1_000, workers=2_000)
    uses = {use.name: use.share for use in capacity_report().model.uses(asked)}
    assert uses == pytest.approx({
        "processor of the leader": 0.02 + 0.1 + 0.02,
        "memory of a node": (0.1 + 1 + 0.04) / 8,
        "disk of a node": (1 + 2 * 2) / 100,
        "writing to the disk": 1_500 * 1_000 / 100e6,
        "start of a node": 2 / START_S,
        "connections of workers": 0.1,
    })  # fmt: skip
    model = capacity_report().model
    assert model.fits(asked, 0.5)
    assert not model.fits(asked, 0.9)
    assert model.ends_first(CapacityAsked(rate=9_000)).name == "processor of the leader"


def test_what_is_found_is_shown_in_full() -> None:
    report = capacity_report(CapacityAsked(jobs=1e6, rate=6_000, workers=10))
    shown = "\n".join(text(report))
    assert "does not fit" in shown
    assert "processor of the leader ends first: 62 % of it is used, 50 % may be." in shown
    assert "30,000 runs/s were seen" in shown
    assert "4.00 GB of memory" in gigabytes(report)
    assert json.loads(json.dumps(report.as_json()))["asked"]["fits"] is False
    page = markdown(report, "raftsched bench capacity")
    assert page.count("```") % 2 == 0
    assert all(kind.text in page for kind in KINDS if kind.name in report.found.points)


@each(
    ("value", "shown"),
    [(0, "0"), (math.inf, "no end seen"), (1_234_567, "1,230,000"), (12.345, "12.3"),
     (0.012345, "0.0123"), (-2.5, "-2.50")],
)  # fmt: skip
def test_a_figure_has_three_digits(value: float, shown: str) -> None:
    assert rounded(value) == shown


def test_the_page_names_the_command_without_its_own_place() -> None:
    words = ["bench", "capacity", "--markdown", "x.md", "--quick", "--markdown=y.md"]
    assert typed(words) == ["bench", "capacity", "--quick"]


def test_what_no_longer_fits_is_left_out_with_a_word() -> None:
    shown: list[str] = []
    limit = TimeLimit(10.0, shown.append)
    assert limit.fits(1.0, "a")
    assert not limit.fits(11.0, "b")
    assert limit.left_out == ["b"]
    assert "b is left out: it needs 11 s" in shown[0]
    # No part takes the time of those behind it.
    limit.share = 0.05
    assert not limit.fits(1.0, "a")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_look_measures_everything_and_answers(tmp_path: Path) -> None:
    page = tmp_path / "capacity.md"
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "bench", "capacity", "--quick", "--jobs", "1000", "--rate",
         "1", "--markdown", str(page), "-o", "json"],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # A machine with other work may not come to everything within the minute; it says so.
    missing = {kind.name for kind in KINDS} - set(found["costs"])
    assert not missing or found["left_out"], done.stderr
    asked = found["asked"]
    assert asked["fits"] or missing >= {*asked["unmeasured"]} > set()
    assert done.returncode == (0 if asked["fits"] else 1)
    assert "# What a cluster holds" in page.read_text()
