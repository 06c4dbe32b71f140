"""`bench soak`: what is called growth, what is drawn, and a short one on real processes."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from raftsched.chaos.bench.disk_use import disk_bytes
from raftsched.chaos.bench.soak import Soak, SoakSeen, growth, lasting_jobs, note_lateness
from raftsched.chaos.bench.soak import passing_jobs as passing
from raftsched.chaos.bench.soak_page import SoakPlot, markdown, picture

from .test_bench import bench

NODES = ("n1", "n2", "n3")


def soaked(looks: int = 13) -> SoakSeen:
    """As of two minutes, in which one node grows."""
    seen = SoakSeen(began=1_000.0, at=[10.0 * n for n in range(looks)])
    for n in range(looks):
        for node in NODES:
            seen.note(f"{node} memory_mb", 80 + (10 * n if node == "n2" else 0))
            seen.note(f"{node} descriptors", 60)
            seen.note(f"{node} disk_mb", 5 + n % 2)
    late = [(1_000.0 + n / 4, 0.002 if n % 4 else 0.030) for n in range(480)]
    # What was due before the first look or behind the last one is not of the soak.
    note_lateness(seen, [(999.0, 9.0), *late, (1_125.0, 9.0)])
    return seen


def test_growth_is_from_behind_the_warm_up_to_the_end_and_one_odd_look_is_none() -> None:
    at = [float(n) for n in range(61)]
    flat = [100.0 if n < 10 else 50.0 for n in range(61)]
    assert growth(at, flat).share == 0.0
    assert growth(at, [*flat[:55], 9_999.0, *flat[56:]]).share == 0.0
    assert math.isclose(growth(at, [50.0 + n for n in range(61)]).share, 105 / 65 - 1)
    assert growth([3.0], [7.0]).share == growth(at, [0.0] * 61).share == 0.0


def test_lateness_is_that_of_the_runs_that_were_due_between_two_looks() -> None:
    seen = soaked()
    assert len(seen.gauges["lateness_p50_ms"]) == len(seen.at)
    assert set(seen.gauges["lateness_p50_ms"]) == {2.0}
    assert set(seen.gauges["lateness_p99_ms"]) == {30.0}
    assert seen.counts["runs_timed"] == 480


def test_half_of_the_runs_are_of_jobs_that_stay_and_half_of_jobs_that_go() -> None:
    asked = Soak(rate=100, seconds=60)
    lasting = [job for request in lasting_jobs(asked, 50.0) for job in request.jobs]
    assert len(lasting) == 500  # Each once in ten seconds.
    starts = [job.spec.schedules[0].interval.anchor.ToMilliseconds() for job in lasting]
    assert len(set(starts)) == 500
    assert max(starts) - min(starts) < 10_000
    jobs = passing(asked, 3, 60.0).jobs
    assert len(jobs) == 50
    assert all(job.spec.HasField("delete_after") for job in jobs)
    due = [job.spec.schedules[0].once.time.ToMilliseconds() for job in jobs]
    assert (min(due), max(due)) == (60_000, 60_980)


def test_a_picture_has_a_line_for_each_gauge_and_its_name_beside_it() -> None:
    found = ElementTree.fromstring(picture(soaked()))
    space = "{http://www.w3.org/2000/svg}"
    lines = list(found.iter(f"{space}polyline"))
    assert len(lines) == 3 * 3 + 2
    texts = [text.text or "" for text in found.iter(f"{space}text")]
    assert "n2 200" in texts
    assert sum(text.startswith(("p50 ", "p99 ")) for text in texts) == 2
    points = [pair for line in lines for pair in line.get("points", "").split()]
    heights = [float(point.split(",")[1]) for point in points]
    assert min(heights) >= 0
    assert max(heights) <= 130


@pytest.mark.parametrize(("largest", "top"), [(0, 1), (0.4, 1), (7, 8), (12, 15), (200, 200),
                                              (201, 300), (8_500, 10_000)])  # fmt: skip
def test_an_axis_ends_with_a_round_number_above_all(largest: float, top: float) -> None:
    assert SoakPlot("", {"one": [0.0, largest]}).top == top


def test_a_page_says_what_grew_and_what_did_not() -> None:
    seen = soaked()
    page = markdown(seen, {"nodes_cores": 0.2}, {"cores": 2}, "bench soak", Path("x/soak.svg"))
    assert "| n1 memory, MB | 80 | 80 | +0.0 % |" in page
    assert "| n2 memory, MB | 110 | 190 | +72.7 % |" in page
    assert "(soak.svg)" in page


def test_a_folder_that_goes_while_it_is_looked_at_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("made", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table").write_bytes(bytes(4_096))
    os.link(tmp_path / "kept" / "table", tmp_path / "kept" / "shared")
    whole = disk_bytes(tmp_path)
    scan, looked = os.scandir, list[str]()

    def goes(path: str) -> object:
        looked.append(str(path))
        if path == str(tmp_path / "made"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", goes)
    assert disk_bytes(tmp_path, tmp_path / "none") == whole // 2
    assert str(tmp_path / "made") in looked


@pytest.mark.slow
def test_a_short_one_ends_with_all_that_was_made_done_and_gone(tmp_path: Path) -> None:
    page = tmp_path / "soak.md"
    words = ("--rate", "40", "--seconds", "12", "--markdown", str(page))
    found: dict[str, Any] = bench("soak", *words)
    # Twelve seconds of twenty jobs that pass, or one fewer where the machine was busy.
    assert found["jobs_made"] >= 100
    assert found["workers_ended"] >= 1
    assert found["leaders_changed"] >= 1
    assert found["visits"] >= 1
    assert found["runs_timed"] >= 100
    assert len(found["over_time"]["at"]) == len(found["over_time"]["gauges"]["n1 memory_mb"])
    assert ElementTree.parse(page.with_suffix(".svg")).getroot().tag.endswith("svg")
    assert "| n3 descriptors |" in page.read_text()
