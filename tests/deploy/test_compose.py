"""The compose file: what it gives to nodes they take, and its commands are a cluster that works."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftsched.client import AsyncClient
from raftsched.cluster.local.process import PROGRAM_OF_CLIENT, Process, stop_all
from raftsched.cluster.ops.config_load import load
from raftsched.proto.v1.job_pb2 import HttpAction

from ..e2e.processes import until
from .tools import DEPLOY

FILE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
NODES = ("n1", "n2", "n3")
# Each container as an address of this machine, so that the ports may stay as they are written.
HOSTS = {"n1": "127.18.0.1", "n2": "127.18.0.2", "n3": "127.18.0.3", "gateway": "127.18.0.4"}


def environment(service: str) -> dict[str, str]:
    return {name: str(text) for name, text in SERVICES[service].get("environment", {}).items()}


@pytest.mark.parametrize("name", NODES)
def test_a_node_takes_what_it_is_given(name: str) -> None:
    config = load(None, environment(name), {}).config

    assert config.name == name
    assert list(config.members) == list(NODES)
    assert config.folder.startswith("/data/")


def test_nothing_is_published_beyond_this_machine_and_nobody_may_more_than_needed() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["image"] == SERVICES["n1"]["image"]


def processes(folder: Path) -> Iterator[Process]:
    """The services as processes of this machine, in the order in which compose starts them."""
    for name, service in SERVICES.items():
        given = {key: on_this_machine(text, name) for key, text in environment(name).items()}
        if name in NODES:
            given["RAFTSCHED_NODE_FOLDER"] = str(folder / name)
            given |= {"RAFTSCHED_NODE_SEGMENT_MB": "8", "RAFTSCHED_NODE_CACHE_MB": "16"}
        words = [on_this_machine(str(word), name) for word in service["command"]]
        if name == "worker":
            # What is a container of its own there is an address of this machine here.
            words += ["--allow-address", "loopback"]
        yield Process(name, words, folder / f"{name}.log", given, PROGRAM_OF_CLIENT)


def on_this_machine(text: str, service: str) -> str:
    text = text.replace("0.0.0.0", HOSTS.get(service, ""))
    for name, host in HOSTS.items():
        text = text.replace(f"{name}:", f"{host}:")
    return text


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_its_commands_make_a_cluster_that_carries_out_a_job(tmp_path: Path) -> None:
    made = list(processes(tmp_path))
    page = f"http://{HOSTS['gateway']}:7480"
    try:
        for process in made:
            process.start()

        def serves() -> bool:
            with urllib.request.urlopen(f"{page}/v1/cluster", timeout=5) as answer:
                return bool(json.load(answer).get("leader"))

        await until(lambda: answers(serves), 30)
        async with AsyncClient(f"{HOSTS['n1']}:7400", insecure=True) as client:
            await client.jobs.create("look", http=HttpAction(url=page, method="GET"))
            run = await client.jobs.trigger("look")
            ended = await run.wait(timeout=60)
    finally:
        killed = stop_all(reversed(made))

    assert ended.state == "SUCCEEDED", ended.message
    assert killed == []
    assert [(one.name, one.code) for one in made if one.code] == []


def answers(ask: Callable[[], object]) -> bool:
    try:
        return bool(ask())
    except OSError:
        return False
