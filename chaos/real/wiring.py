"""How the processes of a stage reach each other, with a hand on every link between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..stage import Stage, free_ports
from .links import LinksProcess


class Wiring(Protocol):
    """Proxies (here) or cables of the kernel (cables.py)."""

    def stage(self, folder: Path, count: int, settings: Sequence[str]) -> Stage:
        """Nodes that are not started yet, and will be found through these links."""

    async def start(self) -> None: ...

    async def tell(self, what: str, **how: Any) -> int:  # noqa: ANN401
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

    def stage(self, folder: Path, count: int, settings: Sequence[str]) -> Stage:
        ports = iter(free_ports(2 * count))

        def front(name: str, peer: str, client: str) -> tuple[str, str]:
            peer_port, client_port = next(ports), next(ports)
            self._fronts += [(name, peer, peer_port, True), (name, client, client_port, False)]
            return f"127.0.0.1:{peer_port}", f"127.0.0.1:{client_port}"

        return Stage(folder, count, settings=settings, front=front)

    async def start(self) -> None:
        await super().start()
        for name, address, port, peers in self._fronts:
            await self.tell("put_before", node=name, address=address, port=port, peers=peers)
