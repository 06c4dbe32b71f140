"""The only place that prints data: one message, a list, a table, in seven formats.

`table` and `wide` are for people on a terminal and become plain tab-separated values in a pipe;
`csv` is all columns for a spreadsheet, with lengths of time in seconds;
`json`, `jsonl` and `yaml` are the API's own JSON, in YAML with payloads in words; `name` is what
the next command wants to know.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from .clean import echo, flat, folded, json_of, visible

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console

    from .formats import Cell, Column

EVENT_WIDTHS = (8, 19, 15, 28)  # Of an event: revision, time, kind, what it is about.
Row = Sequence["Cell | str"]


class Output:
    """How this command prints."""

    def __init__(
        self, form: str, *, time_style: str = "local", headers: bool = True, color: str = "auto"
    ) -> None:
        self.format = form
        self.time_style = time_style
        self.headers = headers
        self.color = color

    @property
    def for_person(self) -> bool:
        """Somebody looks at stdout, or asked for it to look so."""
        return not self.is_csv and (self.color == "always" or sys.stdout.isatty())

    @property
    def is_table(self) -> bool:
        return self.format in ("table", "wide", "csv")

    @property
    def is_csv(self) -> bool:
        return self.format == "csv"

    @property
    def is_plain(self) -> bool:
        """Nobody wants colours."""
        return self.color == "never" or bool(os.environ.get("NO_COLOR"))

    # Messages.

    def one(self, message: Message) -> None:
        """Print one thing with all that is known of it."""
        match self.format:
            case "json":
                echo(json_of(plain(message), indent=2))
            case "jsonl":
                echo(compact(message))
            case "yaml":
                echo(yaml_of(plain(message)), nl=False)
            case "name":
                echo(name_of(message))
            case _:
                self._describe(message)

    def several(self, messages: Sequence[Message]) -> None:
        """Print the answers of one command's writes: one as it is, several as a list."""
        if len(messages) > 1 and self.format in ("json", "yaml"):
            self.document([plain(message) for message in messages])
        else:
            for message in messages:
                self.one(message)

    def pages(self, pages: Iterable[Message], field: str, empty: str = "") -> None:
        """Print the pages of a list; lines appear page by page, documents at the end."""
        items = (item for page in pages for item in getattr(page, field))
        match self.format:
            case "json" | "yaml":
                whole = merged(pages)
                rows = {key_of(whole, field): [], **plain(whole)}
                self.document(rows)
            case "jsonl":
                for item in items:
                    echo(compact(item))
            case "name":
                for item in items:
                    echo(name_of(item))
            case _:
                self._items(last := Last(pages), field, empty)
                if last.token and sys.stderr:
                    echo("There are more: --limit 0 prints all.", err=True)

    def items(self, items: Iterable[Message], whole: Message) -> None:
        """Print parts of an answer as a table, the answer itself to programs."""
        if self.format in ("json", "yaml"):
            self.document(plain(whole))
            return
        if self.format in ("jsonl", "name"):
            for item in items:
                echo(compact(item) if self.format == "jsonl" else name_of(item))
            return
        found = list(items)
        if found:
            self._table_of(found)

    def document(self, value: Any) -> None:  # Whatever JSON can hold.
        """Print what is no message of the API, in its form."""
        if self.format == "yaml":
            echo(yaml_of(value), nl=False)
        else:
            echo(json_of(value, indent=2))

    def records(self, known: Sequence[Mapping[str, Any]]) -> None:
        """As a list of the API, for what is not from there."""
        match self.format:
            case "jsonl":
                for one in known:
                    echo(json_of(one))
            case "name":
                for one in known:
                    echo(next(iter(one.values())))
            case _:
                self.document(list(known))

    def piece(self, value: Mapping[str, Any]) -> None:
        """Print one of a stream that is no message of the API, for programs."""
        if self.format == "yaml":
            echo(f"---\n{yaml_of(dict(value))}", nl=False)
        elif self.format == "name":
            echo(next(iter(value.values())))
        else:
            echo(json_of(value, separators=(",", ":")))

    def line(self, message: Message) -> None:
        """Print one of a stream, as soon as it is there."""
        if not self.is_table:
            if self.format == "yaml":
                echo("---")
            echo(compact(message)) if self.format == "json" else self.one(message)
            return
        formats = self.formats
        columns = self._columns(message)
        cells = [column.cell(message, formats) for column in columns]
        if not self.for_person:
            if self.is_csv and self.headers:
                self._row([column.title for column in columns], is_title=True)
                self.headers = False
            self._row(cells)
            return
        from rich.padding import Padding
        from rich.text import Text

        text, console = Text(), self.console
        for cell, width in zip(cells, EVENT_WIDTHS, strict=False):
            text.append(flat(str(cell)).ljust(width) + " ", style=cell.style)
        more = Text(" ".join(flat(str(cell)) for cell in cells[len(EVENT_WIDTHS) :]))
        if text.cell_len + more.cell_len <= console.width:
            text.append_text(more)
            more = Text()
        text.rstrip()
        console.print(text, soft_wrap=True)
        if more.plain.strip():
            console.print(Padding(more, (0, 0, 0, 4)))

    def paint(self, text: str, color: str, *, err: bool = False, nl: bool = True) -> None:
        """Print words beside the data, in a colour where that is wanted."""
        stream = sys.stderr if err else sys.stdout
        wanted = not self.is_plain and (self.color == "always" or bool(stream and stream.isatty()))
        shown = visible(text)
        if wanted:
            click.echo(click.style(shown, fg=color), err=err, nl=nl, color=True)
        else:
            echo(shown, err=err, nl=nl)

    def folded(self, text: str, indent: int) -> str:
        """Words on lines of the terminal, the further ones indented; for a pipe as they are."""
        return folded(text, self.console.width, indent) if self.for_person else text

    # Tables.

    def table(self, titles: Sequence[str], rows: Iterable[Row]) -> None:
        """Print rows: aligned for a person, tab-separated for a program."""
        if self.for_person:
            from .tables import FittedTable

            FittedTable(titles, rows, self.console).show(
                headers=self.headers, is_whole=self.format == "wide"
            )
            return
        if self.headers:
            self._row(titles, is_title=True)
        for row in rows:
            self._row(row)

    def _row(self, cells: Row, *, is_title: bool = False) -> None:
        """A line for a program."""
        if not self.is_csv:
            echo("\t".join(flat(str(cell)) for cell in cells))
            return
        texts = [str(cell) for cell in cells]
        if is_title:
            texts = [text.lower().replace(" ", "_") for text in texts]
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow(texts)
        echo(line.getvalue(), nl=False)

    def _items(self, pages: Iterable[Message], field: str, empty: str) -> None:
        items = (item for page in pages for item in getattr(page, field))
        first = next(items, None)
        if first is None:
            echo(empty or f"No {field.replace('_', ' ')}.", err=True)
            return
        self._table_of(chain([first], items))

    def _table_of(self, items: Iterable[Message]) -> None:
        rows = iter(items)
        first = next(rows)
        columns = self._columns(first)
        formats = self.formats
        self.table(
            [column.title for column in columns],
            ([column.cell(item, formats) for column in columns] for item in chain([first], rows)),
        )

    def _columns(self, message: Message) -> list[Column]:
        from .columns import COLUMNS

        every = COLUMNS[message.DESCRIPTOR.name]
        return [column for column in every if self.format != "table" or not column.wide]

    def _describe(self, message: Message) -> None:
        from .describe import lines

        for line in lines(message, self.formats):
            if not self.for_person:
                # A text of several lines has as many rows, so that none of it is lost.
                parts = [line.value] if self.is_csv else line.value.rstrip("\n").split("\n")
                for part in parts if line.value else ():
                    self._row([".".join(line.path), part])
                continue
            self.console.print(line.fitted(self.console.width).text, soft_wrap=True)

    @property
    def formats(self) -> Any:  # A Look; its module loads protobuf.
        from .formats import ValueFormats

        return ValueFormats(self.time_style, exact=not self.for_person, in_seconds=self.is_csv)

    @property
    def console(self) -> Console:
        from .terminal import Terminal

        return Terminal(
            file=sys.stdout,
            color_system=None if self.is_plain else "auto",
            force_terminal=True if self.color == "always" else None,
            highlight=False,
            markup=False,
            emoji=False,
        )


class Last:
    """Pages, with the token that the last one leaves."""

    def __init__(self, pages: Iterable[Message]) -> None:
        self._pages = pages
        self.token = ""

    def __iter__(self) -> Iterator[Message]:
        for page in self._pages:
            self.token = getattr(page, "next_page_token", "")
            yield page


def merged(pages: Iterable[Message]) -> Message:
    """One page that holds all; it ends where the last one does."""
    every = iter(pages)
    whole = next(every)
    for page in every:
        whole.ClearField("next_page_token")
        whole.MergeFrom(page)
    return whole


def plain(message: Message) -> dict[str, Any]:
    """The API's JSON."""
    from ..messages import json_format

    return json_format.MessageToDict(message)


def compact(message: Message) -> str:
    return json_of(plain(message), separators=(",", ":"))


def key_of(message: Message, field: str) -> str:
    return message.DESCRIPTOR.fields_by_name[field].json_name


def yaml_of(value: Any) -> str:  # Whatever JSON can hold.
    from ..payloads import readable
    from . import clean

    return clean.yaml_of(readable(value))


def name_of(message: Message) -> str:
    """What another command takes as its argument."""
    fields = message.DESCRIPTOR.fields_by_name
    if "revision" in fields and fields["revision"].message_type is not None:
        revision = getattr(message, "revision")  # noqa: B009  # Only events have it.
        return f"{revision.change}.{revision.position}"
    for field in ("name", "id", "run", "worker", "job", "cluster_id"):
        if field in fields and fields[field].message_type is None and getattr(message, field):
            return str(getattr(message, field))
    return compact(message)
