"""What the doctor finds at the ports of nodes, and about this machine's files and disk."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from raftsched.client.cli.commands import doctor, locks
from raftsched.client.cli.commands.authority import CERTIFICATE, KEY, Authority

from ..stage import Stage
from .conftest import Cli
from .test_groups import saying, status


class Locked(NamedTuple):
    """A node behind TLS, and by whom its certificate is signed."""

    stage: Stage
    folder: Path
    authority: Authority


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    authority = Authority.make(tmp_path / "tls", "test", 1_000)
    authority.issue("n1", ["n1", "127.0.0.1"], 400)
    place = tmp_path / "tls" / "n1"
    pair = ((place / KEY).read_bytes(), (place / CERTIFICATE).read_bytes())
    stage = Stage(1, grpc.ssl_server_credentials([pair]))
    yield Locked(stage, tmp_path / "tls", authority)
    stage.close()


def found_by(cli: Cli, stage: Stage, *words: str) -> dict[str, list[str]]:
    stage.nodes[0].faults.append(saying(status(quorum=True, margin=1)))
    said = cli("doctor", *words, RAFTSCHED_ENDPOINTS=stage.endpoints)
    return {row.split("\t")[1]: row.split("\t") for row in said.stdout.splitlines()}


def test_the_doctor_says_how_long_the_certificate_of_a_node_is_valid(
    cli: Cli, locked: Locked
) -> None:
    found = found_by(cli, locked.stage, "--ca-file", str(locked.folder / "ca.pem"))

    [port] = [row for check, row in found.items() if check.startswith("certificate 127.0.0.1")]
    assert port[0] == "ok"
    assert "399 days" in port[2]
    assert "999 days" in found["certificate ca_file"][2]


@pytest.mark.parametrize(
    ("days", "verdict", "words"),
    [(100, "ok", "99 days"), (10, "warning", "9 days"), (0, "wrong", "ended ")],
)
def test_a_certificate_is_judged_by_what_is_left_of_it(
    days: int, verdict: str, words: str, tmp_path: Path
) -> None:
    made = Authority.make(tmp_path, "test", 1_000).issue("n1", ["n1"], days)

    found = locks.of_file("certificate", made.certificate)

    assert found.verdict == verdict
    assert words in found.text
    assert found.then


def test_a_file_that_holds_no_certificate_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "nothing").write_text("nothing")

    assert locks.of_file("certificate", tmp_path / "nothing").verdict == "wrong"
    assert locks.of_file("certificate", tmp_path / "gone").verdict == "wrong"


@pytest.mark.parametrize(("token", "verdict"), [("rs_let-me-in", "ok"), ("", "wrong")])
def test_a_port_that_answers_strangers_is_wrong(
    token: str, verdict: str, cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To the doctor, the node is on another machine.
    monkeypatch.setattr("raftsched.client.sdk.endpoints.is_loopback", lambda address: False)
    stage.token = token
    variables = {"RAFTSCHED_TOKEN": token} if token else {}

    said = cli("doctor", RAFTSCHED_INSECURE="yes", **variables)

    found = {row.split("\t")[1]: row.split("\t") for row in said.stdout.splitlines()}
    assert found[f"strangers at {stage.endpoints}"][0] == verdict
    if verdict == "wrong":
        assert "tokens = true" in found[f"strangers at {stage.endpoints}"][3]


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ((1_024, 65_536), "ok"), ((256, resource.RLIM_INFINITY), "ok"), ((1_024, 2_048), "warning"),
        ((256, 512), "wrong"),
    ],
)  # fmt: skip
def test_a_node_raises_the_soft_limit_so_the_hard_one_counts(
    limits: tuple[int, int], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)

    assert doctor.open_files().verdict == verdict


@pytest.mark.parametrize(
    ("free", "verdict"), [(50 << 30, "ok"), (500 << 20, "warning"), (1 << 20, "wrong")]
)
def test_a_disk_that_is_nearly_full_is_wrong(
    free: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(100 << 30, (100 << 30) - free, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)

    found = doctor.space(tmp_path)

    assert found.verdict == verdict
    assert "of 107.4 GB free" in found.text
