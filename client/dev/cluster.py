"""The processes of `raftsched dev`, from start to stop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.process import PROGRAM_OF_CLIENT, Process
from .. import AsyncClient, RaftschedError
from .child import Child
from .ports import Ports
from .screen import Screen, keys_of, opened, status_line, welcome

START_S = 30.0
CALL_S = 5.0
LOOK_S = 0.05
STATUS_S = 1.0
KEY_FILE = "secret-keys"
# The journal in small pieces: a fresh node allocates four, and nobody keeps millions of runs here.
# A worker that was killed is noticed while somebody watches.
SETTINGS = (
    "--cluster", "dev", "--log-format", "json",
    "--segment-mb", "8", "--cache-mb", "32", "--heartbeat-ms", "2000",
)  # fmt: skip


class CannotStart(Exception):
    """A process ended at once, or nothing came of all of them; what they said was shown."""


class DevCluster:
    """Nodes and a worker as processes, and a client to all of them."""

    def __init__(self, folder: Path, ports: Ports, where: str) -> None:
        self.ports, self.where = ports, where
        self.screen = Screen(ports.names)
        keys = ("--secrets-key-file", str(key_file(folder)))
        nodes = NodeProcesses(folder, ports.addresses, settings=(*SETTINGS, *keys))
        self.nodes = {node.name: Child(node, self.screen.of) for node in nodes}
        example = Process(
            "worker", ["raftsched.client.dev.example", ports.endpoints], folder / "worker.log"
        )
        self.worker = Child(example, self._of_worker)
        self.gateway = Child(gateway(ports, folder), self.screen.of)
        self.worker_ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Live until a signal or `q`. Raises CannotStart."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stopping.set)
        try:
            async with AsyncClient(self.ports.endpoints, timeout=CALL_S) as self.client:
                leader = await self._start()
                if not self.stopping.is_set():
                    with _keys(self._key) as keys:
                        took = time.monotonic() - began
                        self.screen.speak()
                        for line in welcome(self.ports, self.where, took, leader, keys):
                            self.screen.line(line)
                        await self._watch()
        except CannotStart:
            self.screen.confess()
            raise
        finally:
            await self._stop()

    async def _start(self) -> str:
        """Start all at once; return the leader's name when everything answers."""
        for child in (*self.nodes.values(), self.worker, self.gateway):
            child.start()
        give_up = time.monotonic() + START_S
        while not self.stopping.is_set():
            for child in (*self.nodes.values(), self.worker, self.gateway):
                if not child.alive:
                    raise CannotStart(f"{child.name} did not start; see its lines above")
            if self.worker_ready.is_set():
                # Its jobs are there, so somebody leads.
                return await self._leader()
            if time.monotonic() > give_up:
                raise CannotStart(f"it was not ready within {START_S:.0f} s; see the lines above")
            await asyncio.sleep(LOOK_S)
        return ""

    async def _leader(self) -> str:
        with contextlib.suppress(RaftschedError):
            status = await self.client.cluster.status(timeout=CALL_S)
            return status.leader if status.quorum else ""
        return ""

    async def _watch(self) -> None:
        """Print events until it is time to stop."""
        stopping = asyncio.create_task(self.stopping.wait())
        events = asyncio.create_task(self._print_events())
        status = asyncio.create_task(self._show_status())
        await asyncio.wait([stopping, events, status], return_when=asyncio.FIRST_COMPLETED)
        # Nobody wants to read how nodes that end elect each other.
        self.screen.is_quiet = True
        for task in (stopping, events, status, *self._busy):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await events

    async def _print_events(self) -> None:
        while True:
            try:
                async for event in self.client.events.watch():
                    self.screen.event(event)
            except RaftschedError as error:
                self.screen.line(f"no node says what happens: {error}")
                await asyncio.sleep(1)

    async def _show_status(self) -> None:
        """Keep the line that stays true, where there is one."""
        if not self.screen.is_terminal:
            await self.stopping.wait()
        while not self.stopping.is_set():
            alive = {name: node.alive for name, node in self.nodes.items()}
            self.screen.status(status_line(alive, await self._leader()))
            await asyncio.sleep(STATUS_S)

    def _of_worker(self, name: str, text: str) -> None:
        if text == "ready":
            self.worker_ready.set()
        else:
            self.screen.of(name, text)

    def _key(self, key: str) -> None:
        """What a key does takes a while, so it is done beside."""
        names = {str(number): name for number, name in enumerate(self.nodes, 1)}
        if key in ("q", "\x03", "\x04"):
            self.stopping.set()
        elif key in names:
            self._do(self._kill_or_revive(self.nodes[names[key]]))
        elif key == "k":
            self._do(self._kill_leader())
        elif key == "l":
            self._do(self._move_leader())
        elif key == "o":
            self._do(self._open_page())
        elif key == "?":
            self.screen.line(keys_of(self.ports))

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._did)

    def _did(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.screen.line(f"that did not work: {error}")

    async def _kill_or_revive(self, node: Child) -> None:
        if node.alive:
            self.screen.of(node.name, "kill -9")
            await node.kill()
        else:
            self.screen.of(node.name, "starts again")
            node.start()

    async def _kill_leader(self) -> None:
        if (leader := await self._leader()) and self.nodes[leader].alive:
            await self._kill_or_revive(self.nodes[leader])
        else:
            self.screen.line("nobody leads; revive a node by its number")

    async def _move_leader(self) -> None:
        self.screen.line("moving the leadership")
        await self.client.cluster.transfer()

    async def _open_page(self) -> None:
        url = f"http://{self.ports.gateway}/"
        if await asyncio.to_thread(opened, url):
            self.screen.line(f"opened {url}")
        else:
            self.screen.line(f"no browser could be started here; open {url}")

    async def _stop(self) -> None:
        """The worker first, so that it can give its runs back; leave no process behind."""
        self.screen.status("")
        self.screen.line("stopping")
        await asyncio.gather(self.worker.stop(), self.gateway.stop())
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))


def key_file(folder: Path) -> Path:
    """The key under which the nodes encrypt secrets, for the eyes of their owner alone; made at the
    first start."""
    folder.mkdir(parents=True, exist_ok=True)
    file, new = folder / KEY_FILE, folder / f"{KEY_FILE}.new"
    if not file.exists():
        new.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "w") as opened:
            opened.write(base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
        new.replace(file)
    return file


def gateway(ports: Ports, folder: Path) -> Process:
    """One for all nodes, so that it outlives whichever is killed."""
    words = ["gateway", "--quiet", "--listen", ports.gateway, "--server", ports.endpoints]
    return Process(
        "gateway", words, folder / "gateway.log", {"RAFTSCHED_CONFIG": os.devnull},
        PROGRAM_OF_CLIENT,
    )  # fmt: skip


@contextlib.contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[bool]:
    """Call `press` with each key, where there is a terminal to press them at."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield False
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, lambda: press(sys.stdin.read(1)))
    try:
        yield True
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
