"""Figures as a page that stands alone."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; border-bottom: 1px solid #8884 }
td:last-child { text-align: right; font-variant-numeric: tabular-nums }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e6e6 } }
"""
Rows = Mapping[str, object]


def table(rows: Rows) -> str:
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(shown(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1>"
        f"{body}</html>\n"
    )


def columns(over_time: Mapping[str, Sequence[float]]) -> str:
    """Figures of each second or look, one row for each; those of one length stand together."""
    tables = []
    for length in sorted({len(values) for values in over_time.values()}):
        names = [name for name, values in over_time.items() if len(values) == length]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *names))
        rows = "".join(
            f"<tr><td>{at}</td>"
            + "".join(f"<td>{shown(over_time[name][at])}</td>" for name in names)
            + "</tr>"
            for at in range(length)
        )
        tables.append(f"<table><tr>{head}</tr>{rows}</table>")
    return "".join(tables)


def write_page(
    path: Path,
    name: str,
    figures: Rows,
    around: Rows,
    over_time: Mapping[str, Sequence[float]],
) -> None:
    body = table(figures)
    if over_time:
        body += f"<h2>Over time</h2>{columns(over_time)}"
    body += f"<h2>Measured on</h2>{table(around)}"
    path.write_text(page(f"raftsched bench {name}", body))
