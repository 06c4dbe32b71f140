"""The way of each unary call: who asks, where it is answered, how it ends.

Who calls and whether there is room for them is known before the request is read, on any node. Then
the leader answers; a follower passes the bytes on as they are, unless the call speaks of the node
itself or wants no more than a state that is fresh enough. A request with a rule is a write and one
with a read is a read, so two lines serve nearly all calls; `own` names the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from ...proto import tracing
from ...proto.contract import Method
from ...proto.v1 import common_pb2
from ...statemachine.core.rejection import Reason, Refused, Rejection
from ...statemachine.model import validate
from ...statemachine.model.hiding import hide
from ..node import refusals
from ..node.backoff import backoff
from .body import Bodies, call_parsed, parsed_at_once
from .call import Call, Context
from .caller_limits import ANSWER_MAX, ANSWERED_BYTES, MESSAGE_MAX, CallerShares, is_costly
from .forward import FORWARDED, ForwardedAnswer, ForwardPeers
from .leadership import Leadership
from .node_port import NodePort, StateAnswer
from .observer import Observer
from .refused import RefusedCalls
from .status import DETAILS, code_of, details_of, words_of
from .strangers import Strangers
from .unread import Unread

if TYPE_CHECKING:
    from .call_spans import NodeCallSpans

logger = logging.getLogger(__name__)

OwnCall = Callable[[Call, Any], Awaitable[Message | ForwardedAnswer]]
NO_FORWARD = "raftsched-no-forward"
FRESHNESS = "read.consistency"
# An election after a lost connection takes some 50 ms, after a silence up to 700.
ELECTION_WAIT_S = 1.0
WAIT_FIRST_S = 0.02  # A leader that is elected is ready this soon; then twice as long each time.
END = 2**31 - 1  # The place behind all events of a change.
Pairs = tuple[tuple[str, str | bytes], ...]


class Calls:
    """Answers unary calls."""

    def __init__(
        self,
        node: NodePort,
        peers: ForwardPeers,
        leadership: Leadership,
        observer: Observer,
        own: Mapping[str, OwnCall],
        identify: Callable[[Call], Awaitable[None] | None],
        admit: Callable[[Call, Message], None],
        shares: CallerShares,
        refused: RefusedCalls,
        unread: Unread,
        strangers: Strangers,
    ) -> None:
        self.node = node
        self.peers = peers
        self.leadership = leadership
        self.observer = observer
        self.own = own
        # Says who calls, and refuses what they may not do: before and behind the request. What is
        # not known at once is to be awaited.
        self.identify, self.admit = identify, admit
        self.shares, self.refused, self.unread = shares, refused, unread
        self.strangers = strangers
        self.spans = call_spans_of(node)
        self.bodies = Bodies(strangers)

    def handler(self, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        # Each coroutine that a call goes through costs it some microseconds, so it ends here.
        async def answer(requests: object, context: Context) -> bytes:
            """Every way to end a call ends here, in an answer or a named refusal."""
            call, code = Call(method, context), "CANCELLED"
            try:
                # Whoever keeps to its own time is done by now; this is for the others.
                async with asyncio.timeout(call.timeout() + call.margin / 2) as call.ending:
                    passed = await self._admitted(call)
                self._hold(call, len(passed.data))
                context.set_trailing_metadata(passed.trailing)
                if passed.code is not grpc.StatusCode.OK:
                    context.set_code(passed.code)
                    context.set_details(passed.words)
                code = passed.code.name
                return passed.data
            except (Refused, TimeoutError) as error:
                # An exception in a local would hold its own frame, and with it the request.
                code = self._refuse(call, error)
            except Exception:
                code = fail(context, method.name, self.trailing())
            finally:
                self.observer.called(method.name, code, time.monotonic() - call.began)
                if call.span is not None:
                    call.span.end(code)
            return b""

        # As a stream of one message: gRPC hands that over when it is asked for it, not before.
        return grpc.stream_unary_rpc_method_handler(answer)

    async def _admitted(self, call: Call) -> ForwardedAnswer:
        """Who calls, then whether there is room, and only then what is asked."""
        if (waits := self.meet(call)) is not None:
            await waits
        if self.spans is not None:
            call.span = self.spans.begin(call)
        shares, caller = self.shares, call.caller
        shares.answers.check(caller, ANSWER_MAX)
        calls = shares.strangers if call.is_stranger else shares.calls
        calls.take(caller)
        try:
            data = await self.bodies.read(call)
            shares.bytes.take(caller, len(data))
            try:
                return await self._route(call, data)
            finally:
                shares.bytes.give(caller, len(data))
        finally:
            calls.give(caller)

    def meet(self, call: Call) -> Awaitable[None] | None:
        """Find out who calls, or refuse them: at once, or when what this returns is awaited."""
        try:
            waits = self.identify(call)
        except BaseException:
            self._met(call)
            raise
        if waits is not None:
            return self._meet_later(call, waits)
        self._met(call)
        return None

    async def _meet_later(self, call: Call, waits: Awaitable[None]) -> None:
        try:
            await waits
        finally:
            self._met(call)

    def _met(self, call: Call) -> None:
        if call.caller and not call.is_stranger:
            self.strangers.met(call.peer, call.caller)
        else:
            self.strangers.answered(call.peer)

    def _hold(self, call: Call, size: int) -> None:
        """An answer counts until gRPC has done with the call: its caller may not read. What has
        changed something is answered in any case, and then the next call is refused."""
        answers, caller, size = self.shares.answers, call.caller, 2 * size + ANSWERED_BYTES
        if call.method.harmless:
            answers.check(caller, size)
        answers.hold(caller, size)
        self.unread.give_when_taken(call, size)

    def _refuse(self, call: Call, error: Refused | TimeoutError) -> str:
        """End a call with what was raised; the name of its code."""
        refusal = error if isinstance(error, Refused) else self._too_late(call)
        self.refused.note(call, refusal.rejection)
        refuse(call.context, refusal.rejection, self.trailing())
        return code_of(refusal.rejection).name

    async def _route(self, call: Call, data: bytes) -> ForwardedAnswer:
        """Find out who answers, and try again as long as nothing was done."""
        node, method = self.node, call.method
        if method.local:
            return await self._here(call, await call_parsed(method, data, call.caller))
        if node.draining:
            raise refusals.draining(node.name, self.leadership.elsewhere())
        if method.reads and not node.leads:
            request = await call_parsed(method, data, call.caller)
            if wants_less(request):
                return await self._here(call, request)
        bound = NO_FORWARD in call.metadata or FORWARDED in call.metadata
        give_up, waits = 0.0, backoff(WAIT_FIRST_S, ELECTION_WAIT_S)
        while True:
            asked_at = self.leadership.clock()
            passed = await self._try(call, data, bound=bound)
            if passed is not None:
                return passed
            now = self.leadership.clock()
            if not give_up:
                give_up = min(asked_at + ELECTION_WAIT_S, now + call.timeout())
            if method.harmless and now - asked_at > ELECTION_WAIT_S:
                # It waited at a leader that was lost: the time begins anew with that.
                give_up = now + min(ELECTION_WAIT_S, call.timeout())
                waits = backoff(WAIT_FIRST_S, ELECTION_WAIT_S)
            left = give_up - now
            if left <= 0:
                raise node.too_late(call.seconds) if call.over else node.nobody_leads()
            await self.leadership.changed(min(next(waits), left))

    async def _try(self, call: Call, data: bytes, *, bound: bool) -> ForwardedAnswer | None:
        """Answer here or at the leader; None when nothing was done, since nobody leads."""
        node = self.node
        if node.leads:
            try:
                request = parsed_at_once(call.method.request, data)
                if request is None:
                    request = await call_parsed(call.method, data, call.caller)
                return await self._here(call, request)
            except Refused as refusal:
                if bound or refusal.rejection.reason != Reason.ERROR_REASON_NOT_LEADER:
                    raise
                return None
        leader = self.leadership.elsewhere()
        if bound:
            raise refusals.not_leader(node.name, leader)
        if not leader:
            return None
        return await self.peers.pass_on(call, data, leader)

    async def _here(self, call: Call, request: Message) -> ForwardedAnswer:
        """Answer a call on this node."""
        node, method = self.node, call.method
        self.admit(call, request)
        age_ms: int | None = None
        revision: int | None = None
        found: StateAnswer | None = None
        own = self.own.get(method.name)
        if own is not None:
            given = await own(call, request)
            if isinstance(given, ForwardedAnswer):
                return given
            answer = given
        elif not method.harmless:
            answer = await node.write(request, call.actor, call.timeout(), call.namespace)
        else:
            options = getattr(request, "read", None)
            if options is not None and (faults := validate.enum(FRESHNESS, options, "consistency")):
                raise Refused.of(faults)
            found = await self._read(call, request, options)
            answer, revision = found.message, found.revision
            age_ms = found.age_ms if wants_less(request) else None
        if call.hides and found is None:
            hide(answer)
        data = answer.SerializeToString()
        if len(data) > MESSAGE_MAX:
            raise too_large(method, len(data))
        return ForwardedAnswer(data, grpc.StatusCode.OK, "", self.trailing(revision, age_ms))

    async def _read(
        self, call: Call, request: Message, options: common_pb2.ReadOptions | None
    ) -> StateAnswer:
        finish = hide if call.hides else as_it_is
        if not is_costly(call.method.name, request):
            return await self.node.read(request, options, call.timeout(), call.caller, finish)
        # It does not stand in the way of its caller's other reads.
        caller = f"{call.caller} {call.method.name}"
        with self.shares.costly.taken(call.caller):
            return await self.node.read(request, options, call.timeout(), caller, finish)

    def _too_late(self, call: Call) -> Refused:
        if call.ended_by is not None:
            return Refused(call.ended_by)
        if call.method.harmless:
            return self.node.too_late(call.seconds)
        return refusals.commit_timeout(call.seconds)

    def trailing(self, revision: int | None = None, age_ms: int | None = None) -> Pairs:
        """What each answer says about the one who answered."""
        node = self.node
        at = node.revision if revision is None else revision
        found: list[tuple[str, str | bytes]] = [
            ("raftsched-term", str(node.term)),
            ("raftsched-revision", f"{at}.{END}"),
            ("raftsched-cluster", node.cluster),
        ]
        leader = node.leader_address
        if leader:
            found.append(("raftsched-leader", leader))
        if age_ms is not None:
            found.append(("raftsched-age-ms", str(age_ms)))
        return tuple(found)


def call_spans_of(node: NodePort) -> NodeCallSpans | None:
    """What makes the spans of calls; None where nobody wants any."""
    spans = tracing.active()
    if spans is None:
        return None
    from .call_spans import NodeCallSpans  # It loads OpenTelemetry.

    return NodeCallSpans(spans, node.name)


def as_it_is(answer: Message) -> None:
    """Nothing is hidden."""


def wants_less(request: Message) -> bool:
    """Whether any node may answer a read."""
    read = getattr(request, "read", None)
    return read is not None and read.consistency == common_pb2.CONSISTENCY_STALE


def too_large(method: Method, size: int) -> Refused:
    """An answer that gRPC would not send, which it would say in words of its own."""
    hint = "ask for less: a smaller page, a narrower filter, or one item"
    if not method.harmless:
        hint = "this was done; read what came of it"
    return Refused.because(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"{method.name}: the answer has {size} bytes, and a message has {MESSAGE_MAX} at most; "
        f"{hint}",
        limit="answer", maximum=MESSAGE_MAX, actual=size,
    )  # fmt: skip


def refuse(context: Context, rejection: Rejection, trailing: Pairs) -> None:
    """End a call with a refusal."""
    context.set_code(code_of(rejection))
    context.set_details(words_of(rejection))
    context.set_trailing_metadata((*trailing, (DETAILS, details_of(rejection))))


def fail(context: Context, name: str, trailing: Pairs) -> str:
    """End a call that met a fault of ours."""
    logger.exception("%s failed; this is a bug", name)
    context.set_code(grpc.StatusCode.INTERNAL)
    context.set_details(f"{name} failed inside the node; its log has the trace. Report this bug")
    context.set_trailing_metadata(trailing)
    return "INTERNAL"
