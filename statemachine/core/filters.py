"""Filters of lists: `state=FAILED AND (labels.team=a OR error:"timed out")`, without surprises.

One parser makes one tree, in which each value has the type of its field; the lists of a namespace,
the events and the workers all ask that tree. AND and OR beside each other need parentheses, since
readers of AIP-160 and of SQL would take different ones for the stronger.

A list looks at fewer records by asking the tree first: `needed` gives the conditions that must hold
whatever else does, `possible` the values that a field may have at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Final

from .instants import instant_of
from .rejection import Reason, Refused

FILTER_CHARS = 1_024
TERMS = 50
DEPTH = 16  # Of parentheses and NOT inside each other.

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"(AND|OR|NOT)(?![A-Za-z0-9_.\-])")
_FIELD = re.compile(r"[a-z_]+(?:\.[a-z0-9_-]+)?")
_SIGN = re.compile(r"\s*(!=|<=|>=|=|<|>|:)\s*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PLAIN = re.compile(r'[^\s"()]+')
_ESCAPED = re.compile(r'\\(["\\])')
_ORDER: Final = {"<": lt, ">": gt, "<=": le, ">=": ge}

# What a record has in a field: one value, or several of which one is enough. An instant or number
# that is not there is "".
Value = str | int | Collection[str]
ValueOf = Callable[[str], Value]
# The same where only some fields are at hand; None: this one is not.
Known = Callable[[str], Value | None]


@dataclass(frozen=True, slots=True)
class Field:
    """What the values of a field are."""

    # Instants and numbers have an order; the others are texts.
    is_instant: bool = False
    is_number: bool = False
    # The only values there are; empty: any.
    words: tuple[str, ...] = ()


TEXT: Final = Field()
INSTANT: Final = Field(is_instant=True)
NUMBER: Final = Field(is_number=True)
# What a list can be asked for. A field that ends with a dot stands for all that begin with it.
Fields = Mapping[str, Field]


def words(names: Collection[str], prefix: str) -> Field:
    """A field with the values of an enum, as filters and messages write them."""
    short = (name.removeprefix(prefix) for name in names if not name.endswith("_UNSPECIFIED"))
    return Field(words=tuple(short))


@dataclass(frozen=True, slots=True)
class Term:
    """One condition."""

    field: str
    sign: str
    value: str | int


@dataclass(frozen=True, slots=True)
class Not:
    part: Tree


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Tree, ...]


Tree = Term | Not | All | Any


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list is asked for."""

    tree: Tree
    # How many conditions there are, which is what a look at one record costs.
    terms: int
    # The fields that it names.
    names: frozenset[str]

    def fits(self, value_of: ValueOf) -> bool:
        return _fits(self.tree, value_of)

    def judge(self, known: Known) -> bool | None:
        """Whether something fits of which some fields are known; None: that is up to others."""
        return _judge(self.tree, known)

    def needed(self) -> Iterator[Term]:
        """Conditions that must hold whatever else does."""
        todo = [self.tree]
        while todo:
            tree = todo.pop()
            if isinstance(tree, All):
                todo += tree.parts
            elif isinstance(tree, Term):
                yield tree

    def possible(self, field: str, values: Collection[str]) -> frozenset[str]:
        """Those of the values that a field may have in what fits."""
        return frozenset(one for one in values if self.judge({field: one}.get) is not False)

    def span(self, field: str, low: int, high: int) -> tuple[int, int]:
        """The first instant that a field may have in what fits, and the last, within bounds."""
        for term in self.needed():
            if term.field == field and isinstance(term.value, int):
                if term.sign in ("=", ">", ">="):
                    low = max(low, term.value + (term.sign == ">"))
                if term.sign in ("=", "<", "<="):
                    high = min(high, term.value - (term.sign == "<"))
        return low, high


ALL: Final = Filter(All(()), 0, frozenset())


def parse(text: str, fields: Fields) -> Filter:
    """Read a filter; an empty one lets everything pass."""
    if len(text) > FILTER_CHARS:
        why = f"it has {len(text)} characters; the most is {FILTER_CHARS}"
        raise wrong(text[:80], FILTER_CHARS + 1, why)
    if not text.strip():
        return ALL
    return _Parser(text, fields).whole()


class _Parser:
    """Reads one filter from left to right."""

    def __init__(self, text: str, fields: Fields) -> None:
        self.text, self.fields = text, fields
        self.place, self.terms = 0, 0
        self.names = set[str]()

    def whole(self) -> Filter:
        tree = self._chain(0)
        if self._rest():
            raise self._wrong("')' closes nothing; drop it, or open it with '(' before")
        return Filter(tree, self.terms, frozenset(self.names))

    def _chain(self, depth: int) -> Tree:
        """Parts that are joined by AND, or by OR."""
        parts, joint = [self._unit(depth)], ""
        while (rest := self._rest()) and rest[0] != ")":
            begin = self.place
            word = self._word()
            if word not in ("AND", "OR"):
                self.place = begin
                raise self._wrong(
                    f"cannot read '{rest[:40]}'; write AND or OR before another condition"
                )
            if joint and word != joint:
                self.place = begin
                why = f"{word} stands beside {joint}; write parentheses, as in (a=1 AND b=2) OR c=3"
                raise self._wrong(why)
            joint = word
            if not self._rest():
                raise self._wrong(f"it ends with {word}; name another condition, or drop it")
            parts.append(self._unit(depth))
        if len(parts) == 1:
            return parts[0]
        return Any(tuple(parts)) if joint == "OR" else All(tuple(parts))

    def _unit(self, depth: int) -> Tree:
        rest = self._rest()
        if depth > DEPTH:
            raise self._wrong(f"it is more than {DEPTH} levels deep; write it flatter")
        if rest.startswith("("):
            opened = self.place
            self.place += 1
            tree = self._chain(depth + 1)
            if not self._rest().startswith(")"):
                self.place = opened
                raise self._wrong("'(' is never closed; write ')' behind its conditions")
            self.place += 1
            return tree
        if self._word() == "NOT":
            return Not(self._unit(depth + 1))
        return self._term()

    def _term(self) -> Term:
        begin = self.place
        named = _FIELD.match(self.text, begin)
        sign = _SIGN.match(self.text, named.end()) if named else None
        if named is None or sign is None:
            rest = self.text[begin:].strip()
            raise self._wrong(f"cannot read '{rest[:40]}'; write field=value, or NOT field=value")
        field = self._field(named[0])
        self.terms += 1
        if self.terms > TERMS:
            raise self._wrong(f"it has more than {TERMS} conditions; ask in several calls")
        self.names.add(named[0])
        self.place = begin = sign.end()
        value = self._value(named[0], sign[1])
        end, self.place = self.place, begin
        typed = self._typed(named[0], sign[1], field, value)
        self.place = end
        return Term(named[0], sign[1], typed)

    def _field(self, name: str) -> Field:
        known = self.fields.get(name) or self.fields.get(name.partition(".")[0] + ".")
        if known is None or (name not in self.fields and "." not in name):
            raise self._wrong(
                f"there is no field '{name}'; there are {', '.join(sorted(self.fields))}"
            )
        return known

    def _value(self, field: str, sign: str) -> str:
        if found := _QUOTED.match(self.text, self.place):
            self.place = found.end()
            return _ESCAPED.sub(r"\1", found[1])
        if self.text.startswith('"', self.place):
            raise self._wrong('a value begins with a quote that is never closed; write another "')
        found = _PLAIN.match(self.text, self.place)
        if found is None:
            why = f"{field}{sign} has no value; write {field}{sign}value, or quotes around it"
            raise self._wrong(why)
        if found[0].startswith("="):
            # Whoever means such a value puts it into quotes.
            plain = found[0].lstrip("=") or "value"
            raise self._wrong(
                f"'{sign}=' is no sign; write {field}{sign}{plain}, or {field}{sign}\"{found[0]}\""
            )
        self.place = found.end()
        return found[0]

    def _typed(self, name: str, sign: str, field: Field, value: str) -> str | int:
        """The value as its field has it. An empty one stands for none."""
        is_ordered = field.is_instant or field.is_number
        if sign in _ORDER and not is_ordered:
            raise self._wrong(f"{name} has no order; write {name}={value}, != or : (contains)")
        if is_ordered:
            if sign == ":":
                raise self._wrong(f"{name} is no text; write {name}={value}, !=, <, <=, > or >=")
            if not value and sign in ("=", "!="):
                return value
            number = instant_of(value) if field.is_instant else _number(value)
            if number is None:
                kind = "an instant" if field.is_instant else "a number"
                such = "2026-03-29T01:00:00Z" if field.is_instant else "3"
                raise self._wrong(f"'{value}' is not {kind}; write one such as {such}")
            return number
        known = sign == ":" or not value or value.endswith("*") or value in field.words
        if field.words and not known:
            raise self._wrong(f"'{value}' is no {name}; there are {', '.join(field.words)}")
        return value

    def _rest(self) -> str:
        """What is left, without the space before it."""
        space = _SPACE.match(self.text, self.place)
        assert space is not None, "it may be empty"
        self.place = space.end()
        return self.text[self.place :]

    def _word(self) -> str:
        found = _WORD.match(self.text, self.place)
        if found is None:
            return ""
        self.place = found.end()
        return found[1]

    def _wrong(self, why: str) -> Refused:
        return wrong(self.text, self.place + 1, why)


def _number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None


def _fits(tree: Tree, value_of: ValueOf) -> bool:
    match tree:
        case Term():
            return _matches(tree, value_of(tree.field))
        case Not():
            return not _fits(tree.part, value_of)
        case All():
            return all(_fits(part, value_of) for part in tree.parts)
        case Any():
            return any(_fits(part, value_of) for part in tree.parts)


def _judge(tree: Tree, known: Known) -> bool | None:
    match tree:
        case Term():
            value = known(tree.field)
            return None if value is None else _matches(tree, value)
        case Not():
            found = _judge(tree.part, known)
            return None if found is None else not found
        case _:
            enough = isinstance(tree, Any)
            verdicts = {_judge(part, known) for part in tree.parts}
            if enough in verdicts:
                return enough
            return None if None in verdicts else not enough


def _matches(term: Term, actual: Value) -> bool:
    sign, value = term.sign, term.value
    if sign == "!=":
        return not _same(value, actual)
    if sign == "=":
        return _same(value, actual)
    if sign == ":":
        part = str(value).casefold()
        values = (actual,) if isinstance(actual, str) else actual
        assert not isinstance(values, int), f"{term} asks for a part of a number"
        return any(part in one.casefold() for one in values)
    return isinstance(actual, int) and bool(_ORDER[sign](actual, value))


def _same(value: str | int, actual: Value) -> bool:
    """Whether it is the value, or begins as that does where it ends with a star."""
    if isinstance(actual, int):
        return actual == value
    begins = value[:-1] if isinstance(value, str) and value.endswith("*") else None
    if isinstance(actual, str):
        return actual == value if begins is None else actual.startswith(begins)
    return any(one == value if begins is None else one.startswith(begins) for one in actual)


def wrong(text: str, column: int, why: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_FILTER_INVALID, f"the filter is wrong at column {column}: {why}",
        filter=text, hint=why, column=column,
    )  # fmt: skip
