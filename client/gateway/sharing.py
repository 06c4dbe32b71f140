"""One stream of the cluster for all watchers that ask for the same with the same token.

A watcher that cannot keep up goes on with a stream of its own behind what it has got, so nobody
waits for another one and none misses anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ...proto.v1 import event_pb2
from ..sdk.async_core import AsyncClientCore
from . import streams

# What a watcher may leave unread before it gets a stream of its own.
UNREAD_MAX = 100
# With more watchers than this, what comes is gathered for so long: each piece is sent to all, and
# the page itself draws five times a second.
FEW, GATHER_S = 5, 0.25
Key = tuple[int, str, bytes]


class SharedStreams:
    """Those that are open now."""

    def __init__(self) -> None:
        self._open: dict[Key, SharedStream] = {}

    async def messages(
        self, client: AsyncClientCore, request: Any, token: str, timeout: float
    ) -> AsyncGenerator[Any, None]:
        """As streams.messages; shared where it begins now."""
        if request.HasField("after"):
            async with aclosing(streams.messages(client, request, token, timeout)) as own:
                async for message in own:
                    yield message
            return
        key = id(client), token, request.SerializeToString(deterministic=True)
        shared = self._open.get(key)
        if shared is None or shared.task.done():
            begun = type(request).FromString(key[2])
            shared = self._open[key] = SharedStream(streams.messages(client, begun, token, timeout))
        watcher = shared.join()
        try:
            async with aclosing(watcher.messages()) as coming:
                async for message in coming:
                    yield message
                    request.after.CopyFrom(message.progress)
        finally:
            if shared.leave(watcher) and self._open.get(key) is shared:
                del self._open[key]
        async with aclosing(streams.messages(client, request, token, timeout)) as own:
            async for message in own:
                yield message


class Watcher:
    """What one has not read yet."""

    def __init__(self) -> None:
        self._unread: asyncio.Queue[Any] = asyncio.Queue(UNREAD_MAX)
        self._end: BaseException | None = None
        self._over = False
        self._added = asyncio.Event()

    def add(self, message: Any) -> bool:
        """False when it has too much unread, and gets no more."""
        if self._unread.full():
            self.end(None)
            return False
        self._unread.put_nowait(message)
        self._added.set()
        return True

    def end(self, error: BaseException | None) -> None:
        self._over, self._end = True, error
        self._added.set()

    async def messages(self) -> AsyncGenerator[Any, None]:
        """Until it is ended; raises what ended it."""
        while True:
            while not self._unread.empty():
                yield self._unread.get_nowait()
            if self._over:
                if self._end is not None:
                    raise self._end
                return
            self._added.clear()
            await self._added.wait()


class SharedStream:
    """One, read as long as somebody watches."""

    def __init__(self, source: AsyncGenerator[Any, None]) -> None:
        self._source = source
        self._watchers: set[Watcher] = set()
        # Up to where all of them have it.
        self._progress: Any = None
        self.task = asyncio.create_task(self._read(), name="shared-stream")

    def join(self) -> Watcher:
        watcher = Watcher()
        self._watchers.add(watcher)
        if self._progress is not None:
            watcher.add(event_pb2.WatchEventsResponse(progress=self._progress))
        return watcher

    def leave(self, watcher: Watcher) -> bool:
        """Whether nobody is left."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self.task.cancel()
        return not self._watchers

    async def _read(self) -> None:
        error: BaseException | None = None
        coming: asyncio.Queue[Any] = asyncio.Queue(UNREAD_MAX)
        filling = asyncio.create_task(self._fill(coming))
        try:
            while (message := await coming.get()) is not None:
                if len(self._watchers) > FEW:
                    await asyncio.sleep(GATHER_S)
                ended = gather(message, coming)
                self._send(message)
                if ended:
                    break
            await filling
        except Exception as failed:
            error = failed
        finally:
            filling.cancel()
            for watcher in self._watchers:
                watcher.end(error)

    async def _fill(self, coming: asyncio.Queue[Any]) -> None:
        error: Exception | None = None
        try:
            async with aclosing(self._source) as source:
                async for message in source:
                    await coming.put(message)
        except Exception as failed:
            error = failed
        # Whoever waits for more sees that there is none.
        await coming.put(None)
        if error is not None:
            raise error

    def _send(self, message: Any) -> None:
        self._progress = message.progress
        for watcher in [*self._watchers]:
            if not watcher.add(message):
                self._watchers.discard(watcher)


def gather(message: Any, coming: asyncio.Queue[Any]) -> bool:
    """Add what came since; whether it was the last."""
    while not coming.empty():
        after = coming.get_nowait()
        if after is None:
            return True
        message.events.extend(after.events)
        message.progress.CopyFrom(after.progress)
    return False
