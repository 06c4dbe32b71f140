# Made from the contracts and catalog.toml by generate.py; write there.
"""Look at queues and bound what is leased from them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from ....proto.v1 import queue_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    QueueWriting,
    queue_of,
)
from .service import AsyncService


class AsyncQueues(AsyncService):
    """Look at queues and bound what is leased from them."""

    async def update(
        self, queue: str, *, etag: str = "", **options: Unpack[QueueWriting]
    ) -> queue_pb2.Queue:
        """Change limits; None and 0 take one away.

        await client.queues.update("mail", concurrency=10, rate=100)
        """
        given, writing = parted(options)
        wanted, paths = queue_of(queue, self._namespace(writing), given)
        if not paths:
            raise ValueError(f"no field is named to change of {queue!r}")
        wanted.etag = etag
        request = queue_pb2.UpdateQueueRequest(queue=wanted)
        request.update_mask.paths.extend(paths)
        return await self._send(request, queue_pb2.Queue, writing)

    async def get(self, queue: str, **options: Unpack[ReadOptions]) -> queue_pb2.Queue:
        """Show a queue.

        print((await client.queues.get("mail")).ready)
        """
        request = made(queue_pb2.GetQueueRequest, queue=queue)
        return await self._send(request, queue_pb2.Queue, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[queue_pb2.Queue]:
        """List queues by name.

        async for queue in client.queues.list():
            print(queue.name, queue.ready, queue.leased)
        """
        request = queue_pb2.ListQueuesRequest()
        return self._items(request, "queues", limit, options)

    async def pause(
        self, queue: str, reason: str = "", **options: Unpack[Writing]
    ) -> queue_pb2.Queue:
        """Grant no leases from it until it is resumed; runs that are leased go on.

        await client.queues.pause("mail", "the relay is down")
        """
        request = made(queue_pb2.PauseQueueRequest, queue=queue, reason=reason)
        return await self._send(request, queue_pb2.Queue, options)

    async def resume(self, queue: str, **options: Unpack[Writing]) -> queue_pb2.Queue:
        """Grant leases again.

        await client.queues.resume("mail")
        """
        request = made(queue_pb2.ResumeQueueRequest, queue=queue)
        return await self._send(request, queue_pb2.Queue, options)
