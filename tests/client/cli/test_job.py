"""`raftsched job` against the real rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.client.cli.input.filters import condition
from raftsched.statemachine.model.request import SetAside

from ...rows import each
from ..stage import Stage
from .conftest import Cli


def test_every_option_reaches_its_field(cli: Cli) -> None:
    cli.ok("calendar", "create", "holidays", "--yearly", "12-25")
    cli.ok("job", "create", "first", "--handler", "h")

    cli.ok(
        "job", "create", "all", "--handler", "h", "--cron", "0 9 * * *", "--every", "90m",
        "--at", "2026-05-01T12:00:00Z", "--after-end", "5m", "--after", "first:any-end",
        "--payload", '{"a": 1}', "--zone", "Europe/Berlin", "--queue", "q", "--priority", "low",
        "--label", "team=a", "--label", "tier=gold", "--owner", "ann", "--description", "words",
        "--jitter", "30s", "--start", "2026-01-02T00:00:00Z", "--end", "2027-01-01T00:00:00Z",
        "--max-runs", "10", "--gap", "skip", "--fold", "both", "--exclude-calendar", "holidays",
        "--misfire", "all", "--grace", "2m", "--start-deadline", "1h", "--overlap", "queue-one",
        "--overlap-limit", "1", "--max-attempts", "7", "--retry-first", "1s", "--retry-cap", "1m",
        "--fatal", "ValueError", "--attempt-timeout", "10m", "--run-timeout", "1h",
        "--queue-timeout", "2h", "--heartbeat-timeout", "30s", "--concurrency", "2",
        "--concurrency-key", "db", "--key-limit", "3", "--delivery", "at-most-once",
        "--worker-label", "gpu=yes", "--join", "any", "--keep-history", "2d",
        "--delete-after", "1w", "--pause-on-failure", "5", "--on-failure", "cleanup",
    )  # fmt: skip

    assert cli.json("job", "get", "all")["spec"] == {
        "labels": {"team": "a", "tier": "gold"},
        "owner": "ann",
        "description": "words",
        "action": {"handler": "h"},
        "payload": {"data": "eyJhIjogMX0=", "contentType": "application/json"},
        "queue": "q",
        "priority": "PRIORITY_LOW",
        "schedules": [
            {"cron": {"expression": "0 9 * * *"}},
            {"interval": {"every": "5400s"}},
            {"once": {"time": "2026-05-01T12:00:00Z"}},
            {"afterEnd": {"delay": "300s"}},
        ],
        "timing": {
            "zone": "Europe/Berlin",
            "gapRule": "GAP_RULE_SKIP",
            "foldRule": "FOLD_RULE_BOTH",
            "startTime": "2026-01-02T00:00:00Z",
            "endTime": "2027-01-01T00:00:00Z",
            "maxRuns": "10",
            "jitter": "30s",
            "excludeCalendars": ["holidays"],
        },
        "misfire": {"rule": "RULE_ALL", "grace": "120s", "startDeadline": "3600s"},
        "overlap": {"rule": "RULE_QUEUE_ONE", "limit": 1},
        "retry": {"maxAttempts": 7, "first": "1s", "cap": "60s", "fatalKinds": ["ValueError"]},
        "timeouts": {"queue": "7200s", "attempt": "600s", "run": "3600s", "heartbeat": "30s"},
        "concurrency": {"job": 2, "key": "db", "keyLimit": 3},
        "delivery": "DELIVERY_AT_MOST_ONCE",
        "workerLabels": {"gpu": "yes"},
        "upstream": {
            "jobs": [{"job": "first", "condition": "CONDITION_ANY_END"}],
            "join": "JOIN_ANY",
        },
        "keepHistory": "172800s",
        "deleteAfter": "604800s",
        "pauseOnFailure": 5,
        "onFailure": {"job": "cleanup"},
    }


@pytest.mark.parametrize(
    ("options", "action"),
    [
        (["--http", "https://a.example/x"], {"http": {"url": "https://a.example/x"}}),
        (["--http", "get http://a/"], {"http": {"method": "GET", "url": "http://a/"}}),
        (
            ["--http", "http://a/", "--header", "Accept: text/plain", "--header", "X-Team:a:b"],
            {"http": {"url": "http://a/", "headers": {"Accept": "text/plain", "X-Team": "a:b"}}},
        ),
        (["--shell", "sh -c 'a b'"], {"shell": {"argv": ["sh", "-c", "a b"]}}),
        (
            ["--shell", "env", "--env", "A=1", "--env", "B=x=y"],
            {"shell": {"argv": ["env"], "environment": {"A": "1", "B": "x=y"}}},
        ),
        (["--grpc", "a:1/p.S/M"], {"grpc": {"target": "a:1", "method": "p.S/M"}}),
    ],
)
def test_an_action_is_said_in_one_option(
    options: list[str], action: dict[str, object], cli: Cli
) -> None:
    cli.ok("job", "create", "x", *options)

    assert cli.json("job", "get", "x")["spec"]["action"] == action


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--shell", "true", "--header", "A: b"], "--header without --http"),
        (["--http", "http://a/", "--header", "Bearer s3cret"], "no name before a colon"),
        (["--http", "http://a/", "--header", "A: b", "--header", "a: c"], "--header a twice"),
        (["--http", "http://me:pw@a/", "--header", "Authorization: Bearer s3cret"],
         "take the other out"),
    ],
)  # fmt: skip
def test_a_header_that_no_call_could_send_is_refused(
    options: list[str], why: str, cli: Cli
) -> None:
    said = cli("job", "create", "x", *options)

    assert said.exit_code == 2
    assert why in said.stderr
    assert "s3cret" not in said.stderr


def test_a_job_does_one_thing(cli: Cli) -> None:
    said = cli("job", "create", "x", "--handler", "h", "--shell", "true")

    assert said.exit_code == 2
    assert "--handler and --shell together" in said.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "job create n --handler x --concurrency 99999999999999",
            "job is 99999999999999; the most",
        ),
        ("job create n --handler x --max-attempts 99999999999", "max_attempts is 99999999999"),
        ("job create n --handler x --max-runs -99999999999999999999", "the least that can be sent"),
        ("job create n --handler x --every 99999999999d", "is longer than 10,000 years"),
        ("job create n --handler x --at +3000000d", "'+3000000d' is not in the years 1970 to 9999"),
        ("job create n --handler x --at 1500-01-01", "'1500-01-01' is not in the years 1970 to"),
        ("job backfill n --from now --to now --rate 9999999999", "9999999999 is not in the range"),
        ("namespace create q --max-jobs 99999999999999999999", "jobs is 99999999999999999999"),
        ("queue update q --rate 99999999999999999999", "rate is 99999999999999999999"),
        ("alert put a --workers-below q:9999999999", "minimum is 9999999999"),
        ("alert put a --dead-letters-above 99999999999999999999", "dead_letters_above is 999999"),
        ("watch --since 99999999999999999999", "change is 99999999999999999999"),
    ],
)
def test_a_number_out_of_range_is_named(words: str, why: str, cli: Cli) -> None:
    said = cli(*words.split())

    assert said.exit_code == 2
    assert why in said.stderr


def test_a_number_out_of_range_in_a_file_is_named(cli: Cli) -> None:
    text = "name: x\nspec: {action: {handler: h}, retry: {max_attempts: %s}}\n"

    large = cli("job", "apply", "-f", "-", typed=text % "99999999999")
    part = cli("job", "apply", "-f", "-", typed=text % "1.5")

    assert large.exit_code == part.exit_code == 2
    assert "spec.retry.max_attempts: max_attempts is 99999999999; the most" in large.stderr
    assert "1.5 is not a whole number" in part.stderr


@pytest.mark.parametrize("text", ['{"a":', "[1, 2", " {bad"])
def test_json_that_is_broken_is_no_text_unless_it_is_said(text: str, cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "h")

    for words in (("create", "x", "--handler", "h"), ("trigger", "a")):
        refused = cli("job", *words, "--payload", text)
        cli.ok("job", *words, "--payload", text, "--content-type", "text/plain")

        assert refused.exit_code == 2
        assert "looks like JSON and is none" in refused.stderr
        assert "--content-type text/plain" in refused.stderr
    assert cli.json("job", "get", "x")["spec"]["payload"]["contentType"] == "text/plain"


def test_a_file_of_json_that_is_broken_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "a.bin").write_text("{")

    refused = cli("job", "create", "x", "--handler", "h", "--payload", f"@{tmp_path}/a.json")
    cli.ok("job", "create", "x", "--handler", "h", "--payload", f"@{tmp_path}/a.bin")

    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("trigger a --hold-key 5m", "--hold-key without --unique-key"),
        ("trigger a --if-taken reject", "--if-taken without --unique-key"),
        ("trigger a --content-type x/y", "--content-type without --payload"),
        ("create x --handler h --env A=1", "--env without --shell"),
        ("update a --clear timing.zone --zone UTC", "--clear timing.zone and an option that sets"),
    ],
)
def test_options_that_do_nothing_together_are_refused(words: str, why: str, cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "h")

    said = cli("job", *words.split())

    assert said.exit_code == 2
    assert why in said.stderr


def test_a_path_that_is_cleared_twice_is_told_once(cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "h", "--owner", "ann")

    said = cli.ok("job", "update", "a", "--clear", "owner", "--clear", "spec.owner")

    assert said.stderr == "Job a updated: spec.owner.\n"


def test_a_dry_run_answers_and_changes_nothing(cli: Cli) -> None:
    said = cli.ok("job", "create", "x", "--handler", "h", "--dry-run")

    assert "dry run: nothing was changed" in said.stderr
    assert cli.json("job", "list") == {"jobs": []}


def test_an_update_changes_what_it_names(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--jitter", "9s", "--zone", "Asia/Tokyo")

    cli.ok("job", "update", "x", "--priority", "high", "--clear", "jitter")

    spec = cli.json("job", "get", "x")["spec"]
    assert spec["priority"] == "PRIORITY_HIGH"
    assert spec["timing"] == {"zone": "Asia/Tokyo"}
    assert spec["action"] == {"handler": "h"}


def test_an_update_of_nothing_is_a_mistake(cli: Cli) -> None:
    said = cli("job", "update", "x")

    assert said.exit_code == 2
    assert "nothing to change in job x" in said.stderr


def test_an_old_etag_is_a_conflict(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")

    said = cli("job", "pause", "x", "--etag", "v9")

    assert said.exit_code == 6
    assert "read it again" in said.stderr


def test_a_list_is_filtered_by_what_is_asked(cli: Cli) -> None:
    cli.ok("job", "create", "a1", "--handler", "h", "--label", "team=a", "--queue", "q")
    cli.ok("job", "create", "a2", "--handler", "g", "--label", "team=b")
    cli.ok("job", "create", "b", "--handler", "h", "--label", "team=a")
    cli.ok("job", "pause", "b")

    def names(*words: str) -> list[str]:
        return cli.ok("job", "list", *words, "-o", "name").stdout.split()

    assert names("-l", "team=a") == ["a1", "b"]
    assert names("--state", "active") == ["a1", "a2"]
    assert names("a*", "--handler", "g") == ["a2"]
    assert names("--queue", "q") == ["a1"]
    assert names("--filter", "labels.team=a AND state=PAUSED") == ["b"]


def test_deleting_asks_first_and_says_what_became_of_the_runs(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")
    cli.ok("job", "trigger", "x")

    said = cli.ok("job", "delete", "x", "--yes")

    assert said.stderr == "Job x deleted, 1 run cancelled.\n"
    assert cli("job", "get", "x").exit_code == 3


def test_jobs_are_deleted_by_label(cli: Cli) -> None:
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        cli.ok("job", "create", name, "--handler", "h", "--label", f"team={team}")

    cli.ok("job", "update", "b", "--after", "a")

    cli.ok("job", "delete", "-l", "team=x", "--yes")
    again = cli.ok("job", "delete", "-l", "team=x", "--yes")

    assert cli.ok("job", "list", "--state", "active", "-o", "name").stdout == "c\n"
    assert again.stderr == "No job fits 'labels.team=x'.\n"
    assert cli("job", "delete", "c", "-l", "team=y", "--yes").exit_code == 2
    assert cli("job", "delete", "--yes").exit_code == 2


def test_next_shows_both_changes_of_the_clock(cli: Cli) -> None:
    spring = cli.rows(
        "job", "next", "30 2 * * *", "--zone", "Europe/Berlin", "--from", "2027-03-27T00:00:00Z",
        "-c", "3",
    )  # fmt: skip
    autumn = cli.rows(
        "schedule", "preview", "30 2 * * *", "--zone", "Europe/Berlin",
        "--from", "2027-10-30T00:00:00Z", "-c", "3",
    )  # fmt: skip

    assert spring[0] == ["ITS ZONE", "UTC", "NOTE"]
    assert [row[:2] for row in spring[1:]] == [
        ["2027-03-27T02:30:00+01:00", "2027-03-27T01:30:00Z"],
        ["2027-03-28T03:00:00+02:00", "2027-03-28T01:00:00Z"],
        ["2027-03-29T02:30:00+02:00", "2027-03-29T00:30:00Z"],
    ]
    assert "02:30 does not exist on this day" in spring[2][2]
    assert "clock forward since the one before" in spring[2][2]
    assert [row[1] for row in autumn[1:]] == [
        "2027-10-30T00:30:00Z", "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z",
    ]  # fmt: skip
    assert "comes twice" in autumn[2][2]
    assert autumn[3][2] == "clock back since the one before"


def test_next_says_in_words_what_a_job_does(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--cron", "0 9 * * mon-fri")

    said = cli.ok("job", "next", "x", "-c", "1")

    assert "at 09:00 on Monday to Friday" in said.stderr
    assert said.stdout.splitlines()[1].startswith("2026-01-01T09:00:00+00:00\t")


def test_an_expression_that_is_wrong_says_what_to_write(cli: Cli) -> None:
    said = cli("job", "next", "@reboot")

    assert said.exit_code == 2
    assert "cannot preview '@reboot'" in said.stderr


def test_an_occurrence_is_skipped_moved_added_and_put_back(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--cron", "0 9 * * *")

    cli.ok("job", "skip", "x", "2026-01-02T09:00:00Z")
    cli.ok("job", "skip", "x", "2026-01-03T09:00:00Z", "--move-to", "2026-01-03T10:00:00Z")
    cli.ok("job", "skip", "x", "2026-01-01T12:00:00Z", "--add")
    notes = [row[-1] for row in cli.rows("job", "next", "x", "-c", "4")[1:]]
    cli.ok("job", "skip", "x", "2026-01-02T09:00:00Z", "--revert")

    assert [note.split(" manually")[0] for note in notes] == ["", "added", "left out", "moved"]
    assert cli.json("job", "get", "x")["status"]["edits"][0]["kind"] == "KIND_ADD"
    assert len(cli.json("job", "get", "x")["status"]["edits"]) == 2


def test_history_backfill_and_explain(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--cron", "0 * * * *")
    stage.act(lambda machine: machine.at("2026-01-01T03:30"))
    stage.finish()

    history = cli.rows("job", "history", "x")
    backfill = cli.ok(
        "job", "backfill", "x", "--from", "2026-01-01T01:00:00Z", "--to", "2026-01-01T03:00:00Z"
    )
    explained = cli.ok("job", "explain", "x")

    assert [row[1] for row in history[1:]] == ["succeeded"]
    assert backfill.stderr == (
        "2 scheduled times of job x will run, 60 a minute (2.0s at least); 0 left alone. "
        "`job explain` says how many are left, `job drop-backlog` gives them up.\n"
    )
    assert explained.stderr.startswith("The job x")
    stage.act(lambda machine: machine.fire())


def test_a_repair_says_whether_there_was_anything_to_repair(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--every", "1h")
    sound = cli.ok("job", "repair", "x")
    why = "firing failed: RuntimeError: planted"
    stage.act(lambda machine: machine.do(SetAside(machine.jid("x"), why)))
    broken = cli.rows("job", "list")
    explained = cli.ok("job", "explain", "x")
    trigger = cli("job", "trigger", "x")
    mended = cli.ok("job", "repair", "x")

    assert sound.stderr == "Job x was not BROKEN, so nothing was repaired.\n"
    assert broken[1][1] == "broken"
    assert "repair the job" in explained.output
    assert "Try: raftsched job explain x\n       raftsched job repair x\n" in trigger.stderr
    assert mended.stderr == "Job x repaired.\n"


def test_a_job_of_another_namespace_is_not_seen(cli: Cli) -> None:
    cli.ok("namespace", "create", "billing")
    cli.ok("job", "create", "x", "--handler", "h", "-n", "billing")

    assert cli.ok("job", "list", "-o", "name").stdout == ""
    assert cli.ok("job", "list", "-n", "billing", "-o", "name").stdout == "x\n"
    assert "raftsched job list -n billing" in cli("job", "get", "y", "-n", "billing").stderr


def test_a_trigger_names_its_concurrency_key(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--concurrency-key", "payload.customer",
           "--key-limit", "1")  # fmt: skip

    run = cli.json("job", "trigger", "x", "--payload", '{"customer": "acme"}',
                   "--concurrency-key", "database")  # fmt: skip
    refused = cli("job", "trigger", "x", "--payload", '{"order": 1}')

    assert run["concurrencyKey"] == "database"
    assert "the payload has no 'customer'" in refused.stderr
    assert "concurrency_key\tdatabase" in cli.ok("run", "get", run["id"]).stdout


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trigger_names_labels_and_its_place_in_a_trace(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")
    run = cli.json("job", "trigger", "x", "--label", "team=a", "--label", "day=2026-11-20",
                   "--traceparent", PARENT, "--tracestate", "a=b")  # fmt: skip
    assert run["labels"] == {"team": "a", "day": "2026-11-20"}
    assert run["traceContext"] == {"traceparent": PARENT, "tracestate": "a=b"}
    shown = cli.ok("run", "get", run["id"]).stdout
    assert PARENT in shown
    assert "2026-11-20" in shown

    assert "trace_context.traceparent" in cli("job", "trigger", "x", "--traceparent", "1").stderr
    assert "--label KEY=VALUE" in cli("job", "trigger", "x", "--label", "team").stderr


def test_a_trigger_carries_what_it_is_told(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")

    run = cli.json(
        "job", "trigger", "x", "--payload", "plain words", "--priority", "high", "--queue", "q",
        "--unique-key", "k", "--if-taken", "reject", "--hold-key", "1h",
        "--due", "2026-01-01T05:00:00Z",
    )  # fmt: skip
    taken = cli("job", "trigger", "x", "--unique-key", "k", "--if-taken", "reject", "--force")

    assert run["payload"] == {"data": "cGxhaW4gd29yZHM=", "contentType": "text/plain"}
    assert (run["priority"], run["queue"], run["uniqueKey"]) == ("PRIORITY_HIGH", "q", "k")
    assert run["dueTime"] == "2026-01-01T05:00:00Z"
    assert taken.exit_code == 6
    assert f"raftsched run get {run['id']}" in taken.stderr


def test_a_stale_read_says_how_old_it_is(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")

    said = cli.ok("job", "get", "x", "--stale", "-o", "name")

    assert said.stdout == "x\n"
    assert said.stderr.startswith("As of 12ms ago, from 127.0.0.1:")


@each(
    ("text", "labels", "equal", "joined"),
    [
        ("", (), {}, ""),
        ("a=1 OR b=2", (), {}, "a=1 OR b=2"),
        ("a=1 OR b=2", ("team=x y",), {}, '(a=1 OR b=2) AND labels.team="x y"'),
        ("", ("team=(a)",), {"state": "paused"}, 'labels.team="(a)" AND state=PAUSED'),
        ("", (), {"kind": 'a"b\\'}, 'kind="a\\"b\\\\"'),
    ],
)
def test_options_and_a_filter_are_joined(
    text: str, labels: tuple[str, ...], equal: dict[str, str], joined: str
) -> None:
    assert condition(text, labels, **equal) == joined
