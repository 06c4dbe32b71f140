"""Carries out a job by a command of the operating system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process

from ....proto.v1.job_pb2 import ShellAction
from ....proto.v1.worker_pb2 import Stop
from ..context import Context
from ..outcomes import PAYLOAD_BYTES_MAX, AttemptFailed, PermanentError
from .executor import Executor, facts, result_of, with_secrets

TIMEOUT_S = 3_600.0
GRACE_S = 5.0
CHUNK = 65_536
WORDS_MAX = 1_024
# Who has left the process group may still hold the pipes; its words are waited for this long.
LEFTOVERS_S = 1.0
MEMORY_MIN = 16 * 1024 * 1024

# Sets the limit in the new process, then becomes the command. Python adds LC_CTYPE to a bare
# environment, which the command is not to see.
LAUNCHER = """
import os, resource, sys
limit, keep, argv = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]
if not keep:
    os.environ.pop("LC_CTYPE", None)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.stderr.write(f"{argv[0]}: {error.strerror}\\n")
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


class ShellExecutor(Executor):
    """Runs the action's argv as it is, or through /bin/sh where the action asks for it.

    The command gets the payload on standard input and the action's environment with what names the
    run (RAFTSCHED_RUN and so on), nothing of the worker's. What it writes to standard output is the
    result; both outputs are in the log. It has a process group of its own; when it ends or is
    stopped, whoever is left in the group is killed. Stopping is SIGTERM, then SIGKILL after
    `grace`. `memory` limits the address space of each of its processes, in bytes. The kind of a
    failure is "exit.3", "signal.SIGSEGV", "shell.timeout" or "shell.start"; an exit code that the
    action calls a warning is a success with one.
    """

    name = "shell"

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        memory: int | None = None,
        grace: float = GRACE_S,
        directory: str | None = None,
    ) -> None:
        super().__init__(timeout)
        if memory is not None and memory < MEMORY_MIN:
            raise ValueError(f"memory is {memory}; it must be at least {MEMORY_MIN:,} bytes")
        self._memory = memory
        self._grace = grace
        self._directory = directory
        self._groups: set[int] = set()

    async def execute(self, context: Context) -> object:
        command = self._command(context.lease.action.shell)
        async with contextlib.AsyncExitStack() as stack:
            output, error_words = await _pipe(stack), await _pipe(stack)
            process = await self._start(context, command, output, error_words)
            self._groups.add(process.pid)
            try:
                return await self._attend(context, process, output, error_words)
            finally:
                self._groups.discard(process.pid)

    async def _start(
        self, context: Context, command: list[str], output: _Pipe, error_words: _Pipe
    ) -> Process:
        try:
            with tempfile.TemporaryFile() as given:
                given.write(context.lease.payload.data)
                given.seek(0)
                # With pipes of its own asyncio would wait for all who hold them, not for the
                # command alone.
                return await asyncio.create_subprocess_exec(
                    *command,
                    stdin=given,
                    stdout=output.writing,
                    stderr=error_words.writing,
                    env=_environment(context),
                    cwd=self._directory,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise AttemptFailed(f"{command[0]}: {error}", kind="shell.start") from None
        finally:
            output.close_writing()
            error_words.close_writing()

    def _command(self, action: ShellAction) -> list[str]:
        argv = list(action.argv)
        if not argv:
            raise PermanentError("argv is empty; write the program to run", kind="shell.start")
        if action.use_shell:
            if len(argv) != 1:
                raise PermanentError(
                    f"argv has {len(argv)} elements; with use_shell it is one", kind="shell.start"
                )
            argv = ["/bin/sh", "-c", argv[0]]
        if self._memory is None:
            return argv
        keep = "1" if "LC_CTYPE" in action.environment else "0"
        return [sys.executable, "-I", "-S", "-c", LAUNCHER, str(self._memory), keep, *argv]

    async def _attend(
        self, context: Context, process: Process, output: _Pipe, error_words: _Pipe
    ) -> object:
        reading = asyncio.gather(
            output.read(context, PAYLOAD_BYTES_MAX + 1),
            # Of a secret that was cut in two nobody would know the second half.
            error_words.read(context, WORDS_MAX + context.redaction.longest, last=True),
        )
        limit = self.timeout_s(context)
        try:
            async with asyncio.timeout(limit):
                code = await process.wait()
        except TimeoutError:
            await self._end(process, self._grace)
            raise AttemptFailed(f"not done within {limit:g} s", kind="shell.timeout") from None
        except asyncio.CancelledError:
            lost = context.stop_kind == Stop.KIND_LOST
            await self._end(process, 0.0 if lost else self._grace)
            raise
        finally:
            _kill(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, LEFTOVERS_S)
        if code in context.lease.action.shell.warning_exit_codes:
            context.warn(_message(code, _end_of(context, error_words)))
        elif code != 0:
            raise _failed(code, _end_of(context, error_words))
        return result_of(context, bytes(output.kept), _kind(output.kept), len(output.kept))

    async def _end(self, process: Process, grace: float) -> None:
        if grace:
            _kill(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace)
        if process.returncode is None:
            _kill(process.pid, signal.SIGKILL)
            await process.wait()

    async def close(self) -> None:
        """The worker's process is about to end; nothing it started may stay."""
        for group in self._groups:
            _kill(group, signal.SIGKILL)


def _environment(context: Context) -> dict[str, str]:
    # Not RAFTSCHED_TOKEN and the like: by these the command line has its settings.
    ours = {
        f"RAFTSCHED_RUN_{name.upper().replace('-', '_')}": text
        for name, text in facts(context).items()
    }
    trace = {name.upper(): text for name, text in context.trace_context.items()}
    given = with_secrets(
        context, context.lease.action.shell.environment, lambda text: "\0" not in text,
        "a variable has no zero character",
    )  # fmt: skip
    return {**given, **trace, **ours, "RAFTSCHED_RUN": context.run}


def _kill(group: int, number: signal.Signals) -> None:
    # A group lives as long as any of its processes, and its number is not given out again before.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Pipe:
    """What a command writes, and what is kept of it."""

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

    async def read(self, context: Context, maximum: int, *, last: bool = False) -> None:
        """Read all, as a command stands still at a full pipe; keep the first or the last of it."""
        kept = self.kept
        while chunk := await self._reader.read(CHUNK):
            context.log.write(chunk)
            kept += chunk if last else chunk[: maximum - len(kept)]
            if last and len(kept) > maximum:
                self.was_cut = True
                del kept[:-maximum]


async def _pipe(stack: contextlib.AsyncExitStack) -> _Pipe:
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    pipe = _Pipe(reader, writing)
    stack.callback(pipe.close_writing)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    stack.callback(transport.close)
    return pipe


def _kind(output: bytearray) -> str:
    try:
        output.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain; charset=utf-8"


def _end_of(context: Context, pipe: _Pipe) -> bytes:
    """What a command wrote last, without secrets."""
    words = context.redaction.data(bytes(pipe.kept), front=pipe.was_cut, end=True)
    return words[-WORDS_MAX:]


def _message(code: int, words: bytes) -> str:
    text = words.decode("utf-8", "replace").strip()
    return f"exit code {code}: {text}".rstrip(": ")


def _failed(code: int, words: bytes) -> AttemptFailed:
    if code < 0:
        text = words.decode("utf-8", "replace").strip()
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return AttemptFailed(f"ended by {name}: {text}".rstrip(": "), kind=f"signal.{name}")
    return AttemptFailed(_message(code, words), kind=f"exit.{code}")
