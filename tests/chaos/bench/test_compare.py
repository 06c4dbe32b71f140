"""What `bench compare` makes of turns, of words from programs, and of a machine that lacks one.

The comparison itself has no test: it needs PostgreSQL, and packages from the network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.chaos.bench import compare, compare_page, peers
from raftsched.chaos.bench.compare import ComparedLoad, best, flat, ratio, summary, taking_part
from raftsched.chaos.bench.compare_page import keeps_up, markdown, run_all
from raftsched.chaos.bench.compare_turns import first_due, of_failover
from raftsched.chaos.bench.peers.peer import PEERS, cache, figures_of, kit_name, steps
from raftsched.chaos.bench.peers.postgres import Postgres, accepts, programs
from raftsched.chaos.bench.peers.usage import UsageWatch, below
from raftsched.chaos.commands.bench import bench
from raftsched.chaos.commands.compare import PEERS as TYPED
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


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with PostgreSQL and nothing else."""
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr("raftsched.chaos.bench.peers.postgres.programs", lambda: Path("/pg"))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("failover", "there"),
    [(False, ["pgqueuer", "procrastinate", "apscheduler"]), (True, [])],
)
def test_a_peer_that_cannot_run_here_is_left_out_with_what_to_install(
    failover: bool, there: list[str]
) -> None:
    load = replace(STEADY, failover=failover)
    shown: list[str] = []
    if there:
        assert [peer.name for peer in taking_part(list(PEERS), load, shown.append)] == there
    else:
        with pytest.raises(ProcessFailed, match="no peer is left"):
            taking_part(list(PEERS), load, shown.append)
    assert len(shown) == len(PEERS) - len(there)
    assert all("is left out" in one and "apt-get install" in one for one in shown)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("name", "why"),
    [("graphile", r"it needs Node\.js"), ("celery", "apt-get install redis-server"),
     ("bullmq", "apt-get install nodejs npm")],
)  # fmt: skip
def test_a_peer_asked_for_by_name_that_cannot_run_here_is_an_error(name: str, why: str) -> None:
    with pytest.raises(ProcessFailed, match=f"{name} cannot be measured: .*{why}"):
        taking_part([name], HERD, lambda word: None)


def test_a_page_begins_with_where_others_are_ahead() -> None:
    turns = {"ours": [herd(300)], "celery": [], "bullmq": [herd(600)], "pgboss": [herd(100)]}
    found = {"many at once": summary(HERD, turns, {"celery": "it took too long"})}
    lines = markdown(found, {"cores": 2}, "bench compare").splitlines()
    at = lines.index("## Where others are ahead")
    assert lines[at + 2 : at + 4] == ["* many at once: BullMQ: runs/s 600 to our 300.", ""]
    assert "| pg-boss | 100 | 1 | 3.0 |" in lines
    assert "| Celery | no figures: it took too long | | |" in lines
    assert "| APScheduler | not measured | | |" in lines
    assert any(line.startswith("* BullMQ: bullmq@") for line in lines)
    assert markdown({"x": summary(HERD, {"ours": [herd(3)]})}, {}, "c").count("Nowhere") == 1


def test_servers_that_are_not_root_get_to_their_folders_under_every_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    modes: list[int] = []

    def played(place: Path, *rest: object, **named: object) -> dict[str, object]:
        compare.let_servers_in(place)
        modes.append(min(folder.stat().st_mode & 0o011 for folder in (place, place.parent)))
        return {}

    monkeypatch.setattr(compare, "server_user", lambda: "postgres")
    monkeypatch.setattr(compare_page, "taking_part", lambda *rest: [PEERS["celery"]])
    monkeypatch.setattr(compare_page, "run", played)
    monkeypatch.setattr(compare_page, "rate_of", lambda found, name: 1e9)
    assert len(list(run_all(tmp_path, ["celery"], 2, 1, lambda word: None))) == len(modes)
    assert set(modes) == {0o011}


def test_a_load_is_not_put_on_what_manages_far_less() -> None:
    shown: list[str] = []
    load = replace(STEADY, rate=1_000.0)
    assert keeps_up(PEERS["celery"], load, {}, shown.append)
    assert keeps_up(PEERS["celery"], load, {"celery": 500.0}, shown.append)
    assert not keeps_up(PEERS["celery"], load, {"celery": 499.0}, shown.append)
    assert shown == ["celery is left out: it managed 499 runs/s, and 1,000 are asked"]


def test_one_that_cannot_keep_up_is_shown_with_why_and_takes_nobody_with_it() -> None:
    turns = {"ours": [herd(300)], "celery": [], "bullmq": [herd(600)]}
    rows = dict(flat(summary(HERD, turns, {"celery": "it took too long"})))
    assert rows["celery failed"] == "it took too long"
    assert rows["bullmq ratio"] == 0.5


def test_a_pause_is_the_longest_that_began_with_the_loss_or_behind_it() -> None:
    due = [n / 10 for n in range(60)]
    # Killed at 2.0: what was fetched already goes on until 2.4, then nothing until 4.0.
    begun = [at if at < 2.45 else max(at, 4.0) for at in due]
    found = of_failover(list(zip(due, begun, strict=True)), 2.0, 60, 9.0)
    assert found["pause_ms"] == pytest.approx(1_600)
    assert (found["lost"], found["twice"]) == (0, 0)
    assert found["lateness_max_ms"] == pytest.approx(1_500)
    again = [*zip(due[1:], begun[1:], strict=True), (due[30], 5.5)]
    found = of_failover(again, 2.0, 60, 9.0)
    assert (found["lost"], found["twice"]) == (1, 1)
    # What never ran had not come back when the look at it ended.
    found = of_failover([(0.0, 0.1), (2.0, 2.1)], 2.0, 60, 90.0)
    assert found["pause_ms"] == pytest.approx(87_900)
    assert found["lateness_max_ms"] == pytest.approx(88_000)
    assert of_failover([(0.0, 0.1)], 2.0, 2, 12.0)["pause_ms"] == pytest.approx(10_000)
    with pytest.raises(ProcessFailed, match="over before the primary was killed"):
        of_failover([(0.0, 0.1)], 0.0, 60, 90.0)


def test_what_processes_use_is_counted_with_all_below_them_and_never_falls() -> None:
    burn = (
        "import sys, time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    # The shell waits for the one that burns, which stays until its input ends.
    shell = ["sh", "-c", f"'{sys.executable}' -c '{burn}'; true"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watch = UsageWatch(lambda: [process.pid], list)
        watch.look(with_memory=True)
        assert watch.servers_s[0] >= 0.09
        assert watch.memory > 0
        process.communicate(timeout=60)
    watch.look(with_memory=False)
    assert watch.servers_s[1] == watch.servers_s[0]
    assert watch.between(watch.at[0], watch.at[1]) == (0.0, 0.0)
    assert below([process.pid]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("failover", [False, True], ids=["steady", "failover"])
def test_a_program_puts_its_load_on_any_system(tmp_path: Path, failover: bool) -> None:
    """A system of ours that keeps its jobs in a file; with a failover its workers break down."""
    system = tmp_path / "in_a_file.py"
    system.write_text(IN_A_FILE)
    asked = {
        "system": str(system), "runs": 200, "rate": 200.0, "workers": 2, "failover": failover,
        "insert_rate": 2_000, "warm_up": 50, "least_rate": 50, "pairs": str(tmp_path / "pairs"),
        "file": str(tmp_path / "jobs.db"), "breaks": failover,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", str(Path(peers.__file__).with_name("load.py")), json.dumps(asked)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = figures_of(done.stdout, "x")
    log = tmp_path / "log"
    log.write_text(done.stdout)
    assert first_due(log) == found["first"] < found["done"]
    whole = array("d")
    whole.frombytes((tmp_path / "pairs").read_bytes())
    assert len({round(1000 * due) for due in whole[::2]}) == 200
    assert min(at - due for due, at in zip(whole[::2], whole[1::2], strict=True)) >= 0
    assert ("it breaks down" in done.stderr) == failover


IN_A_FILE = """
import sqlite3, time

class System:
    def __init__(self, asked):
        self.asked = asked
    def open(self):
        return sqlite3.connect(self.asked["file"], timeout=20, isolation_level=None)
    async def install(self):
        self.open().execute("create table jobs (due real)")
    async def connect(self):
        self.file = self.open()
    async def insert(self, due):
        self.file.execute("begin")
        self.file.executemany("insert into jobs values (?)", [(one,) for one in due])
        self.file.execute("commit")
    async def left(self):
        return self.file.execute("select count(*) from jobs").fetchone()[0] > 0
    def work(self, began):
        file, count = self.open(), 0
        while True:
            taken = "delete from jobs where due <= ? returning due"
            for (due,) in file.execute(taken, (time.time(),)).fetchall():
                began(due)
                count += 1
            if self.asked["breaks"] and count > 100:
                raise OSError("it breaks down")
            time.sleep(0.01)

SYSTEM = System
"""


def test_the_figures_are_the_last_line_of_what_a_program_wrote() -> None:
    assert figures_of('warning: {\n{"done": 2.5, "begun": 3}\n', "x") == {"done": 2.5, "begun": 3}


@each("said", ["", "it broke", '{"done": 1}\nit broke', "[1]", "{}"])
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


@each("words", [["--peer", "nobody"], ["--rounds", "0"], ["--runs", "10"], ["--rate", "5"]])
def test_wrong_words_are_refused_before_anything_starts(words: list[str]) -> None:
    assert CliRunner().invoke(bench, ["compare", *words]).exit_code == 2


def test_what_may_be_typed_is_what_there_is() -> None:
    assert [*PEERS] == [*TYPED]
    assert all((Path(peers.__file__).parent / peer.program).exists() for peer in PEERS.values())
