"""Pages of lists: how long one is, where the next one begins, and how much one may look at.

A page token is the place where the page before ended, with a check of the list, its namespace and
filter, so that it works for that list alone. It is opaque, not secret: a place outside the list's
own range is refused. A page looks at a bounded number of records; a filter that few of them fit
gives short or even empty pages with a token to go on from.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

from google.protobuf.message import Message

from . import limits
from .rejection import Reason, Refused

Item = TypeVar("Item", bound=Message)
Row = TypeVar("Row")
CHECK_BYTES = 8
TOKEN_CHARS = 1_024
FEW_TERMS = 4


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and the token of the next page; empty at the end."""

    items: list[Item]
    next_token: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a caller asks of a page."""

    size: int
    # Behind this place; b"" for the beginning.
    after: bytes
    # What the tokens of this list are for.
    scope: bytes


def read(kind: str, namespace: int, text: str, page_size: int, token: str) -> PageRequest:
    """Read page size and token of a list; `text` is its filter."""
    if page_size < 0:
        raise Refused.because(
            Reason.ERROR_REASON_FIELD_INVALID,
            f"page_size is {page_size}; it must be 0 (for {limits.PAGE_DEFAULT}) or more",
            field="page_size",
        )
    scope = f"{kind}\0{namespace}\0{text}\0".encode()
    size = min(page_size or limits.PAGE_DEFAULT, limits.PAGE)
    return PageRequest(size, _place(token, scope) if token else b"", scope)


def _check(scope: bytes, place: bytes) -> bytes:
    return blake2b(scope + place, digest_size=CHECK_BYTES).digest()


def _place(token: str, scope: bytes) -> bytes:
    if len(token) > TOKEN_CHARS or not token.isascii():
        raise wrong_token()
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        raise wrong_token() from None
    place = raw[CHECK_BYTES:]
    if not place or raw[:CHECK_BYTES] != _check(scope, place):
        raise wrong_token()
    return place


def wrong_token() -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_PAGE_TOKEN_INVALID,
        "the page_token was not given out for this list and filter; send the next_page_token of "
        "the page before with the same filter, or begin without a token",
    )


def token_of(request: PageRequest, place: bytes) -> str:
    return urlsafe_b64encode(_check(request.scope, place) + place).rstrip(b"=").decode()


def fill(
    request: PageRequest,
    found: Iterable[Row],
    place_of: Callable[[Row], bytes],
    show: Callable[[Row], Item | None],
    is_enough: Callable[[], bool] = lambda: False,
    terms: int = 0,
) -> Page[Item]:
    """Show what is found until the page is full; `show` gives None for what the filter drops, which
    has so many terms, and `is_enough` says that what was looked at was much."""
    items: list[Item] = []
    size, last, most = 0, b"", looks(terms)
    for looked, entry in enumerate(found):
        if len(items) == request.size or looked == most or (looked and is_enough()):
            return Page(items, token_of(request, last))
        item = show(entry)
        if item is not None:
            size += item.ByteSize()
            if items and size > limits.PAGE_BYTES:
                # It begins the next page.
                return Page(items, token_of(request, last))
            items.append(item)
        last = place_of(entry)
    return Page(items, "")


def looks(terms: int) -> int:
    """At how many records one call looks: fewer for a filter of many terms, which costs more."""
    return max(1, limits.LOOKED_AT * FEW_TERMS // max(FEW_TERMS, terms))


def count(found: Iterable[Row], fits: Callable[[Row], bool], terms: int) -> tuple[int, bool]:
    """How many fit, and whether these are all: neither a count nor the look for it goes on for
    ever."""
    counted, most = 0, looks(terms)
    for looked, entry in enumerate(found):
        if looked == most or counted == limits.COUNTED:
            return counted, False
        counted += fits(entry)
    return counted, True


def key_of(entry: tuple[bytes, bytes]) -> bytes:
    """The place of an entry of a table: its key."""
    return entry[0]


def first_behind(request: PageRequest, first: bytes, end: bytes) -> bytes:
    """Where to begin a scan of a range of keys."""
    if not request.after:
        return first
    if not first <= request.after < end:
        raise wrong_token()
    return request.after + b"\0"
