"""Filters of lists: `state=FAILED AND labels.team=a`, a small grammar without surprises."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .rejection import Reason, Refused

FILTER_CHARS = 1_024
_TERM = re.compile(
    r"""\s*(?P<field>[a-z_]+(?:\.[a-z0-9_-]+)?)\s*(?P<sign>!=|=|<|>)\s*
    (?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]+))\s*(?P<rest>AND\b|$)""",
    re.VERBOSE,
)


class Term(NamedTuple):
    """One condition."""

    field: str
    sign: str
    value: str


def parse(text: str, fields: Collection[str]) -> list[Term]:
    """Read a filter; a field such as `labels.team` is known when `labels.` is."""
    if len(text) > FILTER_CHARS:
        raise _wrong(text[:80], f"it has {len(text)} characters; the most is {FILTER_CHARS}")
    terms = []
    place = 0
    while place < len(text.rstrip()):
        match = _TERM.match(text, place)
        if match is None:
            raise _wrong(text, f"cannot read '{text[place:].strip()}'; write field=value AND …")
        field = match["field"]
        known = field in fields or ("." in field and f"{field.split('.')[0]}." in fields)
        if not known:
            raise _wrong(
                text, f"there is no field '{field}'; there are {', '.join(sorted(fields))}"
            )
        value = match["quoted"] if match["plain"] is None else match["plain"]
        if (match["plain"] or "").startswith("="):
            # Whoever means such a value puts it into quotes.
            sign, plain = match["sign"], value.lstrip("=") or "value"
            why = f"'{sign}=' is no sign"
            raise _wrong(text, f'{why}; write {field}{sign}{plain}, or {field}{sign}"{value}"')
        terms.append(Term(field, match["sign"], value))
        place = match.end()
        if match["rest"] == "AND" and place >= len(text.rstrip()):
            raise _wrong(text, "it ends with AND; name another condition, or drop it")
    return terms


def matches(terms: list[Term], values: Mapping[str, str | int]) -> bool:
    return all(_matches(term, values.get(term.field, "")) for term in terms)


def _matches(term: Term, actual: str | int) -> bool:
    if term.sign in "<>":
        left, right = _number(actual), _number(term.value)
        if left is None or right is None:
            left, right = str(actual), term.value  # type: ignore[assignment]
        return left < right if term.sign == "<" else left > right  # type: ignore[operator]
    return same(term, str(actual)) == (term.sign == "=")


def same(term: Term, actual: str) -> bool:
    """Whether a value is the term's, or begins as it does where that ends with a star."""
    if term.value.endswith("*"):
        return actual.startswith(term.value[:-1])
    return actual == term.value


def _number(value: str | int) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


def _wrong(text: str, why: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_FILTER_INVALID, f"the filter is wrong: {why}", filter=text, hint=why
    )
