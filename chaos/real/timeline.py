"""A run as a picture: faults, answers to the probe, lateness and failovers over one axis."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from .history import FaultSpan, Observations
from .lateness import busy, firsts, with_others
from .verdict import failovers, slots

WIDTH, LEFT, RIGHT, ROW, PLOT = 900, 120, 20, 18, 150
DOTS_MAX = 4_000
COLOURS = ("#c0392b", "#8e44ad", "#2471a3", "#b9770e", "#117a65", "#884ea0", "#5d6d7e", "#a04000")
GRID_MS = (1, 10, 100, 1_000, 10_000, 100_000)


class Axis:
    """Where an instant is from left to right."""

    def __init__(self, began: float, ended: float) -> None:
        self.began, self.span = began, max(1.0, ended - began)

    def x(self, at: float) -> float:
        share = min(1.0, max(0.0, (at - self.began) / self.span))
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[int]:
        step = next(s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3_600, 10**9)
                    if self.span / s <= 12)  # fmt: skip
        return list(range(0, int(self.span) + 1, step))


def picture(seen: Observations) -> str:
    """The whole of it as one SVG."""
    instants = [probe.at for probe in seen.probes] + [fault.ended for fault in seen.faults]
    if not instants:
        return "<p>nothing happened</p>"
    axis = Axis(min(filter(None, instants)), max(instants))
    held = [fault for fault in seen.faults if fault.what != "leader-kill"]
    parts, y = [], 4.0
    for label, drawn, height in (
        *fault_rows(held, axis),
        ("probe answered", availability(seen, axis), ROW),
        ("machine busy", machine(seen, axis), ROW),
        ("", "", 10),
        ("lateness", lateness(seen, axis), PLOT),
        ("", "", 14),
        ("failover", failover_stems(seen, axis), PLOT if failovers(seen) else ROW),
    ):
        parts.append(f'<g transform="translate(0 {y:.0f})">{named(label, height)}{drawn}</g>')
        y += height
    return (
        f'<svg viewBox="0 0 {WIDTH} {y + 22:.0f}" role="img" font-size="11" fill="currentColor" '
        'aria-label="faults, availability, lateness and failovers over time">'
        + time_axis(axis, y) + "".join(parts) + "</svg>"
    )  # fmt: skip


def named(label: str, height: float) -> str:
    if not label:
        return ""
    return (
        f'<text x="0" y="{min(height, ROW) - 5:.0f}" font-weight="600">{html.escape(label)}</text>'
    )


def time_axis(axis: Axis, height: float) -> str:
    lines = []
    for second in axis.ticks():
        x = axis.x(axis.began + second)
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}" stroke="currentColor" '
            f'opacity=".12"/><text x="{x:.1f}" y="{height + 16:.0f}" text-anchor="middle">'
            f"{second} s</text>"
        )
    return "".join(lines)


def fault_rows(faults: Sequence[FaultSpan], axis: Axis) -> Iterable[tuple[str, str, float]]:
    """A row for each kind of fault, a bar for each time it came."""
    kinds = sorted({fault.what.split()[0] for fault in faults})
    for number, kind in enumerate(kinds):
        bars = []
        for fault in faults:
            if fault.what.split()[0] != kind:
                continue
            x = axis.x(fault.began)
            wide = max(3.0, axis.x(fault.ended) - x - 1)
            took = f"{fault.ended - fault.began:.1f} s"
            words = html.escape(f"{fault.what}: {fault.target}, {took}. {fault.sign}")
            # One that left no sign is only an outline.
            look = 'fill-opacity=".85"' if fault.sign else 'fill-opacity=".1" stroke-width="1"'
            colour = COLOURS[number % len(COLOURS)]
            bars.append(
                f'<rect x="{x:.1f}" y="3" width="{wide:.1f}" height="{ROW - 6}" rx="2" '
                f'fill="{colour}" stroke="{colour}" stroke-width="0" {look}>'
                f"<title>{words}</title></rect>"
            )
        yield kind, "".join(bars), ROW


def availability(seen: Observations, axis: Axis) -> str:
    """Slots in which no probe was answered in time are red."""
    first = min((probe.at for probe in seen.probes), default=0.0)
    answered = slots(seen.probes)
    width = (WIDTH - LEFT - RIGHT) * 0.1 / axis.span
    base = (
        f'<rect x="{LEFT}" y="3" width="{WIDTH - LEFT - RIGHT}" height="{ROW - 6}" fill="#27ae60"/>'
    )
    return base + "".join(
        f'<rect x="{axis.x(first + slot * 0.1):.1f}" y="3" width="{max(0.6, width):.2f}" '
        f'height="{ROW - 6}" fill="#c0392b"/>'
        for slot in range(max(answered, default=-1) + 1)
        if not answered.get(slot, False)
    )


def machine(seen: Observations, axis: Axis) -> str:
    """When the machine kept processes of the run waiting: what is late then may be its doing."""
    spans = busy(seen)
    bars = (
        (axis.x(began), max(0.6, axis.x(ended) - axis.x(began)))
        for began, ended in zip(spans.begins, spans.ends, strict=True)
    )
    return "".join(
        f'<rect x="{x:.1f}" y="3" width="{wide:.2f}" height="{ROW - 6}" fill="#7f8c8d"/>'
        for x, wide in bars
    )


def lateness(seen: Observations, axis: Axis) -> str:
    """A dot for each first attempt whose lateness is checked, by when it began."""
    points = [(first.lease.at, first.late_ms) for first in firsts(seen)]
    every = max(1, len(points) // DOTS_MAX)
    top = max((value for _, value in points), default=1.0)
    late = sorted(points, key=lambda point: -point[1])[:200]
    dots = (
        f'<circle cx="{axis.x(at):.1f}" cy="{height_of(value, top):.1f}" r="1.5" opacity=".6"/>'
        for at, value in {*points[::every], *late}
    )
    return grid(top) + "".join(dots)


def failover_stems(seen: Observations, axis: Axis) -> str:
    """A stem for each kill of a leader, as high as it took until a write was acknowledged."""
    kills = [
        fault
        for fault in seen.faults
        if fault.what == "leader-kill" and not with_others(fault, seen.faults)
    ]
    values = failovers(seen)
    if len(kills) != len(values) or not kills:
        return f'<text x="{LEFT}" y="{ROW - 5}">no leader was killed alone</text>'
    top = max(values)
    return grid(top) + "".join(
        f'<line x1="{axis.x(kill.began):.1f}" x2="{axis.x(kill.began):.1f}" y1="{PLOT}" '
        f'y2="{height_of(value, top):.1f}" stroke="#c0392b" stroke-width="2"/>'
        f'<circle cx="{axis.x(kill.began):.1f}" cy="{height_of(value, top):.1f}" r="3" '
        f'fill="#c0392b"><title>{html.escape(kill.target)} killed, {value:.0f} ms</title></circle>'
        for kill, value in zip(kills, values, strict=True)
    )


def height_of(value: float, top: float) -> float:
    """Logarithmic, from 1 ms to the highest."""
    share = math.log10(max(1.0, value)) / math.log10(max(10.0, top))
    return PLOT - share * (PLOT - 12)


def grid(top: float) -> str:
    lines = []
    for value in GRID_MS:
        if value <= max(10.0, top):
            y = height_of(value, top)
            label = f"{value} ms" if value < 1_000 else f"{value // 1_000} s"
            lines.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="currentColor" opacity=".2"/><text x="{LEFT - 6}" y="{y + 4:.1f}" '
                f'text-anchor="end">{label}</text>'
            )
    return "".join(lines)
