"""Answers to request ids, so that a retry of an unknown outcome gets the first answer.

Each namespace has ids of its own, so that no tenant can use up those that another one is about to
send; so has each worker for its leases. What names neither, such as a call about a run, shares the
ids of the cluster.

The oldest go when they have had their time, or when there are too many: two for each that comes,
so that the table shrinks to its bounds and no call pays for many.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from ...proto.v1 import job_pb2, worker_pb2
from ..core import limits
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.record import IdempotencyRecord
from ..model.view import View
from . import namespaces

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
) -> IdempotencyRecord | None:
    if len(request_id) > limits.NAME_CHARS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"the request_id has {len(request_id)} characters; the most is {limits.NAME_CHARS}. "
            "A UUID will do",
            limit="request_id", maximum=limits.NAME_CHARS, actual=len(request_id),
        )  # fmt: skip
    record = view.get(keys.idempotency(_place(request_id, request)), IdempotencyRecord)
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
    record = IdempotencyRecord(
        request=digest or fingerprint(request), type=answer.DESCRIPTOR.full_name,
        answer=answer.SerializeToString(deterministic=True), at_ms=view.now_ms,
    )  # fmt: skip
    _add(view, _place(request_id, request), record)


def keep(view: View, request_id: str, request: Message, answer: Message) -> None:
    """Remember an answer, or more of one that is remembered already."""
    key = keys.idempotency(_place(request_id, request))
    before = view.get(key, IdempotencyRecord)
    if before is None:
        add(view, request_id, request, answer)
        return
    view.put_once(key, replace(before, answer=answer.SerializeToString(deterministic=True)))


def add_leases(
    view: View, request: worker_pb2.LeaseRequest, session: int, tokens: list[int]
) -> None:
    """Remember which leases were taken, in a byte or two for each: the rest is in the state."""
    steps = tuple(token - before for before, token in pairwise([0, *tokens]))
    record = IdempotencyRecord(
        request=fingerprint(request), session=session, token_steps=steps, at_ms=view.now_ms
    )
    _add(view, _place(request.request_id, request), record)


def _add(view: View, digest: bytes, record: IdempotencyRecord) -> None:
    meta = view.meta
    view.put_once(keys.idempotency(digest), record)
    view.put_raw(keys.idempotency_by_age(meta.idempotency_next), digest)
    meta.idempotency_next += 1
    for _ in range(PURGE):
        if not _forget_oldest(view):
            return


def _forget_oldest(view: View) -> bool:
    meta = view.meta
    place = meta.idempotency_from
    digest = view.get_raw(keys.idempotency_by_age(place))
    assert digest is not None, f"the order of answered requests has a gap at {place}"
    oldest = view.need(keys.idempotency(digest), IdempotencyRecord)
    few = meta.idempotency_next - place <= limits.IDEMPOTENCY
    if few and oldest.at_ms + limits.IDEMPOTENCY_MS > view.now_ms:
        return False
    view.delete(keys.idempotency(digest))
    view.delete(keys.idempotency_by_age(place))
    meta.idempotency_from = place + 1
    return True


def _place(request_id: str, request: Message) -> bytes:
    """Where the answer to a request is remembered."""
    return _placed(_scope_of(request.DESCRIPTOR)(request), request_id)


@lru_cache(maxsize=8)  # A request is looked for, and remembered right behind that.
def _placed(scope: str, request_id: str) -> bytes:
    # No namespace has such signs in its name, so none can be taken for the beginning of an id.
    return _hash(f"/{scope}/{request_id}".encode())


@lru_cache(maxsize=256)  # There are fewer requests in the contracts.
def _scope_of(request: Descriptor) -> Callable[[Any], str]:
    """How a request of this kind says whose it is."""
    field = request.fields_by_name.get("namespace")
    if field is not None and field.message_type is None:
        return lambda asked: asked.namespace or namespaces.DEFAULT
    if "hello" in request.fields_by_name:
        return lambda asked: f"worker/{asked.hello.worker}"
    for field in request.fields:
        inner = field.message_type
        if inner is None or "namespace" not in inner.fields_by_name:
            continue
        name = field.name
        if field.is_repeated:
            return lambda asked: next(
                (one.namespace or namespaces.DEFAULT for one in getattr(asked, name)), ""
            )
        return lambda asked: getattr(asked, name).namespace or namespaces.DEFAULT
    return lambda asked: ""


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def fingerprint(request: Message, data: bytes = b"") -> bytes:
    """What distinguishes requests under the same id. Whoever has its bytes, in the order that is
    always the same, gives them."""
    name = request.DESCRIPTOR.full_name.encode()
    data = data or _without_trace(request).SerializeToString(deterministic=True)
    return _hash(name + b"\0" + data)


def _without_trace(request: Message) -> Message:
    """Whoever asks again does so in another span, and asks for the same."""
    if isinstance(request, job_pb2.TriggerJobRequest) and request.HasField("trace_context"):
        one = job_pb2.TriggerJobRequest()
        one.CopyFrom(request)
        one.ClearField("trace_context")
        return one
    if isinstance(request, job_pb2.TriggerJobsRequest) and any(
        trigger.HasField("trace_context") for trigger in request.triggers
    ):
        many = job_pb2.TriggerJobsRequest()
        many.CopyFrom(request)
        for trigger in many.triggers:
            trigger.ClearField("trace_context")
        return many
    return request
