"""Decide and apply: the two halves of the state machine.

    requests + now --> decide (on the leader, pure) --> change --> log --> apply (on every node)

`decide` asks the rule of each request, in order, and seals what they wrote into one change.
`apply` writes a change, together with where history stands, in one batch. It refuses a change that
was decided on another state, so no decision can ever land on a state it was not made for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

from google.protobuf.message import Message

from ..proto.v1 import worker_pb2
from .core import limits
from .core.budget import Budget, Share
from .core.rejection import Refused, Rejection
from .core.store import Store, Write
from .firing import effects
from .firing.set_time import may_set_back
from .model import keys
from .model.record import Change, MetaRecord, encode, parse, parse_change
from .model.request import LEFT, Request
from .model.view import View
from .piecewise import FATAL, Broke, Careful, Failure, Stopped
from .rules import RULES
from .tenants import idempotency


@dataclass(frozen=True, slots=True)
class Decision:
    """A change for the log, and what to answer once it is applied."""

    # b"" when nothing changed: then there is nothing to agree on, and the replies hold already.
    change: bytes
    # In the order of the requests: a message, or a Rejection; LEFT for those that found no room or
    # time. The last ones may be missing, which means the same.
    replies: list[object]
    # Attempts to stop, by worker, beside those that their worker reports on itself.
    stops: list[tuple[str, worker_pb2.Stop]] = field(default_factory=list)
    # The change before it became bytes, so that whoever decided it need not read it.
    sealed: Change | None = None
    # What failed, and was refused, set aside or given up.
    failures: list[Failure] = field(default_factory=list)
    # It was decided carefully, since something failed; so should be what it has left behind.
    careful: bool = False
    # See View.allowance_ms.
    allowance_ms: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change with all done to it that can be done before it is committed."""

    data: bytes
    change: Change
    write: Write


class WrongBase(Exception):
    """A change was decided on another state than the present one. It does nothing."""


def decide(
    view: View,
    requests: Sequence[Request],
    *,
    careful: bool = False,
    where: str = "",
    new_budget: Callable[[], Budget] | None = None,
) -> Decision:
    """Decide requests as one change. `where` is this node's name, for what fails here, and
    `new_budget` what the careful way may take behind the usual one."""
    stopped = None
    if not careful:
        together = _decide_together(view, requests)
        if isinstance(together, Decision):
            return together
        stopped = together
    # A rule may have changed records that it has read, so none of them is used again.
    view.is_spoiled = True
    is_spent = new_budget() if new_budget is not None else view.is_spent
    outcome = Careful(view, _decide_one, _replies, where, is_spent).decide(requests, stopped)
    return Decision(
        outcome.change, outcome.replies, outcome.stops, outcome.sealed, outcome.failures,
        careful=True, allowance_ms=outcome.allowance_ms,
    )  # fmt: skip


def _decide_together(view: View, requests: Sequence[Request]) -> Decision | Stopped:
    """All requests on one view. When they do not go well, nothing of it is used any more."""
    replies = _replies(view, requests)
    if isinstance(replies, Stopped):
        if len(requests) > 1 or replies.refusal is None:
            return replies
        view.is_spoiled = True
        return Decision(b"", [replies.refusal])
    try:
        data = view.seal()
    except FATAL:
        raise
    except Exception as error:
        # The bytes of it cannot be made: whose fault that is comes out when each is tried alone.
        return Stopped([], broke=Broke(error.with_traceback(None), b""))
    if len(data) > limits.ENTRY_BYTES:
        # They end when their view is full, so it is the last one that is large.
        return Stopped(replies[:-1])
    return Decision(data, replies, view.stops, view.sealed, allowance_ms=view.allowance_ms)


def _replies(view: View, requests: Sequence[Request]) -> list[object] | Stopped:
    """Decide requests as far as there is room, until one fails or is refused: it may have changed
    what it has read in memory."""
    is_spent = view.is_spent
    try:
        return _replies_within_shares(view, requests)
    finally:
        # A share counts what the view has written, so each holds the other, and both hold all that
        # was written until the collector looks.
        view.spend(is_spent)


def _replies_within_shares(view: View, requests: Sequence[Request]) -> list[object] | Stopped:
    replies: list[object] = []
    share: Share | None = None
    is_first = True
    for request in requests:
        if request.share is not share and request.share is not None:
            share = request.share
            view.spend(share.budget(view.size))
            is_first = True
        if replies and (view.has_bytes if is_first else view.is_full):
            replies.append(LEFT)
            continue
        is_first = False
        try:
            replies.append(_decide_one(view, request))
        except Refused as refused:
            if not getattr(request.body, "validate_only", False):
                return Stopped(replies, refused.rejection)
            replies.append(refused.rejection)
        except FATAL:
            raise
        except Exception as error:
            return Stopped(replies, broke=Broke(error.with_traceback(None), view.subject))
    while replies[-1:] == [LEFT]:
        replies.pop()
    return replies


def _decide_one(view: View, request: Request) -> object:
    """Raises Refused, and whatever a rule raises that is wrong."""
    body = request.body
    rule: Callable[[View, object, str], object] = RULES[type(body)]
    if getattr(body, "validate_only", False):
        # Everything is asked and answered on a view that is thrown away.
        view = view.fresh()
    request_id = getattr(body, "request_id", "")
    if not request_id:
        return _carried_out(view, rule(view, body, request.actor))
    return _decide_once(view, rule, cast(Message, body), request_id, request.actor)


def _carried_out(view: View, reply: object) -> object:
    """The reply of a rule, with the effects of what it did. A rule about many yields between its
    pieces, so that what a piece brings about for others comes before the next one."""
    while isinstance(reply, Generator):
        try:
            next(reply)
        except StopIteration as done:
            reply = done.value
        else:
            effects.carry_out(view)
    if view.ended is not None:
        effects.carry_out(view)
    return reply


def _decide_once(
    view: View,
    rule: Callable[[View, object, str], object],
    body: Message,
    request_id: str,
    actor: str,
) -> object:
    """A request with an id is decided once; after that its answer is remembered."""
    answer = idempotency.find(view, request_id, body)
    if answer is None:
        answer = cast(Message, _carried_out(view, rule(view, body, actor)))
        idempotency.add(view, request_id, body, answer)
    return answer


def apply(store: Store, index: int, data: bytes) -> MetaRecord:
    """Write a committed change. `index` is its place in the log; an old one does nothing."""
    meta = read_meta(store)
    return meta if index <= meta.applied_index else write(store, index, prepare(store, data))


def prepare(store: Store, data: bytes, change: Change | None = None) -> Prepared:
    """Get a change ready to be written, on the present state; who knows it need not have it read.
    Its meta becomes that of the state after it."""
    meta = read_meta(store)
    change = change or parse_change(data, meta.revision + 1)
    if change.base == meta.revision:
        change.meta.revision = meta.revision + 1
        change.meta.fingerprint = blake2b(data, key=meta.fingerprint, digest_size=16).digest()
    puts = zip(change.keys, change.values, strict=True)
    return Prepared(data, change, store.prepare(puts, change.deletes))


def write(store: Store, index: int, prepared: Prepared) -> MetaRecord:
    """Write a change that is committed now."""
    meta, after, base = read_meta(store), prepared.change.meta, prepared.change.base
    if base != meta.revision:
        raise WrongBase(f"index {index} was decided on {base}, state is at {meta.revision}")
    if after.now_ms < meta.now_ms:
        assert may_set_back(prepared.change), "the replicated clock ran backwards"
    after.applied_index = index
    prepared.write([(keys.META, encode(after))])
    return after


def skip(store: Store, index: int) -> MetaRecord:
    """Remember that an entry of the log was passed that holds no change for this state."""
    meta = read_meta(store)
    if index > meta.applied_index:
        meta.applied_index = index
        store.write([(keys.META, encode(meta))], [])
    return meta


def read_meta(store: Store) -> MetaRecord:
    value = store.get(keys.META)
    if value is None:
        return MetaRecord()
    return parse(keys.META, value, MetaRecord)


__all__ = [
    "Decision", "Prepared", "Rejection", "Request", "WrongBase", "apply", "decide", "prepare",
    "read_meta", "skip", "write",
]  # fmt: skip
