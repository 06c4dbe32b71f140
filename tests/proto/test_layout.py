"""The contracts compile for who stands outside of this checkout, as proto/DESIGN.md says."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(f"raftsched/v1/{path.name}" for path in (ROOT / "proto" / "v1").glob("*.proto"))


def protoc(folder: Path, *arguments: str) -> None:
    """Run it elsewhere, so that it finds nothing but what it is told of."""
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "--descriptor_set_out=set", *arguments],
        cwd=folder, check=True, timeout=60,
    )  # fmt: skip
    assert (folder / "set").stat().st_size > 0


def lay_out(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "dev"), "layout", *names],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("names", [["raftsched/v1/worker.proto"], NAMES])
def test_one_folder_is_all_that_protoc_must_be_told(names: list[str], tmp_path: Path) -> None:
    laid_out = lay_out(tmp_path, "out")
    assert laid_out.returncode == 0, laid_out.stderr

    protoc(tmp_path, "-Iout", *names)


def test_protoc_can_be_told_where_the_files_stand(tmp_path: Path) -> None:
    googleapis = metadata.distribution("googleapis-common-protos").locate_file(".")

    protoc(tmp_path, f"-Iraftsched/v1={ROOT}/proto/v1", f"-I{googleapis}", *NAMES)


@pytest.mark.parametrize("names", [[], ["."]])
def test_a_folder_that_is_there_is_left_alone(names: list[str], tmp_path: Path) -> None:
    refused = lay_out(tmp_path, *names)

    assert refused.returncode == 1
    assert "a new folder" in refused.stderr
    assert not list(tmp_path.iterdir())
