"""How the processes of a nodes reach each other, with a hand on every link between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ...cluster.local.nodes import Address, NodeProcesses, ProgramOf, free_addresses
from ...cluster.local.ports import LOOPBACK, free_ports
from .links import LinksProcess


class LinkBackend(Protocol):
    """Proxies (here) or links of the kernel (netns_links.py)."""

    def nodes(
        self, folder: Path, count: int, settings: Sequence[str], program: ProgramOf
    ) -> NodeProcesses:
        """Nodes that are not started yet, and will be found through these links."""

    async def start(self) -> None: ...

    async def act(self, what: str, **how: Any) -> int:  # noqa: ANN401
        """Do something to the links; how many bytes were mistreated until now."""

    async def close(self) -> None: ...

    @property
    def pid(self) -> int:
        """The process that bytes go through; 0 if there is none."""


class Proxies(LinksProcess):
    """A proxy before each node, one for other nodes and one for clients."""

    def __init__(self) -> None:
        super().__init__()
        self._fronts: list[tuple[str, str, int, bool]] = []

    def nodes(
        self, folder: Path, count: int, settings: Sequence[str], program: ProgramOf
    ) -> NodeProcesses:
        self._process.log = folder / "links.log"
        ports = iter(free_ports(2 * count))
        addresses, shown = free_addresses(count), {}
        for name, at in addresses.items():
            peer, client = next(ports), next(ports)
            self._fronts += [(name, at.peer, peer, True), (name, at.client, client, False)]
            shown[name] = Address(f"{LOOPBACK}:{peer}", f"{LOOPBACK}:{client}", at.http)
        return NodeProcesses(folder, addresses, settings=settings, shown=shown, program=program)

    async def start(self) -> None:
        await super().start()
        for name, address, port, peers in self._fronts:
            await self.act("put_before", node=name, address=address, port=port, peers=peers)
