"""Ports that nobody uses."""

from __future__ import annotations

import socket

import pytest

from raftsched.cluster.local import ports
from raftsched.cluster.local.ports import LOOPBACK, PORTS, NoPorts, free_ports, is_free


def test_ports_are_different_and_outside_of_those_the_system_gives_away() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(port in PORTS and is_free(port) for port in found)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        assert not is_free(taken.getsockname()[1])


def test_too_few_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(NoPorts, match="end programs that listen there"):
        free_ports(1)
