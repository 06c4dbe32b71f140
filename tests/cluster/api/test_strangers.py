"""What a connection may cost on which nobody has shown who calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from raftsched.chaos.real.hostile import http2
from raftsched.cluster.api import strangers as module
from raftsched.cluster.api.server import METADATA_MAX
from raftsched.cluster.api.strangers import (
    CALL_BYTES,
    GROWN_BYTES,
    HEALTH_BYTES,
    HEARD_S,
    HEARD_TURNS,
    LITTLE_BYTES,
    LOOK_S,
    STRANGER_BYTES,
    STRANGER_RATE,
    Strangers,
)

from .conftest import Start
from .talk import Anything, create
from .test_auth import Role, bearer, jobs, make

LIST = "/raftsched.v1.JobService/ListJobs"
CHECK = "/grpc.health.v1.Health/Check"
SOON_S = HEARD_S + 0.01
CALLS_MAX = STRANGER_BYTES // CALL_BYTES
pytestmark = pytest.mark.skipif(module.TCP_INFO is None, reason="the system tells no bytes")


class Port:
    """A port that takes connections and reads nothing, and who looks after them."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.size = 0
        self.strangers = Strangers(lambda: self.size)
        self.strangers.serve(self.listener.getsockname()[1])
        self.now = 0.0

    def connect(self) -> tuple[socket.socket, str]:
        ours = self.stack.enter_context(socket.create_connection(self.listener.getsockname()))
        self.stack.enter_context(self.listener.accept()[0])
        return ours, f"ipv4:127.0.0.1:{ours.getsockname()[1]}"

    def look(self, after: float, turns: int = HEARD_TURNS) -> None:
        """A look after so many seconds, and turns of the loop."""
        self.now += after
        for _ in range(turns):
            self.strangers.turn()
        self.strangers.look(self.now)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    # However long a look takes on this machine.
    monkeypatch.setattr(module, "REST", 0)
    with ExitStack() as stack:
        yield Port(stack)


def is_cut(ours: socket.socket) -> bool:
    """Whether the other side has broken it off."""
    ours.setblocking(False)
    try:
        return ours.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_who_sends_too_much_is_broken_off_unless_somebody_showed_who_calls(
    port: Port,
) -> None:
    stranger, _ = port.connect()
    little, _ = port.connect()
    known, peer = port.connect()
    port.strangers.met(peer, "tenant")
    for one, size in ((stranger, 2 * STRANGER_BYTES), (known, 2 * STRANGER_BYTES), (little, 100)):
        one.sendall(bytes(size))
    port.look(LOOK_S)
    # Its first call may wait to be heard.
    assert not is_cut(stranger)
    port.look(LOOK_S)
    assert [is_cut(one) for one in (stranger, known, little)] == [True, False, False]


def test_who_was_refused_and_sends_too_much_is_broken_off_at_once(port: Port) -> None:
    stranger, peer = port.connect()
    stranger.sendall(bytes(STRANGER_BYTES + 1))
    port.strangers.answered(peer)
    port.look(LOOK_S)
    assert is_cut(stranger)


def test_who_asks_too_often_is_broken_off(port: Port) -> None:
    stranger, peer = port.connect()
    other, _ = port.connect()
    port.look(LOOK_S)
    for _ in range(CALLS_MAX + 1):
        port.strangers.answered(peer)
    # Long before the next look is due.
    port.look(HEARD_S)
    assert is_cut(stranger)
    assert not is_cut(other)


def test_a_probe_may_ask_for_ever(port: Port) -> None:
    probe, peer = port.connect()
    for _ in range(20):
        # All services that there are, each second.
        for _ in range(12 * int(LOOK_S)):
            port.strangers.answered(peer, HEALTH_BYTES)
            probe.sendall(bytes(60))
        port.look(LOOK_S)
    assert not is_cut(probe)
    assert STRANGER_RATE * LOOK_S < STRANGER_BYTES, "or a look is too late"


def test_a_process_that_grows_looks_at_once(port: Port) -> None:
    stranger, peer = port.connect()
    port.look(LOOK_S)
    stranger.sendall(bytes(STRANGER_BYTES + 1))
    port.strangers.answered(peer)
    port.look(HEARD_S)
    assert not is_cut(stranger)
    port.size += GROWN_BYTES + 1
    port.look(HEARD_S)
    assert is_cut(stranger)


def test_nobody_is_broken_off_while_the_loop_hears_nothing(port: Port) -> None:
    stranger, _ = port.connect()
    stranger.sendall(bytes(2 * STRANGER_BYTES))
    port.look(LOOK_S, turns=0)
    port.look(LOOK_S, turns=0)
    assert not is_cut(stranger)
    port.look(SOON_S)
    assert is_cut(stranger)


def fill(port: Port, caller: str, count: int, size: int) -> list[socket.socket]:
    """Connections of somebody who is known, on each of which so much came that nobody hears."""
    found = []
    for _ in range(count):
        ours, peer = port.connect()
        port.strangers.met(peer, caller)
        ours.sendall(bytes(size + CALL_BYTES))
        found.append(ours)
    return found


def test_what_known_callers_send_unheard_is_bounded_for_all_of_them(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNHEARD_BYTES", 1 << 20)
    flood = fill(port, "flood", 20, LITTLE_BYTES + (50 << 10))
    others = fill(port, "others", 5, LITTLE_BYTES + (60 << 10))
    small = fill(port, "flood", 20, LITTLE_BYTES // 2)
    port.look(LOOK_S)
    # They may be heard in a moment.
    assert not any(map(is_cut, flood))
    port.look(SOON_S)
    ended = sum(map(is_cut, flood))
    assert 0 < ended < len(flood)
    assert not any(map(is_cut, others + small))


def test_what_is_heard_and_what_is_read_does_not_count(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNHEARD_BYTES", 1 << 14)
    size = 60 << 10
    heard, peer = port.connect()
    port.strangers.met(peer, "heard")
    port.strangers.heard(peer, size)
    read, peer = port.connect()
    port.strangers.met(peer, "read")
    port.strangers.reads(peer, size)
    for one in (heard, read):
        one.sendall(bytes(size))
    port.look(LOOK_S)
    port.look(LOOK_S)
    assert not is_cut(heard)
    assert not is_cut(read)


def test_what_is_read_is_bounded_for_all_of_them(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1 << 18)
    flood = [port.connect() for _ in range(6)]
    little, _ = port.connect()
    for ours, peer in flood:
        port.strangers.met(peer, "flood")
        port.strangers.reads(peer, 4 << 20)
        ours.sendall(bytes(60 << 10))
    little.sendall(bytes(LITTLE_BYTES))
    port.look(LOOK_S)
    assert 0 < sum(is_cut(ours) for ours, _ in flood) < len(flood)
    assert not is_cut(little)
    # gRPC forgets a message with its connection.
    monkeypatch.setattr(module, "UNHEARD_BYTES", 1 << 18)
    for ours, _ in flood:
        ours.close()
    others = fill(port, "others", 3, LITTLE_BYTES + (30 << 10))
    port.look(SOON_S)
    port.look(SOON_S)
    assert not any(map(is_cut, others))


def test_messages_that_come_fast_are_looked_at_without_a_pause(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEAR_BYTES", 1 << 17)
    monkeypatch.setattr(module, "READ_BYTES", 1 << 18)
    flood = [port.connect() for _ in range(6)]
    for ours, peer in flood:
        port.strangers.met(peer, "flood")
        port.strangers.reads(peer, 4 << 20)
        ours.sendall(bytes(30 << 10))
    port.look(LOOK_S)
    assert not any(is_cut(ours) for ours, _ in flood)
    for ours, _ in flood:
        ours.sendall(bytes(30 << 10))
    # The process has not grown, and nothing waits to be heard.
    port.look(module.LEAST_S)
    assert any(is_cut(ours) for ours, _ in flood)


def test_what_went_with_its_connection_counts_until_it_is_worked_off(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNHEARD_BYTES", 1 << 20)
    size = LITTLE_BYTES + (50 << 10)
    first = fill(port, "flood", 30, size)
    port.look(LOOK_S)
    port.look(SOON_S)
    assert any(map(is_cut, first))
    for one in first:
        one.close()
    # It is less than all may have, but for what is still worked off.
    second = fill(port, "flood", 10, size)
    port.look(SOON_S)
    port.look(SOON_S)
    assert any(map(is_cut, second))
    for one in second:
        one.close()
    port.look(10.0)
    third = fill(port, "flood", 10, size)
    port.look(SOON_S)
    port.look(SOON_S)
    assert not any(map(is_cut, third))


async def flood(address: str, head: bytes, most: int) -> int:
    """The calls that a connection may begin until it is broken off."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connection = http2.Connection(reader, writer)
    writer.write(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
    sent = 0
    try:
        async with asyncio.timeout(60):
            while sent < most and not reader.at_eof():
                connection.begin(head)
                sent += 1
                await writer.drain()
                await asyncio.sleep(0.001)
            await connection.swallow()
    except ConnectionError:
        return sent
    finally:
        writer.close()
    return sent


async def test_a_stranger_is_broken_off_and_a_caller_is_not(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    head = http2.headers(LIST) + b"\x90" * 2_000
    assert await flood(served.address, head, 10_000) < 10_000
    assert await flood(served.address, http2.headers(CHECK), 10_000) < 10_000
    # On the connection of somebody who is known.
    call: Anything = served.channel.unary_unary(LIST)
    await jobs(served).CreateJob(create("report"), metadata=bearer(root))
    for _ in range(4 * CALLS_MAX):
        await call(b"", metadata=(*bearer(root), ("more", "x" * (METADATA_MAX // 2))))
