"""Rolling restart and upgrade: when they begin, in which order, and when they stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftsched.client.cli.commands import rolling
from raftsched.client.cli.commands.rolling import Restarting
from raftsched.proto.v1 import cluster_pb2

from ..stage import Stage
from .conftest import Cli
from .test_groups import saying

Node = cluster_pb2.Node
TASK = Restarting("true", 5.0, 2.0)


def seen(**changed: object) -> cluster_pb2.ClusterStatus:
    """Three nodes, all well; n2 leads."""
    whole = cluster_pb2.ClusterStatus(
        node="n1", leader="n2", quorum=True, margin=1, commit_index=20_000
    )
    for name in ("n1", "n2", "n3"):
        whole.nodes.add(
            name=name, client_address=f"{name}.example:7400", reachable=True, serving=True,
            applied_index=19_000, version="1.0", build=f"b-{name}",
            role=Node.ROLE_LEADER if name == "n2" else Node.ROLE_FOLLOWER,
        )  # fmt: skip
    for field, value in changed.items():
        setattr(whole, field, value)
    return whole


def with_node(**changed: object) -> cluster_pb2.ClusterStatus:
    whole = seen()
    for field, value in changed.items():
        setattr(whole.nodes[2], field, value)
    return whole


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (seen(leader=""), "nobody leads"), (seen(quorum=False), "no quorum"),
        (seen(margin=0), "no node may be lost"), (with_node(reachable=False), "not reachable"),
        (with_node(serving=False), "does not serve"), (with_node(applied_index=9), "19991 entries"),
    ],
    ids=["leader", "quorum", "margin", "reachable", "serving", "behind"],
)  # fmt: skip
def test_no_node_is_stopped_while_something_is_not_well(
    status: cluster_pb2.ClusterStatus, why: str, cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    assert rolling.not_well(seen()) == []
    [fault] = rolling.not_well(status)
    assert why in fault

    stage.leader.faults.append(saying(status))
    trace = tmp_path / "trace"
    said = cli("cluster", "rolling-restart", "--hook", f"touch {trace}", "--yes")

    assert said.exit_code == 6
    assert why in said.stderr
    assert not trace.exists()


def test_the_leader_comes_last_and_who_runs_the_version_is_passed_over() -> None:
    assert rolling.in_order(seen(), TASK, ()) == ["n1", "n3", "n2"]
    assert rolling.in_order(seen(), TASK, ("n2", "n3")) == ["n3", "n2"]
    assert rolling.in_order(seen(), Restarting("", 1, 1, "1.0"), ()) == []
    # A build says it as well.
    assert rolling.in_order(seen(), Restarting("", 1, 1, "b-n1"), ()) == ["n3", "n2"]


def test_what_is_asked_for_twice_or_not_at_all_is_refused(cli: Cli) -> None:
    for words in (
        [], ["--hook", "true", "--unit", "raftsched-node"], ["--hook", "true", "--settle", "1s"],
    ):  # fmt: skip
        assert cli("cluster", "rolling-restart", "--yes", *words).exit_code == 2


def test_a_dry_run_names_the_order_and_runs_nothing(cli: Cli, stage: Stage, tmp_path: Path) -> None:
    stage.leader.faults.append(saying(seen()))

    said = cli.ok("cluster", "rolling-restart", "--hook", f"touch {tmp_path}/trace", "--dry-run")

    assert "It would restart n1, n3, n2, in this order." in said.stderr
    assert not (tmp_path / "trace").exists()


def test_a_command_that_fails_leaves_the_node_as_it_was(cli: Cli, stage: Stage) -> None:
    answers = [seen(), seen(), with_node(serving=False), seen()]
    stage.leader.faults.extend(saying(one) for one in answers)

    said = cli("cluster", "rolling-restart", "--yes", "--hook", "echo no such unit; exit 3")

    assert said.exit_code == 1
    assert "stopped at n1" in said.stderr
    assert "it ended with 3" in said.stderr
    assert "no such unit" in said.stderr
    assert "not touched: n3, n2" in said.stderr
    last = stage.leader.heard[-1]
    assert isinstance(last, cluster_pb2.DrainNodeRequest)
    assert (last.node, last.resume) == ("n1", True)


def test_the_command_is_given_whom_to_restart(tmp_path: Path) -> None:
    words = f'printf %s "$NODE $NODE_HOST $NODE_ADDRESS" > {tmp_path}/given'

    why = rolling.restarted_by(Restarting(words, 5.0, 2.0), seen().nodes[0])

    assert why == ""
    assert (tmp_path / "given").read_text() == "n1 n1.example n1.example:7400"


def test_a_node_that_the_command_starts_beside_itself_holds_nothing_up() -> None:
    hook = "sleep 4 & echo begun"

    assert rolling.restarted_by(Restarting(hook, 2.0, 2.0), seen().nodes[0]) == ""


def test_a_node_says_where_it_is_and_no_option_of_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/given\n')
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    task = rolling.restarting(None, "raftsched-node", 5_000, 2_000, "")
    node = Node(name="n1", client_address="-oProxyCommand=id:22")

    assert rolling.restarted_by(task, node) == ""
    given = (tmp_path / "given").read_text()
    assert given == "--|-oProxyCommand=id|sudo|systemctl|restart|raftsched-node|"


def test_who_stops_it_half_way_hears_of_the_node_that_drains(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(rolling, "restarted_by", interrupted)
    stage.leader.faults.extend(saying(one) for one in [seen(), seen(), with_node(serving=False)])

    said = cli("cluster", "rolling-restart", "--yes", "--hook", "true")

    assert said.exit_code != 0
    assert "raftsched cluster drain n1 --resume" in said.stderr


def test_a_command_without_end_is_ended() -> None:
    why = rolling.restarted_by(Restarting("exec sleep 600", 0.05, 2.0), seen().nodes[0])

    assert "did not end within" in why
    assert os.environ.get("NODE") is None
