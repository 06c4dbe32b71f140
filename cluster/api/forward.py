"""Calls that a follower passes on to the leader: the bytes as they came, and the answer as it is.

There is one channel per node, made when it is needed. What becomes of a call that broke off is
known in two cases: gRPC never had a connection to send it on, or the leader itself refused it.
In all others a write may have been done, and the caller hears so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from ...statemachine.core.rejection import Refused
from ..node import refusals
from .call import Call
from .status import reason_in

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A leader that is back is met again at once.
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_send_message_length", 4 << 20),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
)
FORWARDED = "raftsched-forwarded"
# How gRPC begins when it found no connection, so that nothing was sent.
NEVER_SENT = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS resolution failed",
    "empty address list",
)
# The leader did nothing, and another one is about to be there.
NOT_DONE = frozenset({"NOT_LEADER", "DRAINING"})
Invoke = Callable[..., grpc.aio.UnaryUnaryCall[bytes, bytes]]
Code = grpc.StatusCode


@dataclass(slots=True)
class ForwardedAnswer:
    """What came back from the leader, to be handed on as it is."""

    data: bytes
    code: grpc.StatusCode
    words: str
    trailing: tuple[tuple[str, str | bytes], ...]


@dataclass(slots=True, eq=False)
class ForwardPeer:
    """A channel to one node, and the calls under way on it."""

    channel: grpc.aio.Channel
    calls: dict[str, Invoke] = field(default_factory=dict)
    under_way: set[grpc.aio.Call] = field(default_factory=set)
    # Since when this is not the leader any more; its calls are given a moment to be answered.
    deposed_at: float = 0.0

    def invoke(self, path: str) -> Invoke:
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = self.channel.unary_unary(path)
        return call


class ForwardPeers:
    """The way to the other nodes."""

    def __init__(self, me: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._me = me
        self._credentials = credentials
        self._peers: dict[str, ForwardPeer] = {}

    def to(self, address: str) -> ForwardPeer:
        peer = self._peers.get(address)
        if peer is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(address, OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, self._credentials, OPTIONS)
            peer = self._peers[address] = ForwardPeer(channel)
        return peer

    async def pass_on(self, call: Call, data: bytes, address: str) -> ForwardedAnswer | None:
        """Let the leader answer a call; None when it is certain that it has done nothing."""
        peer = self.to(address)
        onward = [*call.onward, (FORWARDED, self._me)]
        rpc = peer.invoke(call.method.path)(data, timeout=call.timeout(), metadata=onward)
        peer.under_way.add(rpc)
        try:
            answer = await rpc
            return ForwardedAnswer(answer, Code.OK, "", tuple(await rpc.trailing_metadata()))
        except grpc.aio.AioRpcError as error:
            return self._failed(call, error)
        except asyncio.CancelledError:
            if rpc in peer.under_way:
                raise
            # `cut` ended it, not the caller.
            self._broken(call)
            return None
        finally:
            peer.under_way.discard(rpc)

    def _failed(self, call: Call, error: grpc.aio.AioRpcError) -> ForwardedAnswer | None:
        trailing = tuple(error.trailing_metadata() or ())
        reason = reason_in(dict(trailing))
        code, words = error.code(), error.details() or ""
        if reason in NOT_DONE:
            return None
        if not reason and code == Code.UNAVAILABLE and words.startswith(NEVER_SENT):
            return None
        if not reason and code in (Code.UNAVAILABLE, Code.CANCELLED):
            self._broken(call)
            return None
        if not reason and code == Code.DEADLINE_EXCEEDED:
            raise self._late(call)
        return ForwardedAnswer(b"", code, words, trailing)

    def _broken(self, call: Call) -> None:
        """The connection is gone: what changes nothing may be sent again."""
        if not call.method.harmless:
            raise refusals.leader_changed(self._me)

    def _late(self, call: Call) -> Refused:
        if call.method.harmless:
            return refusals.deadline_passed(self._me, call.seconds)
        return refusals.commit_timeout(call.seconds)

    def follow(self, leader: str, now: float, grace: float) -> None:
        """Cut what waits for a node that leads no more: one that hangs will not answer.

        A leader that steps down answers everybody at once, hence the grace.
        """
        for address, peer in self._peers.items():
            if not leader or address == leader:
                peer.deposed_at = 0.0
            elif not peer.deposed_at:
                peer.deposed_at = now
            elif now - peer.deposed_at > grace:
                self._cut(peer)

    def _cut(self, peer: ForwardPeer) -> None:
        cut, peer.under_way = peer.under_way, set()
        for rpc in cut:
            rpc.cancel()

    async def close(self) -> None:
        for peer in self._peers.values():
            self._cut(peer)
            await peer.channel.close()
