"""What `bench compare` makes of turns, of words from programs, and of a machine that lacks one.

The comparison itself has no test: it needs PostgreSQL, and packages from the network.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.chaos.bench.compare import ComparedLoad, best, flat, ratio, summary, taking_part
from raftsched.chaos.bench.peers.peer import PEERS, cache, figures_of, kit_name, steps
from raftsched.chaos.bench.peers.postgres import Postgres, accepts, programs
from raftsched.chaos.commands.bench import bench
from raftsched.cluster.local.process import Process, ProcessFailed

from ...rows import each

HERD = ComparedLoad(runs=1_000)
STEADY = ComparedLoad(runs=1_000, rate=100.0)


def herd(rate: float) -> dict[str, float | int]:
    return {"runs_per_s": rate, "inserted_per_s": 1}


def lateness(p50: float, p99: float) -> dict[str, float | int]:
    return {"lateness_p50_ms": p50, "lateness_p95_ms": p99, "lateness_p99_ms": p99,
            "lateness_max_ms": p99}  # fmt: skip


def test_the_fastest_turn_of_a_herd_counts_and_the_ratio_is_ours_to_theirs() -> None:
    mine = best(HERD, [herd(100), herd(300), herd(200)])
    assert mine == herd(300)
    assert ratio(HERD, mine, herd(200)) == 1.5


def test_of_a_steady_load_the_least_late_turn_counts_whole_and_the_ratio_is_turned() -> None:
    found = best(STEADY, [lateness(1, 20), lateness(2, 10)])
    assert found == lateness(2, 10)
    assert ratio(STEADY, found, lateness(1, 25)) == 2.5


def test_a_summary_tells_each_turn_and_one_ratio_for_each_peer() -> None:
    whole = summary(HERD, {"ours": [herd(300), herd(200)], "pgqueuer": [herd(100), herd(150)]})

    assert (whole["of"], whole["runs"], whole["rounds"]) == ("herd", 1_000, 2)
    rows = dict(flat(whole))
    assert rows["ours runs_per_s"] == 300
    assert rows["ours turns"] == [300, 200]
    assert rows["pgqueuer runs_per_s"] == 150
    assert rows["pgqueuer ratio"] == 2.0
    assert rows["pgqueuer settings"] == "batch_size 500, poll_s 0.2"


def test_a_peer_that_cannot_run_here_is_left_out_with_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    said: list[str] = []

    assert [peer.name for peer in taking_part(list(PEERS), HERD, said.append)] == ["pgqueuer"]
    [word] = said
    assert "graphile is left out" in word
    assert "Node.js" in word


def test_a_peer_asked_for_by_name_that_cannot_run_here_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ProcessFailed, match=r"graphile cannot be measured: it needs Node\.js"):
        taking_part(["graphile"], HERD, lambda word: None)


def test_a_steady_load_is_not_put_on_a_peer_without_a_program_for_it() -> None:
    with pytest.raises(ProcessFailed, match="with a herd only"):
        taking_part(["graphile"], STEADY, lambda word: None)


def test_the_figures_are_the_last_line_of_what_a_program_said() -> None:
    assert figures_of('warning: {\n{"seconds": 2.5, "begun": 3}\n', "x") == {
        "seconds": 2.5,
        "begun": 3,
    }


@each("said", ["", "it broke", '{"seconds": 1}\nit broke', "[1]", "{}"])
def test_a_program_that_ends_without_figures_has_failed(said: str) -> None:
    with pytest.raises(ProcessFailed, match="without figures"):
        figures_of(said, "x")


def test_the_newest_postgresql_is_taken_by_number(tmp_path: Path) -> None:
    for version in ("9", "15", "16", "old"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "initdb").touch()
    assert programs(tmp_path) == tmp_path / "16" / "bin"


def test_where_there_is_no_postgresql_a_word_tells_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ProcessFailed, match="apt-get install postgresql"):
        programs(tmp_path)


def test_only_the_primary_waits_for_one_standby_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "raftsched.chaos.bench.peers.postgres"
    monkeypatch.setattr(f"{place}.programs", lambda: tmp_path)
    monkeypatch.setattr(f"{place}.server_user", lambda: "")

    servers = Postgres(tmp_path).servers

    assert "synchronous_standby_names=ANY 1 (s1, s2)" in servers["primary"].arguments
    for name in ("s1", "s2"):
        assert f"cluster_name={name}" in servers[name].arguments
        assert not any("synchronous" in word for word in servers[name].arguments)
    # Nobody gets less durability than PostgreSQL has by itself.
    spelled = " ".join(word for server in servers.values() for word in server.arguments)
    assert "fsync" not in spelled
    assert "synchronous_commit" not in spelled


def test_a_server_is_ready_when_its_pid_file_says_so(tmp_path: Path) -> None:
    assert not accepts(tmp_path)
    lines = ["1", "folder", "0", "5432", "", "127.0.0.1", "0 0", "starting"]
    (tmp_path / "postmaster.pid").write_text("\n".join(lines[:4]))
    assert not accepts(tmp_path)
    (tmp_path / "postmaster.pid").write_text("\n".join(lines))
    assert not accepts(tmp_path)
    (tmp_path / "postmaster.pid").write_text("\n".join([*lines[:7], "ready   "]))
    assert accepts(tmp_path)


def test_a_kit_is_kept_under_what_decides_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = PEERS["pgqueuer"]
    newer = replace(peer, packages=("pgqueuer==1.7.0",))
    assert kit_name(peer) != kit_name(newer)
    assert kit_name(PEERS["graphile"]) == "graphile-worker-0.17.3-node"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache() == tmp_path / "raftsched" / "peers"
    # A virtual environment of its own: its interpreter installs, not ours.
    _, pip = steps(peer, tmp_path, tmp_path)
    assert pip.program[0] == str(tmp_path / "bin/python")


def test_a_step_that_fails_says_its_last_words(tmp_path: Path) -> None:
    words = ["-c", "import sys; sys.exit('no room')"]
    step = Process("a step", words, tmp_path / "log", program=(sys.executable,))
    with pytest.raises(ProcessFailed, match="a step ended with 1:\nno room"):
        step.finish(60.0)


def test_a_machine_without_postgresql_ends_the_comparison_with_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent() -> str:
        raise ProcessFailed("apt-get install postgresql")

    monkeypatch.setattr("raftsched.chaos.bench.peers.postgres.version", absent)
    done = CliRunner().invoke(bench, ["compare", "-o", "json"])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "apt-get install postgresql" in done.stderr


@pytest.mark.parametrize("words", [["--peer", "celery"], ["--rounds", "0"], ["--runs", "10"]])
def test_wrong_words_are_refused_before_anything_starts(words: list[str]) -> None:
    assert CliRunner().invoke(bench, ["compare", *words]).exit_code == 2
