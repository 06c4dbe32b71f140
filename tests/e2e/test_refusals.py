"""What `raftsched node` says when it cannot start: one line, and a code of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from raftsched.cluster.local.nodes import Address, free_addresses

from .processes import Said, alone, cluster, command, ends


async def start(folder: Path, address: Address, *flags: str) -> Said:
    """Start a node alone with this folder, and let it end; its code and its lines."""
    logs = folder.with_name(f"{folder.name}-log")
    return await ends(alone(logs, "--folder", str(folder), *flags, address=address))


def anywhere() -> Address:
    [address] = free_addresses(1, http=False).values()
    return address


def foreign(folder: Path) -> None:
    (folder / "treasure").touch()


def newer(folder: Path) -> None:
    of = {"format": 99, "cluster": "raftsched", "node": "n1", "version": "9.0"}
    (folder / "node.json").write_text(json.dumps(of))


def of(cluster: str, node: str) -> str:
    return json.dumps({"format": 1, "cluster": cluster, "node": node})


@pytest.mark.slow
async def test_what_is_wrong_with_a_folder_is_one_line_and_a_code(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("foreign", "newer", "cluster", "node")}
    for folder in folders.values():
        folder.mkdir()
    foreign(folders["foreign"])
    newer(folders["newer"])
    (folders["cluster"] / "node.json").write_text(of("other", "n1"))
    (folders["node"] / "node.json").write_text(of("raftsched", "n9"))

    found = await asyncio.gather(*(start(folder, anywhere()) for folder in folders.values()))
    ended = dict(zip(folders, found, strict=True))

    assert {name: code for name, (code, _) in ended.items()} == {
        "foreign": 10, "cluster": 12, "node": 13, "newer": 14,
    }  # fmt: skip
    for name, (_, lines) in ended.items():
        [line] = lines
        assert line.startswith("raftsched node: ")
        assert str(folders[name]) in line


@pytest.mark.slow
async def test_a_used_port_is_named(tmp_path: Path) -> None:
    address = anywhere()
    host, _, port = address.client.partition(":")
    with socket.create_server((host, int(port))):
        code, lines = await start(tmp_path / "n1", address)

    assert code == 17
    [line] = lines
    assert f"{address.client} is in use by another program" in line


@pytest.mark.slow
async def test_a_wrong_configuration_is_told_without_touching_anything(tmp_path: Path) -> None:
    code, lines = await start(
        tmp_path / "n1", anywhere(), "--cache-mb", "lots", "--log-level", "loud"
    )

    assert code == 2
    assert [line.split(":")[0] for line in lines] == ["raftsched node"] * 2
    assert not (tmp_path / "n1").exists()


@pytest.mark.slow
async def test_the_written_configuration_passes_its_check(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"

    written = await ends(command(tmp_path, "config", "init", str(file)))
    checked = await ends(command(tmp_path, "config", "check", "--config", str(file)))
    shown = await ends(command(tmp_path, "config", "show", "--origin", "--config", str(file)))

    assert [code for code, _ in (written, checked, shown)] == [0, 0, 0]
    assert checked[1] == ["n1 of 3: the configuration is sound"]
    assert f'name = "n1"  # file {file}' in shown[1]


@pytest.mark.slow
async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running:
        code, lines = await start(tmp_path / "n1", anywhere())

        assert code == 11
        [line] = lines
        assert str(running.nodes["n1"].pid) in line


@pytest.mark.slow
async def test_a_full_disk_is_told_before_anything_begins(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=20m none {small}"
    if (
        not shutil.which("unshare")
        or subprocess.run(
            ["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this system does not let us mount a small disk")
    node = alone(tmp_path, "--folder", str(small / "n1"))
    node.wrap = ("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")

    code, lines = await ends(node)

    assert code == 16
    [line] = lines
    assert "full" in line
    assert "make room" in line
