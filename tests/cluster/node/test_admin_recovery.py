"""A secret in the folders of a majority of the nodes lets an admin in again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.cluster.main import node
from raftsched.cluster.node import admin_recovery
from raftsched.cluster.node.admin_recovery import FILE, VALID_S, found
from raftsched.cluster.node.bootstrap_token import digest


def test_a_folder_tells_of_a_secret_for_an_hour_and_only_if_it_is_its_owners(
    tmp_path: Path,
) -> None:
    assert found(tmp_path, time.time()) == b""
    secret = admin_recovery.new_secret()
    file = admin_recovery.write(tmp_path, secret)
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret not in file.read_text()
    assert found(tmp_path, time.time()) == digest(secret)
    assert found(tmp_path, time.time() + VALID_S + 1) == b""
    file.chmod(0o644)
    assert found(tmp_path, time.time()) == b""
    for text in ("", "x" * 64, digest(secret).hex() * 2):
        file.unlink()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, text.encode())
        os.close(descriptor)
        assert found(tmp_path, time.time()) == b""
    file.unlink()
    (tmp_path / "elsewhere").write_text(digest(secret).hex())
    file.symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path, time.time()) == b""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "node.json").write_text("{}")
    return made


def test_the_command_writes_what_a_node_tells(folder: Path, tmp_path: Path) -> None:
    run = CliRunner()
    words = ["recover-admin", "--folder", str(folder), "--name", "n1", "--members",
             "n1=127.0.0.1:1/127.0.0.1:2"]  # fmt: skip
    said = run.invoke(node, words)
    assert said.exit_code == 0, said.stderr
    secret = said.stdout.strip()
    assert found(folder, time.time()) == digest(secret)
    file = tmp_path / "recovery.secret"
    file.write_text(f"{secret}\n")
    (folder / FILE).unlink()
    again = run.invoke(node, [*words, "--secret-file", str(file)])
    assert (again.exit_code, again.stdout) == (0, "")
    assert found(folder, time.time()) == digest(secret)
    file.write_text("short")
    assert "holds no secret" in run.invoke(node, [*words, "--secret-file", str(file)]).stderr
    (folder / "node.json").unlink()
    assert "is no folder of a node" in run.invoke(node, words).stderr
