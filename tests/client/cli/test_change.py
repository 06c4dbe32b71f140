"""Changes of all that fit a filter: counted first, asked, then done."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core import limits

from ..stage import Stage
from .conftest import Cli

PAUSED = job_pb2.JobStatus.STATE_PAUSED


def jobs(stage: Stage, *names: str) -> None:
    for name in names:
        stage.act(lambda machine, name=name: machine.create(name))  # type: ignore[misc]


def test_without_a_terminal_nothing_is_done_unless_that_is_wanted(cli: Cli, stage: Stage) -> None:
    jobs(stage, "a-1", "a-2", "b")

    asked = cli("job", "pause", "--filter", "name=a*")

    assert asked.exit_code == 2
    assert "Pause 2 jobs (a-1, a-2)?" in asked.output
    assert stage.machine.job("a-1").status.state != PAUSED


def test_all_that_fit_are_changed_in_steps(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE", 2)
    jobs(stage, *(f"a-{number}" for number in range(5)), "b")

    done = cli.ok("job", "pause", "--filter", "name=a*", "--reason", "move", "--yes")

    assert "5 jobs paused." in done.output
    assert stage.machine.job("a-4").status.pause_reason == "move"
    assert stage.machine.job("b").status.state != PAUSED
    assert "5 jobs resumed." in cli.ok("job", "resume", "--filter", "", "--yes").output
    assert (
        "No job fits 'state=PAUSED'."
        in cli.ok("job", "resume", "--filter", "state=PAUSED", "--yes").output
    )


def test_a_dry_run_counts_and_shows_what_would_be_refused(cli: Cli, stage: Stage) -> None:
    jobs(stage, "a", "b")
    stage.act(lambda machine: machine.create("c", after=["a"]))

    shown = cli.ok("job", "delete", "--filter", "NOT name=c", "--dry-run")

    assert "1 job would be deleted, with history (b)." in shown.output
    assert "a: 'a' cannot be deleted, since 1 job waits for it: c" in shown.output
    assert stage.machine.job("b").name == "b"


def test_what_was_refused_is_named_and_ends_the_command_otherwise(cli: Cli, stage: Stage) -> None:
    jobs(stage, "a", "b")
    stage.act(lambda machine: machine.create("c", after=["a"]))

    shown = cli("job", "delete", "--filter", "NOT name=c", "--yes")

    assert shown.exit_code == 1
    assert "1 job deleted, with history." in shown.output
    assert "1 job refused" in shown.output
    assert "a: 'a' cannot be deleted" in shown.output


def test_all_of_a_label_change_and_a_trial_says_what_the_change_does(
    cli: Cli, stage: Stage
) -> None:
    for name, after in (("a", ""), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "")):
        more = ("--after", after) if after else ()
        cli.ok("job", "create", name, "--handler", "h", "--label", "team=x", *more)
    cli.ok("job", "create", "other", "--handler", "h", "--after", "d")

    assert "5 jobs paused." in cli.ok("job", "pause", "-l", "team=x", "--yes").stderr
    assert stage.machine.job("other").status.state != PAUSED
    assert "5 jobs resumed." in cli.ok("job", "resume", "-l", "team=x", "--yes").stderr
    narrow = ("-l", "team=x", "--filter", "name=a OR name=e", "--yes")
    assert "2 jobs triggered." in cli.ok("job", "trigger", *narrow).stderr

    tried = cli.ok("job", "delete", "-l", "team=x", "--dry-run").stderr
    done = cli("job", "delete", "-l", "team=x", "--yes")

    assert "3 jobs would be deleted, with history (" in tried
    for said in (tried, done.stderr):
        assert "d: 'd' cannot be deleted, since 1 job waits for it: other" in said
        assert "a: d, which waits for it, stays" in said
    assert done.exit_code == 1
    assert "3 jobs deleted, with history." in done.stderr
    left = cli.ok("job", "list", "--filter", "NOT state=DELETING", "-o", "name").stdout
    assert left.split() == ["a", "d", "other"]
    cli.ok("job", "delete", "other", "--yes")
    assert "2 jobs would be" in cli.ok("job", "delete", "-l", "team=x", "--dry-run").stderr
    assert "2 jobs deleted" in cli.ok("job", "delete", "-l", "team=x", "--yes").stderr
    assert "No job fits" in cli.ok("job", "delete", "-l", "team=x", "--yes").stderr


def test_runs_are_triggered_cancelled_and_retried(cli: Cli, stage: Stage) -> None:
    jobs(stage, "a", "b")

    assert "2 jobs triggered." in cli.ok("job", "trigger", "--filter", "", "--yes").output
    [lease] = stage.machine.grant("w1", credits=1)
    stage.act(lambda machine: machine.fail(lease, kind="ValueError"))
    retried = cli.ok("run", "retry", "--filter", "kind=ValueError", "--yes")
    assert "1 run retried." in retried.output
    gone = cli.json("run", "cancel", "--filter", "", "--now", "--yes")
    assert gone["changed"] == "2"
    assert stage.machine.live("a") == []


@pytest.mark.parametrize(
    "words",
    [
        ("job", "pause"), ("job", "pause", "a", "--filter", "name=a"), ("run", "cancel"),
        ("job", "trigger", "--filter", "", "--force", "--yes"), ("run", "retry"),
        ("job", "delete", "a", "-l", "team=a"), ("job", "resume"), ("job", "pause", "-l", "team"),
        ("job", "trigger", "-l", "team=a", "--due", "+1h", "--yes"),
    ],
)  # fmt: skip
def test_nothing_is_never_taken_for_everything(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli(*words).exit_code == 2


def test_a_filter_that_cannot_be_read_shows_where(cli: Cli) -> None:
    shown = cli("job", "pause", "--filter", "name=a OR state=DONE AND x=1", "--yes")

    assert shown.exit_code != 0
    assert "at column 17: 'DONE' is no state" in shown.output


def test_a_list_is_counted_and_put_in_order(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(stage, "b", "a", "c")
    stage.act(lambda machine: machine.trigger("a"))

    assert cli.ok("job", "list", "--count").stdout == "3\n"
    assert cli.ok("job", "list", "--count", "a*").stdout == "1\n"
    assert cli.ok("run", "list", "--count", "--job", "a").stdout == "1\n"
    assert cli.ok("dead", "list", "--count").stdout == "0\n"
    monkeypatch.setattr(limits, "COUNTED", 2)
    assert cli.ok("job", "list", "--count", "--filter", "NOT name=x").stdout == "2+\n"
    made = cli.ok("job", "list", "--order-by", "create_time desc", "-o", "name").stdout
    assert made.split() == ["c", "a", "b"]
