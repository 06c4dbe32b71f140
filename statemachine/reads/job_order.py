"""In which order jobs are listed: those that an index has, and one that few jobs are put in."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest, nsmallest
from typing import NamedTuple

from ..calls import filtered
from ..core import limits, pages
from ..core.filters import Filter
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.record import StateRecord, UsageRecord, parse
from ..model.view import View

# The place of a job in its list, and its number.
PlacedJob = tuple[bytes, int]
FIELDS = ("name", "create_time", "next_time")
NEVER = (1 << 64) - 1  # Where jobs stand that have no next time.


class Order(NamedTuple):
    """By which field, and whether backwards."""

    name: str
    is_descending: bool

    def walk(self, view: View, number: int, wanted: Filter, after: bytes) -> Iterator[PlacedJob]:
        """The jobs of a namespace behind a place."""
        if self.name.startswith("next_time"):
            return self._by_next_time(view, number, after)
        if self.name.startswith("create_time"):
            # Numbers are given in the order of creation.
            first, end = keys.job(keys.jid_of(number, 0)), keys.job(keys.jid_of(number + 1, 0))
        else:
            first, end = filtered.name_range(wanted, number)
        if after and not first <= after < end:
            raise pages.wrong_token()
        if after:
            first, end = (first, after) if self.is_descending else (after + b"\0", end)
        entries = view.stored.scan(first, end, backwards=self.is_descending)
        by_name = self.name.startswith("name")
        return (
            (key, int.from_bytes(value if by_name else key[-8:], "big")) for key, value in entries
        )

    def name_at(self, place: bytes) -> str | None:
        """The name of the job at a place, where that says so."""
        return keys.name_at(place) if self.name.startswith("name") else None

    def _by_next_time(self, view: View, number: int, after: bytes) -> Iterator[PlacedJob]:
        first, end = keys.state(keys.jid_of(number, 0)), keys.state(keys.jid_of(number + 1, 0))
        placed = (
            (_place_at(parse(key, value, StateRecord)) + key[-8:])
            for key, value in view.stored.scan(first, end)
        )
        if after and len(after) != 16:
            raise pages.wrong_token()
        most = limits.LOOKED_AT + 1
        if self.is_descending:
            found = nlargest(most, (one for one in placed if not after or one < after))
        else:
            found = nsmallest(most, (one for one in placed if one > after))
        return ((one, int.from_bytes(one[-8:], "big")) for one in found)


def read(view: View, number: int, text: str) -> Order:
    """What `order_by` asks for."""
    field, _, direction = text.strip().partition(" ")
    if (field or "name") not in FIELDS or direction.strip() not in ("", "asc", "desc"):
        offered = ", ".join(f"{name}, {name} desc" for name in FIELDS)
        raise Refused.because(
            Reason.ERROR_REASON_FIELD_INVALID,
            f"order_by is '{text[:80]}'; there are {offered}",
            field="order_by",
        )
    usage = view.get(keys.usage(number), UsageRecord)
    if field == "next_time" and usage is not None and usage.jobs > limits.SORTED_JOBS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"the namespace has {usage.jobs} jobs, and at most {limits.SORTED_JOBS} are put in "
            "order of next_time; order them by name or create_time, or ask for a forecast",
            limit="sorted_jobs", maximum=limits.SORTED_JOBS, actual=usage.jobs,
        )  # fmt: skip
    is_descending = direction.strip() == "desc"
    return Order(f"{field or 'name'}{' desc' if is_descending else ''}", is_descending)


def place(found: PlacedJob) -> bytes:
    return found[0]


def _place_at(state: StateRecord) -> bytes:
    return (state.next_due_at_ms or NEVER).to_bytes(8, "big")
