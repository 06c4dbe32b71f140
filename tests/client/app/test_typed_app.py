"""An app of 200 lines, and every mistake that was planted in it, as mypy and pyright see them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHOP = (HERE / "shop.py").read_text()
MISTAKES = (HERE / "mistakes.py.txt").read_text()
CHECK_S = 300.0


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, set[int]]:
    """The shop with the mistakes, and the lines on which they stand."""
    assert len(SHOP.splitlines()) >= 200
    text = SHOP + MISTAKES
    path = tmp_path / "planted.py"
    path.write_text(text)
    lines = enumerate(text.splitlines(), start=1)
    return path, {number for number, line in lines if line.endswith("# wrong")}


@pytest.mark.slow
@pytest.mark.timeout(CHECK_S)
def test_mypy_finds_each_mistake_and_nothing_else(planted: tuple[Path, set[int]]) -> None:
    path, wrong = planted
    command = [
        sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--strict",
        "--no-error-summary", "--hide-error-context", "--cache-dir", str(ROOT / ".mypy_cache"),
        str(path),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=CHECK_S, check=False
    )
    found = {int(number) for number in re.findall(rf"{path.name}:(\d+): error", done.stdout)}

    assert len(wrong) >= 40
    assert (found ^ wrong, done.stderr) == (set(), ""), done.stdout


@pytest.mark.slow
@pytest.mark.timeout(CHECK_S)
def test_pyright_finds_each_mistake_and_nothing_else(planted: tuple[Path, set[int]]) -> None:
    checker = next(filter(None, map(shutil.which, ("basedpyright", "pyright"))), None)
    beside = Path(sys.executable).parent / "basedpyright"
    if checker is None and not beside.exists():
        pytest.skip("neither pyright nor basedpyright is installed")
    path, wrong = planted
    settings = {
        "include": [path.name], "extraPaths": [str(ROOT / ".src")], "typeCheckingMode": "strict",
        "pythonVersion": "3.11", "reportUnusedCoroutine": False, "reportMissingTypeStubs": False,
        "reportUnusedVariable": False,
    }  # fmt: skip
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker or str(beside), "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=path.parent, timeout=CHECK_S, check=False
    )
    found = {
        one["range"]["start"]["line"] + 1
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    }

    assert found ^ wrong == set(), done.stdout
