from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator

import pytest

from raftsched.cluster.local.systemd import Watchdog, notify


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where systemd listens. A path of a socket has 107 bytes at most, and the folder of a test in
    a checkout that lies deep has more."""
    with (
        tempfile.TemporaryDirectory(prefix="raftsched-", dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
    ):
        listening.bind(f"{folder}/notify")
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        yield listening


def words(heard: socket.socket) -> list[bytes]:
    found = []
    try:
        while True:
            found.append(heard.recv(100))
    except BlockingIOError:
        return found


def test_systemd_gets_the_word(heard: socket.socket) -> None:
    notify("READY=1")

    assert words(heard) == [b"READY=1"]


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    notify("READY=1")


def test_the_sign_of_life_comes_three_times_as_often_as_it_must(
    heard: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    watchdog = Watchdog()

    for second in range(31):
        watchdog.look(1000.0 + second)

    assert words(heard) == [b"WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}],
    ids=["no watchdog", "no number", "of another process"],
)
def test_who_is_not_asked_gives_no_sign(
    environment: dict[str, str], heard: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    Watchdog().look(1000.0)

    assert words(heard) == []
