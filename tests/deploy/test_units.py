"""The units of systemd: sound, shut as far as they can be, and with options that are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from raftsched.cluster.ops.config_load import load
from raftsched.cluster.ops.exits import NodeExit

from .tools import DEPLOY, run, tool

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/raftsched/bin/raftsched"
EXPOSURE_MOST = 2.0
# The same start ends the same way again; the others may go by themselves.
STAYS = {
    NodeExit.CONFIG, NodeExit.FOLDER_FOREIGN, NodeExit.OTHER_CLUSTER, NodeExit.OTHER_NODE,
    NodeExit.NEWER_FORMAT, NodeExit.NO_BACKUP, NodeExit.CLUSTER_LIVES, NodeExit.REMOVED,
    NodeExit.FILE_LIMIT, NodeExit.REPLACED,
}  # fmt: skip


def settings(unit: Path) -> dict[str, str]:
    """The last value of each key, which is enough for those that stand once."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_sound_and_shut(unit: Path, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    # It asks whether the program is there.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, sys.executable))

    verified = run(analyze, "verify", "--man=no", copy)
    judged = run(analyze, "security", "--offline=true", copy)

    assert (verified.returncode, verified.stdout) == (0, "")
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure, judged.stdout
    assert float(exposure[1]) <= EXPOSURE_MOST


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_waits_for_the_word_and_is_ended_when_it_stands_still(unit: Path) -> None:
    found = settings(unit)

    assert found["Type"] == "notify"
    assert int(found["WatchdogSec"]) > 0
    assert found["ExecStart"].startswith(f"{PROGRAM} ")


def test_what_would_fail_again_is_not_started_again() -> None:
    found = settings(DEPLOY / "systemd" / "raftsched-node.service")

    assert {int(code) for code in found["RestartPreventExitStatus"].split()} == set(STAYS)
    assert found["SuccessExitStatus"] == str(int(NodeExit.CUT_SHORT))
    # A node ends by itself three seconds after the signal.
    assert int(found["TimeoutStopSec"]) > 3


def test_the_example_is_a_configuration_that_a_node_takes(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "node.toml").read_text()
    for name in ("node.pem", "node.key", "ca.pem"):
        (tmp_path / name).touch()
    written = tmp_path / "node.toml"
    written.write_text(text.replace("/etc/raftsched", str(tmp_path)))

    loaded = load(written, {}, {})

    assert loaded.config.tokens
    assert len(loaded.config.members) == 3
    assert loaded.config.folder.startswith("/var/lib/raftsched/")


def test_a_worker_is_not_the_user_who_has_the_nodes_key() -> None:
    node, worker = (
        settings(DEPLOY / "systemd" / f"raftsched-{name}.service") for name in ("node", "worker@")
    )
    users = (DEPLOY / "systemd" / "raftsched.sysusers.conf").read_text()

    assert worker["User"] == worker["Group"] != node["User"]
    assert {worker["User"], node["User"]} == set(re.findall(r"^u (\S+)", users, re.MULTILINE))


def test_what_opens_a_worker_for_shell_commands_is_sound(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    unit = DEPLOY / "systemd" / "raftsched-worker@.service"
    copy, more = tmp_path / unit.name, tmp_path / f"{unit.name}.d" / "shell.conf"
    more.parent.mkdir()
    copy.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    more.write_text((DEPLOY / "systemd" / "worker-shell.conf").read_text())

    verified = run(analyze, "verify", "--man=no", copy)

    # A systemd before 254 does not know it, and says so.
    known = [line for line in verified.stdout.splitlines() if "DelegateSubgroup" not in line]
    assert (verified.returncode, known) == (0, [])
