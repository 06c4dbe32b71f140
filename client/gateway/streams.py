"""Answers that go on: one JSON object per line, or Server-Sent Events.

A stream of events stays whole however often the nodes behind it go: it is begun again, on any node,
behind what was sent last. An event's `id:` is its revision, so a browser that comes back with
`Last-Event-ID`, to this gateway or another one, goes on there.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import lru_cache, partial
from time import monotonic
from typing import Any

import msgspec
from google.protobuf.message import Message

from ...proto.v1 import event_pb2
from ..sdk.async_core import AsyncClientCore
from ..sdk.errors import FieldFault, RaftschedError, Unavailable
from ..sdk.values import revision
from .as_json import as_json
from .manners import EVENTS, LINES
from .problems import field_faults, of_error

OFFERED = (LINES, EVENTS)
# Proxies close what is silent for half a minute.
SILENCE_S = 15.0
# A browser whose stream broke off comes back after so long, spread by half either way.
RETRY_MS = 1_000
# A stream that stood shorter than this is not begun again at once.
BRIEF_S = 1.0
# So many events, none of them longer, are kept as they were written: 8 MiB at most.
SHARED_MAX, SHARED_BYTES = 1_000, 2_048
# And so many messages, none of them longer.
KEPT_MAX, KEPT_BYTES = 32, 256 << 10


def resume(request: Any, last_event: str) -> bool:
    """Let a stream begin behind the event that was seen last; it counts before the query. Whether
    one is named."""
    if not last_event or "after" not in request.DESCRIPTOR.fields_by_name:
        return False
    try:
        request.after.CopyFrom(revision(last_event))
    except ValueError:
        fault = f"{last_event[:60]!r} is no revision; send the last id of the stream as it was"
        raise field_faults([FieldFault("Last-Event-ID", "FIELD_INVALID", fault)]) from None
    return True


def has_place(request: Any) -> bool:
    """Whether a stream is to begin behind a place that its query names."""
    return "after" in request.DESCRIPTOR.fields_by_name and request.HasField("after")


async def check_place(client: AsyncClientCore, request: Any, token: str, named: str) -> None:
    """Refuse a place that has not come yet, at which a stream would wait in silence."""
    asked = event_pb2.ListEventsRequest(
        namespace=request.namespace, filter=request.filter, after=request.after, page_size=1
    )
    try:
        await client.ask(asked, token=token, timeout=client.timeout)
    except RaftschedError as error:
        if error.reason != "FIELD_INVALID":
            raise
        fault = f"{error.message}; open the stream without {named}"
        raise field_faults([FieldFault(named, "FIELD_INVALID", fault)]) from error


async def messages(
    client: AsyncClientCore, request: Any, token: str, timeout: float
) -> AsyncGenerator[Any, None]:
    """What the cluster sends, beyond the end of a node if the stream says how far it is."""
    resumes = "after" in request.DESCRIPTOR.fields_by_name
    while True:
        begun = 0.0
        sent = client.stream(request, token=token, timeout=timeout)
        try:
            async with aclosing(sent):
                async for message in sent:
                    begun = begun or monotonic()
                    yield message
                    if resumes:
                        request.after.CopyFrom(message.progress)
            if not resumes:
                return
        except Unavailable:
            if not (begun and resumes):
                raise
        if monotonic() - begun < BRIEF_S:
            await client.pause(random.uniform(0.5, 1.0) * BRIEF_S)


async def pieces(
    first: Any, rest: AsyncGenerator[Any, None], media: str
) -> AsyncGenerator[bytes, None]:
    """The body of the answer: what was sent first, the rest, and a word where nothing comes."""
    write = partial(once, as_events if media == EVENTS else as_line)
    if media == EVENTS:
        yield f"retry: {round(RETRY_MS * random.uniform(0.5, 1.5))}\n\n".encode()
    yield write(first)
    # The next one is waited for as a task, since a wait that is cut off would end the stream.
    coming: asyncio.Task[Any] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(rest))
            await asyncio.wait({coming}, timeout=SILENCE_S)
            if not coming.done():
                if media == EVENTS:
                    yield b": nothing happened\n\n"
                continue
            message, coming = coming.result(), None
            if piece := write(message):
                yield piece
    except StopAsyncIteration:
        return
    except RaftschedError as error:
        # The status is sent, so the body has to say it.
        yield failed(error, media)
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


# The messages that were written last, with what was made of them: many watchers get the same.
_written: OrderedDict[tuple[int, object], tuple[Message, bytes]] = OrderedDict()


def once(write: Callable[[Any], bytes], message: Message) -> bytes:
    """What `write` makes of a message, which nobody changes any more."""
    key = id(message), write
    found = _written.get(key)
    if found is not None:
        return found[1]
    made = write(message)
    if len(made) <= KEPT_BYTES:
        # With the message, whose number is another one's when it is gone.
        _written[key] = message, made
        if len(_written) > KEPT_MAX:
            _written.popitem(last=False)
    return made


def as_line(message: Message) -> bytes:
    return msgspec.json.encode(as_json(message)) + b"\n"


def as_events(message: Any) -> bytes:
    """Each event by itself, then how far everything was looked at."""
    return b"".join(_blocks(message))


def _blocks(message: Any) -> Iterator[bytes]:
    for event in getattr(message, "events", ()):
        shared = event.ByteSize() <= SHARED_BYTES
        yield _shared_block(event.SerializeToString()) if shared else _block(event)
    if message.HasField("progress"):
        # Without data it is no event, but a browser keeps the id.
        yield f"id: {_place(message.progress)}\n\n".encode()


@lru_cache(SHARED_MAX)
def _shared_block(sent: bytes) -> bytes:
    """Many watchers see the same event: it is written once for all of them."""
    return _block(event_pb2.Event.FromString(sent))


def _block(event: event_pb2.Event) -> bytes:
    data = msgspec.json.encode(as_json(event))
    return b"id: " + _place(event.revision).encode() + b"\ndata: " + data + b"\n\n"


def _place(place: Any) -> str:
    return f"{place.change}.{place.position}"


def failed(error: RaftschedError, media: str) -> bytes:
    body = of_error(error).body(media).strip()
    return b"event: error\ndata: " + body + b"\n\n" if media == EVENTS else body + b"\n"
