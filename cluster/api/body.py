"""What a call came with: read when it is known who calls, and parsed a piece at a time.

gRPC's flow control keeps what is not read at the caller, but for the first 64 KiB of each stream.
So whoever is refused before costs no more than that, however much they send.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ...proto.contract import REQUEST_BYTES, Method
from ...statemachine.core.rejection import Reason, Refused
from ..node import refusals
from .call import Call
from .frames import varint
from .strangers import Strangers
from .turns import CallTurns

BODY_S = 10.0  # From the beginning of a call until all of it is there.
# When more than so many are sending at once, those that take their time are ended.
READING_MAX = 64
SLOW_S = 0.5
# What is parsed without a break: some 2 ms.
PIECE_BYTES = 64 << 10
PIECE_FIELDS = 1_000
FIELDS_MAX = 12_000  # Of a message in a large body: more than the leases that a worker may hold.
# The same in a call that may bring more bytes than others: more than the jobs or results in it.
ENTRIES_MAX = 2_000
VARINT_MAX = 10
M = TypeVar("M", bound=Message)


class Bodies:
    """Reads them. One look every few milliseconds ends those that do not come."""

    def __init__(self, strangers: Strangers) -> None:
        self.strangers = strangers
        # Calls whose body is on its way; the one that began first is first.
        self.reading: OrderedDict[Call, None] = OrderedDict()

    async def read(self, call: Call) -> bytes:
        """The body of a call; refused if it is too large. If it does not come, the call ends."""
        most, size = call.method.request_bytes, 0
        self.reading[call] = None
        self.strangers.reads(call.peer, most)
        try:
            data = await call.context.read()
            size = len(data)
        finally:
            self.reading.pop(call, None)
            self.strangers.has_read(call.peer, most, size)
        if data is grpc.aio.EOF:
            raise refusals.refused(
                Reason.ERROR_REASON_FIELD_REQUIRED,
                f"{call.method.name} came without a request; send one message",
                field="",
            )
        if len(data) > most:
            raise too_large(call.method.name, most, len(data))
        assert isinstance(data, bytes)
        return data

    def look(self, now: float) -> None:
        """End what takes too long, and sooner while many send: each may hold what a message may."""
        over = len(self.reading) - READING_MAX
        while self.reading:
            call = next(iter(self.reading))
            if now - call.began < (SLOW_S if over > 0 else BODY_S):
                break
            del self.reading[call]
            over -= 1
            call.end(late(now - call.began).rejection)


async def call_parsed(method: Method, data: bytes, caller: str = "") -> Message:
    """The request of a unary call."""
    most = ENTRIES_MAX if method.request_bytes > REQUEST_BYTES else FIELDS_MAX
    return await parsed(method.request, data, most, caller)


async def parsed(kind: type[M], data: bytes, most: int = 0, caller: str = "") -> M:
    """A message; between the pieces of a large one others have their turn, and of large ones one is
    parsed at a time: so many callers of them do not make that turn longer. Of one caller one stands
    in that line, however many it sends at once."""
    at_once = parsed_at_once(kind, data)
    if at_once is not None:
        return at_once
    message, turns = kind(), _turns()
    try:
        async with turns.turn(caller), turns.all:
            for piece in pieces(data, cast(Descriptor, kind.DESCRIPTOR), most or FIELDS_MAX):
                message.MergeFromString(piece)
                await asyncio.sleep(0)
    except DecodeError as error:
        raise no_message(kind, error) from error
    return message


def parsed_at_once(kind: type[M], data: bytes) -> M | None:
    """A message that takes no time worth a break; None for a large one."""
    if len(data) > PIECE_BYTES:
        return None
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise no_message(kind, error) from error


def no_message(kind: type[Message], error: DecodeError) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_FIELD_INVALID,
        f"the request is no {kind.DESCRIPTOR.full_name}: {error}; "
        "check that both sides use the same .proto files",
    )


class Parsing(CallTurns):
    """Who parses a large message on a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.all = asyncio.Lock()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Parsing] = WeakKeyDictionary()


def _turns() -> Parsing:
    """Those of this loop."""
    return _TURNS.setdefault(asyncio.get_running_loop(), Parsing())


def pieces(data: bytes, kind: Descriptor, most: int) -> Iterator[bytes]:
    """A message in parts: whole fields that are parsed one behind the other are the same as all of
    them at once, and so are the parts of a message that is a single field of it."""
    start = at = fields = total = 0
    while at < len(data):
        tag, inside, behind = _field(data, at)
        fields, total = fields + 1, total + 1
        if total > most:
            raise DecodeError(f"it has more than {most} fields")
        if behind - at > PIECE_BYTES:
            yield data[start:at]
            yield from _cut(
                data[at:inside], data[inside:behind], kind.fields_by_number.get(tag >> 3), most
            )
            start, fields = behind, 0
        elif behind - start > PIECE_BYTES or fields > PIECE_FIELDS:
            yield data[start:at]
            start, fields = at, 1
        at = behind
    yield data[start:at]


def _cut(head: bytes, inner: bytes, field: FieldDescriptor | None, most: int) -> Iterator[bytes]:
    """A large field: in parts, if it is a single message. A text is as long as the request may be:
    who judges the request says what of it is too long, so that this costs nobody beside it."""
    kind = None if field is None else field.message_type
    if field is not None and kind is not None and not field.is_repeated:
        for piece in pieces(inner, kind, most):
            yield varint(field.number << 3 | 2) + varint(len(piece)) + piece
        return
    if len(inner) > REQUEST_BYTES:
        if kind is not None:
            yield from _counted(inner, kind)
        elif field is None or field.is_packed:
            raise DecodeError(f"one of its fields has {len(inner)} bytes; {REQUEST_BYTES} may be")
    yield head + inner


def _counted(data: bytes, kind: Descriptor) -> Iterator[bytes]:
    """Breaks, while the fields of an entry that is parsed in one go are counted at every depth."""
    inside: list[tuple[int, int, Descriptor]] = [(0, len(data), kind)]
    total = 0
    while inside:
        at, end, kind = inside.pop()
        while at < end:
            tag, value, at = _field(data, at)
            if (total := total + 1) > FIELDS_MAX:
                raise DecodeError(f"one of its entries has more than {FIELDS_MAX} fields")
            if total % PIECE_FIELDS == 0:
                yield b""
            field = kind.fields_by_number.get(tag >> 3)
            if field is None or tag & 7 != 2:
                continue
            if field.message_type is not None:
                inside.append((value, at, field.message_type))
            elif field.is_packed and at - value > PIECE_BYTES:
                raise DecodeError(f"a list in it has {at - value} bytes; {PIECE_BYTES} may be")
        if at > end:
            raise DecodeError("it ends within a field")


def _field(data: bytes, start: int) -> tuple[int, int, int]:
    """The tag of the field that begins here, where its value begins, and where it ends."""
    end = len(data)
    # Nearly all of them: a tag of one byte, a length of one or two.
    if start + 2 < end and (tag := data[start]) & 0x87 == 2:
        size, at = data[start + 1], start + 2
        if size >= 0x80 and data[at] < 0x80:
            size, at = size & 0x7F | data[at] << 7, at + 1
        if size < 0x80 or at == start + 3:
            if at + size <= end:
                return tag, at, at + size
            raise DecodeError("it ends within a field")
    tag, at = _varint(data, start)
    kind = tag & 7
    if kind == 0:
        behind = _varint(data, at)[1]
    elif kind == 2:
        size, at = _varint(data, at)
        behind = at + size
    elif kind in (1, 5):
        behind = at + (8 if kind == 1 else 4)
    else:
        raise DecodeError(f"byte {start} begins no field")
    if behind > len(data):
        raise DecodeError("it ends within a field")
    return tag, at, behind


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for place in range(at, min(at + VARINT_MAX, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + 1
        shift += 7
    raise DecodeError(f"byte {at} begins no number")


def late(seconds: float, maximum: float = BODY_S) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_NODE_LIMIT,
        f"the request was not there after {seconds:.1f} s; nothing was done, send it at once",
        refusals.LIMIT_RETRY_MS,
        limit="sending",
        maximum=maximum,
        of=refusals.ALL,
    )


def too_large(name: str, maximum: int, actual: int) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"the request has {actual} bytes, and {name} takes {maximum}; send it in parts, or store "
        "payloads elsewhere and send their address",
        limit="request",
        maximum=maximum,
        actual=actual,
    )
