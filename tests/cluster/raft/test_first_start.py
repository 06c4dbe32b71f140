"""What a new node says of those that it waits for: who is missing, and who does not fit."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.raft.bench_node import BenchMachine
from raftsched.cluster.raft.disk import RealDisk
from raftsched.cluster.raft.driver import Driver, Place

from .test_driver import SMALL, Quiet, until

NAMES = ("n1", "n2", "n3")


def node(folder: Path, name: str, contacts: dict[str, str], cluster: str = "test") -> Driver:
    disk = RealDisk(folder / name)
    place = Place(cluster=cluster, node=name, contacts=contacts, journal=SMALL)
    return Driver(place, disk, BenchMachine(disk), Quiet(), dice=random.Random(name))


@pytest.fixture
def contacts() -> dict[str, str]:
    return {n: f"127.0.0.1:{port}" for n, port in zip(NAMES, free_ports(3), strict=True)}


async def test_a_new_node_names_those_that_are_missing(
    tmp_path: Path, contacts: dict[str, str]
) -> None:
    nodes = [node(tmp_path, name, contacts) for name in NAMES]
    started = nodes[:2]
    for one in started:
        await one.start()
    try:
        await until(lambda: not nodes[0].core.join.lacks().get("n2"))
        said = nodes[0].bootstrap_waits()
        started.append(nodes[2])
        await nodes[2].start()
        await until(lambda: all(one.bootstrap_waits() == "" for one in nodes))
    finally:
        for one in started:
            await one.stop()

    assert said.startswith("n1 is new and in no cluster yet.")
    assert said.endswith("n1 waits for them: n3 is not connected.")


async def test_a_node_that_meets_a_cluster_says_how_it_is_added(
    tmp_path: Path, contacts: dict[str, str]
) -> None:
    alone = {"n1": contacts["n1"]}
    both = {name: contacts[name] for name in NAMES[:2]}
    one, new = node(tmp_path, "n1", alone), node(tmp_path, "n2", both)
    await one.start()
    await new.start()
    try:
        await until(lambda: one.bootstrap_waits() == "")
        await until(lambda: "raftsched cluster add n2" in new.bootstrap_waits())
        said = new.bootstrap_waits()
    finally:
        await one.stop()
        await new.stop()

    assert "n1 belongs to a cluster whose leader has not let the empty disk of n2 in" in said
    assert "A new cluster begins" not in said


async def test_both_sides_of_two_lists_name_each_other(
    tmp_path: Path, contacts: dict[str, str]
) -> None:
    fewer = {name: contacts[name] for name in NAMES[:2]}
    one, two = node(tmp_path, "n1", contacts), node(tmp_path, "n2", fewer)
    await one.start()
    await two.start()
    try:
        await until(
            lambda: (
                "another list" in one.bootstrap_waits() and "another list" in two.bootstrap_waits()
            )
        )
        said = one.bootstrap_waits(), two.bootstrap_waits()
    finally:
        await one.stop()
        await two.stop()

    assert f"n2 has another list of members, n1={contacts['n1']},n2=" in said[0]
    assert "n1 has another list" in said[1]


async def test_both_sides_of_two_clusters_name_each_other_and_once_in_the_log(
    tmp_path: Path, contacts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    fewer = {name: contacts[name] for name in NAMES[:2]}
    one, two = node(tmp_path, "n1", fewer, "east"), node(tmp_path, "n2", fewer, "west")
    dials = 0

    def count(name: str) -> bool:
        nonlocal dials
        dials += name == "n2"
        return name in fewer

    one.links.expects = count  # type: ignore[assignment, method-assign]
    with caplog.at_level(logging.INFO):
        await one.start()
        await two.start()
        try:
            await until(lambda: "n2" in one.links.refused and "n1" in two.links.refused)
            await until(lambda: dials > 3)
            said = one.bootstrap_waits(), two.bootstrap_waits()
        finally:
            await one.stop()
            await two.stop()

    assert "n2 says that its cluster is 'west', and that of n1 is 'east'" in said[0]
    assert "n1 says that its cluster is 'east', and that of n2 is 'west'" in said[1]
    lines = [line for line in caplog.messages if "says that its cluster" in line]
    assert len(lines) == 2
