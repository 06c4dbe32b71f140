"""How the runs of a job went, in a few figures: for `job history --summary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..render.clean import echo
from ..session import Invocation, many

if TYPE_CHECKING:
    from ..messages import run_pb2

PERCENTS = (50, 90, 99, 100)
TITLES = ("P50", "P90", "P99", "MAX")


def show(session: Invocation, pages: Iterable[Any]) -> None:
    """Print how many ended how, and how long they waited, took and were worked on."""
    from ..render.formats import Cell, enum_word

    ends: Counter[str] = Counter()
    spans: dict[str, list[int]] = {"waited": [], "duration": [], "handler time": []}
    for page in pages:
        for run in page.runs:
            ends[enum_word(run, "state")] += 1
            for name, ms in measured(run):
                spans[name].append(ms)
    if not session.out.is_table:
        session.out.document({
            "runs": ends.total(), "states": dict(ends),
            "seconds": {
                name.replace(" ", "_"): dict(zip(
                    (title.lower() for title in TITLES),
                    (ms / 1000 for ms in percentiles(found)), strict=True,
                ))
                for name, found in spans.items() if found
            },
        })  # fmt: skip
        return
    counts = ", ".join(f"{count:,} {state}" for state, count in ends.most_common())
    echo(f"{many(ends.total(), 'run')}: {counts or 'none'}", err=not session.out.for_person)
    formats = session.out.formats
    rows = [
        [
            Cell(name),
            Cell(f"{len(found):,}"),
            *(Cell(formats.length(ms)) for ms in percentiles(found)),
        ]
        for name, found in spans.items()
        if found
    ]
    if rows:
        session.out.table(("SPAN", "RUNS", *TITLES), rows)


def measured(run: run_pb2.Run) -> Iterable[tuple[str, int]]:
    """From due to the first start, from there to the end, and of that what handlers took."""
    from ..render.columns import worked_ms

    if run.HasField("start_time"):
        start = run.start_time.ToMilliseconds()
        yield "waited", max(start - run.due_time.ToMilliseconds(), 0)
        if run.HasField("end_time"):
            yield "duration", max(run.end_time.ToMilliseconds() - start, 0)
    worked = worked_ms(run)
    if worked is not None:
        yield "handler time", worked


def percentiles(found: Sequence[int]) -> list[int]:
    """The values that so many percent do not exceed."""
    ordered = sorted(found)
    return [ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] for percent in PERCENTS]
