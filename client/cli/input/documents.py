"""What files hold, one job after the other, not looked at yet: YAML, TOML, JSON, JSON lines, CSV.

A flow is one document: what stands beside its `jobs` goes for all of them, schedules for those that
come after no other, and each has the label `flow` with its name.

    flow: nightly
    cron: 0 2 * * *
    zone: Europe/Berlin
    jobs:
      extract: {handler: extract}
      clean: {handler: clean, after: extract}
      report: {handler: report, after: [clean, "extract:any-end"]}
"""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..exits import reason_of, wrong_use

# Of a folder; what is named itself may be a table, too.
SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".jsonl", ".ndjson")
TABLE = ".csv"
QUOTED_CHARS = 80  # Of a value, in a fault.
SCHEDULES = ("cron", "every", "at", "after_end", "after-end", "schedules")


def every_file(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if path != "-" and Path(path).is_dir():
            inside = sorted(
                str(one)
                for one in Path(path).rglob("*")
                if one.suffix in SUFFIXES and one.is_file()
            )
            if not inside:
                raise wrong_use(
                    f"there are no jobs in {path}", f"files end in {', '.join(SUFFIXES)}"
                )
            yield from inside
        else:
            yield path


def documents(path: str, *, is_table: bool = False) -> Iterator[Any]:
    """What a file holds, one job after the other, not looked at yet."""
    try:
        if is_table or path.endswith(TABLE):
            yield from _of_table(path)
        elif path == "-":
            yield from _of_text(sys.stdin.read())
        elif path.endswith((".jsonl", ".ndjson")):
            with open(path, encoding="utf-8") as lines:
                yield from _of_lines(lines)
        elif path.endswith(".toml"):
            yield from _flattened(tomllib.loads(Path(path).read_text()))
        elif path.endswith(".json"):
            yield from _flattened(json.loads(Path(path).read_text()))
        else:
            yield from _of_yaml(Path(path).read_text())
    except (OSError, UnicodeDecodeError, ValueError) as wrong:
        raise wrong_use(
            f"cannot read {path}", reason_of(wrong),
            "name another file, or see how one is written: raftsched job init",
        ) from wrong  # fmt: skip


def _of_lines(lines: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as wrong:
                why = f"line {number}, column {wrong.colno}: {wrong.msg}"
                raise ValueError(f"{why}: {shortened(line.strip())}") from wrong


def shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _of_table(path: str) -> Iterator[Any]:
    """A job for each line of CSV; the first line has the words of flat.py, and for what is a table
    itself `labels.team`. An empty cell says nothing."""
    with nullcontext(sys.stdin) if path == "-" else open(path, newline="") as lines:
        rows = csv.reader(lines, strict=True)
        try:
            titles = [title.strip() for title in next(rows, [])]
            if "name" not in titles:
                raise ValueError(f"its first line has no column `name`: {quoted(titles)}")
            for row in rows:
                if any(row):
                    yield _row(titles, row, rows.line_num)
        except csv.Error as wrong:
            raise ValueError(f"line {rows.line_num}: {wrong}") from wrong


def _row(titles: list[str], row: list[str], line: int) -> dict[str, Any]:
    if len(row) > len(titles):
        raise ValueError(f"line {line} has {len(row)} cells, and the first has {len(titles)}")
    document: dict[str, Any] = {}
    for title, cell in zip(titles, row, strict=False):
        word, mark, key = title.partition(".")
        if not cell:
            continue
        if mark and isinstance(document.setdefault(word, {}), dict):
            document[word][key] = cell
        elif mark:
            raise ValueError(f"line {line} has {word} and {title}; keep one of the two")
        elif title in document:
            document[title] = [
                *(document[title] if isinstance(document[title], list) else [document[title]]),
                cell,
            ]
        else:
            document[title] = cell
    return document


def _of_text(text: str) -> Iterator[Any]:
    """From a pipe, where no name says what it is."""
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        yield from _of_yaml(text)
    else:
        for line in lines:
            yield from _flattened(line)


def _of_yaml(text: str) -> Iterator[Any]:
    import yaml

    try:
        for document in yaml.safe_load_all(text):
            yield from _flattened(document)
    except yaml.YAMLError as wrong:
        raise ValueError(str(wrong)) from wrong


def _flattened(value: Any) -> Iterator[Any]:  # Whatever JSON can hold.
    """A job, a list of jobs, or a document with `jobs`."""
    if value is None:
        return
    if isinstance(value, list):
        yield from value
    elif isinstance(value, Mapping) and "flow" in value and "name" not in value:
        yield from _of_flow(value)
    elif isinstance(value, Mapping) and "jobs" in value and "name" not in value:
        yield from value["jobs"] or ()
    else:
        yield value


def _of_flow(document: Mapping[str, Any]) -> Iterator[Any]:
    """The jobs of a flow: what stands beside them goes for all, schedules for the first ones."""
    flow, jobs = document["flow"], document.get("jobs")
    if not isinstance(flow, str) or not isinstance(jobs, Mapping) or not jobs:
        raise ValueError(
            "a flow is written as {flow: NAME, jobs: {JOB: {handler: ...}, OTHER: {after: JOB}}}"
        )
    shared = {key: value for key, value in document.items() if key not in ("flow", "jobs")}
    for name, own in jobs.items():
        if not isinstance(own, Mapping):
            raise ValueError(f"flow {flow}: job {name}: {quoted(own)} is not a table of words")
        is_first = "after" not in own
        given = {key: one for key, one in shared.items() if is_first or key not in SCHEDULES}
        labels = {"flow": flow, **_labels(shared, flow), **_labels(own, flow)}
        yield {"name": name, **given, **own, "labels": labels}


def _labels(document: Mapping[str, Any], flow: str) -> Mapping[str, Any]:
    labels = document.get("labels", document.get("label")) or {}
    if not isinstance(labels, Mapping):
        raise ValueError(f"flow {flow}: labels: {quoted(labels)} is not a table of texts")
    return labels


def quoted(value: Any) -> str:
    """A value of a file, in a sentence about it."""
    text = repr(value)
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"
