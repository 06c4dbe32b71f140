"""The older build of `chaos run upgrade`: where it comes from, and what is said if it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.chaos.real import builds
from raftsched.cluster.local.nodes import PROGRAM
from raftsched.cluster.local.process import ProcessFailed


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "tag.gpgSign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits, with a package that says which one it is of; it is taken for this checkout."""
    root = tmp_path / "checkout"
    (root / ".src" / "raftsched").mkdir(parents=True)
    git(root, "init", "-q")
    for number in ("1", "2"):
        (root / ".src" / "raftsched" / "which.py").write_text(f"print({number})\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", number)
    monkeypatch.setattr(builds, "ROOT", root)
    monkeypatch.setattr(builds, "BASE", git(root, "rev-parse", "HEAD^"))
    return root


def which(build: builds.Build) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "raftsched.which"], env=dict(build.environment),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_without_a_tag_the_base_is_the_older_build(history: Path, tmp_path: Path) -> None:
    build = builds.from_git(tmp_path / "run")
    assert build.program("n1") == PROGRAM
    assert which(build) == "1"


def test_the_newest_release_before_this_commit_is_the_older_build(
    history: Path, tmp_path: Path
) -> None:
    git(history, "commit", "-q", "--allow-empty", "-m", "3")
    git(history, "tag", "-m", "", "v0.1.0", "HEAD^")
    git(history, "tag", "-m", "", "v0.2.0", "HEAD")
    build = builds.from_git(tmp_path / "run")
    assert (build.name, which(build)) == ("v0.1.0", "2")


def test_a_commit_that_git_lacks_is_named(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "BASE", "abcdef0")
    with pytest.raises(ProcessFailed, match=r"git does not give abcdef0 .* --with PATH"):
        builds.from_git(tmp_path / "run")


def test_without_a_history_somebody_has_to_name_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "ROOT", tmp_path)
    with pytest.raises(ProcessFailed, match=r"is no checkout with a history; name .* --with PATH"):
        builds.from_git(tmp_path / "run")


def test_a_virtual_environment_runs_with_its_own_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    build = builds.named(tmp_path / "venv")
    assert build.program("n1") == [str(python), *PROGRAM[1:]]
    assert build.environment == {"PYTHONPATH": ""}


def test_a_folder_that_is_no_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match=r"neither bin/python nor \.src/raftsched; name"):
        builds.named(tmp_path)
