"""What a soak saw, for people: a table, and a picture of each gauge over time."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .soak import WARM_UP, SoakSeen, growth

WIDTH, LEFT, RIGHT, PLOT, GAP, HEAD = 860, 70, 110, 130, 44, 22
# For eyes that see colours otherwise, in light and in dark; each line has its name beside it, too.
COLOURS = ("#0072b2", "#d55e00", "#009e73")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .head { font-weight: 600 }
.grid { stroke: #8886 } .warm { fill: #8882 } polyline { fill: none; stroke-width: 1.3 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
"""
LATENESS = ("lateness_p50_ms", "lateness_p99_ms")


@dataclass(frozen=True, slots=True)
class SoakPlot:
    """Gauges of one unit, over one axis."""

    title: str
    lines: Mapping[str, Sequence[float]]

    @property
    def top(self) -> float:
        """A round number above all of them."""
        largest = max((value for line in self.lines.values() for value in line), default=0.0)
        step = 10.0 ** (len(str(int(max(largest, 1)))) - 1)
        return step * next(n for n in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * n >= largest)


def plots(seen: SoakSeen) -> Iterator[SoakPlot]:
    nodes = list(dict.fromkeys(name.split()[0] for name in seen.gauges if name not in LATENESS))
    for gauge, title in (
        ("memory_mb", "memory of a node, MB"), ("descriptors", "descriptors of a node"),
        ("disk_mb", "disk of a node, MB"),
    ):  # fmt: skip
        yield SoakPlot(title, {node: seen.gauges[f"{node} {gauge}"] for node in nodes})
    yield SoakPlot(
        "lateness of what was due between two looks, ms",
        {"p50": seen.gauges[LATENESS[0]], "p99": seen.gauges[LATENESS[1]]},
    )


def picture(seen: SoakSeen) -> str:
    """All plots one below the other, as one SVG that stands alone."""
    parts = [
        f'<g transform="translate(0 {n * (PLOT + GAP) + HEAD})">{drawn(plot, seen.at)}</g>'
        for n, plot in enumerate(plots(seen))
    ]
    height = len(parts) * (PLOT + GAP) + HEAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="memory, descriptors, disk and lateness over time">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def drawn(plot: SoakPlot, at: Sequence[float]) -> str:
    """One plot: the warm-up in grey, lines with their names where they end."""
    top, span = plot.top, max(at[-1] - at[0], 1.0)

    def x(instant: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (instant - at[0]) / span

    def y(value: float) -> float:
        return PLOT - PLOT * min(value / top, 1.0)

    warm = x(at[0] + WARM_UP * span) - LEFT
    parts = [
        f'<text class="head" x="{LEFT}" y="-8">{html.escape(plot.title)}</text>',
        f'<rect class="warm" x="{LEFT}" y="0" width="{warm:.1f}" height="{PLOT}"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        at_y = PLOT - PLOT * share
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y}" y2="{at_y}"/>'
            f'<text x="{LEFT - 6}" y="{at_y + 4}" text-anchor="end">{top * share:,g}</text>'
        )
    unit, unit_s = ("min", 60) if span > 600 else ("s", 1)
    for sixth in range(7):
        instant = at[0] + span * sixth / 6
        parts.append(
            f'<text x="{x(instant):.1f}" y="{PLOT + 15}" text-anchor="middle">'
            f"{instant / unit_s:,.0f} {unit}</text>"
        )
    lowest = float("inf")
    # Names stand one above the other, however near the lines end.
    for colour, name in sorted(
        zip(COLOURS, plot.lines, strict=False), key=lambda pair: plot.lines[pair[1]][-1]
    ):
        values = plot.lines[name]
        points = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in zip(at, values, strict=True))
        lowest = min(y(values[-1]) + 4, lowest - 14)
        parts.append(
            f'<polyline points="{points}" stroke="{colour}"/><text x="{WIDTH - RIGHT + 6}" '
            f'y="{lowest:.1f}" style="fill: {colour}">{name} {values[-1]:,g}</text>'
        )
    return "".join(parts)


def markdown(
    seen: SoakSeen, found: Mapping[str, object], around: Mapping[str, object], command: str,
    image: Path,
) -> str:  # fmt: skip
    """A page that stands alone, with the picture in a file beside it."""
    whole = seen.counts
    lines = [
        "# Hours under load", "",
        f"Made by `{command}`: three nodes, workers and load on one machine, every write on the "
        "disks of a majority. Half of the runs are of jobs that stay; half are of jobs that are "
        "made five seconds ahead, run once and delete themselves half a minute later, and one in "
        "fifty of these fails at its first attempt. Meanwhile a worker ended and was started "
        f"again {whole['workers_ended']:,} times, {whole['visits']:,} clients came, read, watched "
        f"and left, and the leadership moved {whole['leaders_changed']:,} times. Histories, "
        "ledgers and audit records are kept for a minute, so that what ends does so within the "
        "soak.", "",
        f"It lasted {seen.at[-1]:,.0f} s. {whole['jobs_made']:,} jobs were made, and at the end "
        f"all of them had run and were gone; {whole['runs_timed']:,} starts of runs were timed. "
        f"The nodes together took {found['nodes_cores']} of a core.", "",
        f"Measured on: {', '.join(f'{key} {value}' for key, value in around.items())}.", "",
        "Early is the median of the second sixth of the time, late that of the last; what was "
        "before is for caches and buffers to fill (grey in the picture).", "",
        "| gauge | early | late | growth |", "|---|---|---|---|",
        *(row(name, seen) for name in seen.gauges), "",
        f"![Memory, descriptors, disk and lateness over time]({image.name})", "",
    ]  # fmt: skip
    return "\n".join(lines)


def row(name: str, seen: SoakSeen) -> str:
    found = growth(seen.at, seen.gauges[name])
    shown = name.replace("_mb", ", MB").replace("_ms", ", ms").replace("_", " ")
    return f"| {shown} | {found.early:,g} | {found.late:,g} | {100 * found.share:+.1f} % |"
