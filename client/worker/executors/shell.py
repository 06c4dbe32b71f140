"""Carries out a job by a command of the operating system."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

from ....proto.v1.job_pb2 import ShellAction
from ....proto.v1.worker_pb2 import Stop
from ..context import Context
from ..outcomes import PAYLOAD_BYTES_MAX, AttemptFailed, PermanentError
from . import isolation
from .executor import Executor, facts, result_of, with_secrets
from .isolation import Isolation
from .launch import Ended, Launched, Lost, NotStarted, launch
from .output import CommandOutput, Pipe, pipe, sealed
from .shell_limits import OUTPUT_BYTES_MAX, ShellLimits, size

LOG = logging.getLogger("raftsched.worker")

TIMEOUT_S = 3_600.0
GRACE_S = 5.0
WORDS_MAX = 1_024
# Who has left all that can be found may still hold the pipes; its words are waited for this long.
LEFTOVERS_S = 1.0
# How long a worker that stops waits for the ends of what it has killed.
CLOSE_S = 6.0


class ShellExecutor(Executor):
    """Runs the action's argv as it is, or through /bin/sh where the action asks for it.

    The command gets the payload on standard input and the action's environment with what names the
    run (RAFTSCHED_RUN and so on), nothing of the worker's. What it writes to standard output is the
    result; both outputs are in the log. It runs below a launcher that ends with it or with the
    worker, and kills whoever is left below it then. Stopping is SIGTERM, then SIGKILL after
    `grace`.

    `isolation` is "bubblewrap" (it sees no other process, and with `writable` can change these
    folders alone), "systemd" (a scope of its own), "none", or "auto": the first of these that works
    here, which the log of the worker names. `user`: whom a worker that runs as root lets commands
    run as. `memory`, `cpu`, `processes`, `file_size`, `output` and `niceness`: see ShellLimits.

    The kind of a failure is "exit.3", "signal.SIGSEGV", "shell.timeout", "shell.start",
    "shell.launcher", or the limit that it met, such as "shell.memory"; an exit code that the action
    calls a warning is a success with one.
    """

    name = "shell"

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        memory: int | None = None,
        cpu: int | None = None,
        processes: int | None = None,
        file_size: int | None = None,
        output: int = OUTPUT_BYTES_MAX,
        niceness: int = 0,
        grace: float = GRACE_S,
        directory: str | None = None,
        isolation: str = isolation.AUTO,
        user: str = "",
        writable: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(timeout)
        _check_kind(isolation)
        self._limits = ShellLimits(memory, cpu, processes, file_size, output, niceness)
        self._grace = grace
        self._directory = directory or ""
        self._asked, self._user, self._writable = isolation, user, writable
        self._isolation: Isolation | None = None
        self._is_hidden = False
        self._endings: dict[asyncio.Task[Ended], Launched] = {}

    async def open(self) -> None:
        """Find what keeps commands apart here; CannotIsolate if that is not what was asked for."""
        found, left_out = await isolation.find(
            self._asked, self._limits, self._directory, self._user, self._writable
        )
        self._isolation = found
        if not self._is_hidden:
            isolation.HIDDEN.hide()
            self._is_hidden = True
        LOG.info("shell: %s", found.words(left_out))
        if found.warning():
            LOG.warning("%s", found.warning())

    async def execute(self, context: Context) -> object:
        if self._isolation is None:
            await self.open()
        assert self._isolation is not None
        argv = _command(context.lease.action.shell)
        async with contextlib.AsyncExitStack() as stack:
            out, words = await pipe(stack), await pipe(stack)
            launched = await self._start(context, argv, out, words)
            ending = asyncio.create_task(launched.ended())
            self._endings[ending] = launched
            ending.add_done_callback(self._over)
            try:
                return await self._attend(context, launched, ending, out, words)
            finally:
                launched.kill()

    def _over(self, ending: asyncio.Task[Ended]) -> None:
        self._endings.pop(ending, None)
        if not ending.cancelled():
            ending.exception()  # Whoever was cancelled does not look at it.

    async def _start(self, context: Context, argv: list[str], out: Pipe, words: Pipe) -> Launched:
        assert self._isolation is not None
        try:
            with sealed(context.lease.payload.data) as given:
                # With pipes of its own asyncio would wait for all who hold them, not for the
                # command alone.
                order = self._isolation.order(argv, _environment(context))
                return await launch(order, given, out.writing, words.writing)
        except (OSError, ValueError) as error:
            raise AttemptFailed(f"{argv[0]}: {error}", kind="shell.start") from None
        finally:
            out.close_writing()
            words.close_writing()

    async def _attend(
        self, context: Context, launched: Launched, ending: asyncio.Task[Ended], out: Pipe,
        words: Pipe,
    ) -> object:  # fmt: skip
        output = CommandOutput(context, self._limits.output)
        reading = asyncio.gather(
            out.read(output, PAYLOAD_BYTES_MAX + 1),
            # Of a secret that was cut in two nobody would know the second half.
            words.read(output, WORDS_MAX + context.redaction.longest, last=True),
        )
        too_much = asyncio.create_task(output.too_much.wait())
        try:
            await self._wait(context, launched, ending, too_much)
        finally:
            too_much.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, LEFTOVERS_S)
            output.close()
        return self._judge(context, ending, out, words)

    async def _wait(
        self, context: Context, launched: Launched, ending: asyncio.Task[Ended],
        too_much: asyncio.Task[bool],
    ) -> None:  # fmt: skip
        limit = self.timeout_s(context)
        try:
            done, _ = await asyncio.wait(
                {ending, too_much}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            lost = context.stop_kind == Stop.KIND_LOST
            await _end(launched, ending, 0.0 if lost else self._grace)
            raise
        if ending in done:
            return
        if done:
            await _end(launched, ending, 0.0)
            most = size(self._limits.output)
            raise AttemptFailed(f"it wrote more than the {most} it may write", kind="shell.output")
        await _end(launched, ending, self._grace)
        raise AttemptFailed(f"not done within {limit:g} s", kind="shell.timeout")

    def _judge(
        self, context: Context, ending: asyncio.Task[Ended], out: Pipe, words: Pipe
    ) -> object:
        said = _end_of(context, words)
        try:
            ended = ending.result()
        except NotStarted as error:
            raise AttemptFailed(str(error), kind="shell.start") from None
        except Lost as error:
            text = f"{error}: {_text(said)}".rstrip(": ")
            raise AttemptFailed(text, kind="shell.launcher") from None
        if ended.left:
            context.log.info("%d processes that it left behind were ended", ended.left)
        if ended.code in context.lease.action.shell.warning_exit_codes:
            context.warn(_message(ended.code, said))
        elif ended.code != 0:
            raise self._failed(ended, said)
        return result_of(context, bytes(out.kept), _kind(out.kept), len(out.kept))

    def _failed(self, ended: Ended, said: bytes) -> AttemptFailed:
        kind, why = self._limits.met(ended, said)
        if kind:
            return AttemptFailed(f"{why}: {_text(said)}".rstrip(": "), kind=kind)
        kind, message = f"exit.{ended.code}", _message(ended.code, said)
        if ended.code < 0:
            kind = f"signal.{_signal(-ended.code)}"
            message = f"ended by {_signal(-ended.code)}: {_text(said)}".rstrip(": ")
        if perhaps := self._limits.perhaps(ended, said):
            message = f"{message} ({perhaps})"
        return AttemptFailed(message, kind=kind)

    async def close(self) -> None:
        """The worker's process is about to end; nothing it started may stay."""
        for launched in self._endings.values():
            launched.kill()
        if self._endings:
            await asyncio.wait(list(self._endings), timeout=CLOSE_S)
        if self._is_hidden:
            isolation.HIDDEN.show()
            self._is_hidden = False
        self._isolation = None


def _check_kind(kind: str) -> None:
    if kind not in isolation.KINDS:
        known = ", ".join(isolation.KINDS)
        raise ValueError(f"isolation is {kind!r}; write one of {known}")


async def _end(launched: Launched, ending: asyncio.Task[Ended], grace: float) -> None:
    if grace:
        launched.ask_to_stop()
        await asyncio.wait({ending}, timeout=grace)
    if not ending.done():
        await launched.killed()
        await asyncio.wait({ending})


def _command(action: ShellAction) -> list[str]:
    argv = list(action.argv)
    if not argv:
        raise PermanentError("argv is empty; write the program to run", kind="shell.start")
    if action.use_shell:
        if len(argv) != 1:
            raise PermanentError(
                f"argv has {len(argv)} elements; with use_shell it is one", kind="shell.start"
            )
        argv = ["/bin/sh", "-c", argv[0]]
    return argv


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


def _kind(output: bytearray) -> str:
    try:
        output.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain; charset=utf-8"


def _end_of(context: Context, words: Pipe) -> bytes:
    """What a command wrote last, without secrets."""
    said = context.redaction.data(bytes(words.kept), front=words.was_cut, end=True)
    return said[-WORDS_MAX:]


def _text(words: bytes) -> str:
    return words.decode("utf-8", "replace").strip()


def _message(code: int, words: bytes) -> str:
    return f"exit code {code}: {_text(words)}".rstrip(": ")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
