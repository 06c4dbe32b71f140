"""Links of the kernel: each node in a network namespace of its own, with an interface at a bridge.

Where namespaces are to be had, this takes the place of the proxies. Nodes, workers and clients
then speak over real interfaces, and a link that is cut loses packets: TCP sends them again, as it
does behind a switch that died, and no process of ours stands between. The harness itself, with
its workers, lives in the namespace of the bridge (`enter`), so nothing of the machine's own network
is touched, and all of it is gone when the processes are.

A cut needs no firewall: who may not reach another gets a wrong hardware address for it. Frames
to that address end at a card that nobody reads, whose counter is the sign that the fault was one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from ...cluster.local.nodes import NodeProcesses, ProgramOf, free_addresses
from ...cluster.local.process import Process, ProcessFailed
from .links import CLIENTS, Pair

INSIDE: Final = "RAFTSCHED_CHAOS_INSIDE"  # Set in the environment of who lives there.
TOOLS: Final = ("ip", "tc", "unshare", "nsenter")
TOOL_S: Final = 10.0
BRIDGE, VOID, CARD = "hub", "void", "eth0"
HUB = 254  # Its place in the networks below; nodes have 1, 2, …
VOID_MAC: Final = "02:77:00:00:00:ff"
BURST: Final = 16_000  # Bytes that a slow interface takes at once.
QUEUE: Final = 400_000  # Bytes that wait before it; what is over is lost.


def missing() -> str:
    """Why there can be no namespaces here, or nothing."""
    without = [tool for tool in TOOLS if shutil.which(tool) is None]
    if without:
        return f"{', '.join(without)} is not there; on Debian: apt-get install iproute2 util-linux"
    tried = subprocess.run(
        [*_unshare(), "--", "ip", "link", "add", "name", "va", "type", "veth"],
        capture_output=True, text=True, check=False, timeout=TOOL_S,
    )  # fmt: skip
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


def enter() -> None:
    """Begin this very program again in a network namespace of its own, if it is in none yet."""
    if INSIDE not in os.environ:
        _begin_again()


def _begin_again() -> NoReturn:
    why = missing()
    if why:
        raise ProcessFailed(f"no network namespace can be made here: {why}. Leave --links out.")
    command = [*_unshare(), "--", sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


def _unshare() -> list[str]:
    """Who is not root is root in there, which is all that is needed."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]


class NetnsLinks:
    """See the head of this file. Only for who lives in a namespace of its own."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {CLIENTS: HUB}
        self.keepers: dict[str, Process] = {}
        self.pid = 0
        self._waited = 0
        self._lock = asyncio.Lock()

    def nodes(
        self, folder: Path, count: int, settings: Sequence[str], program: ProgramOf
    ) -> NodeProcesses:
        names = [f"n{number}" for number in range(1, count + 1)]
        self.places |= {name: number for number, name in enumerate(names, 1)}
        hosts = {name: (_address(at), _watch_address(at)) for name, at in self.places.items()}
        nodes = NodeProcesses(
            folder, free_addresses(count, hosts), settings=[*settings, "--insecure"],
            program=program,
        )  # fmt: skip
        for name in names:
            self.keepers[name] = self._keeper(folder, name)
        self._nodes = nodes
        return nodes

    def _keeper(self, folder: Path, name: str) -> Process:
        """A namespace is there as long as somebody is in it, and a node dies now and then."""
        program = [str(shutil.which("unshare")), "--net", "sleep"]
        return Process(f"{name}-net", ["infinity"], folder / f"{name}-net.log", program=program)

    async def start(self) -> None:
        others = _counters().keys() - {"lo"}
        if others:
            raise ProcessFailed(f"{', '.join(sorted(others))} belong to others; begin by `enter`")
        here = os.readlink("/proc/self/ns/net")
        for keeper in self.keepers.values():
            keeper.start()
        for keeper in self.keepers.values():
            await _until_apart(keeper, here)
        await _ip(
            "link set lo up",
            f"link add name {BRIDGE} address {_mac(HUB)} type bridge",
            f"address add {_address(HUB)}/24 dev {BRIDGE}",
            f"address add {_watch_address(HUB)}/24 dev {BRIDGE}",
            # It gets these frames since the bridge knows nobody of that address, and may not have
            # the address itself: what is meant for this side would be taken in by it.
            f"link add name {VOID} type veth peer name to-{VOID}",
            f"link set to-{VOID} master {BRIDGE}",
            *_up(BRIDGE),
            *_up(VOID),
            *_up(f"to-{VOID}"),
        )
        for name, keeper in self.keepers.items():
            await self._plug_in(name, keeper)
            self._nodes[name].wrap = _within(keeper.pid)
        await self._point(self._all(), lie=False)

    async def _plug_in(self, name: str, keeper: Process) -> None:
        at = self.places[name]
        await _ip(
            f"link add name to-{name} type veth peer name {CARD} netns {keeper.pid}",
            f"link set to-{name} master {BRIDGE}",
            *_up(f"to-{name}"),
        )
        await _ip(
            "link set lo up",
            f"link set {CARD} address {_mac(at)}",
            f"address add {_address(at)}/24 dev {CARD}",
            # Whether it is ready is asked over this one, which is never cut.
            f"address add {_watch_address(at)}/24 dev {CARD}",
            *_up(CARD),
            within=keeper.pid,
        )

    async def close(self) -> None:
        for keeper in self.keepers.values():
            keeper.kill()

    async def act(self, what: str, **how: Any) -> int:  # noqa: ANN401
        """See LinkBackend. What is held is cut here: TCP keeps the bytes, and sends them again."""
        pairs: list[Pair] | None = how.get("pairs")
        interfaces = self._interfaces(pairs)
        async with self._lock:
            if what in ("cut", "hold"):
                await self._point(pairs or self._all(), lie=True)
            elif what == "slow":
                await self._slow(interfaces, how["delay_s"], how.get("rate", 0.0))
            else:
                assert what == "heal", what
                await self._point(pairs or self._all(), lie=False)
                self._waited += await self._waiting(interfaces)
                await self._slow(interfaces, 0.0, 0.0)
            return self._waited + _swallowed()

    def _all(self) -> list[Pair]:
        return [(a, b) for a in self.places for b in self.places if a != b]

    async def _point(self, pairs: Sequence[Pair], *, lie: bool) -> None:
        """Show the first of each pair where the second is, or a lie."""
        commands: dict[str, list[str]] = {}
        for source, target in pairs:
            at = self.places[target]
            commands.setdefault(source, []).append(
                f"neighbour replace {_address(at)} nud permanent "
                f"lladdr {VOID_MAC if lie else _mac(at)} dev {_card(source)}"
            )
        for source, lines in commands.items():
            await _ip(*lines, within=self._home(source))

    def _home(self, name: str) -> int:
        return self.keepers[name].pid if name in self.keepers else 0

    async def _slow(self, interfaces: Iterable[str], delay_s: float, rate: float) -> None:
        """All that comes and goes over an interface is slow, clients' words too."""
        for name in interfaces:
            for card, home in ((CARD, self._home(name)), (f"to-{name}", 0)):
                await _tc(f"qdisc replace dev {card} root {_discipline(delay_s, rate)}", home)

    async def _waiting(self, interfaces: Iterable[str]) -> int:
        """Packets that had to wait on slow interfaces since these became slow."""
        total = 0
        for name in interfaces:
            words = (await _tc(f"-s qdisc show dev to-{name}", 0)).replace(",", " ").split()
            if "tbf" in words:
                total += int(words[words.index("overlimits") + 1])
        return total

    def _interfaces(self, pairs: Iterable[Pair] | None) -> set[str]:
        """Whose interfaces these are: of nodes that have a part in all pairs; None is everybody."""
        found = set(self.keepers)
        for pair in pairs or ():
            found &= set(pair)
        return found


def _discipline(delay_s: float, rate: float) -> str:
    if delay_s:
        # Not every kernel has netem; a slow interface makes packets wait for each other as well.
        rate = BURST / delay_s
    if rate:
        return f"tbf rate {int(8 * rate)}bit burst {BURST} limit {QUEUE}"
    return "pfifo limit 1000"


def _swallowed() -> int:
    """Bytes that went to the card that nobody reads."""
    return _counters()[VOID]


def _counters() -> dict[str, int]:
    """Bytes that each card of this namespace has received. Not from /sys, which shows the cards of
    whoever mounted it."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return {
        name.strip(): int(counters.split()[0])
        for name, _, counters in (line.partition(":") for line in lines)
    }


def _card(name: str) -> str:
    return BRIDGE if name == CLIENTS else CARD


def _address(at: int) -> str:
    return f"10.77.0.{at}"


def _watch_address(at: int) -> str:
    return f"10.77.1.{at}"


def _up(card: str) -> tuple[str, str]:
    """A card is begun without an address of its own making: what it would say of that is noise."""
    return f"link set {card} addrgenmode none", f"link set {card} up"


def _mac(at: int) -> str:
    return f"02:77:00:00:00:{at:02x}"


async def _until_apart(keeper: Process, here: str) -> None:
    """It has left this namespace."""
    async with asyncio.timeout(TOOL_S):
        while True:
            if not keeper.alive:
                raise ProcessFailed(f"{keeper.name} ended:\n{keeper.tail()}")
            there = Path(f"/proc/{keeper.pid}/exe").readlink().name
            if there == "sleep" and os.readlink(f"/proc/{keeper.pid}/ns/net") != here:
                return
            await asyncio.sleep(0.01)


async def _ip(*lines: str, within: int = 0) -> None:
    """Many words to `ip` at once, in the namespace of a process if one is named."""
    await _run(within, ["ip", "-batch", "-"], "\n".join(lines) + "\n")


async def _tc(words: str, within: int) -> str:
    return await _run(within, ["tc", *words.split()], "")


def _within(pid: int) -> list[str]:
    """The words that take a program into the namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]


async def _run(within: int, command: Sequence[str], text: str) -> str:
    prefix = _within(within) if within else []
    process = await asyncio.create_subprocess_exec(
        *prefix, *command, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(TOOL_S):
        output, _ = await process.communicate(text.encode())
    if process.returncode:
        raise ProcessFailed(f"{' '.join(command)} failed: {output.decode().strip()}")
    return output.decode()
