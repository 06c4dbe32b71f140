"""Links of the kernel, in network namespaces that the test makes for itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.chaos.real import netns_links
from raftsched.chaos.real.netns_links import INSIDE, NetnsLinks
from raftsched.cluster.local.nodes import PROGRAM
from raftsched.cluster.local.process import ProcessFailed

why_not = netns_links.missing()
with_namespaces = pytest.mark.skipif(bool(why_not), reason=f"no namespaces here: {why_not}")


@pytest.mark.slow
@with_namespaces
def test_a_cut_takes_one_direction_of_one_pair_and_leaves_a_sign(tmp_path: Path) -> None:
    probe = Path(__file__).with_name("netns_nodes.py")

    ended = subprocess.run(
        [sys.executable, str(probe), str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "one-way": {"lost": ["n1-n2"], "came": 5, "swallowed": True},
        "clients": {"lost": ["clients-n1", "n1-clients"], "came": 4, "swallowed": True},
        "slow": True,
        "waited": True,
    }


async def test_the_network_of_the_machine_is_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have set the variable by hand."""
    monkeypatch.setenv(INSIDE, "1")
    monkeypatch.setattr(netns_links, "_counters", lambda: {"lo": 0, "eth0": 0})
    netns_links.enter()
    links = NetnsLinks()
    links.nodes(tmp_path, 3, [], lambda name: PROGRAM)

    with pytest.raises(ProcessFailed, match="eth0 belong to others"):
        await links.start()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSIDE, raising=False)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else f"/{tool}")

    with pytest.raises(ProcessFailed, match=r"tc is not there.*iproute2.*Leave --links out"):
        netns_links.enter()
