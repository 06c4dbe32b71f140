"""Many rows in one test, where a row costs less than what pytest does around a test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]
SHOWN_MAX = 10


def each(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: Callable[[Any], str] | None = None
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, in one test that plays all rows and names those that fail.

    For tests that take nothing but the row, or fixtures that no row changes.
    """
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    table = [row if len(listed) > 1 else (row,) for row in rows]
    if not table:
        raise ValueError(f"no rows for {names}")
    if any(hasattr(one, "marks") for row in table for one in (row, *row)):
        raise ValueError(f"a row of {names} has a mark, such as slow; use pytest.mark.parametrize")

    def over_rows(test: Test) -> Test:
        @functools.wraps(test)
        def all_rows(**given: object) -> None:
            failed: list[tuple[str, BaseException]] = []
            for number, row in enumerate(table):
                try:
                    test(**dict(zip(listed, row, strict=True)), **given)
                except (Exception, pytest.fail.Exception) as wrong:
                    failed.append((_label(number, row, ids), wrong))
            if failed:
                first = failed[0][1]
                shown = "".join(f"\n  {label}" for label, _ in failed[:SHOWN_MAX])
                first.add_note(
                    f"{len(failed)} of {len(table)} rows fail, this is the first:{shown}"
                )
                raise first

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in listed]
        all_rows.__dict__["__signature__"] = signature.replace(parameters=left)
        return all_rows

    return over_rows


def _label(number: int, row: Sequence[Any], ids: Callable[[Any], str] | None) -> str:
    said = ids(row[0]) if ids and len(row) == 1 else ", ".join(repr(value)[:60] for value in row)
    return f"{number}: {said}"
