"""A real cluster on this machine, for as long as a test needs it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from ...cluster.local.nodes import NodeProcess, NodeProcesses, free_addresses, names_of
from ...cluster.local.virtual_clock import Clock
from ...proto.v1 import job_pb2
from ..app.app import App
from ..app.clients import AppClients
from ..calls.blocking.client import Client
from ..sdk.errors import RaftschedError
from ..worker.worker import Worker
from .attempt import NOW
from .serving import serving

START_S = 60.0
LOOK_S = 0.02
NODES = (1, 3, 5)
ADDRESS_TAKEN = 17
TRIES = 3
# Small, as a machine that tests has other things to do; and nobody waits half a minute for a lapse.
SETTINGS = {"cache-mb": "16", "segment-mb": "8", "heartbeat-ms": "2000"}
LOG_SHOWN = 4_000
# How an app reaches a cluster of a test.
OURS: dict[str, Any] = {"token": None, "tls": None, "insecure": False}
CLOCK = "clock"


class LocalCluster:
    """One or three processes on free ports of 127.0.0.1, with their data in a temporary folder.

    with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        client.jobs.create("report", handler="build")
        cluster.kill_leader()
        client.jobs.trigger("report")

    `settings` are flags of `raftsched node` without their dashes: {"heartbeat-ms": "500"}. With a
    `folder` of yours the data stay there, and a later cluster in it goes on with them.

    With `virtual_clock=True` time stands still at the first instant of 2026, UTC, or where you say
    (`virtual_clock=datetime(2026, 3, 28, tzinfo=UTC)`), until you move it. What falls due on the
    way happens at once, in order, each at its own time:

    with LocalCluster(virtual_clock=True) as cluster, cluster.client() as client:
        client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
        with cluster.work(worker):
            cluster.clock.advance(days=7)
        assert len(list(client.jobs.history("report"))) == 7
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        virtual_clock: bool | datetime = False,
        start_timeout: float = START_S,
    ) -> None:
        if nodes not in NODES:
            raise ValueError(f"nodes is {nodes}; a cluster for tests has 1, 3 or 5")
        self._names = names_of(nodes)
        self._keep = folder is not None
        self._folder = folder
        self._settings = {**SETTINGS, **(settings or {})}
        begin = virtual_clock if isinstance(virtual_clock, datetime) else NOW
        if begin.tzinfo is None:
            raise ValueError(f"virtual_clock is {begin}, without a zone; give it one: tzinfo=UTC")
        self._begin = begin if virtual_clock else None
        self._clock: Clock | None = None
        self._start_timeout = start_timeout
        self._nodes: NodeProcesses | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, dead ones included."""
        return tuple(self._names)

    @property
    def alive(self) -> tuple[str, ...]:
        return tuple(node.name for node in self._nodes or () if node.alive)

    @property
    def endpoints(self) -> list[str]:
        """What a Client or a Worker takes, dead nodes included."""
        return [node.client for node in self._nodes or ()]

    def address(self, name: str) -> str:
        """Where clients reach this node."""
        return self._node(name).client

    @property
    def folder(self) -> Path:
        """Where data and logs are."""
        if self._folder is None:
            raise RuntimeError("the cluster is not started; use it in a `with` statement")
        return self._folder

    @property
    def clock(self) -> Clock:
        """What moves the time of this cluster."""
        if self._begin is None:
            raise RuntimeError(
                "this cluster goes by the clock of this machine; to move its time yourself, start "
                "it as LocalCluster(virtual_clock=True)"
            )
        if self._clock is None:
            raise RuntimeError("the cluster is not started; use it in a `with` statement")
        return self._clock

    def client(self, **settings: Any) -> Client:  # noqa: ANN401  # Whatever Client takes.
        """A client for the whole cluster; close it, or use it in a `with` statement."""
        return Client(self.endpoints, **settings)

    def work(self, worker: Worker | App) -> AbstractContextManager[Worker]:
        """Let a worker serve this cluster while a `with` statement lasts, on a thread.

        An app is connected to the cluster meanwhile, and its jobs are declared.
        """
        return self._work(worker) if isinstance(worker, App) else serving(worker, self.endpoints)

    @contextmanager
    def _work(self, app: App) -> Iterator[Worker]:
        before = app.connections, app.now
        app.connections = AppClients({**app.settings, **OURS, "endpoints": self.endpoints})
        if self._clock is not None:
            app.now = lambda: self.clock.now
        try:
            app.sync(yes=True, say=lambda _: None)
            with serving(app.worker(), self.endpoints) as worker:
                yield worker
        finally:
            app.close()
            app.connections, app.now = before

    def start(self) -> None:
        """Start all nodes and wait until they have a leader."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="raftsched-"))
        if self._begin is not None:
            check = self._check_nobody_ended_by_itself
            self._clock = Clock(self.folder / CLOCK, self._begin, check)
        try:
            self._start_somewhere()
        except BaseException:
            self.stop()
            raise

    def _start_somewhere(self) -> None:
        for tries_left in reversed(range(TRIES)):
            addresses = free_addresses(len(self._names), http=False)
            self._nodes = NodeProcesses(self.folder, addresses, settings=self._flags())
            self._nodes.spawn()
            try:
                self.wait_for_leader(self._start_timeout)
                return
            except NodeEnded as error:
                # Somebody may take a free port between our look and the node's.
                if error.code != ADDRESS_TAKEN or not tries_left:
                    raise
                self._nodes.stop()

    def _flags(self) -> list[str]:
        flags = [word for key, text in self._settings.items() for word in (f"--{key}", text)]
        if self._clock is not None:
            flags += ["--virtual-clock", str(self.folder / CLOCK)]
        return flags

    def _node(self, name: str) -> NodeProcess:
        if self._nodes is None:
            raise RuntimeError("the cluster is not started; use it in a `with` statement")
        return self._nodes[name]

    def log(self, name: str) -> str:
        """What a node has written."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def leader(self, timeout: float = START_S) -> str:
        """Which node leads; waits until one does."""
        return self.wait_for_leader(timeout)

    def wait_for_leader(self, timeout: float = START_S) -> str:
        """Wait until a node answers as the leader of a majority, and name it."""
        by_address = {node.client: node.name for node in self._nodes or ()}
        address = self._wait_for_answer(
            self.endpoints, lambda leader: by_address.get(leader, "") in self.alive, timeout
        )
        return by_address[address]

    def _wait_for_answer(
        self, endpoints: list[str], fits: Callable[[str], bool], timeout: float
    ) -> str:
        """Wait until one of these nodes answers and names a leader that fits."""
        request = job_pb2.ListJobsRequest(page_size=1)
        end = monotonic() + timeout
        with Client(endpoints) as client:
            while True:
                self._check_nobody_ended_by_itself()
                if monotonic() >= end:
                    raise TimeoutError(f"no leader within {timeout:g} s; {self._logs()}")
                try:
                    leader = client.ask(request, timeout=1.0).leader
                except RaftschedError:
                    leader = ""
                if fits(leader):
                    return leader
                sleep(LOOK_S)

    def _check_nobody_ended_by_itself(self) -> None:
        for node in self._nodes or ():
            if node.ended_by_itself:
                words = self.log(node.name)[-LOG_SHOWN:]
                raise NodeEnded(f"node {node.name} ended with {node.code}: {words}", node.code or 0)

    def _logs(self) -> str:
        return "; ".join(f"{name} printed: {self.log(name)[-LOG_SHOWN:]}" for name in self._names)

    def kill(self, name: str) -> None:
        """End a node as a power failure would."""
        self._node(name).kill()

    def kill_leader(self) -> str:
        """Kill the node that leads, and name it."""
        leader = self.leader()
        self.kill(leader)
        return leader

    def freeze(self, name: str) -> None:
        """Let a node stand still, as a machine that swaps; `thaw` lets it go on."""
        self._node(name).pause()

    def thaw(self, name: str) -> None:
        self._node(name).resume()

    def revive(self, name: str, timeout: float = START_S) -> None:
        """Start a killed node again with the data it had; wait until it has found the others."""
        if self._node(name).alive:
            raise RuntimeError(f"node {name} is alive")
        self._node(name).start()
        self._wait_for_answer([self.address(name)], lambda leader: leader != "", timeout)

    def stop(self) -> None:
        """End all nodes; throw the data away, unless the folder is yours."""
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes = None
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        if self._folder is not None and not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class NodeEnded(RuntimeError):
    """A node ended that nobody had killed."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def wait_until(reached: Callable[[], object], timeout: float = START_S, what: str = "") -> None:
    """Wait for a condition in a test, looking now and then."""
    end = monotonic() + timeout
    while not reached():
        if monotonic() >= end:
            raise TimeoutError(f"{what or 'the condition'} did not come within {timeout:g} s")
        sleep(LOOK_S)
