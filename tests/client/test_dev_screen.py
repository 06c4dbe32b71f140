"""What `raftsched dev` prints."""

from __future__ import annotations

import pytest

from raftsched.client.dev.ports import Ports
from raftsched.client.dev.screen import (
    CLEAR,
    NOT_FIRED,
    WINDOWS,
    Screen,
    opened,
    status_line,
    welcome,
)
from raftsched.proto.v1 import common_pb2, event_pb2, run_pb2


@pytest.fixture
def screen() -> Screen:
    made = Screen(["n1", "n2"])
    made.speak()
    return made


def event(kind: event_pb2.EventKind.ValueType, **run: object) -> event_pb2.Event:
    made = event_pb2.Event(kind=kind, job="report", run=run_pb2.Run(**run))  # type: ignore[arg-type]
    made.time.FromMilliseconds(1_700_000_000_012)
    made.run.due_time.FromMilliseconds(1_700_000_000_000)
    return made


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (event(event_pb2.EVENT_KIND_RUN_LEASED, attempt=1), "report started 12 ms after its time"),
        (event(event_pb2.EVENT_KIND_RUN_LEASED, attempt=2), "report started, attempt 2"),
        (
            event(event_pb2.EVENT_KIND_RUN_SUCCEEDED, result=common_pb2.Payload(data=b"42")),
            "report succeeded: 42",
        ),
        (
            event(event_pb2.EVENT_KIND_RUN_FAILED, error=run_pb2.RunError(message="a\x1b[2Jb\n")),
            "report failed: a\ufffd[2Jb\ufffd",
        ),
    ],
)
def test_an_event_is_a_line(
    screen: Screen, capsys: pytest.CaptureFixture[str], said: event_pb2.Event, words: str
) -> None:
    screen.event(said)

    assert capsys.readouterr().out.rstrip("\n").endswith(f" │ {words}")


def test_a_time_without_a_run_says_why(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    said = event(event_pb2.EVENT_KIND_FIRED_NOT)
    said.ledger.outcome = run_pb2.OUTCOME_SKIPPED_OVERLAP

    screen.event(said)

    assert "report did not fire: the previous run is still going\n" in capsys.readouterr().out
    reasons = {number for number in run_pb2.Outcome.values() if number not in NOT_FIRED}
    # What became a run, or never was a time of a schedule.
    assert {run_pb2.Outcome.Name(number) for number in reasons} == {
        "OUTCOME_UNSPECIFIED", "OUTCOME_RAN", "OUTCOME_LATE", "OUTCOME_TRIGGERED",
    }  # fmt: skip


def test_what_nodes_say_as_they_start_is_shown_only_if_they_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quiet = Screen(["n1"])
    quiet.of("n1", '{"event":"is a candidate"}')
    assert capsys.readouterr().out == ""

    quiet.confess()

    assert capsys.readouterr().out == "      n1 │ is a candidate\n"


def test_a_line_stays_below_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen(["n1", "n2"])
    screen.is_terminal = True
    screen.status(status_line({"n1": True, "n2": False}, "n1"))
    screen.line("one")
    screen.status("")
    screen.line("two")

    stays = " n1 up  n2 DOWN   leader: n1   ? keys  "
    assert capsys.readouterr().out == f"{stays}{CLEAR}one\n{stays}{CLEAR}two\n"


def test_what_says_nothing_to_a_person_is_left_out(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    screen.event(event(event_pb2.EVENT_KIND_RUN_FIRED))

    assert capsys.readouterr().out == ""


def test_a_nodes_line_is_told_in_words(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.of(
        "n1", '{"ts":"x","level":"info","node":"n1","term":3,"event":"follows","leader":"n2"}'
    )
    screen.of("n2", "a traceback\x1b[1m")
    screen.of("n2", "[1, 2]")

    assert capsys.readouterr().out.splitlines() == [
        "      n1 │ follows leader=n2", "      n2 │ a traceback\ufffd[1m", "      n2 │ [1, 2]",
    ]  # fmt: skip


def test_keys_are_told_only_where_there_is_a_keyboard() -> None:
    ports = Ports(7400, 3)

    with_keys = list(welcome(ports, "here", 2.0, "n2", keys=True))
    without = list(welcome(ports, "here", 2.0, "n2", keys=False))

    assert "Ready in 2.0 s: 3 nodes, a worker, four example jobs." in without
    assert "Ready in 2.0 s: 1 node, a worker, four example jobs." in welcome(
        Ports(7400, 1), "here", 2.0, "n1", keys=False
    )
    assert any(line.startswith("Keys: 1 2 3 kill -9") for line in with_keys)
    assert not any(line.startswith("Keys") for line in without)
    assert any(line.startswith("  n2 ") and line.endswith("leads") for line in without)
    assert f"  export RAFTSCHED_ENDPOINTS={ports.endpoints}" in without


def test_a_browser_is_opened_where_there_are_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def open_(url: str) -> bool:
        asked.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", open_)
    monkeypatch.setattr("sys.platform", "linux")
    for name in WINDOWS:
        monkeypatch.delenv(name, raising=False)
    assert not opened("http://a/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert opened("http://a/")
    assert asked == ["http://a/"]
