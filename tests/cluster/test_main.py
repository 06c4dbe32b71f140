"""The command `raftsched node`, as far as no node starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from raftsched.cluster.main import main
from raftsched.cluster.ops.config import KEYS
from raftsched.cluster.ops.exits import NodeExit

SRC = Path(__file__).parents[2] / ".src"
ALONE = ["--name", "n1", "--members", "n1=127.0.0.1:7410/127.0.0.1:7400"]


def run(*words: str, **variables: str) -> Result:
    return CliRunner(env=variables).invoke(main, ["node", *words])


def test_help_names_every_key_and_every_exit_code() -> None:
    said = run("--help").output

    assert [key.flag for key in KEYS.values() if f"{key.flag} " not in said] == []
    codes = {int(word) for word in said.partition("Exit codes:")[2].split() if word.isdecimal()}
    assert {int(code) for code in NodeExit} <= codes


def test_help_loads_neither_grpc_nor_the_engine() -> None:
    heavy = ("grpc", "rocksdict", "pysyncobj", "uvicorn", "structlog")
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([m for m in {heavy!r} if m in sys.modules]))\n"
        "from raftsched.cluster.main import main; main(['node', '--help'])"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert said.stdout.splitlines()[-1] == "[]"


def test_a_file_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"

    first, second = run("config", "init", str(file)), run("config", "init", str(file))
    kept = file.read_text()
    file.write_text("")
    forced = run("config", "init", str(file), "--force")

    assert (first.exit_code, second.exit_code, forced.exit_code) == (0, NodeExit.CONFIG, 0)
    assert "is there already; --force replaces it" in second.stderr
    assert file.read_text() == kept
    assert run("config", "init").stdout == kept


def test_each_fault_is_a_line_on_stderr() -> None:
    said = run("config", "check", *ALONE, "--cache-mb", "1", "--log-level", "loud")

    assert said.exit_code == NodeExit.CONFIG
    assert said.stdout == ""
    assert len(said.stderr.splitlines()) == 2


def test_wrong_keys_for_secrets_are_found_before_a_start(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for text, why in (("c2hvcnQ=", "line 1 has 5 bytes"), ("", "there is no key")):
        file.write_text(text)
        said = run("config", "check", *ALONE, "--secrets-key-file", str(file))
        assert said.exit_code == NodeExit.CONFIG
        assert why in said.stderr
        assert "openssl rand -base64 32" in said.stderr
        assert "c2hvcnQ" not in said.stderr
    said = run("config", "check", *ALONE, "--secrets-key-command", "false")
    assert (said.exit_code, "ended with 1" in said.stderr) == (NodeExit.CONFIG, True)


@pytest.mark.parametrize(
    ("words", "note"), [(ALONE, ""), (["--name", "n1", "--members",
     "n1=127.0.0.1:1/127.0.0.1:2 n2=127.0.0.1:3/127.0.0.1:4"], "no more than 1 would")],
)  # fmt: skip
def test_two_nodes_are_no_better_than_one_and_it_is_said(words: list[str], note: str) -> None:
    said = run("config", "check", *words)

    assert said.exit_code == 0
    assert note in said.stderr
    assert bool(said.stderr) == bool(note)


def test_show_says_where_values_come_from_only_if_asked(tmp_path: Path) -> None:
    plain = run("config", "show", *ALONE, RAFTSCHED_NODE_CACHE_MB="99")
    origin = run("config", "show", "--origin", *ALONE, RAFTSCHED_NODE_CACHE_MB="99")

    assert "cache_mb = 99\n" in plain.stdout
    assert "cache_mb = 99  # RAFTSCHED_NODE_CACHE_MB\n" in origin.stdout


def test_options_in_front_of_the_words_are_not_lost_silently() -> None:
    said = run("--cache-mb", "9", "config", "show")

    assert said.exit_code == 2
    assert "options go behind the words: raftsched node config ..." in said.stderr


def test_a_virtual_clock_is_for_tests_alone(tmp_path: Path) -> None:
    clock, folder = tmp_path / "clock", tmp_path / "n1"
    flag = ["--virtual-clock", str(clock), "--folder", str(folder)]

    nothing = run(*ALONE, *flag)
    clock.write_bytes(bytes(48))
    other = run(*ALONE, *flag)
    open_door = run(*ALONE, *flag, "--listen", "0.0.0.0:7400", "--insecure")

    assert {nothing.exit_code, other.exit_code, open_door.exit_code} == {NodeExit.CONFIG}
    assert "is no clock" in nothing.stderr
    assert "LocalCluster(virtual_clock=True)" in other.stderr
    assert "is for tests on one machine, and listen = '0.0.0.0:7400'" in open_door.stderr
    # Nothing was written, so the folder can still become a real one's.
    assert not folder.exists()


def test_nobody_comes_upon_the_virtual_clock() -> None:
    shown = run("config", "show", *ALONE, RAFTSCHED_NODE_VIRTUAL_CLOCK="clock")

    assert "virtual" not in run("--help").output
    assert "virtual" not in run("config", "init").stdout
    assert (shown.exit_code, "virtual" in shown.stdout) == (0, False)
