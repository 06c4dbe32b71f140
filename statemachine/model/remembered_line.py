"""The line of remembered requests: which is the oldest, to go first."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.store import Reading
from . import keys
from .difference import Difference, record, records
from .record import MetaRecord, RememberedRecord


def differences(store: Reading) -> Iterator[Difference]:
    """Each remembered request has one place in the line, between its two ends."""
    meta = record(store, keys.META, MetaRecord) or MetaRecord()
    placed, wrong = 0, []
    for key, digest in store.scan(keys.REMEMBERED_LINE, keys.after(keys.REMEMBERED_LINE)):
        place = int.from_bytes(key[1:9], "big")
        inside = meta.remembered_from <= place < meta.remembered_next
        if inside and store.get(keys.remembered(digest)) is not None:
            placed += 1
        else:
            wrong.append(Difference(key, digest, None, "nothing wants this place in the line"))
    yield from wrong
    requests = sum(1 for _ in store.scan(keys.REMEMBERED, keys.after(keys.REMEMBERED)))
    if requests != placed:
        yield from _unplaced(store, meta)


def _unplaced(store: Reading, meta: MetaRecord) -> Iterator[Difference]:
    """Something is wrong, so memory for the whole line is well spent."""
    line = dict(store.scan(keys.REMEMBERED_LINE, keys.after(keys.REMEMBERED_LINE)))
    digests: set[bytes] = set()
    for key, digest in line.items():
        if digest in digests:
            yield Difference(key, digest, None, "this request has a place in the line already")
        digests.add(digest)
    missing = [
        (request.at_ms, key[1:])
        for key, _, request in records(store, keys.REMEMBERED, RememberedRecord)
        if key[1:] not in digests
    ]
    places = (
        keys.remembered_line(place)
        for place in range(meta.remembered_from, meta.remembered_next)
        if keys.remembered_line(place) not in line
    )
    for (_, digest), key in zip(sorted(missing), places, strict=False):
        yield Difference(key, None, digest, "a remembered request has no place in the line")
