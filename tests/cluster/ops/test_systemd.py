from __future__ import annotations

import socket
from pathlib import Path

import pytest

from raftsched.cluster.ops.systemd import notify


def test_systemd_gets_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        notify("READY=1")

        assert heard.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    notify("READY=1")
