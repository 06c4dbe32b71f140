"""A run of the harness as a page that a person can read: what was done, promised, and seen."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench.page import page, table
from .checks import CHECKS, Violation
from .run import Asked, Told
from .verdict import failovers

WIDTH, HEIGHT, LEFT = 720, 160, 46
COLOURS = {"kill": "#c0392b", "leader-kill": "#c0392b", "pause": "#8e44ad", "partition": "#2980b9"}
OTHER = "#d68910"
DOTS_MAX = 6_000
HISTOGRAM_MS = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1_000, 5_000)


def write(path: Path, asked: Asked, told: Told) -> None:
    path.write_text(page(f"raftsched chaos: {asked.scenario}", body(asked, told)))


def body(asked: Asked, told: Told) -> str:
    word = told.figures["verdict"]
    mark = "✔ every promise was kept" if word == "ok" else "✘ a promise was broken"
    return (
        f"<p><strong>{mark}</strong>: {asked.nodes} nodes, {asked.seconds:.0f} s, "
        f"seed {asked.seed}. The same seed plans the same faults.</p>"
        + violations(told.violations)
        + "<h2>What was seen</h2>"
        + table(flat(told.figures))
        + "<h2>Lateness, with faults behind it</h2>"
        + lateness(told)
        + "<h2>From the death of a leader to the next acknowledged write</h2>"
        + histogram(failovers(told.seen))
        + "<h2>What was promised</h2><ul>"
        + "".join(f"<li>{html.escape(check.__doc__ or '')}</li>" for check in CHECKS)
        + "</ul>"
    )


def violations(found: Sequence[Violation]) -> str:
    lines = "".join(f"<li>{html.escape(str(each))}</li>" for each in found[:200])
    return f"<h2>Violations</h2><ul>{lines}</ul>" if found else ""


def flat(figures: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found[name] = ", ".join(f"{k} {v}" for k, v in value.items()) or "-"
        else:
            found[name] = value
    return found


def lateness(told: Told) -> str:
    """Each dot a firing: when it was due, and how late its handler began."""
    leases = [lease for lease in told.seen.leases if lease.attempt == 1]
    if not leases:
        return "<p>nothing ran</p>"
    first = min(lease.at for lease in leases)
    span = max(lease.at for lease in leases) - first or 1.0
    top = max(100.0, *(lease.wall_ms - lease.due_ms for lease in leases))
    every = max(1, len(leases) // DOTS_MAX)

    def x(at: float) -> float:
        return LEFT + (at - first) / span * (WIDTH - LEFT)

    bands = "".join(
        f'<rect x="{x(fault.began):.1f}" y="0" '
        f'width="{max(1.5, x(fault.ended) - x(fault.began)):.1f}" height="{HEIGHT}" '
        f'fill="{COLOURS.get(fault.what.split()[0], OTHER)}" opacity=".25">'
        f"<title>{html.escape(f'{fault.what} {fault.target}')}</title></rect>"
        for fault in told.seen.faults
        if fault.what != "leader-kill"
    )
    dots = "".join(
        f'<circle cx="{x(lease.at):.1f}" '
        f'cy="{HEIGHT - (lease.wall_ms - lease.due_ms) / top * HEIGHT:.1f}" r="1.4"/>'
        for lease in leases[::every]
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 18}" role="img" '
        'aria-label="lateness over time" fill="currentColor" font-size="11">'
        f'{bands}{dots}<text x="0" y="10">{top:.0f} ms</text><text x="0" y="{HEIGHT}">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT + 14}">0 s</text>'
        f'<text x="{WIDTH - 36}" y="{HEIGHT + 14}">{span:.0f} s</text></svg>'
    )


def histogram(values: Sequence[float]) -> str:
    if not values:
        return "<p>no leader was killed</p>"
    rows: dict[str, object] = {}
    low = 0
    for high in HISTOGRAM_MS:
        count = sum(low <= value < high for value in values)
        if count:
            rows[f"{low} to {high} ms"] = f"{count} {'█' * min(count, 60)}"
        low = high
    over = sum(value >= low for value in values)
    if over:
        rows[f"over {low} ms"] = str(over)
    return table(rows)
