"""./dev on machines of all kinds: each is a folder of tools and a stand-in for Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What the script may count on, beside Python and git.
TOOLS = [
    "bash", "cat", "cksum", "cp", "dirname", "env", "ln", "mkdir", "readlink", "rm", "sleep",
    "tail", "tar", "touch",
]  # fmt: skip

# Notes how it is called, and makes an environment out of itself.
STAND_IN = """#!/bin/sh
echo "$(basename "$0")${1+ $*}" >>"$CALLS"
case "$*" in
  -) cat >/dev/null; echo "$WORD" ;;
  "-m venv "*)
    mkdir -p "$3/bin" && touch "$3/pyvenv.cfg"
    for name in python uv raftsched ruff mypy; do cp "$0" "$3/bin/$name"; done ;;
  "-m pip install uv=="*) exit "${UV_FAILS:-0}" ;;
  *"--require-hashes"*) echo "no such host"; exit "${LOCK_FAILS:-0}" ;;
  "-m pytest "*) env >"$CALLS.env" ;;
  dev*) exit "${DEV_FAILS:-0}" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A checkout, the tools beside it, and a home that must stay empty."""

    checkout: Path
    tools: Path
    home: Path

    def interpreter(self, name: str, word: str) -> Path:
        """Put a Python on the path that answers the script's probe with `word`."""
        path = self.tools / name
        path.write_text(STAND_IN.replace("$WORD", word))
        path.chmod(0o755)
        return path

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        env = {"PATH": str(self.tools), "HOME": str(self.home), "CALLS": str(self.log)}
        return subprocess.Popen(
            [str(self.checkout / "dev"), *arguments],
            env=env | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def dev(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def turn(self) -> Path:
        return self.checkout / ".venv.turn"

    @property
    def log(self) -> Path:
        return self.home.parent / "calls"

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def environment(self) -> dict[str, str]:
        """What pytest was started with."""
        lines = Path(f"{self.log}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "a check out", tmp_path / "tools", tmp_path / "home")
    for folder in (made.checkout / ".ci", made.tools, made.home):
        folder.mkdir(parents=True)
    for name in ("dev", "pyproject.toml", ".ci/requirements-dev.txt"):
        shutil.copy(ROOT / name, made.checkout / name)
    for tool in [*TOOLS, "basename", "git"]:
        (made.tools / tool).symlink_to(str(shutil.which(tool)))
    return made


@pytest.fixture
def fit(machine: Machine) -> Machine:
    """A machine with all that is needed."""
    machine.interpreter("python3", "fit 3.12")
    return machine


# Words about itself.


@pytest.mark.parametrize("arguments", [(), ("help",), ("-h",), ("--help",)])
def test_help_needs_nothing(machine: Machine, arguments: tuple[str, ...]) -> None:
    said = machine.dev(*arguments)

    assert said.stdout.startswith("usage: ./dev COMMAND")
    assert said.returncode == 0
    assert not (machine.checkout / ".venv").exists()


def test_an_unknown_command_is_named(machine: Machine) -> None:
    said = machine.dev("tset")

    assert said.stderr.startswith("./dev: there is no command 'tset'\n")
    assert "usage: ./dev" in said.stderr
    assert said.stdout == ""
    assert said.returncode == 2


# Which Python.


def test_a_machine_without_python_is_told_what_to_install(machine: Machine) -> None:
    said = machine.dev("test")

    assert "no usable Python found" in said.stderr
    assert "python3 is not there" in said.stderr
    assert "Install Python 3.11 or newer" in said.stderr
    assert "setting up" not in said.stderr
    assert said.returncode == 1


def test_a_python_that_is_too_old_is_named_with_its_version(machine: Machine) -> None:
    machine.interpreter("python3", "old 3.9")

    said = machine.dev("test")

    assert "python3 is Python 3.9, and 3.11 is the oldest that works" in said.stderr
    assert said.returncode == 1
    assert machine.calls() == ["python3 -"]


def test_a_python_without_venv_is_told_the_package(machine: Machine) -> None:
    machine.interpreter("python3", "bare 3.12")

    said = machine.dev("setup")

    assert "python3 has no venv module" in said.stderr
    assert "apt-get install python3.12-venv" in said.stderr
    assert said.returncode == 1


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.interpreter("python3", "old 3.10")
    machine.interpreter("python3.12", "fit 3.12")

    said = machine.dev("setup")

    assert any(call.startswith("python3.12 -m venv") for call in machine.calls())
    assert said.returncode == 0


def test_a_shim_that_does_not_start_is_passed_over(machine: Machine) -> None:
    broken = machine.interpreter("python3", "")
    broken.write_text("#!/bin/sh\necho no version is set >&2\nexit 127\n")

    alone = machine.dev("setup")
    machine.interpreter("python3.11", "fit 3.11")
    beside_another = machine.dev("setup")

    assert "python3 does not start: no version is set" in alone.stderr
    assert alone.returncode == 1
    assert beside_another.returncode == 0


def test_the_variable_python_names_the_only_candidate(fit: Machine) -> None:
    said = fit.dev("setup", PYTHON="/nowhere/my python")

    assert "/nowhere/my python is not there" in said.stderr
    assert said.returncode == 1


def test_the_variable_python_may_hold_a_space(fit: Machine) -> None:
    own = fit.interpreter("my python", "fit 3.13")

    assert fit.dev("setup", PYTHON=str(own)).returncode == 0
    assert fit.calls()[0] == "my python -"


# Setting up.


def test_uv_installs_exactly_the_lock(fit: Machine) -> None:
    said = fit.dev("setup")

    assert fit.calls()[-2:] == [
        "uv pip install --require-hashes -r .ci/requirements-dev.txt",
        "uv pip install --no-deps --no-build-isolation -e .",
    ]
    assert said.returncode == 0


def test_where_uv_cannot_be_had_pip_installs_the_same(fit: Machine) -> None:
    said = fit.dev("setup", UV_FAILS="1")

    assert fit.calls()[-2:] == [
        "python -m pip install --require-hashes -r .ci/requirements-dev.txt",
        "python -m pip install --no-deps --no-build-isolation -e .",
    ]
    assert said.returncode == 0


def test_the_second_run_starts_nothing(fit: Machine) -> None:
    fit.dev("setup")
    fit.log.unlink()

    said = fit.dev("setup")

    assert fit.calls() == []
    assert (said.stderr, said.returncode) == ("", 0)


def test_another_lock_sets_up_again(fit: Machine) -> None:
    fit.dev("setup")
    fit.log.unlink()
    with (fit.checkout / ".ci" / "requirements-dev.txt").open("a") as lock:
        lock.write("# another\n")

    fit.dev("setup")

    assert any("-m venv" in call for call in fit.calls())


def test_a_setup_that_failed_says_why_and_is_tried_again(fit: Machine) -> None:
    failed = fit.dev("test", LOCK_FAILS="1")
    calls = fit.calls()
    again = fit.dev("setup")

    assert "no such host" in failed.stderr
    assert "No network?" in failed.stderr
    assert failed.returncode == 1
    assert not any("-m pytest" in call for call in calls)
    assert fit.calls()[-1] == "uv pip install --no-deps --no-build-isolation -e ."
    assert again.returncode == 0


def test_the_second_of_two_waits_and_finds_the_work_done(fit: Machine) -> None:
    fit.dev("setup")
    fit.log.unlink()
    key = (fit.checkout / ".venv" / "key").rename(fit.home.parent / "key")
    fit.turn.symlink_to(str(os.getpid()))

    second = fit.start("setup")
    assert second.stderr is not None
    said = second.stderr.readline()
    key.rename(fit.checkout / ".venv" / "key")
    fit.turn.unlink()
    second.communicate(timeout=60)

    assert "another one is setting up here" in said
    assert fit.calls() == []
    assert second.returncode == 0


def test_one_that_was_killed_is_not_waited_for(fit: Machine) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    fit.turn.symlink_to(str(gone.pid))

    said = fit.dev("setup")

    assert "another one" not in said.stderr
    assert said.returncode == 0


@pytest.mark.parametrize("fails", ["0", "1"])
def test_the_turn_is_given_up_whatever_happens(fit: Machine, fails: str) -> None:
    fit.dev("test", LOCK_FAILS=fails)

    assert not fit.turn.is_symlink()


def test_a_folder_that_is_no_environment_is_left_alone(fit: Machine) -> None:
    treasure = fit.checkout / ".venv" / "treasure"
    treasure.parent.mkdir()
    treasure.touch()

    said = fit.dev("setup")

    assert "is in the way" in said.stderr
    assert said.returncode == 1
    assert treasure.exists()


@pytest.mark.slow
def test_without_a_network_it_ends_soon_and_says_so(machine: Machine, tmp_path: Path) -> None:
    """With a real Python, and an index at a port where nobody listens."""
    real = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"

    said = machine.dev(
        "setup", PYTHON=real, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_CONFIG_FILE="/dev/null"
    )

    assert "Connection refused" in said.stderr
    assert "No network?" in said.stderr
    assert said.returncode == 1
    assert list(machine.home.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"a check out", "home", "tools"}


# Commands.


def test_arguments_go_to_pytest(fit: Machine) -> None:
    fit.dev("test", "-k", "two words")

    assert fit.calls()[-1] == "python -m pytest -n auto -k two words"


def test_check_holds_style_types_and_generated_code(fit: Machine) -> None:
    said = fit.dev("check")

    assert fit.calls()[-6:] == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "python proto/generate.py --check",
        "python -m raftsched.client.gateway.openapi --check",
        "python -m raftsched.client.calls.generate --check",
    ]
    assert said.stderr.endswith("no npm here, so buf lint is left out\n")
    assert said.returncode == 0


def test_other_projects_do_not_leak_in(fit: Machine) -> None:
    leaks = {"PYTHONPATH": "/elsewhere", "PYTHONHOME": "/elsewhere", "PIP_USER": "1"}
    leaks |= {"PYTHONDONTWRITEBYTECODE": "1"}

    fit.dev("test", **leaks)

    assert not leaks.items() & fit.environment().items()
    assert fit.environment()["PYTHONNOUSERSITE"] == "1"


def test_every_cache_is_inside_the_checkout(fit: Machine) -> None:
    caches = {"BUF_CACHE_DIR", "PIP_CACHE_DIR", "PYTEST_DEBUG_TEMPROOT", "UV_CACHE_DIR"}
    caches |= {"npm_config_cache", "PYTHONPYCACHEPREFIX"}

    fit.dev("test")

    seen = fit.environment()
    assert {name for name in caches if seen[name].startswith(f"{fit.checkout}/.venv/")} == caches


def test_up_starts_a_cluster_with_the_arguments_it_got(fit: Machine) -> None:
    said = fit.dev("up", "--nodes", "3")

    assert fit.calls()[-1] == "raftsched dev --nodes 3"
    assert said.returncode == 0


def test_up_ends_as_the_cluster_ends(fit: Machine) -> None:
    said = fit.dev("up", DEV_FAILS="1")

    assert fit.calls()[-1] == "raftsched dev"
    assert said.returncode == 1


def test_breaking_names_a_base_that_does_not_exist(fit: Machine) -> None:
    said = fit.dev("breaking", "no-such-branch")

    assert "'no-such-branch' is no commit of this repository" in said.stderr
    assert said.returncode == 1


def test_breaking_names_a_base_without_contracts(fit: Machine) -> None:
    who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x", "HOME": str(fit.home)}
    who |= {"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x"}
    for words in ("init -q -b main", "commit -q --allow-empty -m empty"):
        subprocess.run(["git", *words.split()], cwd=fit.checkout, env=os.environ | who, check=True)

    said = fit.dev("breaking", "main")

    assert "'main' has no .proto files" in said.stderr
    assert said.returncode == 1


# The words around it.


def commands(text: str) -> set[str]:
    return set(re.findall(r"\./dev ([a-z]+)", text))


def test_the_commands_in_the_documents_exist(machine: Machine) -> None:
    help_ = set(re.findall(r"^  ([a-z]+)  ", machine.dev().stdout, re.MULTILINE))
    texts = [ROOT / ".ci" / "run", *ROOT.glob("*.md"), *ROOT.glob("[a-z]*/DESIGN.md")]

    for path in texts:
        assert commands(path.read_text()) <= help_, path


def test_the_readme_and_the_ci_run_the_same_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    ci = (ROOT / ".ci" / "run").read_text().splitlines()

    assert ci[-1] == "./dev test"
    told = re.findall(r"^\$ (\./dev (?:up|test).*)$", readme, re.MULTILINE)
    assert told[:2] == ["./dev up", ci[-1]]
    assert set(told) == {"./dev up", ci[-1]}


def test_it_is_written_for_the_bash_of_a_mac() -> None:
    """Version 3.2: no associative arrays, no change of case in expansions, no mapfile."""
    script = (ROOT / "dev").read_text()

    assert not re.findall(
        r"declare -A|local -A|mapfile|readarray|\$\{\w+(?:,,|\^\^)|&>>|\|&", script
    )
