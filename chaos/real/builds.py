"""The builds of `chaos run upgrade`: an older one beside the present one."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...cluster.local.nodes import PROGRAM, ProgramOf
from ...cluster.local.process import ProcessFailed

# The oldest commit to whose nodes a cluster can go back from those of today.
BASE = "14d8099"
ROOT = Path(__file__).resolve().parents[2]
GIT_S = 60.0
NAME_IT = "name the older build: --with PATH, a checkout or a virtual environment"


@dataclass(frozen=True, slots=True)
class Build:
    """What is run for a node, and with which environment."""

    name: str
    program: ProgramOf
    environment: Mapping[str, str] = field(default_factory=dict)

    def number(self) -> str:
        """By which `raftsched cluster upgrade` knows it."""
        python = next(iter(self.program("n1")))
        done = subprocess.run(
            [python, "-c", "from raftsched.cluster.node.build import build; print(build())"],
            env=os.environ | self.environment, capture_output=True, text=True, timeout=GIT_S,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise ProcessFailed(f"{self.name} does not say which build it is: {done.stderr[-500:]}")
        return done.stdout.strip()


def named(path: Path) -> Build:
    """The build in a virtual environment, or in a checkout that this interpreter runs."""
    place = path.absolute()
    python = place / "bin" / "python"
    if python.exists():
        program = [str(python), *PROGRAM[1:]]
        return Build(place.name, lambda name: program, {"PYTHONPATH": ""})
    sources = place / ".src"
    if (sources / "raftsched").is_dir():
        return Build(place.name, lambda name: PROGRAM, {"PYTHONPATH": str(sources)})
    raise ProcessFailed(
        f"{path} is no build, as it has neither bin/python nor .src/raftsched; {NAME_IT}"
    )


def from_git(folder: Path) -> Build:
    """The newest release before the present commit, or the base, written into a new folder."""
    if not (ROOT / ".git").exists():
        raise ProcessFailed(f"{ROOT} is no checkout with a history; {NAME_IT}")
    commit = newest_tag() or BASE
    done = _git("archive", "--format=tar", commit)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise ProcessFailed(f"git does not give {commit} ({words}); fetch it, or {NAME_IT}")
    place = folder / commit.replace("/", "-")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
    return named(place)


def newest_tag() -> str:
    """That of a commit before the present one; "" while there is none."""
    done = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    return done.stdout.decode().strip() if not done.returncode else ""


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, timeout=GIT_S, check=False
        )
    except FileNotFoundError as error:
        raise ProcessFailed(f"there is no git here; {NAME_IT}") from error
