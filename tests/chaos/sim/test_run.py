from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from raftsched.chaos.sim.__main__ import main
from raftsched.chaos.sim.cluster import Kit, SimCluster
from raftsched.chaos.sim.mutant_table import MUTANTS, Mutant
from raftsched.chaos.sim.options import FAULTS, draw, quiet
from raftsched.chaos.sim.run import hunt, run_seed
from raftsched.chaos.sim.upstream import run_upstream
from raftsched.cluster.raft.journal import CONFIG, Entry
from raftsched.cluster.raft.membership import Configuration

from ...sampled import some

DIGEST = """
import hashlib
from raftsched.chaos.sim.run import hunt, run_seed
print(hashlib.sha256(repr(run_seed(11, story=10**6)).encode()).hexdigest())
"""


@pytest.mark.parametrize("seed", some([1, 2, 3, 171, 222, *range(4, 13)], 4))
def test_all_promises_hold(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.violation == "", outcome.options
    assert outcome.acks > 0


def test_a_majority_of_what_was_never_committed_is_not_healed() -> None:
    """A leader that was cut off holds a configuration at an index where others committed."""
    cluster = SimCluster(quiet(1), Kit())
    for name in cluster.first_names:
        cluster.nodes[name].start()
    cluster.links.keep_connecting()
    cluster.world.run(2.0, lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    core = leader.core
    assert core is not None
    alone = Configuration({core.me: core.config.members[core.me]})
    index = core.journal.last_index + 1
    core.journal.append(Entry(index, core.term, CONFIG, alone.encode()))
    cluster.checker.terms[index] = core.term + 1

    for _ in range(10):
        assert len(cluster.faults.choose()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_replays_to_the_last_event_in_another_process(hash_seed: str) -> None:
    here = hashlib.sha256(repr(run_seed(11, story=10**6)).encode()).hexdigest()

    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == here


@pytest.mark.slow
def test_released_pysyncobj_loses_acknowledged_writes() -> None:
    assert "acknowledged writes are nowhere" in run_upstream(1)


def test_every_class_of_faults_is_drawn() -> None:
    drawn = {fault for seed in range(200) for fault in draw(seed).faults}

    assert drawn == set(FAULTS)


def test_a_known_defect_is_found_and_a_sound_core_is_not_taken_for_one() -> None:
    """CI runs the whole hunt; see `--mutants`."""
    [mutant] = [m for m in MUTANTS if m.name == "A1"]

    assert hunt(mutant)["seeds"] is not None
    assert hunt(replace(mutant, kit=Kit(), budget=1))["seeds"] is None


def test_mutants_can_go_to_other_processes() -> None:
    assert [m.name for m in pickle.loads(pickle.dumps(MUTANTS))] == [m.name for m in MUTANTS]


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.schedule], ids=lambda m: m.name)
@pytest.mark.parametrize("seed", some([1, 2], 1))
def test_a_directed_schedule_shows_its_defect_and_nothing_else(mutant: Mutant, seed: int) -> None:
    assert run_seed(seed, mutant=mutant).violation
    assert run_seed(seed, mutant=replace(mutant, kit=Kit())).violation == ""


def test_the_command_line_ends_with_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seeds", "2", "--jobs", "1", "--json"])

    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert status == 0
    assert (result["seeds"], result["violations"]) == (2, 0)
    assert result["fault_events"] > 0
