"""Just enough HTTP/2 to misuse it: frames by hand, headers as literals that need no table."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from .relay import foreign

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW = 4
CANCEL = 8
READ = 1 << 16
FIRST_WINDOW = (1 << 16) - 1


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body
    )


def _number(value: int, bits: int, head: int) -> bytes:
    """An integer as HPACK writes it, with a prefix of so many bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((head | value,))
    out, value = bytearray((head | most,)), value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


def literal(name: str, value: str) -> bytes:
    """A header that goes into no table, without Huffman's code."""
    words = [name.encode(), value.encode()]
    return b"\x00" + b"".join(_number(len(word), 7, 0) + word for word in words)


def headers(path: str, token: str = "", more: Sequence[tuple[str, str]] = ()) -> bytes:
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "cluster"),
        ("te", "trailers"), ("content-type", "application/grpc"), *more,
    ]  # fmt: skip
    if token:
        fields.append(("authorization", f"Bearer {token}"))
    return b"".join(literal(name, value) for name, value in fields)


def message(body: bytes, length: int | None = None) -> bytes:
    """A message of gRPC; its length may be a lie."""
    return b"\0" + struct.pack(">I", len(body) if length is None else length) + body


class Connection:
    """A connection from the foreign address. What comes is thrown away, if it is read at all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.stream = 1

    @classmethod
    async def open(cls, address: str, settings: dict[int, int] | None = None) -> Connection:
        host, _, port = address.rpartition(":")
        reader, writer = await foreign(host, int(port))
        words = b"".join(struct.pack(">HI", k, v) for k, v in (settings or {}).items())
        writer.write(PREFACE + frame(SETTINGS, 0, 0, words) + frame(SETTINGS, ACK, 0))
        await writer.drain()
        return cls(reader, writer)

    def begin(self, head: bytes, *, end: bool = False) -> int:
        """A stream begins; its number."""
        stream, self.stream = self.stream, self.stream + 2
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.writer.write(frame(HEADERS, flags, stream, head))
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self.writer.write(frame(DATA, END_STREAM if end else 0, stream, data))

    def reset(self, stream: int) -> None:
        self.writer.write(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))

    async def allowed(self, windows: dict[int, int]) -> None:
        """Read on, and note what may still be sent on each stream, and on all (0)."""
        while True:
            head = await self.reader.readexactly(9)
            kind, stream = head[3], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
            body = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == WINDOW:
                windows[stream] = windows.get(stream, FIRST_WINDOW) + int.from_bytes(body, "big")

    async def swallow(self) -> None:
        """Read and forget, until the other side ends it."""
        while await self.reader.read(READ):
            pass

    def close(self) -> None:
        self.writer.close()
