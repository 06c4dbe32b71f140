"""All streams of workers on one node: who gets one, and a look at each of them now and then."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import islice

from google.protobuf.message import Message

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Refused
from ..node import refusals
from ..node.worker_sessions import WorkerSessions
from . import places
from .call import Call, Context
from .caller_limits import CallerShares
from .leadership import Leadership
from .node_port import NodePort
from .strangers import Strangers
from .worker_frames import FRAME_MAX, FrameSizes, first_frame, unread, welcome
from .worker_stream import LAST_WORD_S, Response, UnprocessedBytes, WorkStream

LOOK_S = 0.02  # How often the server looks at a share of the streams.
LEADER_WAIT_S = 1.0  # How long a stream on a node that does not lead waits for word of a leader.


class Work:
    """All streams of workers on this node."""

    def __init__(
        self,
        node: NodePort,
        sessions: WorkerSessions,
        leadership: Leadership,
        admit: Callable[[Call, Message], None],
        shares: CallerShares,
        strangers: Strangers,
    ) -> None:
        self.node, self.sessions, self.leadership, self.admit = node, sessions, leadership, admit
        self.shares, self.strangers = shares, strangers
        # The one that was looked at longest ago is first.
        self.streams: OrderedDict[WorkStream, None] = OrderedDict()
        self.unprocessed = UnprocessedBytes()

    async def talk(self, call: Call, requests: object) -> None:
        """Serve a stream."""
        peer = call.peer
        # There is always a frame under way.
        self.strangers.reads(peer, FRAME_MAX)
        try:
            await self._talk(call, partial(self.strangers.heard, peer))
        finally:
            self.strangers.has_read(peer, FRAME_MAX, 0)

    async def _talk(self, call: Call, heard: FrameSizes) -> None:
        node, context = self.node, call.context
        if node.draining:
            raise refusals.draining(node.name, self.leadership.elsewhere())
        with self.shares.greetings.taken(call.caller):
            if not node.leads and not await self.leadership.gained(LEADER_WAIT_S):
                await self._send_elsewhere(context)
                return
            hello = await first_frame(context, self.shares.bytes, call.caller, heard)
        self.admit(call, hello.hello)
        with self.shares.streams.taken(call.caller):
            serving = self._serve(call, hello, heard)
            # It may list thousands of leases, and the stream stays for long.
            del hello
            await serving

    async def _serve(self, call: Call, hello: worker_pb2.WorkRequest, heard: FrameSizes) -> None:
        node, context = self.node, call.context
        if node.leads:
            await places.need_of(node, hello.hello, call.timeout())
        if not node.leads:
            await self._send_elsewhere(context)
            return
        stream = WorkStream(
            context, welcome(self.sessions, self.node.cluster), self.streams, self.unprocessed
        )
        stream.caller, stream.heard = call.caller, heard
        stream.only = places.only_of(node, call)
        stream.session = self.sessions.open(
            hello.hello, stream, stream=True, caller=call.caller, only=stream.only
        )
        self.streams[stream] = None
        reading: asyncio.Task[None] | None = None
        try:
            stream.take(hello)
            del hello
            stream.wake()
            reading = asyncio.create_task(stream.read())
            reading.add_done_callback(stream.read_all)
            rejection = await stream.ended
        finally:
            del self.streams[stream]
            self.unprocessed.forget(stream)
            if reading is not None:
                # What it says from now on is not for this stream any more.
                reading.cancel()
            await stream.close()
        if rejection is not None:
            raise Refused(rejection)

    async def _send_elsewhere(self, context: Context) -> None:
        """Say who leads to a worker that reads."""
        redirect = worker_pb2.Redirect(
            leader=self.leadership.elsewhere(), reason=f"{self.node.name} does not lead"
        )
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await context.write(Response(redirect=redirect).SerializeToString())
        except TimeoutError:
            raise unread(LAST_WORD_S) from None

    def look(self, now: float) -> None:
        """A share of the streams; within an eighth of a heartbeat it is all of them."""
        heartbeat = self.sessions.heartbeat_ms / 1000
        share = -(-len(self.streams) * LOOK_S // (heartbeat / 8))
        for stream in list(islice(self.streams, int(share))):
            self.streams.move_to_end(stream)
            stream.look(now, heartbeat)

    def drain(self, reason: str) -> None:
        """Send all workers elsewhere."""
        for stream in self.streams:
            stream.redirect(self.leadership.elsewhere(), reason)
