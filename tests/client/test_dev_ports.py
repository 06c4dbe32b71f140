"""Where `raftsched dev` puts its cluster."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from raftsched.client.dev import ports
from raftsched.client.dev.cluster import key_file
from raftsched.client.dev.ports import Ports, choose, remember
from raftsched.cluster.local.nodes import Address
from raftsched.cluster.local.ports import NoPorts


def test_its_nodes_have_a_key_for_secrets_that_stays(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    file = key_file(folder)
    assert file.stat().st_mode & 0o777 == 0o600
    [key] = file.read_text().split()
    assert len(base64.b64decode(key, validate=True)) == 32
    assert key_file(folder).read_text().split() == [key]
    assert [one.name for one in folder.iterdir()] == [file.name]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Ports that are in use; the tests must not depend on what else runs here."""
    used: set[int] = set()

    def first(wanted: Ports) -> int:
        return next((port for port in wanted.all if port in used), 0)

    monkeypatch.setattr(ports, "_taken", first)
    return used


def test_the_ports_one_expects_are_taken_when_they_are_free(
    taken: set[int], tmp_path: Path
) -> None:
    found = choose(tmp_path, 7400, 3)

    assert found.endpoints == "127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402"
    assert found.addresses["n2"] == Address("127.0.0.1:7411", "127.0.0.1:7401", "127.0.0.1:7421")


@pytest.mark.parametrize("used", [7400, 7412, 7421])
def test_one_used_port_moves_them_all(taken: set[int], tmp_path: Path, used: int) -> None:
    taken |= {used, 7500}

    assert choose(tmp_path, 7400, 3).base == 7600


def test_a_folder_has_its_ports_for_ever(taken: set[int], tmp_path: Path) -> None:
    remember(tmp_path, Ports(7600, 3))

    assert choose(tmp_path, 7400, 3).base == 7600

    taken.add(7600)
    with pytest.raises(NoPorts, match=r"port 7600 is in use, and the cluster in .* lives there"):
        choose(tmp_path, 7400, 3)


def test_a_folder_has_its_count_of_nodes(taken: set[int], tmp_path: Path) -> None:
    remember(tmp_path, Ports(7400, 3))

    with pytest.raises(NoPorts, match="say --nodes 3"):
        choose(tmp_path, 7400, 5)


def test_a_note_that_cannot_be_read_is_not_guessed(taken: set[int], tmp_path: Path) -> None:
    (tmp_path / ports.FILE).write_text("{}")

    with pytest.raises(NoPorts, match="cannot be read"):
        choose(tmp_path, 7400, 3)


def test_a_real_port_in_use_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        assert ports._taken(Ports(port, 1)) == port
