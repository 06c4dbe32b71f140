"""What was found, for people: costs, points as bars, what the cluster holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .answer import CapacityAsked, CapacityModel, ResourceUse
from .costs import BY_NAME, SHOWN, CostPoints

BAR_WIDTH = 30
COUNTED = {"jobs": "jobs", "rate": "runs/s", "workers": "workers"}
# Costs whose points are drawn, and in what.
DRAWN = {
    "run_leader": (1e3, "ms"), "rate_leader": (100.0, "% of a core"), "job_memory": (1e-6, "MB"),
    "job_disk": (1e-6, "MB"), "job_start": (1.0, "s"), "worker_leader": (100.0, "% of a core"),
    "event_gateway": (1.0, "s"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CapacityReport:
    """Everything that is shown."""

    found: CostPoints
    model: CapacityModel
    headroom: float
    asked: CapacityAsked | None
    left_out: list[str]
    around: Mapping[str, object]

    def holds(self) -> dict[str, tuple[float, str]]:
        return {counted: self.model.most(counted, self.headroom) for counted in COUNTED}

    def as_json(self) -> dict[str, object]:
        lines = self.found.lines()
        return {
            "costs": {
                name: {"each": line.slope, "low": line.low, "high": line.high, "base": line.base,
                       "unit": BY_NAME[name].unit, "points": self.found.points[name]}
                for name, line in lines.items()
            },
            "headroom": self.headroom,
            "holds": {
                counted: {"most": None if math.isinf(most) else int(most), "ends_first": name}
                for counted, (most, name) in self.holds().items()
            },
            "runs_per_s_at_once": round(self.found.best_rate),
            "left_out": self.left_out,
            **({"asked": self.as_asked(self.asked)} if self.asked is not None else {}),
        }  # fmt: skip

    def as_asked(self, asked: CapacityAsked) -> dict[str, object]:
        return {
            "jobs": asked.jobs, "rate": asked.rate, "workers": asked.workers,
            "fits": self.model.fits(asked, self.headroom),
            "unmeasured": self.model.unmeasured(asked),
            "ends_first": self.model.ends_first(asked).name,
            "uses": {use.name: round(use.share, 4) for use in self.model.uses(asked)},
        }  # fmt: skip


def bar(value: float, largest: float) -> str:
    filled = round(BAR_WIDTH * value / largest) if largest > 0 else 0
    return "█" * max(filled, 1 if value > 0 else 0)


def rounded(value: float) -> str:
    """Three digits are as many as a measurement carries."""
    if math.isinf(value):
        return "no end seen"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def cost_rows(found: CostPoints) -> Iterator[tuple[str, str, str, str]]:
    """Of each cost: its text, what one is, how sure that is, how far it was measured."""
    for name, line in found.lines().items():
        kind = BY_NAME[name]
        factor, unit = SHOWN[kind.unit]
        seen = f"{rounded(line.low * factor)} to {rounded(line.high * factor)}"
        if line.points < 3:
            seen = "two points"
        reach = f"{found.largest(name):,.0f} {kind.counted}"
        each = f"{rounded(line.slope * factor)} {unit}" if line.sure else "too little to see"
        yield kind.text, each, seen, reach


def drawn(found: CostPoints) -> Iterator[str]:
    """Each point that was measured, as a bar."""
    for name, (factor, unit) in DRAWN.items():
        points = sorted(found.points.get(name, ()))
        if not points:
            continue
        yield f"{BY_NAME[name].text}, {unit}"
        largest = max(cost for _, cost in points)
        for count, cost in points:
            shown = rounded(cost * factor)
            yield f"  {count:>12,.0f} {BY_NAME[name].counted:<18}{shown:>9}  {bar(cost, largest)}"
        yield ""


def use_row(use: ResourceUse) -> str:
    return f"{100 * use.share:5.1f} %  {bar(min(use.share, 1.0), 1.0):<{BAR_WIDTH}}  {use.name}"


def text(report: CapacityReport) -> Iterator[str]:
    """The answer, for a terminal."""
    rows = [("WHAT ONE COSTS", "COST", "SEEN", "MEASURED TO"), *cost_rows(report.found)]
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    for what, each, seen, reach in rows:
        yield f"{what:<{widths[0]}}  {each:>{widths[1]}}  {seen:>{widths[2]}}  {reach}"
    yield ""
    yield from drawn(report.found)
    yield f"WHAT IT HOLDS, each alone, with {100 * report.headroom:.0f} % of everything left free"
    for counted, (most, name) in report.holds().items():
        yield f"{COUNTED[counted]:<8} {rounded(most):>14}  then ends: {name or 'nothing seen'}"
    if report.found.best_rate:
        yield f"All due at one instant: {report.found.best_rate:,.0f} runs/s were seen."
    yield gigabytes(report)
    if report.asked is not None:
        yield ""
        yield from verdict(report, report.asked)
    if report.left_out:
        yield f"Left out, as the machine had no time: {', '.join(report.left_out)}."


def gigabytes(report: CapacityReport) -> str:
    """What the most jobs that it holds take of a node."""
    most, _ = report.holds()["jobs"]
    if math.isinf(most):
        return "What jobs take of memory and disk was not measured."
    uses = {use.name: use.needed for use in report.model.uses(CapacityAsked(jobs=most))}
    taken = [
        f"{rounded(uses[name] / 1e9)} GB of {what}"
        for name, what in (("memory of a node", "memory"), ("disk of a node", "disk"))
        if name in uses
    ]
    return f"So many jobs take {' and '.join(taken)} of each node."


def verdict(report: CapacityReport, asked: CapacityAsked) -> Iterator[str]:
    """Whether a load fits, and what ends first when it grows."""
    model = report.model
    first, absent = model.ends_first(asked), model.unmeasured(asked)
    answer = "it fits" if model.fits(asked, report.headroom) else "it does not fit"
    yield (f"YOURS: {asked.jobs:,.0f} jobs, {asked.rate:,.0f} runs/s, {asked.workers:,.0f} "
           f"workers: {'no answer' if absent else answer}")  # fmt: skip
    for name in absent:
        yield f"not measured: {BY_NAME[name].text}"
    for use in sorted(model.uses(asked), key=lambda use: -use.share):
        yield use_row(use)
    yield (f"{first.name} ends first: {100 * first.share:.0f} % of it is used, "
           f"{100 * (1 - report.headroom):.0f} % may be.")  # fmt: skip


def markdown(report: CapacityReport, command: str) -> str:
    """A page that stands alone: the figures of one machine, and how to have those of another."""
    around = ", ".join(f"{key} {value}" for key, value in report.around.items())
    lines = [
        "# What a cluster holds", "",
        f"Made by `{command}`, which measures the machine at hand: three nodes, the workers and "
        "the load on it, every write on the disks of a majority. Yours will differ; run it there "
        "before you order machines. With `--jobs`, `--rate` and `--workers` it says whether a "
        "load fits and what ends first.", "",
        f"Measured on: {around}.", "",
        "## What one costs", "",
        "Each is the slope of a straight line through few sizes, measured in turns; beside it the "
        "slopes that remain when one point is left out. Sums below reckon with the dearest.", "",
        "| what | one | seen | measured to |", "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in cost_rows(report.found)), "",
        f"## What it holds, with {100 * report.headroom:.0f} % of everything left free", "",
        "Each alone, on three machines like this one with one node each. Beyond what was measured "
        "it is the line that says so, not a cluster that was seen.", "",
        "| what | most | what ends first |", "|---|---|---|",
        *(f"| {COUNTED[counted]} | {rounded(most)} | {name or 'nothing seen'} |"
          for counted, (most, name) in report.holds().items()), "",
        f"{gigabytes(report)} All due at one instant, {report.found.best_rate:,.0f} runs/s were "
        "seen with all nodes and the workers on this one machine.", "",
    ]  # fmt: skip
    if report.asked is not None:
        lines += ["## A load", "", "```text", *verdict(report, report.asked), "```", ""]
    lines += ["## Each point", "", "```text", *list(drawn(report.found))[:-1], "```", ""]
    if report.left_out:
        lines += [f"Left out, as the machine had no time: {', '.join(report.left_out)}.", ""]
    return "\n".join(lines)
