"""Answered request ids by age: which is the oldest, to go first."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.store import Reading
from . import keys
from .difference import Difference, record, records
from .record import IdempotencyRecord, MetaRecord


def differences(store: Reading) -> Iterator[Difference]:
    """Each answered request has one place in this order, between its two ends."""
    meta = record(store, keys.META, MetaRecord) or MetaRecord()
    placed, wrong = 0, []
    for key, digest in store.scan(keys.IDEMPOTENCY_BY_AGE, keys.after(keys.IDEMPOTENCY_BY_AGE)):
        place = int.from_bytes(key[1:9], "big")
        inside = meta.idempotency_from <= place < meta.idempotency_next
        if inside and store.get(keys.idempotency(digest)) is not None:
            placed += 1
        else:
            wrong.append(Difference(key, digest, None, "nothing wants this place"))
    yield from wrong
    requests = sum(1 for _ in store.scan(keys.IDEMPOTENCY, keys.after(keys.IDEMPOTENCY)))
    if requests != placed:
        yield from _unplaced(store, meta)


def _unplaced(store: Reading, meta: MetaRecord) -> Iterator[Difference]:
    """Something is wrong, so memory for all places is well spent."""
    by_age = dict(store.scan(keys.IDEMPOTENCY_BY_AGE, keys.after(keys.IDEMPOTENCY_BY_AGE)))
    digests: set[bytes] = set()
    for key, digest in by_age.items():
        if digest in digests:
            yield Difference(key, digest, None, "this request has a place already")
        digests.add(digest)
    missing = [
        (request.at_ms, key[1:])
        for key, _, request in records(store, keys.IDEMPOTENCY, IdempotencyRecord)
        if key[1:] not in digests
    ]
    places = (
        keys.idempotency_by_age(place)
        for place in range(meta.idempotency_from, meta.idempotency_next)
        if keys.idempotency_by_age(place) not in by_age
    )
    for (_, digest), key in zip(sorted(missing), places, strict=False):
        yield Difference(key, None, digest, "an answered request has no place")
