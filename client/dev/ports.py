"""Ports for a cluster on this machine: the ones one expects, or the next that are free."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...cluster.local.nodes import Address, names_of
from ...cluster.local.ports import LOOPBACK, is_free
from ...cluster.local.ports import NoPorts as NoPorts

STEP = 100
PORT_MAX = 65_535
FILE = "dev.json"


@dataclass(frozen=True, slots=True)
class Ports:
    """Clients from `base` on, nodes from ten above, their own HTTP from twenty above, the gateway
    thirty above."""

    base: int
    count: int

    @property
    def names(self) -> list[str]:
        return names_of(self.count)

    def client(self, name: str) -> str:
        return self._address(name, 0)

    def peer(self, name: str) -> str:
        return self._address(name, 10)

    def http(self, name: str) -> str:
        return self._address(name, 20)

    @property
    def gateway(self) -> str:
        return self._address("n1", 30)

    @property
    def endpoints(self) -> str:
        return ",".join(self.client(name) for name in self.names)

    @property
    def addresses(self) -> dict[str, Address]:
        return {
            name: Address(self.peer(name), self.client(name), self.http(name))
            for name in self.names
        }

    @property
    def all(self) -> list[int]:
        nodes = [self.base + above + place for above in (0, 10, 20) for place in range(self.count)]
        return [*nodes, self.base + 30]

    def _address(self, name: str, above: int) -> str:
        return f"{LOOPBACK}:{self.base + above + int(name[1:]) - 1}"


def choose(folder: Path, base: int, count: int) -> Ports:
    """Those that the folder's cluster has had; else from `base` on, or the next free ones."""
    known = _known(folder)
    if known is not None:
        if known.count != count:
            raise NoPorts(
                f"the cluster in {folder} has {known.count} nodes, not {count}; "
                f"say --nodes {known.count}, or name another folder"
            )
        if taken := _taken(known):
            raise NoPorts(
                f"port {taken} is in use, and the cluster in {folder} lives there; stop the other "
                "program (perhaps a `raftsched dev` on this folder), or name another folder"
            )
        return known
    for start in range(base, PORT_MAX - 31, STEP):
        ports = Ports(start, count)
        if not _taken(ports):
            return ports
    raise NoPorts(f"no {3 * count} free ports from {base} on; name another start with --port")


def remember(folder: Path, ports: Ports) -> None:
    (folder / FILE).write_text(json.dumps({"port": ports.base, "nodes": ports.count}) + "\n")


def _known(folder: Path) -> Ports | None:
    try:
        kept = json.loads((folder / FILE).read_text())
        return Ports(int(kept["port"]), int(kept["nodes"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise NoPorts(f"{folder / FILE} cannot be read ({error}); name another folder") from error


def _taken(ports: Ports) -> int:
    """The first port that is in use, or 0."""
    return next((port for port in ports.all if not is_free(port)), 0)
