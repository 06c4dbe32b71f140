"""Tables for people: what a terminal has room for, in columns, below them, or cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from .clean import flat
from .formats import Cell

# Columns of words, which may take several lines.
LONG = {
    "NOTE", "MESSAGE", "ERROR", "MORE", "DESCRIPTION", "REASON", "RESULT", "LABELS", "CHANGED",
    "HANDLERS", "WAITS FOR",
}  # fmt: skip
LONG_WIDTH = 24
# Columns that a narrow terminal does without, the first one first; `-o wide` shows them all.
GIVE_WAY = (
    "WAITING", "RUNNING", "CLOCK", "LAST", "ZONE", "VERSION", "HOLD", "CONCURRENCY", "RATE",
    "ATTEMPT", "CERTIFICATE", "SYNC",
)  # fmt: skip
# How far columns are cut, one turn after the other: texts, the first column, and so on.
LEAST_WIDTHS = (14, 24, 8, 11, 8)
INSTANT = re.compile(r"\d{4}-\d\d-\d\d ")
GAP = 2  # Between two columns.


class FittedTable:
    """Rows for a terminal. A column is known by its number."""

    def __init__(
        self, titles: Sequence[str], rows: Iterable[Sequence[Cell | str]], console: Console
    ) -> None:
        self.titles, self.console = titles, console
        self.cells = [
            [Text(flat(str(cell)), getattr(cell, "style", "")) for cell in row] for row in rows
        ]

    def show(self, *, headers: bool, is_whole: bool) -> None:
        """Print it; whole, with all columns as wide as they are, or so that it fits."""
        shown = self._columns(is_whole=is_whole)
        if not is_whole and self._needs(shown) > self.console.width:
            below = [number for number in shown if number and self.titles[number] in LONG]
            self._cut([number for number in shown if number not in below])
            if below:
                self._stacked(shown, below, headers=headers)
                return
        needed = self._needs(shown)
        table = RichTable(box=None, show_header=headers, pad_edge=False, header_style="bold")
        for number in shown:
            # Long texts take several lines; all else keeps its width, even beyond the terminal's.
            is_long = self.titles[number] in LONG
            table.add_column(self.titles[number], no_wrap=not is_long, overflow="fold")
        for row in self.cells:
            table.add_row(*(row[number] for number in shown))
        self.console.width = max(self.console.width, needed)
        self.console.print(table, crop=False)

    def _columns(self, *, is_whole: bool) -> list[int]:
        """Those that are shown: where it is narrow none that is empty, and none that gives way."""
        every = list(range(len(self.titles)))
        filled = [number for number in every if any(row[number].plain for row in self.cells)]
        every = [number for number in every if number in filled or self.titles[number] not in LONG]
        if is_whole or self._needs(every) > self.console.width:
            every = filled
        if is_whole:
            return every
        for title in GIVE_WAY:
            beside = [number for number in every if self.titles[number] not in LONG]
            if self._needs(beside) <= self.console.width:
                break
            every = [n for n in every if not n or self.titles[n] != title]
        return every

    def _cut(self, shown: Sequence[int]) -> None:
        """Shorten cells as far as the lines are too long: the widest column first, what a line is
        named by later, and instants, of which half says little, last."""
        widths = {number: self._width(number) for number in shown}
        over = sum(widths.values()) + GAP * (len(shown) - 1) - self.console.width
        instants = [n for n in shown if any(INSTANT.match(row[n].plain) for row in self.cells)]
        texts, first = [n for n in shown[1:] if n not in instants], shown[:1]
        turns = (texts, first, texts, instants, first)
        for columns, least in zip(turns, LEAST_WIDTHS, strict=True):
            while over > 0 and columns:
                widest = max(columns, key=lambda number: widths[number])
                if widths[widest] <= max(len(self.titles[widest]), least):
                    break
                widths[widest] -= 1
                over -= 1
        for row in self.cells:
            for number, most in widths.items():
                row[number].truncate(most, overflow="ellipsis")

    def _stacked(self, shown: Sequence[int], below: Sequence[int], *, headers: bool) -> None:
        """Long texts have lines of their own."""
        beside = [number for number in shown if number not in below]
        widths = {number: self._width(number) for number in beside}

        def line(row: Sequence[Text]) -> None:
            text = Text()
            for number in beside:
                gap = widths[number] - row[number].cell_len + GAP
                text.append_text(row[number]).append(" " * gap)
            text.rstrip()
            self.console.print(text, soft_wrap=True)

        if headers:
            line([Text(title, "bold") for title in self.titles])
        for row in self.cells:
            line(row)
            for number in below:
                if row[number].plain:
                    text = Text(f"{self.titles[number].lower()}: ").append_text(row[number])
                    self.console.print(Padding(text, (0, 0, 0, 4)))

    def _width(self, number: int) -> int:
        return max([len(self.titles[number]), *(row[number].cell_len for row in self.cells)])

    def _needs(self, shown: Sequence[int]) -> int:
        """How wide a terminal must be for these columns."""
        widths = ((self._width(number), self.titles[number] in LONG) for number in shown)
        needed = sum(min(width, LONG_WIDTH) if is_long else width for width, is_long in widths)
        return needed + GAP * (len(shown) - 1)
