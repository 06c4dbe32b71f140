"""A cluster whose folder is kept: filled once, and measured as often as somebody likes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ...cluster.local.nodes import Address, NodeProcesses, free_addresses
from ...cluster.local.ports import is_free
from ...cluster.local.process import ProcessFailed

# Written when the folder is filled, with what it was filled with.
FILLED = "filled.json"
# Where its nodes are: they know each other by that.
ADDRESSES = "addresses.json"
# A node with millions of jobs may have to read its journal.
START_S = 180.0
Filled = Mapping[str, float | int]


@contextmanager
def kept(folder: Path, count: int = 3, settings: Sequence[str] = ()) -> Iterator[NodeProcesses]:
    """The nodes of a folder, new or not, for as long as the block lasts."""
    nodes = NodeProcesses(folder, addresses(folder, count), settings=settings)
    try:
        nodes.spawn()
        nodes.wait_ready(START_S)
        yield nodes
    finally:
        nodes.stop()


def addresses(folder: Path, count: int) -> dict[str, Address]:
    """Those that the nodes of a folder have, or get now."""
    file = folder / ADDRESSES
    if not file.exists():
        made = free_addresses(count)
        file.write_text(json.dumps({name: asdict(one) for name, one in made.items()}))
        return made
    found = {name: Address(**one) for name, one in json.loads(file.read_text()).items()}
    if len(found) != count:
        raise ProcessFailed(f"{folder} has {len(found)} nodes, and not {count}")
    for name, one in found.items():
        for address in (one.peer, one.client, one.http):
            if not is_free(int(address.rpartition(":")[2])):
                raise ProcessFailed(
                    f"{name} of {folder} is known to the others at {address}, which another "
                    "program has now; end that one, or fill another folder"
                )
    return found


def filled_with(folder: Path) -> Filled | None:
    """What a folder was filled with; None if that is still to do."""
    file = folder / FILLED
    if not file.exists():
        return None
    found: Filled = json.loads(file.read_text())
    return found


def is_filled(folder: Path, found: Filled) -> None:
    """Note that a folder was filled with that."""
    (folder / FILLED).write_text(json.dumps(found))
