"""Dashboards and alerts speak of metrics that a node shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftsched.client import AsyncClient

from ..e2e.processes import cluster, fetch, until
from .test_rules import RULES
from .tools import DEPLOY, run

FOLDER = DEPLOY / "grafana"
NAME = re.compile(r"\b(?:raftsched|process)_[a-z_]+")
# Prometheus makes it.
OWN = {"up"}


def expressions() -> dict[str, list[str]]:
    """By where they stand."""
    found = {f"alert {name}": [str(rule["expr"])] for name, rule in RULES.items()}
    for path in FOLDER.glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            where = f"{path.name} {panel['title']}"
            found[where] = [target["expr"] for target in panel["targets"]]
    return found


def test_the_files_are_what_their_source_writes() -> None:
    import sys

    checked = run(sys.executable, FOLDER / "dashboards.py", "--check")

    assert (checked.returncode, checked.stdout) == (0, "")


def test_each_picture_has_room_of_its_own() -> None:
    for path in FOLDER.glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
        assert len(set(places)) == len(panels) > 5
        assert all(one["targets"] for one in panels)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_metric_is_one_that_a_node_shows(tmp_path: Path) -> None:
    shown: set[str] = set()
    async with (
        cluster(tmp_path) as running,
        AsyncClient(running.endpoints, timeout=10) as client,
    ):
        await client.jobs.create("a", handler="nobody")
        await client.jobs.trigger("a")
        leader = await running.leader()

        async def counted() -> bool:
            return (
                "raftsched_oldest_ready_seconds"
                in (await fetch(running.http(leader), "/metrics"))[1]
            )

        await until(counted, 10)
        for name in running.nodes:
            _, text = await fetch(running.http(name), "/metrics")
            for family in text_string_to_metric_families(text):
                ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
                shown |= {family.name + end for end in ends.get(family.type, ("",))}

    missing = {
        f"{where}: {name}"
        for where, texts in expressions().items()
        for text in texts
        for name in NAME.findall(text)
        if name not in shown | OWN
    }
    assert missing == set()
    assert len(shown) > 60
