"""The end of what handlers log, as it is kept and as it grows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raftsched.client.cli.commands import run as runs
from raftsched.client.cli.commands.logs import GAP, KEPT_BYTES, news, text_of
from raftsched.client.cli.render.clean import visible
from raftsched.proto.v1 import worker_pb2

from ...rows import each
from ...statemachine.driver import Machine
from ..stage import Stage
from .conftest import Cli


@pytest.fixture
def run_id(cli: Cli) -> str:
    cli.ok("job", "create", "x", "--handler", "h")
    return cli.ok("job", "trigger", "x", "-o", "name").stdout.strip()


@pytest.fixture
def lease(stage: Stage, run_id: str) -> worker_pb2.Lease:
    return leased(stage)


def leased(stage: Stage) -> worker_pb2.Lease:
    found: list[worker_pb2.Lease] = []

    def work(machine: Machine) -> None:
        machine.fire()
        found.extend(machine.grant("w1"))

    stage.act(work)
    [one] = found
    return one


def log(stage: Stage, lease: worker_pb2.Lease, tail: bytes) -> None:
    stage.act(lambda machine: machine.note(lease, log_tail=tail))


def test_the_end_of_the_log_is_printed_as_it_is(
    cli: Cli, stage: Stage, run_id: str, lease: worker_pb2.Lease
) -> None:
    log(stage, lease, "begun\n50\u202f% \u2713\n".encode())

    said = cli.ok("run", "logs", run_id)

    assert said.stdout == "begun\n50\u202f% \u2713\n"
    assert said.stderr == ""
    assert cli.json("run", "logs", run_id) == {
        "run": run_id, "attempt": 1, "log": "begun\n50\u202f% \u2713\n",
    }  # fmt: skip
    assert cli.ok("run", "logs", run_id, "-o", "yaml").stdout.startswith(f"---\nrun: {run_id}\n")


def test_no_log_is_told_beside_the_data(cli: Cli, run_id: str) -> None:
    said = cli.ok("run", "logs", run_id)

    assert said.stdout == ""
    first, how = said.stderr.splitlines()
    assert first == f"Run {run_id} is pending and has logged nothing that is kept."
    assert "by context.log" in how
    assert cli.json("run", "logs", run_id)["log"] == ""
    missing = cli("run", "logs", "y.1.2")
    assert missing.exit_code == 3
    assert "Try: raftsched run list" in missing.stderr


def test_only_the_end_of_a_long_log_is_kept_and_that_is_said(
    cli: Cli, stage: Stage, run_id: str, lease: worker_pb2.Lease
) -> None:
    log(stage, lease, b"a line\n" * 3_000)

    said = cli.ok("run", "logs", run_id)

    assert len(said.stdout) == KEPT_BYTES
    assert said.stderr == f"{GAP}\n"


class Story:
    """What a worker does while somebody reads along: a step for each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
        self._steps = iter(steps)
        self._wait_once = runs.wait_once
        monkeypatch.setattr(runs, "wait_once", self.formats)

    def formats(self, session: Any, run_id: str, ms: float) -> Any:
        assert ms == runs.LOOK_MS
        step = next(self._steps, None)
        if step is not None:
            step()
        return self._wait_once(session, run_id, 1)


def test_a_log_is_followed_until_the_run_has_ended(
    cli: Cli, stage: Stage, run_id: str, lease: worker_pb2.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(stage, lease, b"one\n")
    Story(
        monkeypatch,
        lambda: log(stage, lease, b"one\ntwo\n"),
        None,
        lambda: log(stage, lease, b"two\nthree\n"),
        lambda: log(stage, lease, b"nine\n"),
        lambda: stage.act(lambda machine: machine.succeed(lease)),
    )

    said = cli.ok("run", "logs", run_id, "--follow")

    assert said.stdout == "one\ntwo\nthree\nnine\n"
    assert said.stderr == f"{GAP}\nRun {run_id} is succeeded.\n"


def test_another_attempt_begins_a_log_of_its_own(
    cli: Cli, stage: Stage, run_id: str, lease: worker_pb2.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [lease]

    def again() -> None:
        stage.act(lambda machine: machine.fail(held[-1], "ValueError"))
        stage.act(lambda machine: machine.advance(60_000))
        held.append(leased(stage))

    log(stage, lease, b"begun\n")
    Story(
        monkeypatch,
        again,
        lambda: log(stage, held[-1], b"begun\nended\n"),
        lambda: stage.act(lambda machine: machine.succeed(held[-1])),
    )

    said = cli.ok("run", "logs", run_id, "--follow", "-o", "jsonl")

    assert [json.loads(line) for line in said.stdout.splitlines()] == [
        {"run": run_id, "attempt": 1, "log": "begun\n"},
        {"run": run_id, "attempt": 2, "log": "begun\nended\n"},
    ]


def test_waiting_ends_with_the_run(cli: Cli, stage: Stage, run_id: str) -> None:
    """Nobody waits for the next look when there is nothing more to come."""
    said: list[str] = []
    thread = threading.Thread(
        target=lambda: said.append(cli.ok("run", "logs", run_id, "-f").stderr)
    )
    thread.start()
    with stage.turn:
        assert stage.turn.wait_for(lambda: len(stage.nodes[0].heard) > 3, 60)
    stage.finish()
    thread.join(20)

    assert said == [f"Run {run_id} is succeeded.\n"]


@each(
    ("before", "now", "found"),
    [
        (b"", b"a\n", (b"a\n", True)),
        (b"a\n", b"a\nb\n", (b"b\n", True)),
        (b"a\nb\n", b"b\nc\n", (b"c\n", True)),
        (b"a\n", b"z\n", (b"z\n", False)),
        (b"aaa", b"aaab", (b"b", True)),
        (b"a\nb\n", b"b\n", (b"", True)),
    ],
)
def test_what_is_new_is_what_stands_behind_the_part_that_is_known(
    before: bytes, now: bytes, found: tuple[bytes, bool]
) -> None:
    assert news(before, now) == found


def test_a_terminal_is_not_moved_by_a_log() -> None:
    assert visible("a\tb\n\x1b[2Jc\r") == "a\tb\n\ufffd[2Jc\ufffd"
    assert text_of("\u2713x".encode()[1:]) == "x"
    assert text_of(b"\xff") == "\ufffd"


def cut_at_each_place(text: str) -> Iterator[bytes]:
    data = text.encode()
    return (data[place:] for place in range(len(data)))


def test_a_character_that_was_cut_in_two_is_left_out() -> None:
    assert {text_of(one) for one in cut_at_each_place("\u2713!")} == {"\u2713!", "!"}
