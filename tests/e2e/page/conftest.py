"""A cluster with something to see, its gateway, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from raftsched.client import Client, Context, Retry, Worker, cron, every
from raftsched.client.testing import LocalCluster
from raftsched.proto.v1 import flow_pb2

from ...client.gateway.test_process import gateway
from .browser import Browser, chromium, eventually


@dataclass(frozen=True, slots=True)
class Stand:
    """What a page may look at."""

    cluster: LocalCluster
    url: str
    # A run that succeeded and one that failed, and what stands for a name in the path of a page.
    names: dict[str, str]

    def path(self, pattern: str) -> str:
        """The pattern of a page with names that are there."""
        parts = []
        for part in pattern.split("/"):
            if part.startswith(":"):
                assert part[1:] in self.names, f"say in conftest.py what {part} of {pattern} may be"
                part = self.names[part[1:]]
            parts.append(part)
        return "/".join(parts)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Of one file: as long as it is open a loop runs in this thread, and no other test may have
    one of its own."""
    with chromium() as found:
        yield found


def worker_for(endpoints: list[str]) -> Worker:
    worker = Worker(endpoints)

    @worker.handler()
    def hello(context: Context, name: str = "world") -> str:
        return f"hello {name}"

    @worker.handler()
    def broken() -> None:
        raise ValueError("the upstream said no")

    return worker


def furnish(client: Client) -> dict[str, str]:
    """Jobs of all kinds; some have run."""
    jobs = client.jobs
    jobs.create("hello", handler="hello", payload={"name": "you"}, schedule=every(1))
    jobs.create("nightly", handler="hello", schedule=cron("30 2 * * *", zone="Europe/Berlin"))
    jobs.create("after-it", handler="hello", after="nightly")
    jobs.create("broken", handler="broken", retry=Retry(attempts=1))
    jobs.create("load", handler="hello", after="hello")
    jobs.create("waits", handler="nobody-has-this")
    jobs.create("paused", handler="hello", schedule=every(60))
    jobs.pause("paused", reason="for the tests")
    failed = jobs.trigger("broken")
    jobs.trigger("waits")
    good = jobs.trigger("nightly")
    eventually(lambda: good.refresh().state == "SUCCEEDED", 20, "a run succeeded")
    eventually(lambda: failed.refresh().state == "FAILED", 20, "a run failed")
    asked = flow_pb2.ListFlowsRequest(namespace="default")
    eventually(lambda: client.call(asked).flows, 20, "a flow began")
    [flow, *_] = client.call(asked).flows
    return {"job": "nightly", "run": good.id, "queue": "default", "flow": flow.id}


@pytest.fixture(scope="module")
def stand(browser: Browser) -> Iterator[Stand]:
    """Without a browser nothing is started."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(3))
        served = stack.enter_context(gateway("--server", ",".join(cluster.endpoints)))
        client = stack.enter_context(cluster.client())
        stack.enter_context(cluster.work(worker_for(cluster.endpoints)))
        yield Stand(cluster, f"http://{served.address}", furnish(client))
