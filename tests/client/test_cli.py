"""The rim of the `raftsched` command: fast, exact, and without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.client.cli import main

SRC = Path(__file__).parents[2] / ".src"
# Each costs more than the 250 ms that `--help` may take, or is not for a client to load at all.
HEAVY = ("grpc", "google.protobuf", "rocksdict", "pysyncobj", "asyncio", "rich")


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, on this checkout and no other copy that may be installed."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_word_about_itself_loads_nothing_heavy(argument: str) -> None:
    said = python(
        "import atexit, sys\n"
        f"atexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules]))\n"
        f"from raftsched.client.cli import main; main([{argument!r}])"
    )

    assert said.stdout.splitlines()[-1] == "[]"
    assert said.returncode == 0


def test_the_sdk_loads_neither_the_engine_nor_the_consensus_library() -> None:
    heavy = ("rocksdict", "pysyncobj", "raftsched.cluster", "raftsched.statemachine")

    said = python(
        f"import sys, raftsched.client; print([m for m in {heavy!r} if m in sys.modules])"
    )

    assert said.stdout == "[]\n"


def test_the_version_is_that_of_the_package() -> None:
    said = CliRunner().invoke(main, ["--version"])

    assert said.output == f"raftsched, version {metadata.version('raftsched')}\n"
    assert said.exit_code == 0


def test_help_is_a_screen_at_most() -> None:
    said = CliRunner().invoke(main, ["-h"])

    assert said.output.startswith("Usage: ")
    assert len(said.output.splitlines()) <= 40
    assert said.exit_code == 0


@pytest.mark.parametrize("wrong", [["frobnicate"], ["--frobnicate"]])
def test_an_unknown_word_is_named_with_what_to_type_next(wrong: list[str]) -> None:
    said = CliRunner().invoke(main, wrong, prog_name="raftsched")

    assert wrong[0] in said.stderr
    assert "raftsched --help" in said.stderr
    assert "Traceback" not in said.output
    assert said.stdout == ""
    assert said.exit_code == 2
