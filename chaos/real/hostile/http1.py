"""HTTP/1 by hand, to the gateway of a node and from the foreign address: what an attacker sends,
and how it was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from .field import HostileCaller
from .relay import foreign

HOST = "127.0.0.1"
ANSWER_S = 10.0
# Until another connection is tried, where there was none.
AGAIN_S = 0.02
END = b"\r\n\r\n"
# A gateway that cannot do it now, or does not know whether it was done: the harness kills leaders.
PASSING = (503, 504)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One answer."""

    status: int
    head: bytes
    body: bytes


class HttpLine:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address: str, *, own: bool = False) -> HttpLine:
        """From the foreign address, or from our `own`; OSError where nobody listens."""
        host, _, port = address.rpartition(":")
        if own:
            return cls(*await asyncio.open_connection(host, int(port)))
        return cls(*await foreign(host, int(port)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self, seconds: float = ANSWER_S, *, bodiless: bool = False) -> HttpReply | None:
        """The next answer, None when the connection ended; TimeoutError when nothing comes."""
        async with asyncio.timeout(seconds):
            try:
                return await self._read(bodiless)
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                return None

    async def _read(self, bodiless: bool) -> HttpReply:
        head = await self.reader.readuntil(END)
        lines = head.lower().split(b"\r\n")
        status = int(lines[0][9:12])
        if status < 200:
            return await self._read(bodiless)
        length = next((line[15:] for line in lines if line.startswith(b"content-length:")), None)
        if length is None or bodiless:
            # A stream: the caller reads on as it likes.
            return HttpReply(status, head, b"")
        return HttpReply(status, head, await self.reader.readexactly(int(length)))

    def close(self) -> None:
        with suppress(OSError, RuntimeError):
            self.writer.close()

    def abort(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


def request(
    verb: str, path: str, body: bytes = b"", *, token: str = "", headers: Iterable[Pair] = (),
    host: str = HOST, version: str = "1.1",
) -> bytes:  # fmt: skip
    """A request as it is sent; a body is JSON unless the headers say otherwise."""
    lines = [f"{verb} {path} HTTP/{version}", *([f"Host: {host}"] if host else [])]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body:
        named = {name.lower() for name, _ in headers}
        if "content-type" not in named:
            lines.append("Content-Type: application/json")
        if not named & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1", "replace") + END + body


class Door:
    """The gateway, as an attack sees it."""

    def __init__(self, field: HostileCaller) -> None:
        self.field, self.address = field, field.brief.gateway
        self.dice = field.dice

    @property
    def goes_on(self) -> bool:
        return self.field.goes_on

    def token(self, role: str) -> str:
        return self.field.brief.tokens.get(role, "")

    async def line(self) -> HttpLine | None:
        """A connection; None where there is none now, after a little."""
        try:
            return await HttpLine.open(self.address)
        except OSError:
            await asyncio.sleep(AGAIN_S)
            return None

    async def lines(self, count: int) -> list[HttpLine]:
        """So many connections, less where not so many can be had."""
        found = [await self.line() for _ in range(count)]
        return [line for line in found if line is not None]

    def saw(self, reply: HttpReply | None, what: str) -> None:
        """Count an answer; a fault of the gateway's own is wrong."""
        found = self.field.found
        found.calls += 1
        word = str(reply.status) if reply is not None else "ended"
        found.codes[word] = found.codes.get(word, 0) + 1
        if reply is None:
            return
        found.refused += reply.status >= 400
        if reply.status >= 400:
            found.words.setdefault(word, f"{what[:60]}: {words_of(reply)}")
        if reply.status >= 500 and reply.status not in PASSING:
            self.field.wrong(f"{what[:100]} was answered with {reply.status}: {words_of(reply)}")

    async def ask(self, data: bytes, what: str, seconds: float = ANSWER_S) -> HttpReply | None:
        """Send a request on a connection of its own, and count how it is answered."""
        line = await self.line()
        if line is None:
            return None
        try:
            await line.send(data)
            reply = await line.read(seconds, bodiless=data.startswith(b"HEAD "))
            self.saw(reply, what)
            return reply
        except TimeoutError:
            self.silent()
        except ConnectionError:
            self.saw(None, what)
        finally:
            line.abort()
        return None

    def silent(self) -> None:
        """No answer came in time. It is counted, no more: an attacker gives way to all others, and
        how soon somebody honest is answered is seen elsewhere."""
        self.field.found.codes["silent"] = self.field.found.codes.get("silent", 0) + 1

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[list[HttpLine]]:
        """Connections for as long as the block lasts."""
        lines = await self.lines(count)
        self.field.found.calls += len(lines)
        try:
            yield lines
        finally:
            for line in lines:
                line.abort()


def words_of(reply: HttpReply) -> str:
    """The first words of a refusal."""
    return reply.body[:160].decode("utf-8", "replace").strip()
