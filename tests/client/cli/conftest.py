"""The command in this process, against nodes in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from raftsched.client.cli import main

from ..stage import Stage


class Cli:
    """`raftsched` with an environment of its own."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.environment = {
            "RAFTSCHED_ENDPOINTS": stage.endpoints,
            "RAFTSCHED_CONFIG": str(folder / "config.toml"),
            "RAFTSCHED_TIME": "utc",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def __call__(self, *words: str, typed: str | None = None, **environment: str) -> Result:
        said = CliRunner().invoke(
            main, words, input=typed, env={**self.environment, **environment},
            prog_name="raftsched",
        )  # fmt: skip
        assert "Traceback" not in said.output, said.output
        assert "itself is at fault" not in said.output or "fault" in environment, said.output
        if said.exception and not isinstance(said.exception, SystemExit):
            raise said.exception
        return said

    def ok(self, *words: str, **more: Any) -> Result:
        said = self(*words, **more)
        assert said.exit_code == 0, said.output
        return said

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json").stdout)

    def rows(self, *words: str) -> list[list[str]]:
        """The lines of a table, as a pipe gets them; the first holds the titles."""
        return [line.split("\t") for line in self.ok(*words).stdout.splitlines()]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(1)
    yield made
    made.close()


@pytest.fixture
def cli(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    # What whoever runs the tests has set for his own cluster is not for these.
    for name in [name for name in os.environ if name.startswith("RAFTSCHED_")]:
        monkeypatch.delenv(name)
    return Cli(stage, tmp_path)
