"""A run of the harness as a page that a person can read: what was done, promised, and seen."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench.page import page, table
from .checks import CHECKS
from .run import RunOptions, ScenarioResult
from .timeline import picture
from .total import histogram
from .verdict import failovers
from .violation import Violation

VIOLATIONS_SHOWN = 200
STYLE = """<style>
body { max-width: 60rem }
.verdict { padding: .8rem 1.2rem; border-radius: .5rem; color: #fff; font-size: 1.2rem }
.ok { background: #1e8449 } .violated { background: #b03a2e }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0 }
.cards div { flex: 1 1 8rem; border: 1px solid #8886; border-radius: .5rem; padding: .6rem .9rem }
.cards b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums }
.bar { display: inline-block; height: .8rem; background: #2471a3; vertical-align: middle }
.plain td:last-child { text-align: left }
svg { width: 100%; height: auto } summary { cursor: pointer }
.broken { color: #b03a2e; font-weight: 600 }
</style>"""


def write(path: Path, asked: RunOptions, result: ScenarioResult) -> None:
    path.write_text(page(f"raftsched chaos: {asked.scenario}", body(asked, result)))


def body(asked: RunOptions, result: ScenarioResult) -> str:
    faults = [fault for fault in result.seen.faults if fault.what != "leader-kill"]
    return (
        STYLE
        + banner(asked, result)
        + cards(result.figures)
        + violations(result.violations)
        + "<h2>What happened</h2>"
        + picture(result.seen)
        + "<p>A bar is a fault, from its beginning until everything was back; point at it to see "
        "what it was. Red slots of the probe: 100 ms in which no write was answered. Grey: the "
        "machine kept processes of the run waiting for a processor or the disk. A dot is a "
        "run without a limit: when its first attempt began, and how long after it was due. A stem "
        "is the death of a leader: how long until a write was acknowledged again.</p>"
        + "<h2>From the death of a leader to the next acknowledged write</h2>"
        + bars(histogram(failovers(result.seen)))
        + "<h2>What was promised</h2>"
        + promises(result.violations)
        + f"<details><summary>All {len(faults)} faults</summary>{deeds(result)}</details>"
        + "<details><summary>All figures</summary>"
        + table(flat(result.figures))
        + "</details>"
    )


def banner(asked: RunOptions, result: ScenarioResult) -> str:
    good = result.figures["verdict"] == "ok"
    word = "✔ Every promise was kept" if good else "✘ A promise was broken"
    rule = f", with the rule “{asked.broken_rule}” switched off" if asked.broken_rule else ""
    return (
        f'<p class="verdict {"ok" if good else "violated"}">{word}</p>'
        f"<p>{asked.nodes} nodes for {asked.seconds:.0f} s under the faults of "
        f"<code>{asked.scenario}</code>, seed {asked.seed}{html.escape(rule)}. "
        "The same seed plans the same faults.</p>"
    )


def cards(figures: dict[str, Any]) -> str:
    failover, quiet = figures["failover_ms"], figures["quiet_lateness_ms"]
    kills = figures["leader_kills"]
    shown = [
        (figures["faults"], "faults"),
        (kills, "leaders killed"),
        (figures["acknowledged"], f"writes acknowledged, {figures['lost']} lost"),
        (figures["firings"], f"firings, {figures['doubled']} doubled"),
        (figures["leases"], f"leases, {figures['two_leases']} broke fencing"),
        (f"{failover['p50']:.0f} ms" if figures["failovers_ms"] else "-", "failover, half of them"),
        (
            f"{quiet['p99']:.0f} ms" if figures["quiet_firings"] else "-",
            f"99 of 100 of {figures['quiet_firings']:,} quiet firings were late by at most",
        ),
        (f"{100 * figures['availability']:.1f} %", "of 100 ms slots with an answer"),
    ]
    cells = (
        f"<div><b>{f'{value:,}' if isinstance(value, int) else value}</b>{html.escape(words)}</div>"
        for value, words in shown
    )
    return f'<div class="cards">{"".join(cells)}</div>'


def violations(found: Sequence[Violation]) -> str:
    lines = "".join(f"<li>{html.escape(str(each))}</li>" for each in found[:VIOLATIONS_SHOWN])
    more = len(found) - VIOLATIONS_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<h2>Violations</h2><ul>{lines}</ul>{rest}" if found else ""


def promises(found: Sequence[Violation]) -> str:
    """Each check, and whether it found anything."""
    counts = Counter(violation.check for violation in found)
    rows = []
    for check in CHECKS:
        words = " ".join((check.__doc__ or "").split("\n\n")[0].split())
        count = counts[check.__name__]
        kept = f'<span class="broken">✘ {count}</span>' if count else "✔"
        rows.append(f"<tr><td>{kept}</td><td>{html.escape(words)}</td></tr>")
    return f'<table class="plain">{"".join(rows)}</table>'


def deeds(result: ScenarioResult) -> str:
    faults = [fault for fault in result.seen.faults if fault.what != "leader-kill"]
    first = min((probe.at for probe in result.seen.probes), default=0.0)
    rows = "".join(
        f"<tr><td>{fault.began - first:.1f} s</td><td>{html.escape(fault.what)}</td>"
        f"<td>{html.escape(fault.target)}</td><td>{fault.ended - fault.began:.1f} s</td>"
        f"<td>{html.escape(fault.sign or 'left no sign')}</td></tr>"
        for fault in sorted(faults, key=lambda fault: fault.began)
    )
    head = "<tr><th>at</th><th>what</th><th>whom</th><th>for</th><th>sign</th></tr>"
    return f'<table class="plain">{head}{rows}</table>'


def flat(figures: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found[name] = ", ".join(f"{k} {v}" for k, v in value.items()) or "-"
        elif not isinstance(value, list):
            found[name] = value
    return found


def bars(rows: Sequence[tuple[str, int]]) -> str:
    if not rows:
        return (
            "<p>No leader was killed while nothing else was wrong. While other faults hold, there "
            "may be no majority that could elect another, so those are not counted.</p>"
        )
    most = max(count for _, count in rows)
    cells = "".join(
        f"<tr><td>{html.escape(label)}</td><td>{count}</td>"
        f'<td><span class="bar" style="width:{24 * count / most:.2f}rem"></span></td></tr>'
        for label, count in rows
    )
    return f'<table class="plain">{cells}</table>'
