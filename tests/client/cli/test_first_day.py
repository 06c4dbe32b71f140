"""What somebody sees in the first hours: what comes next, what is in the way, what to type."""

from __future__ import annotations

from .conftest import Cli

PLAIN = {"NO_COLOR": "1", "COLUMNS": "80"}
UNTIL = "2026-01-01 06:00:00"


def seen(cli: Cli, *words: str) -> str:
    """What a person sees on a terminal of 80 columns."""
    return cli.ok(*words, "--color", "always", **PLAIN).stdout


def daily(cli: Cli, *words: str) -> None:
    cli.ok("job", "create", "report", "--cron", "0 9 * * *", "--handler", "build", *words)


# What comes next.


def test_a_skipped_time_is_no_next_one_and_is_named(cli: Cli) -> None:
    daily(cli)
    cli.ok("job", "skip", "report", "2026-01-01T09:00:00Z")

    titles, row = cli.rows("job", "list")
    assert row[titles.index("NEXT")] == "2026-01-02T09:00:00Z"
    assert row[titles.index("NOTE")] == "left out: 2026-01-01 09:00:00 UTC by hand"
    assert "note: left out: 2026-01-01 09:00:00 UTC by hand" in seen(cli, "job", "list")
    assert "left out:            2026-01-01 09:00:00 UTC by hand" in seen(
        cli, "job", "get", "report"
    )


def test_a_time_that_is_left_out_has_no_due_time(cli: Cli) -> None:
    cli.ok("calendar", "create", "holidays", "--date", "2026-01-01")
    daily(cli, "--exclude-calendar", "holidays", "--jitter", "30s")

    titles, off, on = cli.rows("job", "next", "report", "-c", "2")

    due, note = titles.index("DUE"), titles.index("NOTE")
    assert (off[due], off[note]) == ("", "left out by the calendar holidays")
    assert on[due].startswith("2026-01-02T09:00")


# Pauses.


def test_a_pause_says_until_when_and_why_wherever_the_job_is_shown(cli: Cli) -> None:
    daily(cli)
    cli.ok("job", "pause", "report", "--until", f"{UNTIL}Z", "--reason", "db migration")

    sentence = f"paused until {UNTIL}Z because of: db migration"
    titles, row = cli.rows("job", "list")
    assert row[titles.index("NOTE")] == sentence.replace(UNTIL, "2026-01-01T06:00:00")
    assert f"note: {sentence}" in seen(cli, "job", "list")
    assert f"state: {sentence}" in " ".join(seen(cli, "job", "get", "report").split())
    explained = " ".join(seen(cli, "job", "explain", "report").split())
    assert f"it is paused until {UNTIL} UTC because of: db migration" in explained
    assert dict(cli.rows("job", "get", "report"))["status.pause_reason"] == "db migration"


def test_a_column_of_notes_that_are_empty_is_not_shown_to_people(cli: Cli) -> None:
    daily(cli)

    assert "NOTE" not in seen(cli, "job", "list")
