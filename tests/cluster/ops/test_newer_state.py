"""A node that meets what a newer version wrote ends with a line and a code of its own: 14."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.ops import lifecycle, make_node
from raftsched.cluster.ops.config_load import load
from raftsched.cluster.ops.exits import NodeCannotStart, NodeExit
from raftsched.cluster.raft import faults
from raftsched.statemachine import machine
from raftsched.statemachine.model.record import UnknownFormat

from ...rows import each


@each(
    ("error", "code"),
    [
        (UnknownFormat("RunRecord has format 3"), NodeExit.NEWER_FORMAT),
        (faults.Unsupported("an entry of kind 16"), NodeExit.NEWER_FORMAT),
        (faults.Damaged("a table"), NodeExit.DAMAGED),
        (faults.Replaced("another disk"), NodeExit.REPLACED),
        (faults.FileLimit("8 GiB"), NodeExit.FILE_LIMIT),
        (RuntimeError("a defect"), NodeExit.DIED),
    ],
)
def test_why_a_node_ends_is_its_code(error: Exception, code: NodeExit) -> None:
    assert lifecycle.exit_for(error) is code


async def test_a_state_that_a_newer_version_wrote_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, client = free_ports(2)
    flags = {"name": "n1", "members": f"n1=127.0.0.1:{peer}/127.0.0.1:{client}",
             "folder": str(tmp_path), "segment_mb": "8"}  # fmt: skip
    words = "MetaRecord at b'M' has format 2; this version knows 1."

    def newer(store: object) -> None:
        raise UnknownFormat(words)

    monkeypatch.setattr(machine, "read_meta", newer)

    with pytest.raises(NodeCannotStart) as refused:
        make_node.make_node(load(None, {}, flags).config, None, None)

    assert (refused.value.code, str(refused.value)) == (NodeExit.NEWER_FORMAT, words)
