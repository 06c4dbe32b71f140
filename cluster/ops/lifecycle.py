"""The life of a node's process: what starts when, what ends when, and with which exit code.

Start: folder, log, addresses, node, gRPC, HTTP, word that it serves. Stop, within three seconds:
no new calls and a word to the streams, leadership to another, gRPC, HTTP, node, folder.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from ...proto import tracing
from ...statemachine.tenants import access
from ..api.server import Server
from ..local import systemd
from ..node.memory import MemoryReturn, limit_heaps
from ..node.peer_info import ZONE_EDITION
from ..node.virtual_clock import MARK, VirtualClock
from ..raft import faults
from . import descriptors, listen, log, slices, tls
from .config import Config, ConfigWrong
from .config_checks import doubts, is_loopback, webhook_settings
from .data_dir import Folder, explained, removal
from .exits import NodeCannotStart, NodeExit
from .figures import NodeFigures, RefusedFigures, SpanFigures
from .gateway import GatewayBeside
from .make_node import NEWER, VERSION, make_node, virtual_clock
from .metrics import Metrics
from .node_watch import Watch
from .probes import HttpPort
from .process_end import Ending, listen_to_signals
from .run_log import log_dead_letters, log_steps
from .webhook_call import Sender
from .webhooks import Webhooks

# What a stop leaves to the next leader to take over, and to calls that are under way.
HAND_OVER_SECONDS = 1.0
GRACE_SECONDS = 0.5
EXPIRY_SECONDS = 60.0  # How often it is looked when the certificates end.
# A node behind by more has not caught up yet.
BEHIND_ENTRIES = 1_000
BEHIND_SECONDS = 5.0
# When Python looks for cycles of garbage. A call leaves five objects, in gRPC, so it looks at 2,000
# young ones at a time, 0.4 ms, where 20,000 took 6 to 9. 2,000 streams are 160,000 objects; to look
# through all of them stops a node for 50 ms and more.
COLLECT = 2_000, 100, 50
# How long a thread may keep the interpreter while another waits for it. Reads compute on threads,
# and each time the loop comes back from a system call it waits so long for them; 5 ms by default.
SWITCH_SECONDS = 0.0005
# What a fresh node takes of the disk at once.
FRESH_SEGMENTS = 4
FRESH_STATE_MB = 16

logs = structlog.get_logger("raftsched.cluster.ops.lifecycle")


async def live(config: Config, clock_file: Path | None = None) -> NodeExit:
    """Be a node until a signal comes or the node dies. Raises CannotStart and ConfigWrong."""
    virtual = None
    if clock_file is not None:
        virtual = virtual_clock(config, clock_file)
        config = msgspec.structs.replace(config, cluster=config.cluster + MARK)
    files = descriptors.raise_limit()
    # Before there are other threads.
    slices.ask_for_short()
    limit_heaps()
    ending = Ending()
    asked = listen_to_signals(ending)
    locks = tls.peer_contexts(config), tls.server(config), tls.onward(config)
    room = FRESH_SEGMENTS * config.segment_mb + FRESH_STATE_MB << 20
    folder = Folder(Path(config.folder), config.cluster, config.name, room)
    writer = None
    try:
        folder.check_not_removed()
        listen.check(config)
        writer, context = log.start(config.log, config.name)
        if files < descriptors.FEW:
            logs.warning(
                "may open few files, so it turns many connections away; raise the hard limit "
                "(ulimit -Hn, LimitNOFILE)", open_files_max=files,
            )  # fmt: skip
        # Before there is anything that would make spans.
        tracing.start_if_wanted("raftsched-node", config.name)
        life = Life(config, writer, context, *locks, virtual)
        await life.start()
        code = await life.until(asked)
        await life.stop(ending, code)
        if life.why:
            # The last line is the one that people read.
            logs.critical("stopped", code=int(code), why=life.why)
        else:
            logs.info("stopped", code=int(code))
        ending.done(code)
        return code
    except (NodeCannotStart, ConfigWrong):
        raise
    except Exception:
        logs.exception("did not start or stop as it should; this is a bug")
        ending.soon(NodeExit.DIED)
        return NodeExit.DIED
    finally:
        if writer is not None:
            writer.stop()
        folder.close()


class Life:
    """A node with its doors."""

    def __init__(
        self, config: Config, writer: log.Writer, context: log.LogContext,
        contexts: tls.Contexts, credentials: tls.Server, onward: tls.Onward,
        virtual: VirtualClock | None,
    ) -> None:  # fmt: skip
        self.config = config
        self.renewals = [tls.Renewal("tls.peer", config.tls.peer, contexts or ())]
        self._expiries_at = 0.0
        # Why it ended by itself; empty if it did not.
        self.why = ""
        self.memory = MemoryReturn()
        self.node = node = make_node(config, contexts, virtual)
        context.follow(lambda: node.term)
        self.metrics = metrics = Metrics(
            lambda: node.clock.now_ms() / 1000, partial(log_dead_letters, node)
        )
        metrics.follow(node.replica, node.leader)
        node.figures.count_by(metrics.totals)
        node.driver.on_sync(metrics.sync.add)
        metrics.registry.register(NodeFigures(node, lambda: writer.lost))
        if config.log.level == "debug":
            log_steps(node)
        self.server = Server(
            node, listen.client(config), credentials, onward, metrics, config.limits,
            reflects=reflects(config),
        )  # fmt: skip
        self.gateway = GatewayBeside(config)
        metrics.registry.register(RefusedFigures(self.server.refused.count))
        if (spans := tracing.active()) is not None and spans.queue is not None:
            metrics.registry.register(SpanFigures(spans.queue))
        self.http = HttpPort(
            metrics.registry, self.checks, about(config), config.tls.server, node.steps
        )
        if self.http.context is not None:
            files = config.tls.server
            self.renewals.append(tls.Renewal("tls.server of HTTP", files, (self.http.context,)))

    async def start(self) -> None:
        """Node, gRPC, HTTP, word: so that whoever gets an answer gets a right one."""
        with explained(self.node.spec.folder):
            self.node.watch_bootstrap()
        try:
            await self.node.start()
            await self.server.start(self.gateway.socket)
            if self.config.http:
                await self.http.start(self.config.http)
            self.gateway.start()
        except (OSError, faults.CallRefused) as error:
            # Somebody took a port between the look at it and now.
            raise NodeCannotStart(NodeExit.ADDRESS_TAKEN, str(error)) from error
        self.watch = Watch(self.node, self.metrics, self._renew, self._say_who_may_call)
        self.webhooks = Webhooks(self.node, Sender(*webhook_settings(self.config.webhooks)))
        self.memory.start()
        # What is here now stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        gc.callbacks.append(self.node.steps.collected)
        sys.setswitchinterval(SWITCH_SECONDS)
        logs.info(
            "serves", clients=listen.client(self.config), http=self.config.http,
            gateway=self.gateway.url, folder=self.config.folder, version=VERSION,
            members=sorted(self.config.members),
        )  # fmt: skip
        if self.node.spec.virtual is not None:
            logs.critical(
                "goes by a virtual clock, which stands still until a test moves it: nothing fires "
                "by itself here, and this is no node for real work"
            )
        for doubt in (*doubts(self.config), *tls.faults(self.config)):
            logs.warning(doubt)
        systemd.notify("READY=1")

    def _say_who_may_call(self) -> None:
        """Warn where there is no access token; to be asked when the state is known."""
        if access.any_token(self.node.replica.store):
            return
        file = self.node.bootstrap.file
        if self.node.bootstrap.digest:
            story = (
                "no access token was made yet, so every call is refused; on this machine: "
                f"raftsched token bootstrap --secret-file {file}"
            )
            logs.warning(story, file=str(file))
        elif open_to_all(self.config):
            logs.warning("no access token was made yet: whoever reaches this node may do all")

    def _renew(self) -> None:
        """Take certificates that have changed, and see how long they are valid."""
        for renewal in self.renewals:
            renewal.look()
        self.node.secret_keys.look()
        now = self.node.spec.seconds()
        if now >= self._expiries_at:
            # A handshake with a long key takes some milliseconds of the loop.
            self._expiries_at = now + EXPIRY_SECONDS
            self.node.condition.expiries = tls.expiries(self.config)

    async def until(self, asked: asyncio.Event) -> NodeExit:
        """Return when it is time to stop, with the code to end with."""
        signal_came = asyncio.ensure_future(asked.wait())
        background = [self.watch.task, self.webhooks.task]
        background += [task for task in (self.http.task, self.gateway.task) if task is not None]
        waits: list[asyncio.Future[Any]] = [signal_came, self.node.ended, *background]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        signal_came.cancel()
        for task in background:
            if task.done():
                self.node.fail(
                    task.exception() or RuntimeError(f"the task {task.get_name()} ended")
                )
        if not self.node.ended.done():
            logs.info("stopping")
            return NodeExit.CLEAN
        error = self.node.ended.exception()
        if error is None:
            config = self.config
            logs.warning(removal(config.cluster, config.name, "found out just now"))
            return NodeExit.CLEAN
        logs.critical("ends, since going on could break a promise", why=str(error),
                      kind=type(error).__name__)  # fmt: skip
        self.why = str(error)
        return exit_for(error)

    async def stop(self, ending: Ending, code: NodeExit) -> None:
        """Each step has its own bound; a thread ends the process if they do not hold."""
        ending.soon(NodeExit.CUT_SHORT if code is NodeExit.CLEAN else code)
        systemd.notify("STOPPING=1")
        node, dead = self.node, self.node.ended.done()
        node.drain()
        ending.step = "asking streams and the gateway to go"
        await asyncio.gather(self.server.drain(f"{node.name} is stopping"), self.gateway.stop())
        if not dead:
            ending.step = "handing the leadership over"
            await node.hand_over(HAND_OVER_SECONDS)
        ending.step = "calls that were under way"
        await self.server.stop(0 if dead else GRACE_SECONDS)
        ending.step = "webhooks, watch and HTTP"
        await self.webhooks.stop()
        await self.watch.stop()
        await self.http.stop()
        ending.step = "the journal and the store"
        await node.stop()
        self.memory.stop()
        ending.step = "the last spans"
        await asyncio.to_thread(tracing.stop)
        ending.step = "the folder and the log"

    def checks(self) -> Mapping[str, str]:
        """What must hold before somebody sends calls here, and why it does not."""
        node, status = self.node, self.node.status()
        behind, age = status.commit - status.applied, node.driver.silence_s()
        alone = node.driver.bootstrap_waits() or "no leader is known; is a majority reachable?"
        no_leader = "" if node.leader_name else alone
        late = behind > BEHIND_ENTRIES or age > BEHIND_SECONDS
        return {
            "leader": no_leader,
            "caught up": f"{behind} entries and {age:.1f} s behind" if late else "",
            "disk": "it is full; free space on it" if status.full else "",
            "draining": "it is stopping, or was asked to drain" if node.draining else "",
            "state": "it differs from the others'; see the log" if node.directory.diverged else "",
            "state lost": "it was damaged; another is on its way" if status.bereft else "",
        }


def reflects(config: Config) -> bool:
    """Whether strangers may ask for the contracts: by itself where they may call as well."""
    return not config.tokens if config.reflection == "auto" else config.reflection == "on"


def open_to_all(config: Config) -> bool:
    """Whether strangers can come in as long as there is no access token."""
    return not (is_loopback(listen.client(config)) or config.tls.server.ca_file)


def about(config: Config) -> dict[str, str]:
    return {
        "version": VERSION, "node": config.name, "cluster": config.cluster,
        "zone_edition": ZONE_EDITION, "python": sys.version.split()[0],
    }  # fmt: skip


def exit_for(error: BaseException) -> NodeExit:
    """The code of a node that ended by itself."""
    codes: dict[tuple[type[BaseException], ...], NodeExit] = {
        (faults.FileLimit,): NodeExit.FILE_LIMIT,
        (faults.Replaced,): NodeExit.REPLACED,
        (faults.Damaged,): NodeExit.DAMAGED,
        NEWER: NodeExit.NEWER_FORMAT,
    }
    found = (code for kinds, code in codes.items() if isinstance(error, kinds))
    return next(found, NodeExit.DIED)
