"""Answers to request ids, so that a retry of an unknown outcome gets the first answer.

The oldest go when they have had their time, or when there are too many: two for each that comes,
so that the table shrinks to its bounds and no call pays for many.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import accumulate, pairwise

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from ..proto.v1 import worker_pb2
from . import keys, limits
from .record import RememberedRecord
from .rejection import Reason, Refused
from .view import View

PURGE = 2


def find(view: View, request_id: str, request: Message, digest: bytes = b"") -> Message | None:
    """The answer that this request got before, if it came before. Whoever has its fingerprint gives
    it."""
    record = _find(view, request_id, request, digest)
    if record is None:
        return None
    pool = descriptor_pool.Default()
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(record.type))
    return kind.FromString(record.answer)


def find_leases(view: View, request: worker_pb2.LeaseRequest) -> list[bytes] | None:
    """Where the leases stood that were taken under a request id, if some were."""
    record = _find(view, request.request_id, request)
    if record is None:
        return None
    return [keys.lease(record.session, token) for token in accumulate(record.token_steps)]


def _find(
    view: View, request_id: str, request: Message, digest: bytes = b""
) -> RememberedRecord | None:
    if len(request_id) > limits.NAME_CHARS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"the request_id has {len(request_id)} characters; the most is {limits.NAME_CHARS}. "
            "A UUID will do",
            limit="request_id", maximum=limits.NAME_CHARS, actual=len(request_id),
        )  # fmt: skip
    record = view.get(keys.remembered(_hash(request_id.encode())), RememberedRecord)
    if record is None:
        return None
    if record.request != (digest or fingerprint(request)):
        raise Refused.because(
            Reason.ERROR_REASON_REQUEST_ID_REUSED,
            f"the request_id '{request_id}' came before with another request; make a new id for "
            "each request",
            request_id=request_id,
        )  # fmt: skip
    return record


def add(
    view: View, request_id: str, request: Message, answer: Message, digest: bytes = b""
) -> None:
    """Remember an answer, and forget some old ones."""
    record = RememberedRecord(
        request=digest or fingerprint(request), type=answer.DESCRIPTOR.full_name,
        answer=answer.SerializeToString(deterministic=True), at_ms=view.now_ms,
    )  # fmt: skip
    _add(view, request_id, record)


def add_leases(
    view: View, request: worker_pb2.LeaseRequest, session: int, tokens: list[int]
) -> None:
    """Remember which leases were taken, in a byte or two for each: the rest is in the state."""
    steps = tuple(token - before for before, token in pairwise([0, *tokens]))
    record = RememberedRecord(
        request=fingerprint(request), session=session, token_steps=steps, at_ms=view.now_ms
    )
    _add(view, request.request_id, record)


def _add(view: View, request_id: str, record: RememberedRecord) -> None:
    meta = view.meta
    digest = _hash(request_id.encode())
    view.put_once(keys.remembered(digest), record)
    view.put_raw(keys.remembered_line(meta.remembered_next), digest)
    meta.remembered_next += 1
    for _ in range(PURGE):
        if not _forget_oldest(view):
            return


def _forget_oldest(view: View) -> bool:
    meta = view.meta
    place = meta.remembered_from
    digest = view.get_raw(keys.remembered_line(place))
    assert digest is not None, f"the line of remembered requests has a gap at {place}"
    oldest = view.need(keys.remembered(digest), RememberedRecord)
    few = meta.remembered_next - place <= limits.REMEMBERED
    if few and oldest.at_ms + limits.REMEMBERED_MS > view.now_ms:
        return False
    view.delete(keys.remembered(digest))
    view.delete(keys.remembered_line(place))
    meta.remembered_from = place + 1
    return True


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def fingerprint(request: Message) -> bytes:
    """What tells a request from another under the same id."""
    name = request.DESCRIPTOR.full_name.encode()
    return _hash(name + b"\0" + request.SerializeToString(deterministic=True))
