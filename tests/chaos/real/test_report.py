"""What is said of a run: figures, sums, and a page that stands alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.chaos.commands.chaos import chaos
from raftsched.chaos.real import report
from raftsched.chaos.real.checks import CHECKS, violations_in
from raftsched.chaos.real.history import (
    Ack,
    Bounds,
    ClientCall,
    Contention,
    Event,
    FaultSpan,
    FinalJob,
    Lease,
    Observations,
    Probe,
    RecurringJob,
    Stop,
)
from raftsched.chaos.real.run import RunOptions, ScenarioResult
from raftsched.chaos.real.total import histogram, total
from raftsched.chaos.real.verdict import availability, failovers, verdict
from raftsched.chaos.real.violation import Violation

EMPTY = {"meta", "line", "rect", "circle", "br", "link", "img"}


def kill(at: float, ended: float) -> list[Event]:
    return [FaultSpan("leader-kill", "n<1>", at, 0.0, "sent"),
            FaultSpan("kill", "n<1>", at, ended, "ended with -9")]  # fmt: skip


def seen() -> Observations:
    return Observations.of(events_of_all())


def events_of_all() -> list[Event]:
    events: list[Event] = [Probe(n / 9.99, 0.02, ok=not 20 <= n < 23) for n in range(40)]
    events += kill(2.0, 3.0)
    events += [FaultSpan("failpoint before-sync", "n2", 3.1, 3.5)]
    events += [RecurringJob("tick", 1_000, 0, 0, prompt=True)]
    events += [Lease("w", f"tick.{n}", "tick", n + 1, 1, n, 0, 1 + n, 0.5 * n) for n in range(8)]
    return events


def result_of(history: Observations, violations: list[Violation]) -> ScenarioResult:
    return ScenarioResult(verdict(history, violations), violations, history, 0.0)


class Tags(HTMLParser):
    """Every tag is closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(v) for k, v in attrs if k in ("src", "href")]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag


def test_a_failover_ends_with_a_write_that_began_after_it() -> None:
    history = Observations.of([
        *kill(2.0, 3.0),
        Probe(1.99, 0.05, ok=True),  # Perhaps the answer of the dead leader.
        ClientCall("c", "get", "a", 2.01, 2.02, 5.0, "ok"),
        ClientCall("c", "update", "a", 2.01, 2.3, 5.0, "ok"),
        Probe(2.05, 0.15, ok=True),
        Probe(2.02, 0.1, ok=False),
    ])  # fmt: skip
    assert failovers(history) == [pytest.approx(200.0)]
    other = FaultSpan("pause", "n2", 1.0, 2.5, "T")
    assert failovers(Observations.of([*kill(2.0, 3.0), Probe(2.05, 0.15, ok=True), other])) == []


def test_a_herd_is_drained_when_the_last_report_on_it_is_answered() -> None:
    late = [
        RecurringJob("herd-1", 5_000, 5_000, 5_000),
        Lease("w", "herd-1.1", "herd-1", 90, 1, 5_000, 5_000, 9_000, 20.0),
        Ack("w", "herd-1.1", 90, "success", "", 21.5),
        Ack("w", "tick.7", 8, "success", "", 90.0),
    ]
    figures = verdict(Observations.of([*late, *events_of_all()]), [])
    assert (figures["herd"], figures["herd_drained_s"]) == (1, 5.5)
    assert "herd" not in verdict(seen(), [])


def test_stops_are_counted_and_slow_ones_named() -> None:
    stops = [Stop("n1", 1.0, 1.5, 0), Stop("n2", 2.0, 5.1, 3, "not finished: HTTP")]
    figures = verdict(Observations.of(stops), [])
    assert (figures["stops"], figures["slow_stops"]) == (2, 1)


def test_each_node_that_got_another_build_has_its_figures() -> None:
    """It took from 1 s to 3 s: who was due then, and how long nothing was written."""
    step = FaultSpan("upgrade", "n2", 1.0, 3.0, "aa to bb")
    (found,) = verdict(Observations.of([*events_of_all(), step]), [])["steps"]
    assert (found["step"], found["node"], found["builds"]) == ("upgrade", "n2", "aa to bb")
    assert (found["s"], found["firings"]) == (2.0, 4)
    assert found["lateness_ms"]["max"] == 7
    assert 100 <= found["no_write_ms"] < 2_000
    assert "steps" not in verdict(seen(), [])


def test_availability_counts_slots_without_an_answer_and_without_a_probe() -> None:
    assert availability(seen().probes) == pytest.approx(37 / 40)
    assert availability([Probe(0, 0.01, ok=True), Probe(0.95, 0.01, ok=True)]) == 0.2
    assert availability([Probe(0, 0.2, ok=True)]) == 0
    assert availability([]) == 0


def test_quiet_lateness_leaves_out_what_a_fault_or_the_machine_made_late() -> None:
    assert verdict(seen(), [])["quiet_firings"] == 0  # Nothing was promised.
    bounds = Bounds(1_000.0, 10.0, 50.0)
    figures = verdict(
        Observations.of([*events_of_all(), bounds, Contention(0.6, 0.8, "n1", 0.05)]), []
    )
    # Those at seconds 0, 0.5 and 1.5; before 1 somebody waited, and from 1.8 on a fault was near.
    assert (figures["quiet_firings"], figures["quiet_lateness_ms"]["max"]) == (3, 4)
    assert figures["lateness_ms"]["max"] == 8
    assert figures["busy_share"] == pytest.approx(0.2 / 4, abs=0.01)


def test_the_verdict_names_what_was_broken_and_what_left_no_sign() -> None:
    found = verdict(seen(), [Violation("S2", "tick at 7 has no outcome"), Violation("S4", "x")])
    assert found["verdict"] == "violated"
    assert (found["lost"], found["doubled"], found["two_leases"]) == (1, 0, 1)
    assert found["by_invariant"] == {"S2": 1, "S4": 1}
    assert (found["faults"], found["leader_kills"], found["faults_without_sign"]) == (2, 1, 1)
    assert verdict(seen(), [])["verdict"] == "ok"
    assert found["acknowledged"] == 37


@pytest.mark.parametrize("violations", [[], [Violation("S1", "<a> & b", "copies_are_equal")]])
def test_the_page_is_well_formed_and_stands_alone(
    tmp_path: Path, violations: list[Violation]
) -> None:
    report.write(
        tmp_path / "page.html", RunOptions(scenario="mixed"), result_of(seen(), violations)
    )
    page = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    assert tags.links == []
    assert "url(" not in page
    assert "nan" not in re.sub(r"<[a-z/][^>]*>", "", page)
    assert ("A promise was broken" if violations else "Every promise was kept") in page
    assert "n&lt;1&gt;" in page
    assert page.count("✘") == 2 * len(violations)
    for check in CHECKS:
        assert (check.__doc__ or "")[:30].replace("'", "&#x27;") in page


def test_a_page_of_nothing_is_a_page(tmp_path: Path) -> None:
    report.write(
        tmp_path / "page.html", RunOptions(scenario="mixed"), result_of(Observations(), [])
    )
    assert "nothing happened" in (tmp_path / "page.html").read_text()


def test_a_violation_names_its_check() -> None:
    (violation,) = violations_in(
        Observations.of(
            [ClientCall("c", "create", "a", 0, 1, 5.0, "ok", "v"), FinalJob("probe", "")]
        )
    )
    assert violation.check == "acknowledged_writes_survive"


def test_runs_are_added_up(tmp_path: Path) -> None:
    good = {"scenario": "kill-leader", "seconds": 10.0, **verdict(seen(), [])}
    bad = {**good, "seconds": 30.0, "availability": 0.5,
           "verdict": "violated", "by_invariant": {"S1": 2}, "lost": 2}  # fmt: skip
    found = total([good, bad])
    assert found["verdict"] == "violated"
    assert (found["runs"], found["leader_kills"], found["lost"]) == (2, 2, 2)
    assert found["by_invariant"] == {"S1": 2}
    assert found["availability"] == pytest.approx((0.925 * 10 + 0.5 * 30) / 40, abs=1e-4)
    assert found["failovers"] == {"300 to 500 ms": 2}
    for name, run in (("good", good), ("bad", bad)):
        (tmp_path / name).write_text("said before\n" + json.dumps(run) + "\n")
    command = CliRunner().invoke(chaos, ["sum", str(tmp_path / "good"), "-o", "json"])
    assert command.exit_code == 0, command.output
    assert json.loads(command.output)["leader_kills"] == 1
    assert CliRunner().invoke(chaos, ["sum", str(tmp_path / "bad")]).exit_code == 1
    (tmp_path / "none").write_text("")
    broken = CliRunner().invoke(chaos, ["sum", str(tmp_path / "none")])
    assert broken.exit_code == 2
    assert "does not end with an object" in broken.output


def test_a_histogram_counts_each_value_once() -> None:
    values = [0, 9.9, 10, 49, 50, 7_000]
    rows = histogram(values)
    assert sum(count for _, count in rows) == len(values)
    assert rows[0] == ("0 to 10 ms", 2)
    assert rows[-1] == ("over 5000 ms", 1)
    assert histogram([]) == []
