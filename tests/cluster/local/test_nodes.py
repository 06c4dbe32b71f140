"""Nodes as processes: what their command lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raftsched.cluster.local.nodes import Address, NodeProcesses, free_addresses
from raftsched.cluster.local.process import environment


def test_all_are_told_of_all_and_each_of_itself(tmp_path: Path) -> None:
    addresses = free_addresses(3)
    nodes = NodeProcesses(
        tmp_path, addresses, settings=("--cache-mb", "16"), own={"n2": ("--tokens",)}
    )

    first, second, _ = nodes
    members = ",".join(f"{name}={at.peer}/{at.client}" for name, at in addresses.items())
    assert first.arguments == [
        "--name", "n1", "--members", members, "--folder", str(tmp_path / "n1"),
        "--http", addresses["n1"].http, "--cache-mb", "16",
    ]  # fmt: skip
    assert second.arguments[-1] == "--tokens"
    assert nodes.endpoints == ",".join(at.client for at in addresses.values())


def test_others_find_it_where_it_is_shown_and_it_listens_where_it_is(tmp_path: Path) -> None:
    nodes = NodeProcesses(
        tmp_path, {"n1": Address("a:1", "a:2", "a:3")}, shown={"n1": Address("b:1", "b:2", "a:3")}
    )

    [node] = nodes
    assert node.arguments[3] == "n1=b:1/b:2"
    assert node.arguments[-4:] == ["--listen", "a:2", "--listen-peer", "a:1"]
    assert (node.peer, node.client, node.http) == ("b:1", "b:2", "a:3")


def test_it_loads_nothing_of_the_server() -> None:
    script = (
        "import sys; before = set(sys.modules);"
        "from raftsched.cluster.local import nodes, ports, process;"
        "print([m for m in set(sys.modules) - before if not m.startswith('raftsched.cluster.local')"
        " and m.partition('.')[0] not in sys.stdlib_module_names])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, env=environment(), check=True,
    ).stdout  # fmt: skip
    assert set(eval(found)) <= {"raftsched", "raftsched.cluster"}
