"""The worker's stream: leases, acknowledgements and stops out, credits, results and beats in.

The session hands over what is for the worker as it happens. What came within one turn of the loop
leaves in one frame, and while that is on its way the next one gathers: a busy stream has large
frames, and an idle one costs nothing but its beat. Beats are sent by the server's one clock, a
share of all streams at each look, so that two thousand of them need no timers of their own and do
not speak all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized

import grpc

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Refused, Rejection
from ..node.backoff import backoff
from ..node.worker_session import CREDITS_MAX, WorkerSession
from ..node.worker_sink import Messages
from . import foreign_runs
from .call import Context
from .foreign_runs import parted
from .frames import Heads, take
from .worker_frames import FRAME_MAX, FrameSizes, parsed, unread, wrong

PRE_SERIALIZED_MAX = 32  # Lists of words for one worker that one change may hold, and more.
HEAD_MAX = 64 << 10  # Of that, for what stands in a frame once.
LEASES_IN_FRAME = 1_000
ACKS_IN_FRAME = 5_000
# Of a period: after so much silence a stream says something, its beat at least. With so few streams
# it answers each beat at once, so that a worker soon knows of a leader that hangs.
SILENT_SHARE = 0.7
FEW_STREAMS = 200
UNREAD_S = 10.0  # How long a frame may be on its way to a worker that does not read.
LAST_WORD_S = 1.0  # What a stream that ends has to take its last frame.
# Leases that may be on their way to a worker. It may ask for more; but what waits here for one
# that does not read must be bounded, and this is plenty for one that does.
AHEAD = 1_000
# Bytes of what one worker, and all, have sent that may wait for a change before no more is read.
# The frame that reaches it, of 3 MiB at most, comes on top.
UNPROCESSED_MAX = 1 << 20
UNPROCESSED_ALL_MAX = 128 << 20
# Words about runs that a token is not for, on one stream. An honest worker has some at most, when
# its token was changed for one for less; each costs the loop 4 µs.
FOREIGN_MAX = 1_000
HEARD_FIRST_S, HEARD_MOST_S = 0.002, 0.1  # How often it is asked whether it is heard.
Response = worker_pb2.WorkResponse
LEASES, ACKS, STOPS = (
    Heads(Response.DESCRIPTOR.fields_by_name[name].number) for name in ("leases", "acks", "stops")
)
HEADS = {worker_pb2.Lease: LEASES, worker_pb2.ResultAck: ACKS}


class UnprocessedBytes:
    """Bytes of what workers have sent that wait for a change: of each stream, and of all."""

    def __init__(self) -> None:
        self.of: dict[WorkStream, int] = {}
        self.total = 0

    def add(self, stream: WorkStream, size: int) -> None:
        if stream.session is not None and stream.session.has_reports:
            self.of[stream] = self.of.get(stream, 0) + size
            self.total += size

    def is_much(self, stream: WorkStream) -> bool:
        """Whether a stream must wait until what it sent is in the log."""
        session, held = stream.session, self.of.get(stream, 0)
        if session is None or not session.has_reports:
            self.forget(stream)
            return False
        return held > UNPROCESSED_MAX or (held > 0 and self.total > UNPROCESSED_ALL_MAX)

    def forget(self, stream: WorkStream) -> None:
        self.total -= self.of.pop(stream, 0)


class WorkStream:
    """One stream, and where its session delivers to."""

    def __init__(
        self,
        context: Context,
        welcome: worker_pb2.Welcome,
        streams: Sized = (),
        unprocessed: UnprocessedBytes | None = None,
    ) -> None:
        self.context = context
        # Bytes of frames that were read, on all streams.
        self.unprocessed = unprocessed or UnprocessedBytes()
        # All that there are on this node.
        self.streams = streams
        # The number of the only namespace that its worker may speak of; None for all.
        self.only: int | None = None
        # Whose access token it showed, and who counts the bytes of its frames.
        self.caller = ""
        self.heard: FrameSizes = int
        self.loop = asyncio.get_running_loop()
        # When this has a result the stream ends: with OK, or refused. It holds no refusal as an
        # exception, since whoever waits for it stands in that one's trace and holds this stream.
        self.ended: asyncio.Future[Rejection | None] = self.loop.create_future()
        self.session: WorkerSession | None = None
        self.writing: asyncio.Task[None] | None = None
        self.wrote_at = self.loop.time()
        self.beat = 0
        # Words about runs that its token is not for.
        self._foreign = 0
        # A beat that is to be answered at once. It may have come while a frame was on its way.
        self._answers_beat = False
        # The worker's credits: those that wait here, and those that the session may use up.
        self.credits = self.at_session = 0
        # What the next frames say.
        self._welcome: worker_pb2.Welcome | None = welcome
        self._leases: list[bytes] = []
        self._acks: list[bytes] = []
        self._stops: list[bytes] = []
        self._lines = (
            (self._acks, ACKS_IN_FRAME), (self._stops, ACKS_IN_FRAME),
            (self._leases, LEASES_IN_FRAME),
        )  # fmt: skip
        self._drain: str | None = None
        self._redirect: worker_pb2.Redirect | None = None
        # Pieces of words that are on their way into the log, with these words.
        self._pre_serialized: dict[int, tuple[Messages, list[bytes]]] = {}
        # The redirect is sent, and nothing comes behind it.
        self._over = False

    # What the session hands over; see WorkerSink.

    def pre_serialize(self, words: Messages) -> None:
        if len(self._pre_serialized) >= PRE_SERIALIZED_MAX:
            # They were never sent: their change got lost, or the session went on elsewhere.
            self._pre_serialized.clear()
        self._pre_serialized[id(words)] = (words, HEADS[type(words[0])].pieces(words))

    def _pieces(self, words: Messages) -> list[bytes]:
        _, pieces = self._pre_serialized.pop(id(words), (words, None))
        if pieces is None:
            return HEADS[type(words[0])].pieces(words) if words else []
        return pieces

    def leases(self, leases: Sequence[worker_pb2.Lease]) -> None:
        if leases:
            self._leases += self._pieces(leases)
            self.at_session -= len(leases)
            self.pass_credits()
            self.wake()

    def acks(self, acks: Sequence[worker_pb2.ResultAck]) -> None:
        self._acks += self._pieces(acks)
        self.wake()

    def stops(self, stops: Sequence[worker_pb2.Stop]) -> None:
        self._stops += STOPS.pieces(stops)
        self.wake()

    def drain(self, reason: str) -> None:
        self._drain = reason
        self.credits = self.at_session = 0
        self.wake()

    def redirect(self, leader: str, reason: str) -> None:
        self._redirect = worker_pb2.Redirect(leader=leader, reason=reason)
        self.wake()

    def lost(self, refusal: Rejection) -> None:
        self.fail(Refused(refusal))

    # Out.

    def wake(self) -> None:
        """Something is to be sent."""
        if self.writing is None and not self.ended.done():
            self.writing = self.loop.create_task(self._write())
            self.writing.add_done_callback(self._wrote)

    async def _write(self) -> None:
        """Send frames as long as there is something to say."""
        frame: bytes | None = self._frame()
        while frame is not None:
            self.wrote_at = self.loop.time()
            try:
                await self.context.write(frame)
            except grpc.aio.BaseError:
                # The connection is gone.
                self.end()
                return
            self.pass_credits()
            frame = self._frame() if self._has_words() else None
        if self._over:
            self.end()

    def _wrote(self, writing: asyncio.Task[None]) -> None:
        self.writing = None
        error = None if writing.cancelled() else writing.exception()
        if error is not None:
            self.fail(error)
        elif self._has_words() and not self.ended.done():
            self.wake()

    def _has_words(self) -> bool:
        """Something is to be sent now, not only within the period."""
        waiting = self._leases or self._acks or self._stops or self._answers_beat
        last = self._drain is not None or self._redirect is not None
        return bool(waiting or last) and not self._over

    def _frame(self) -> bytes:
        """The next frame, within its limit."""
        frame = Response(welcome=self._welcome, beat=self.beat)
        self._welcome, self._answers_beat = None, False
        pieces: list[bytes] = []
        room = FRAME_MAX - HEAD_MAX
        for line, most in self._lines:
            taken = take(line, most, room)
            room -= sum(map(len, taken))
            pieces += taken
        waiting = next((line for line, _ in self._lines if line), None)
        if not pieces and waiting:
            # One that is larger than a frame must go all the same.
            pieces.append(waiting.pop(0))
        if not self._leases and not self._acks and not self._stops:
            if self._drain is not None:
                frame.drain, frame.drain_reason = True, self._drain
                self._drain = None
            if self._redirect is not None:
                frame.redirect.CopyFrom(self._redirect)
                self._over = True
        return frame.SerializeToString() + b"".join(pieces)

    def look(self, now: float, heartbeat: float) -> None:
        """Say something now and then, and give up on a worker that does not read."""
        silent = now - self.wrote_at
        if self.writing is None:
            if silent >= heartbeat * SILENT_SHARE:
                self.wake()
        elif silent > UNREAD_S:
            self.fail(unread(silent))

    # In.

    async def read(self) -> None:
        """Take frames until the worker closes its side."""
        while True:
            try:
                data = await self.context.read()
            except grpc.aio.BaseError:
                return
            if data is grpc.aio.EOF:
                return
            self.heard(len(data))
            frame = await parsed(data, self.caller)
            if frame.HasField("hello"):
                raise wrong("hello", "came twice; it must be in the first frame, and only there")
            self.take(frame)
            self.unprocessed.add(self, len(data))
            del data, frame
            await self._until_heard()

    async def _until_heard(self) -> None:
        """Read no more of a worker as long as what it sent waits for a change, or it does not read
        the answers, beyond a bound. gRPC then holds it back, and nothing is lost."""
        waits = backoff(HEARD_FIRST_S, HEARD_MOST_S)
        while (self.unprocessed.is_much(self) or self._owes_much()) and not self.ended.done():
            if self.session is not None:
                # It would be heard if it were read.
                self.session.hear()
            await asyncio.sleep(next(waits))

    def _owes_much(self) -> bool:
        """Whether more waits to be sent than what one frame takes."""
        return max(len(self._acks), len(self._stops)) > ACKS_IN_FRAME

    def take(self, frame: worker_pb2.WorkRequest) -> None:
        """What the worker says in one frame."""
        session = self.session
        if session is None or self._redirect is not None or self.ended.done():
            return
        session.hear()
        self.beat = max(self.beat, frame.beat)
        self._hear(session, frame)
        if frame.credits:
            self.credits = min(self.credits + frame.credits, CREDITS_MAX - self.at_session)
            self.pass_credits()
        if frame.drain:
            session.drain("the worker asked for it")
        if frame.beat and not frame.results and len(self.streams) <= FEW_STREAMS:
            self._answers_beat = True
            self.wake()

    def _hear(self, session: WorkerSession, frame: worker_pb2.WorkRequest) -> None:
        """What the worker says of single runs. A token for one namespace speaks of no others."""
        results, foreign_results = parted(frame.results, self.only)
        progress, foreign_progress = parted(frame.progress, self.only)
        extensions, foreign_extensions = parted(frame.extensions, self.only)
        self._foreign += len(foreign_results) + len(foreign_progress) + len(foreign_extensions)
        if self._foreign > FOREIGN_MAX:
            raise foreign_runs.too_many(FOREIGN_MAX, self.caller)
        if foreign_results or foreign_extensions:
            acks = [foreign_runs.ack(word) for word in foreign_results]
            self.acks(acks + [foreign_runs.ack(word) for word in foreign_extensions])
        if foreign_progress:
            self.stops([foreign_runs.stop(word) for word in foreign_progress])
        if results:
            session.report(results)
        if progress:
            session.note(progress)
        if extensions:
            session.extend(extensions)

    def pass_credits(self) -> None:
        """Let the session use up some more, as far as the worker reads."""
        more = min(self.credits, AHEAD - self.at_session - len(self._leases))
        session = self.session
        if more > 0 and session is not None and not session.draining:
            self.credits -= more
            self.at_session += more
            session.credit(more)

    # The end.

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: BaseException) -> None:
        if self.ended.done():
            return
        if isinstance(error, Refused):
            self.ended.set_result(error.rejection)
        else:
            self.ended.set_exception(error)

    def read_all(self, reading: asyncio.Task[None]) -> None:
        """The worker has closed its side, or sent something wrong."""
        error = None if reading.cancelled() else reading.exception()
        if error is not None:
            self.fail(error)
        else:
            self.end()

    async def close(self) -> None:
        """Leave the session, and let the last frame go; if it does not, drop the call: no status
        can be sent while a message is on its way."""
        session = self.session
        if session is not None and session.sink is self:
            session.close()
        self.ended.cancel()
        if self.writing is not None:
            await asyncio.wait([self.writing], timeout=LAST_WORD_S)
            if self.writing is not None:
                self.writing.cancel()
                raise asyncio.CancelledError
