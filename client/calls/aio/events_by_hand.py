"""Why by hand: `watch` begins a broken stream again behind what was seen, and `list` goes on from
revision to revision, as no other list does.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from time import monotonic
from typing import Unpack

from ....proto.v1 import common_pb2, event_pb2
from ...sdk.errors import Unavailable
from ...sdk.links import SILENCE_S
from ...sdk.options import EachCall, fill, of_the_call
from ...sdk.values import revision
from .service import PAGE_SIZE, AsyncService, checked

# A watch that stood shorter than this is not begun again at once.
BRIEF_S = 1.0


class AsyncEventsByHand(AsyncService):
    """Follow what happens, or look at what has happened."""

    async def watch(
        self,
        filter: str = "",
        *,
        after: str | common_pb2.Revision | None = None,
        silence: float = SILENCE_S,
        **options: Unpack[EachCall],
    ) -> AsyncGenerator[event_pb2.Event, None]:
        """Follow events, from now on or from behind a revision, for as long as one likes.

        A broken connection is made again, to any node, and goes on where it ended: no event is
        left out or sent twice. Unavailable is raised when no node answers within the timeout,
        RevisionGone when the events to go on with are no longer kept. `namespace=""` follows all.

        async for event in client.events.watch("kind=RUN_FAILED", after="17.3"):
            print(event.run.id, event.run.error.message)
        """
        request = event_pb2.WatchEventsRequest(filter=filter)
        fill(request, options, self._client.namespace)
        if after is not None:
            request.after.CopyFrom(revision(after))
        while True:
            begun = 0.0
            responses = self._client.stream(request, silence=silence, **of_the_call(options))
            try:
                async with aclosing(responses):
                    async for response in responses:
                        begun = begun or monotonic()
                        for event in response.events:
                            yield event
                        request.after.CopyFrom(response.progress)
            except Unavailable:
                if not begun:
                    raise
            if monotonic() - begun < BRIEF_S:
                await self._client.pause(random.uniform(0.5, 1.0) * BRIEF_S)

    async def list(
        self,
        filter: str = "",
        *,
        after: str | common_pb2.Revision | None = None,
        limit: int | None = None,
        **options: Unpack[EachCall],
    ) -> AsyncIterator[event_pb2.Event]:
        """What has happened, oldest first, up to now.

        async for event in client.events.list("job=report"):
            print(event.time, event.kind)
        """
        request = event_pb2.ListEventsRequest(filter=filter)
        if after is not None:
            request.after.CopyFrom(revision(after))
        left = checked(limit)
        while left is None or left > 0:
            request.page_size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
            page = await self._send(request, event_pb2.ListEventsResponse, options)
            for event in page.events:
                yield event
            if left is not None:
                left -= len(page.events)
            request.after.CopyFrom(page.progress)
            if page.end:
                return
