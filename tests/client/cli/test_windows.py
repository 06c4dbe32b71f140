"""What is asked about time, and what is meant for a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import pytest

from raftsched.client.cli import times
from raftsched.client.cli.commands.summary import percentiles
from raftsched.client.cli.input.filters import all_of, between, of_ended_runs
from raftsched.client.cli.times import PastInstant, parse_instant, utc_instant

from ...rows import each
from ...statemachine.driver import Machine
from ..stage import Stage
from .conftest import Cli

NOW = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000


def table(cli: Cli, *words: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cli.ok(*words, "-o", "csv").stdout)))


def test_days_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    day = datetime.fromtimestamp(NOW / 1000, UTC).astimezone().date()
    tomorrow = parse_instant("tomorrow", NOW)
    nine = parse_instant("tomorrow 09:00", NOW)

    assert datetime.fromtimestamp(tomorrow / 1000, UTC).astimezone().date().toordinal() == (
        day.toordinal() + 1
    )
    assert nine - tomorrow == 9 * HOUR
    assert parse_instant("yesterday", NOW) < parse_instant("today", NOW) <= NOW
    for text in ("tomorrow 25:00", "someday", "tomorrow noon"):
        with pytest.raises(ValueError, match="tomorrow 09:00, now"):
            parse_instant(text, NOW)
    monkeypatch.setattr(times, "now_ms", lambda: NOW)
    assert PastInstant().convert("90m", None, None) == NOW - HOUR * 3 // 2
    assert PastInstant().convert("+1h", None, None) == NOW + HOUR
    assert PastInstant().convert("2026-03-01T11:00:00Z", None, None) == NOW - HOUR
    with pytest.raises(click.BadParameter):
        PastInstant().convert("soon", None, None)
    assert utc_instant("2026-03-01 12:00") == utc_instant(datetime(2026, 3, 1, 12)) == NOW  # noqa: DTZ001


@each(
    ("text", "state", "until", "wanted"),
    [
        ("", "failed", None, "end_time>=S"),
        ("", "pending", None, "due_time>=S"),
        ("state=FAILED", None, None, "end_time>=S"),
        ("", None, None, "(end_time>=S) OR state=PENDING OR state=RUNNING OR state=RETRYING"),
        ("", None, NOW, "(end_time>=S AND end_time<U) AND (state=SUCCEEDED OR state=FAILED OR "
                        "state=CANCELLED OR state=SKIPPED)"),
    ],
)  # fmt: skip
def test_a_window_of_runs_speaks_of_their_end(
    text: str, state: str | None, until: int | None, wanted: str
) -> None:
    found = of_ended_runs(text, state, NOW - HOUR, until)

    assert found.replace("2026-03-01T11:00:00Z", "S").replace("2026-03-01T12:00:00Z", "U") == wanted
    assert of_ended_runs(text, state, None, None) == ""
    assert all_of("a=1 OR b=2", "", "c=3") == "(a=1 OR b=2) AND (c=3)"
    with pytest.raises(click.ClickException, match="--until is not behind --since"):
        between("time", NOW, NOW)


def test_lists_are_of_a_time(cli: Cli, stage: Stage) -> None:
    """Time stands on the stage at the beginning of 2026; these runs end an hour apart."""
    cli.ok("job", "create", "a", "--handler", "h", "--max-attempts", "1")
    for _ in range(3):
        cli.ok("job", "trigger", "a")
        [lease] = stage.machine.grant("w1")
        stage.act(partial(Machine.fail, lease=lease, kind="Wrong"))
        stage.act(lambda machine: machine.advance(HOUR))
    cli.ok("job", "trigger", "a")
    runs = [row["run"] for row in table(cli, "run", "list", "--job", "a", "--state", "failed")]
    ends = [row["ended"] for row in table(cli, "run", "list", "--job", "a", "--state", "failed")]
    middle = ends[1]

    def names(*words: str) -> list[str]:
        return cli.ok(*words, "-o", "name").stdout.splitlines()

    for words in (("run", "list", "--state", "failed"), ("dead", "list"), ("job", "history", "a")):
        assert names(*words, "--since", middle)[-2:] == runs[:2], words
        assert names(*words, "--until", middle) == runs[2:], words
    # What has not ended is there as well, and of what has ended before a time it is not.
    assert len(names("run", "list", "--since", middle)) == 3
    assert names("run", "list", "--until", middle) == runs[2:]
    assert names("run", "list") == names("run", "list", "--state", "pending", "--since", middle)
    assert cli("run", "list", "--since", "1h", "--until", "2h").exit_code == 2
    assert "2 dead letters to run again" in (
        cli.ok("dead", "requeue", "--since", middle, "--dry-run").stderr
    )
    records = table(cli, "audit-log", "--until", middle)
    assert {row["method"] for row in records} == {"CreateJob", "TriggerJob"}
    left = table(cli, "audit-log", "--no-triggers")
    assert {row["method"] for row in left} == {"CreateJob"}
    events = table(cli, "watch", "--since", middle, "--no-follow")
    assert events
    assert {row["what"] for row in events} >= {runs[0]}
    assert all(row["time"] >= middle for row in events)
    before = table(cli, "watch", "--since", "oldest", "--until", middle)
    assert len(before) + len(events) == len(table(cli, "watch", "--since", "oldest", "--no-follow"))


def test_a_history_goes_into_a_spreadsheet(cli: Cli, stage: Stage, tmp_path: Path) -> None:
    cli.ok("job", "create", "a", "--handler", "h", "--description", 'says "hi", twice')
    cli.ok("job", "trigger", "a")
    [lease] = stage.machine.grant("w1")
    stage.act(lambda machine: machine.advance(90_000))
    stage.act(lambda machine: machine.succeed(lease, b"one\ntwo, three"))

    [row] = table(cli, "job", "history", "a")

    assert (row["state"], row["duration"], row["handler_time"]) == ("succeeded", "90.000", "90.000")
    assert row["result"] == "one\ntwo, three"
    assert row["due"].endswith("Z")
    [waited, duration, worked] = table(cli, "job", "history", "a", "--summary")
    assert (duration["span"], duration["p99"], worked["max"]) == ("duration", "90.000", "90.000")
    assert waited["p50"] == "0.000"
    in_short = cli.json("job", "history", "a", "--summary")
    assert in_short["states"] == {"succeeded": 1}
    assert in_short["seconds"]["handler_time"]["p90"] == 90
    assert percentiles([3, 1, 2, 4]) == [2, 4, 4, 4]
    assert "0 runs: none" in cli.ok("job", "history", "a", "--summary", "--since", "9d").stderr
    fields = dict(csv.reader(io.StringIO(cli.ok("job", "get", "a", "-o", "csv").stdout)))
    assert fields["spec.description"] == 'says "hi", twice'
    assert "duration" not in cli.ok("job", "history", "a", "-o", "csv", "--no-headers").stdout
    assert cli("job", "export", "-o", "csv").exit_code == 2
