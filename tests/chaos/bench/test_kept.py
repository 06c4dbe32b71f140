"""A folder that is filled once and measured often: the same nodes, at the same addresses."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import click
import pytest

from raftsched.chaos.bench import kept
from raftsched.chaos.commands.data_folder import data_folder
from raftsched.client import AsyncClient, every
from raftsched.cluster.local.process import ProcessFailed


def test_a_folder_is_used_again_once_it_is_filled(tmp_path: Path) -> None:
    with data_folder(tmp_path / "a", kept.FILLED) as folder:
        assert kept.filled_with(folder) is None
        kept.addresses(folder, 3)
    with pytest.raises(click.UsageError, match="not empty"), data_folder(folder, kept.FILLED):
        pytest.fail("its filling was broken off")
    kept.is_filled(folder, {"jobs": 3, "runs": 2})
    with data_folder(folder, kept.FILLED) as again:
        assert kept.filled_with(again) == {"jobs": 3, "runs": 2}
    with pytest.raises(click.UsageError), data_folder(folder):
        pytest.fail("nobody else may use it")


def test_its_nodes_stay_where_the_others_know_them(tmp_path: Path) -> None:
    found = kept.addresses(tmp_path, 3)
    assert kept.addresses(tmp_path, 3) == found
    with pytest.raises(ProcessFailed, match="has 3 nodes, and not 1"):
        kept.addresses(tmp_path, 1)
    host, _, port = found["n2"].client.rpartition(":")
    taken = pytest.raises(ProcessFailed, match=f"n2 of .* at {host}:{port}, which another")
    with socket.create_server((host, int(port))), taken:
        kept.addresses(tmp_path, 3)


@pytest.mark.slow
def test_what_was_made_in_it_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    async def make(endpoints: str) -> None:
        async with AsyncClient(endpoints) as client:
            await client.jobs.create("made", handler="noop", schedule=every(3_600))

    async def look(endpoints: str) -> str:
        async with AsyncClient(endpoints) as client:
            return (await client.jobs.get("made")).name

    with kept.kept(tmp_path) as nodes:
        asyncio.run(make(nodes.endpoints))
    with kept.kept(tmp_path) as nodes:
        assert asyncio.run(look(nodes.endpoints)) == "made"
