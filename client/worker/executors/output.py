"""What a command reads and writes: all it writes is read, and a bounded part of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import IO

from ..context import Context
from ..outcomes import LOG_BYTES_MAX

CHUNK = 65_536
HEAD_BYTES = 4_096


class CommandOutput:
    """Both of its outputs, counted together."""

    def __init__(self, context: Context, most: int) -> None:
        self._context, self._most = context, most
        self.count = 0
        self._head = bytearray()
        # Set once it has written more than it may.
        self.too_much = asyncio.Event()

    def take(self, chunk: bytes) -> None:
        self._context.log.write(chunk)
        # Of a secret that was cut in two nobody would know the first half.
        room = HEAD_BYTES + self._context.redaction.longest - len(self._head)
        self._head += chunk[: max(0, room)]
        self.count += len(chunk)
        if self.count > self._most:
            self.too_much.set()

    def close(self) -> None:
        """Say what the log has not kept, as it has the end alone, and how it began."""
        if self.count <= LOG_BYTES_MAX:
            return
        head = self._context.redaction.data(bytes(self._head), end=True)[:HEAD_BYTES]
        said = f"\n[it wrote {self.count:,} bytes, and the log has the end of them; it began:]\n"
        self._context.log.write(said.encode() + head)


class Pipe:
    """One output of a command."""

    def __init__(self, reader: asyncio.StreamReader, writing: int) -> None:
        self.kept = bytearray()
        # What it wrote first is not there any more.
        self.was_cut = False
        self.writing = writing
        self._reader = reader

    def close_writing(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    async def read(self, output: CommandOutput, maximum: int, *, last: bool = False) -> None:
        """Read all, as a command stands still at a full pipe; keep the first or the last of it."""
        kept = self.kept
        while chunk := await self._reader.read(CHUNK):
            output.take(chunk)
            kept += chunk if last else chunk[: maximum - len(kept)]
            if last and len(kept) > maximum:
                self.was_cut = True
                del kept[:-maximum]


def sealed(data: bytes) -> IO[bytes]:
    """What a command reads. On no disk, and the command can neither change nor lengthen it: by a
    file of the worker it could fill a disk that is shut to it."""
    number = os.memfd_create("payload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    file = os.fdopen(number, "w+b", 0)
    try:
        written = 0
        while written < len(data):
            written += file.write(data[written:])
        file.seek(0)
        fcntl.fcntl(
            number, fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
        )  # fmt: skip
    except BaseException:
        file.close()
        raise
    return file


async def pipe(stack: contextlib.AsyncExitStack) -> Pipe:
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    made = Pipe(reader, writing)
    stack.callback(made.close_writing)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    stack.callback(transport.close)
    return made
