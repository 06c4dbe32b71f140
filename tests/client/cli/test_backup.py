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

from raftsched.client.cli.backup import verify

from .conftest import Cli

SAID = {"cluster": "c", "node": "n1", "revision": 7, "fingerprint": "ab", "time": "t"}


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
