"""Namespaces that move between clusters: nothing is lost or doubled, and each guard is needed."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from raftsched.chaos.sim.__main__ import main
from raftsched.chaos.sim.cells_directory import Guards
from raftsched.chaos.sim.cells_run import MUTANTS, CellsMutant, hunt, run_cells

# They take hundreds of seeds.
RARE = {"old-copy-wakes", "restore-keeps-moves", "moved-on-too-soon"}


@pytest.mark.parametrize("seed", range(1, 6))
def test_nothing_is_lost_or_doubled_while_namespaces_move(seed: int) -> None:
    outcome = run_cells(seed)

    assert outcome.violation == "", outcome.options
    assert outcome.counts["fired"] > 0


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_cells(7, story=10**6) == run_cells(7, story=10**6)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=pytest.mark.slow if m.name in RARE else (), id=m.name) for m in MUTANTS],
)
def test_a_move_without_one_of_its_guards_is_found_out(mutant: CellsMutant) -> None:
    found = hunt(mutant)

    assert found["seeds"] is not None, found


def test_each_guard_has_a_mutant() -> None:
    without = {f.name for m in MUTANTS for f in fields(Guards) if not getattr(m.guards, f.name)}

    assert without == {f.name for f in fields(Guards)}


def test_the_command_plays_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cells", "--seeds", "2", "--first", "3", "--jobs", "1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["seeds"] == 2
    assert told["violations"] == 0
    assert told["cells"]["fired"] > 0
