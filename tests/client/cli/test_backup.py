"""A backup in a file: whole and verified, or not there."""

from __future__ import annotations

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click import ClickException

from raftsched.client.cli.commands.backup import verify
from raftsched.client.cli.exits import Trouble

from .conftest import Cli

SAID = {
    "cluster": "c", "node": "n1", "revision": 7, "fingerprint": "ab",
    "time": "2026-11-20T00:00:00Z",
}  # fmt: skip


def archive(
    path: Path, files: dict[str, bytes], said: dict[str, Any] | None = None, *, whole: bool = True
) -> Path:
    manifest = {**SAID, "files": [
        {"name": name, "size": len(body), "sha256": sha256(body).hexdigest()}
        for name, body in files.items()
    ], **(said or {})}  # fmt: skip
    with tarfile.open(path, "w") as out:
        for name, body in [*files.items(), ("manifest.json", json.dumps(manifest).encode())]:
            if whole or name != "manifest.json":
                entry = tarfile.TarInfo(name)
                entry.size = len(body)
                out.addfile(entry, io.BytesIO(body))
    return path


FILES = {"state/a": b"a" * 3_000_000, "state/b": b""}


def test_a_whole_archive_says_what_it_is(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.tar", FILES)

    said = verify(path, "b.tar")

    assert (said.cluster, said.revision, said.files, said.size) == ("c", 7, 2, path.stat().st_size)


def test_an_archive_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    bent = archive(tmp_path / "bent.tar", FILES)
    data = bytearray(bent.read_bytes())
    data[2_000_000] ^= 1
    bent.write_bytes(data)
    cut = archive(tmp_path / "cut.tar", FILES)
    cut.write_bytes(cut.read_bytes()[:1_000_000])
    wrong = [
        bent,
        cut,
        archive(tmp_path / "open.tar", FILES, whole=False),
        archive(tmp_path / "less.tar", FILES, {"files": []}),
        archive(tmp_path / "odd.tar", FILES, {"files": 7}),
    ]
    (tmp_path / "text").write_text("no archive")

    for path in [*wrong, tmp_path / "text"]:
        with pytest.raises(ClickException, match="is not whole"):
            verify(path, path.name)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"jobs": -1}, "its manifest says jobs: -1, which is no count"),
        ({"live_runs": "many"}, 'its manifest says live_runs: "many", which is no count'),
        ({"revision": -3}, "its manifest says revision: -3, which is no count"),
        ({"revision": None}, "its manifest says revision: null, which is no number"),
        ({"time": "soon"}, 'its manifest says time: "soon", which is no time'),
        ({"files": 7}, "its manifest says files: 7, which is no list"),
        ({"files": [{"name": "x"}]}, 'its manifest says of a file {"name": "x"}, without all'),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_with_what_it_says(
    tmp_path: Path, said: dict[str, Any], why: str
) -> None:
    path = archive(tmp_path / "b.tar", FILES, said)
    with pytest.raises(Trouble) as caught:
        verify(path, "b.tar")
    assert why in caught.value.why[0]
    assert "raftsched cluster backup" in caught.value.then


def test_an_archive_of_zeros_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    path.write_bytes(bytes(20_480))
    with pytest.raises(Trouble) as caught:
        verify(path, "b.tar")
    assert caught.value.why == ["it holds no file at all in 20,480 bytes"]


def test_a_backup_from_ahead_of_this_clock_is_pointed_out(cli: Cli, tmp_path: Path) -> None:
    path = archive(tmp_path / "b.tar", FILES, {"time": "2199-01-01T00:00:00Z"})

    said = cli("cluster", "restore", str(path), "--dry-run")

    assert "2199-01-01T00:00:00Z, is ahead of this machine's clock" in said.output
    assert "Go by the revision, 7" in said.output


def test_what_is_no_archive_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    """The node of this test sends three pieces of nothing."""
    path = tmp_path / "b.tar"

    said = cli("cluster", "backup", str(path))

    assert (said.exit_code, "is not whole" in said.output) == (1, True)
    assert list(tmp_path.glob("b.tar*")) == []


def test_a_backup_that_breaks_off_leaves_the_old_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    path.write_text("the old one")
    cli.stage.nodes[0].faults.append(lambda node, request, context, answer: answer())

    said = cli("cluster", "backup", str(path), "--force")

    assert (said.exit_code, "after 10 of 15 bytes" in said.output) == (4, True)
    assert path.read_text() == "the old one"
    assert list(tmp_path.glob("b.tar*")) == [path]


def test_a_file_is_not_replaced_unasked_nor_written_nowhere(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    path.write_text("the old one")

    assert cli("cluster", "backup", str(path)).exit_code == 6
    assert cli("cluster", "backup", str(tmp_path / "no" / "b.tar")).exit_code == 2
    assert path.read_text() == "the old one"
