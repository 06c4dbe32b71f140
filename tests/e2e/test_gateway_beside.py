"""The gateway that a node starts beside itself: it comes, comes back, and goes with its node."""

from __future__ import annotations

import json
import os
import signal
import stat
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched.cluster.local.nodes import Address
from raftsched.cluster.local.ports import LOOPBACK, free_ports
from raftsched.cluster.ops.exits import NodeExit

from .processes import alone, ends, lines_of, stop, until

pytestmark = pytest.mark.slow


def address_with_gateway() -> Address:
    peer, client, gateway = (f"{LOOPBACK}:{port}" for port in free_ports(3))
    return Address(peer, client, gateway=gateway)


def get(address: str, path: str) -> object:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
        return json.loads(answer.read())


def answers(address: str) -> bool:
    try:
        return isinstance(get(address, "/v1/jobs"), dict)
    except OSError:
        return False


def of(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for one in listed for word in one.read_text().split()]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def near() -> Iterator[Path]:
    """A folder whose name is short, whatever that of this checkout is."""
    with tempfile.TemporaryDirectory(prefix="raftsched-") as folder:
        yield Path(folder)


async def test_it_serves_comes_back_and_ends_with_its_node(near: Path) -> None:
    node = alone(near, address=address_with_gateway())
    node.start()
    try:
        await until(lambda: answers(node.address.gateway), 10)
        # Nobody but the owner of the data reaches the node past its port.
        way = near / "n1" / "gateway.sock"
        assert stat.S_IMODE(way.stat().st_mode) == 0o600
        [first] = of(node.pid)
        os.kill(first, signal.SIGKILL)
        await until(lambda: is_gone(first) and answers(node.address.gateway), 10)
        [second] = of(node.pid)
        assert any("gateway" in line["event"] and "ended" in line["event"]
                   for line in lines_of(node))  # fmt: skip
        code, _ = await stop(node)
        assert code == NodeExit.CLEAN
        await until(lambda: is_gone(second), 2)
        assert not way.exists()
    finally:
        node.kill()


async def test_it_does_not_outlive_a_node_that_is_killed(tmp_path: Path) -> None:
    node = alone(tmp_path, address=address_with_gateway())
    node.start()
    try:
        await until(lambda: answers(node.address.gateway), 10)
        [gateway] = of(node.pid)
        node.kill()
        await until(lambda: is_gone(gateway), 5)
    finally:
        node.kill()


async def test_a_long_folder_has_its_socket_elsewhere(tmp_path: Path) -> None:
    node = alone(tmp_path / ("long" * 30), address=address_with_gateway())
    node.start()
    try:
        await until(lambda: answers(node.address.gateway), 10)
        code, _ = await stop(node)
        assert code == NodeExit.CLEAN
    finally:
        node.kill()


async def test_a_port_that_is_taken_is_said_at_start(tmp_path: Path) -> None:
    first = alone(tmp_path / "a", address=address_with_gateway())
    first.start()
    try:
        await until(lambda: answers(first.address.gateway), 10)
        taken = first.address.gateway
        peer, client = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        other = Address(peer, client, gateway=taken)
        code, said = await ends(alone(tmp_path / "b", address=other))
        assert code == NodeExit.ADDRESS_TAKEN
        assert all(word in said[-1] for word in (taken, "--gateway-listen", "--no-gateway"))
    finally:
        first.kill()
