"""Webhooks of alerts are called by whoever leads, until they have heard."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftsched.cluster.node.node import Node
from raftsched.cluster.ops import webhooks
from raftsched.cluster.ops.webhook_call import Sender
from raftsched.cluster.ops.webhooks import Webhooks
from raftsched.proto import signatures
from raftsched.proto.addresses import OPEN_TO_LOOPBACK
from raftsched.proto.v1 import alert_pb2
from raftsched.statemachine.calls.alerts import waits_for_webhook
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import AlertRecord, encode, parse

from ..api.real import Real, cluster, followers_of, leader_of, until

SECRETS = ["whsec_" + "AQID" * 8, "whsec_" + "BAUG" * 8]


def sender() -> Sender:
    return Sender(OPEN_TO_LOOPBACK, SECRETS)


class Hook:
    """A server that takes what it is sent, after so many refusals."""

    def __init__(self) -> None:
        self.url = ""
        self.refuse = 0
        self.asked = 0
        self.heard: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
        data = await reader.readexactly(int(length.split()[1]))
        lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
        self.heads.append({name: text for name, _, text in lines if name})
        self.bodies.append(data)
        body = json.loads(data)
        self.asked += 1
        if self.asked <= self.refuse:
            writer.write(b"HTTP/1.1 503 Not now\r\n\r\n")
        else:
            self.heard.append(body)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    server = await asyncio.start_server(hook.answer, "127.0.0.1", 0)
    hook.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/alerts?of=raftsched"
    yield hook
    server.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "LOOK_S", 0.01)
    monkeypatch.setattr(webhooks, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(webhooks, "ALONE_MS", 0)


@asynccontextmanager
async def calling(nodes: dict[str, Real]) -> AsyncIterator[dict[str, Webhooks]]:
    callers = {name: Webhooks(real.node, sender()) for name, real in nodes.items()}
    yield callers
    for caller in callers.values():
        await caller.stop()


async def put(real: Real, url: str, **condition: Any) -> None:  # noqa: ANN401  # Any condition.
    alert = alert_pb2.Alert(name="a", webhook=url, condition=alert_pb2.AlertCondition(**condition))
    await real.node.write(alert_pb2.PutAlertRequest(alert=alert), "", 5)


def waits(real: Real) -> bool:
    value = real.node.replica.store.get(keys.alert(keys.CLUSTER, "a"))
    return value is None or waits_for_webhook(parse(b"", value, AlertRecord))


async def test_the_leader_calls_until_the_webhook_has_heard(tmp_path: Path, hook: Hook) -> None:
    hook.refuse = 2
    async with cluster(tmp_path, 1) as nodes, calling(nodes):
        real = nodes["n1"]
        await put(real, hook.url, no_margin=True)
        await until(lambda: bool(hook.heard) and not waits(real))

    [event] = hook.heard
    assert hook.asked == 3
    assert (event["kind"], event["alert"]) == ("EVENT_KIND_ALERT_RAISED", "a")
    assert int(event["revision"]["change"]) > 0
    assert event["time"].endswith("Z")


async def test_the_next_leader_goes_on_and_nobody_calls_twice(tmp_path: Path, hook: Hook) -> None:
    hook.refuse = 1 << 30
    async with cluster(tmp_path, 3) as nodes, calling(nodes) as callers:
        leader = leader_of(nodes)
        await put(leader, hook.url, no_margin=True)
        lost, other = followers_of(nodes)
        await lost.kill()
        await until(lambda: hook.asked > 1)
        assert hook.heard == []
        await leader.node.hand_over(5)
        # What it had sent before may still be on its way, and would be heard as well.
        await until(lambda: not callers[leader.name]._calls)
        hook.refuse = 0
        await until(lambda: other.node.leads and not waits(other))
        asked = hook.asked
        await until(lambda: not waits(leader))

    [event] = hook.heard
    assert event["kind"] == "EVENT_KIND_ALERT_RAISED"
    assert hook.asked == asked


async def test_an_address_that_breaks_the_call_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def broken(self: Sender, url: str, *what: object) -> int:
        asked.append(url)
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Sender, "post", broken)
    async with cluster(tmp_path, 1) as nodes, calling(nodes):
        real = nodes["n1"]
        await put(real, "http://127.0.0.1:9/", no_margin=True)
        await until(lambda: len(asked) > 1)
        assert not real.node.ended.done()


async def test_what_is_too_old_is_given_up(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "GIVE_UP_MS", -1)
    async with cluster(tmp_path, 1) as nodes, calling(nodes):
        real = nodes["n1"]
        await put(real, hook.url, no_margin=True)
        await until(lambda: real.node.revision > 1 and not waits(real))

    assert hook.heard == []


@pytest.mark.parametrize("leader_last", [False, True])
async def test_a_node_without_a_leader_calls_by_itself_and_says_when_there_is_one(
    tmp_path: Path, hook: Hook, leader_last: bool
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        await put(leader, hook.url, no_quorum=True)
        left, other = followers_of(nodes)
        await until(lambda: left.node.revision == leader.node.revision)
        caller = Webhooks(left.node, sender())
        for real in (other, leader) if leader_last else (leader, other):
            await real.kill()
        await until(lambda: bool(hook.heard))
        back = Real(other.node.spec)
        await back.start()
        await until(lambda: len(hook.heard) == 2)
        await caller.stop()
        await back.stop()

    kinds = [event["kind"].removeprefix("EVENT_KIND_ALERT_") for event in hook.heard]
    assert kinds == ["RAISED", "CLEARED"]
    assert left.name in hook.heard[0]["message"]


async def test_a_leader_that_comes_and_goes_between_two_looks_hides_no_alert(hook: Hook) -> None:
    """Found by the test above, one time in fifty."""
    alert = alert_pb2.Alert(name="alone", webhook=hook.url)
    alert.condition.no_quorum = True
    store = MemoryStore()
    store.write([(keys.alert(keys.CLUSTER, "alone"), encode(AlertRecord(settings=alert)))], [])
    node = SimpleNamespace(
        name="n1", leads=False, leader_name="n2", replica=SimpleNamespace(store=store),
        clock=SimpleNamespace(now_ms=lambda: 1_000),
    )  # fmt: skip
    caller = Webhooks(cast(Node, node), sender())
    await asyncio.sleep(0)

    node.leader_name = ""
    caller._look_for_leader()
    node.leader_name = "n3"
    while caller._calls:
        await asyncio.sleep(0)
    node.leader_name = ""
    await until(lambda: bool(hook.heard))
    await caller.stop()


async def test_what_is_no_http_is_an_error(hook: Hook) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example.com ready\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((ValueError, OSError)):
        await sender().post(f"http://127.0.0.1:{port}/", b"{}", "a", 1)
    server.close()
    assert await sender().post(hook.url, b"{}", "a", 1) == 204


async def test_who_is_called_knows_who_calls_and_gets_the_credentials(hook: Hook) -> None:
    """They were left out, and nothing said whose call it was."""
    await sender().post(
        hook.url.replace("127.", "ann:p%40ss@127."), b'{"a": 1}', "alert-a-7", 1_000
    )
    await Sender(OPEN_TO_LOOPBACK).post(hook.url, b"{}", "alert-a-7", 1_000)

    signed, plain = hook.heads
    assert signed["Authorization"] == "Basic YW5uOnBAc3M="
    assert "ann" not in signed["Host"]
    for secret in SECRETS:
        assert signatures.verify(signed, hook.bodies[0], [secret], now=1_010) == "alert-a-7"
    assert not {"Authorization", signatures.SIGNATURE} & set(plain)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::1]",
     "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "169.254.169.254", "0xa9fea9fe"],
)  # fmt: skip
async def test_what_stands_for_this_machine_is_not_called(hook: Hook, host: str) -> None:
    """Before, whoever could set an alert could ask anything of the node's own machine."""
    url = hook.url.replace("127.0.0.1", host)

    # Not every system has a meaning for all of them.
    with pytest.raises((ValueError, OSError), match=r"is denied|not known|not supported"):
        await asyncio.wait_for(Sender().post(url, b"{}", "a", 1), 5)

    assert hook.asked == 0


async def test_a_name_is_not_looked_up_again_for_the_connection(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that stands for a good address at the look, and for this machine a moment later."""
    answers = [["192.0.2.1", "127.0.0.1"], ["127.0.0.1"]]
    connected: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        return [(2, 1, 6, "", (one, port)) for one in answers.pop(0)]

    async def open_connection(host: str, port: int, **_: object) -> None:
        connected.append(host)
        raise OSError("nobody is there")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    with pytest.raises(OSError, match="nobody is there"):
        await Sender().post(hook.url.replace("127.0.0.1", "rebinds.example"), b"{}", "a", 1)

    assert (connected, len(answers), hook.asked) == (["192.0.2.1"], 1, 0)


@pytest.mark.parametrize(
    "rest", ["/a b HTTP/1.1", "/%0d%0aX-Evil:1", "/\x7f", "/\u00e4", "/?\u2028", "/a\x0bb"]
)
async def test_an_address_cannot_hold_another_header(hook: Hook, rest: str) -> None:
    base = hook.url.partition("/alerts")[0]
    if "%" in rest:
        assert await sender().post(base + rest, b"{}", "a", 1) == 204
        assert "X-Evil" not in hook.heads[0]
        return
    with pytest.raises(ValueError, match="write them as"):
        await sender().post(base + rest, b"{}", "a", 1)
    assert hook.asked == 0
