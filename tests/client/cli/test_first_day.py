"""What somebody sees in the first hours: what comes next, what is in the way, what to type."""

from __future__ import annotations

import re
import shlex
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from raftsched.client.cli.exits import with_program
from raftsched.proto.v1 import access_pb2, cluster_pb2
from raftsched.statemachine.core.rejection import Fault, Reason, Refused

from ..stage import Node, refuse
from .conftest import Cli

PLAIN = {"NO_COLOR": "1", "COLUMNS": "80"}
UNTIL = "2026-01-01 06:00:00"


def seen(cli: Cli, *words: str) -> str:
    """What a person sees on a terminal of 80 columns."""
    return cli.ok(*words, "--color", "always", **PLAIN).stdout


def daily(cli: Cli, *words: str) -> None:
    cli.ok("job", "create", "report", "--cron", "0 9 * * *", "--handler", "build", *words)


def test_what_files_have_changed_breaks_between_words(cli: Cli, tmp_path: Path) -> None:
    cli.ok("job", "create", "load", "--handler", "x", "--cron", "0 9 * * *")
    files = tmp_path / "night.yaml"
    files.write_text(
        "flow: night\njobs:\n  first: {handler: y}\n  load: {handler: y, after: first}"
    )

    [head, *rows] = seen(cli, "job", "apply", "-f", str(files), "--yes").splitlines()

    # Columns that are empty leave their room to others.
    assert head.split() == ["JOB", "VERDICT", "CHANGED"]
    words = " ".join(rows).replace(",", " ").split()
    assert {"spec.labels", "spec.action.handler", "spec.schedules", "spec.upstream"} <= {*words}


# What comes next.


def test_a_skipped_time_is_no_next_one_and_is_named(cli: Cli) -> None:
    daily(cli)
    cli.ok("job", "skip", "report", "2026-01-01T09:00:00Z")

    titles, row = cli.rows("job", "list")
    assert row[titles.index("NEXT")] == "2026-01-02T09:00:00Z"
    assert row[titles.index("NOTE")] == "left out: 2026-01-01 09:00:00 UTC manually"
    assert "note: left out: 2026-01-01 09:00:00 UTC manually" in seen(cli, "job", "list")
    assert "left out:            2026-01-01 09:00:00 UTC manually" in seen(
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


# Numbers and payloads.


def test_a_backfill_at_no_rate_is_refused_with_the_range(cli: Cli) -> None:
    daily(cli)
    words = ("job", "backfill", "report", "--from", "2025-12-30", "--to", "2025-12-31")

    for wrong in ("0", "-1", "60001"):
        said = cli(*words, "--rate", wrong)
        assert said.exit_code == 2
        assert "1<=x<=60000" in said.stderr
    assert ", 60 a minute (" in cli.ok(*words, "--dry-run").stderr
    assert ", 60,000 a minute (" in cli.ok(*words, "--dry-run", "--rate", "60000").stderr


def test_malformed_json_is_refused_before_it_is_sent(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b'{"a": 1,\n "b" 2}')
    heard = len(cli.stage.nodes[0].heard)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "name: x\nspec: {action: {handler: h}, "
        "payload: {text: '{', contentType: application/json}}\n"
    )

    for words, where in (
        (("job", "trigger", "x", "--payload", '{"a": 1'), "line 1, column 8"),
        (("job", "trigger", "x", "--payload", '{"a": 1', "--content-type", "application/json"),
         "line 1, column 8"),
        (("job", "trigger", "x", "--payload", f"@{file}", "--content-type", "a/x+json"),
         "line 2, column 6"),
        (("job", "apply", "-f", str(spec)), "line 1, column 2"),
    ):  # fmt: skip
        said = cli(*words)
        assert said.exit_code == 2, said.output
        assert where in said.stderr
    assert len(cli.stage.nodes[0].heard) == heard


# What is in the way.


def test_a_calendar_in_use_names_the_command_that_lists_its_jobs(cli: Cli) -> None:
    cli.ok("namespace", "create", "shop")
    cli.ok("calendar", "create", "holidays", "--yearly", "12-25", "-n", "shop")
    daily(cli, "--exclude-calendar", "holidays", "-n", "shop")

    said = cli("calendar", "delete", "holidays", "--yes", "-n", "shop")

    assert said.exit_code == 6
    assert "the job report names the calendar 'holidays'" in said.stderr
    [then] = [line for line in said.stderr.splitlines() if "Try:" in line]
    listed = then.split("Try: raftsched ")[1].split()
    assert listed == ["job", "list", "-n", "shop", "--calendar", "holidays"]
    assert cli.ok(*listed, "-o", "name").stdout == "report\n"


# Lines that can be pasted.


def pasted(cli: Cli, said: str) -> list[list[str]]:
    """The commands of the lines Next and Try, as a shell reads them."""
    lines = [line for line in said.splitlines() if re.match(r"\s+(Next|Try): ", line)]
    found = re.findall(r"raftsched ((?:[^,;(]|, ?\d)+)", " ".join(lines))
    return [shlex.split(re.sub(r" (says|shows|on each) .*", "", one)) for one in found]


@pytest.mark.parametrize(
    "words",
    [
        ("job", "create", "fresh", "--cron", "0 9 * * *", "--handler", "h"),
        ("job", "create", "manual", "--handler", "h"),
        ("job", "pause", "report"),
        ("job", "trigger", "report"),
        ("job", "skip", "report", "2026-01-01T09:00:00Z"),
        ("job", "backfill", "report", "--from", "2025-12-30", "--to", "2025-12-31"),
        ("job", "get", "reprot"),
        ("run", "get", "report.1.5"),
        ("queue", "get", "nope"),
        ("calendar", "delete", "holidays", "--yes"),
    ],
    ids=" ".join,
)
def test_what_is_to_be_typed_next_works_as_it_is(cli: Cli, words: tuple[str, ...]) -> None:
    there = ("-n", "shop", "--endpoints", cli.environment.pop("RAFTSCHED_ENDPOINTS"))
    cli.ok("namespace", "create", "shop", *there[2:])
    cli.ok("calendar", "create", "holidays", "--yearly", "12-25", *there)
    daily(cli, "--exclude-calendar", "holidays", *there)

    said = cli(*words, *there, "--color", "always")

    commands = pasted(cli, said.stderr)
    assert commands, said.stderr
    for command in commands:
        if any(word.isupper() and len(word) > 2 for word in command):
            continue  # A word that stands for a name.
        wait = ("--for", "10ms") if command[:2] == ["run", "wait"] else ()
        answered = cli(*command, *wait)
        assert answered.exit_code in (0, 7), (command, answered.output)


def test_a_context_that_was_named_is_named_again(cli: Cli) -> None:
    endpoints = cli.environment.pop("RAFTSCHED_ENDPOINTS")
    cli.ok("config", "add", "prod", "--endpoints", endpoints)
    cli.ok("config", "add", "other", "--endpoints", "127.0.0.1:9")
    cli.ok("config", "use", "other")

    said = cli("job", "get", "nope", "--context", "prod")

    assert "Try: raftsched job list --context prod" in said.stderr


def test_the_program_is_called_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", [".venv/bin/raftsched", "job"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert with_program("raftsched job list, or raftsched dev") == (
        ".venv/bin/raftsched job list, or .venv/bin/raftsched dev"
    )
    on_path = tmp_path / "raftsched"
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(on_path), "job"])
    assert with_program("raftsched job list") == "raftsched job list"
    monkeypatch.setattr("sys.argv", ["pytest"])
    assert with_program("raftsched job list") == "raftsched job list"


# The first access token.


def with_workers(count: int, cli: Cli) -> None:
    """The next calls: no token is there, so many workers are, and the token is made."""

    def tokens(node: Node, request: Any, context: Any, answer: Any) -> Any:
        assert isinstance(request, access_pb2.ListAccessTokensRequest)
        return access_pb2.ListAccessTokensResponse()

    def status(node: Node, request: Any, context: Any, answer: Any) -> Any:
        assert isinstance(request, cluster_pb2.GetClusterStatusRequest)
        return cluster_pb2.ClusterStatus(workers=count)

    def made(node: Node, request: Any, context: Any, answer: Any) -> Any:
        assert isinstance(request, access_pb2.CreateAccessTokenRequest)
        made = access_pb2.CreateAccessTokenResponse(secret="rs_1")
        made.access_token.CopyFrom(request.access_token)
        return made

    cli.stage.nodes[0].faults.extend((tokens, status, made))


def test_a_token_that_cannot_be_the_first_names_the_one_that_can(cli: Cli) -> None:
    wrong = Fault("access_token.role", Reason.ERROR_REASON_FIELD_INVALID, "the first must be")

    def refused(node: object, request: object, context: Any, answer: object) -> NoReturn:
        refuse(context, Refused.of([wrong]).rejection)

    cli.stage.nodes[0].faults.append(refused)
    said = cli("token", "create", "ci", "--role", "editor")

    assert said.exit_code == 2
    assert "Try: raftsched token create root --role admin --all-namespaces --to " in said.stderr


def test_the_first_token_says_whom_it_shuts_out(cli: Cli) -> None:
    with_workers(3, cli)

    said = cli.ok("token", "create", "root", "--role", "admin", "-A")

    assert said.stdout == "rs_1\n"
    before, after = said.stderr.split("Access token root: admin in all namespaces.")
    assert "the first access token" in before
    assert "3 workers are connected without one" in before
    assert "raftsched token create NAME --role worker" in after
    for setting in ("RAFTSCHED_TOKEN_FILE", "Worker(token=...)", "Client(token=...)"):
        assert setting in after


def test_bootstrap_says_so_too(cli: Cli, tmp_path: Path) -> None:
    secret = tmp_path / "bootstrap-secret"
    secret.write_text("rsb_1\n")

    def made(node: Node, request: Any, context: Any, answer: Any) -> Any:
        made = access_pb2.CreateAccessTokenResponse(secret="rs_1")
        made.access_token.CopyFrom(request.access_token)
        return made

    def status(node: Node, request: Any, context: Any, answer: Any) -> Any:
        assert ("authorization", "Bearer rs_1") in context.invocation_metadata()
        return cluster_pb2.ClusterStatus(workers=1)

    cli.stage.nodes[0].faults.extend((made, status))
    said = cli.ok("token", "bootstrap", "--secret-file", str(secret))

    assert said.stdout == "rs_1\n"
    assert "from then on every call without a token is refused" in said.stderr
    assert "1 worker is connected without one" in said.stderr
    assert "RAFTSCHED_TOKEN_FILE" in said.stderr


# Errors: what, why, what to type next.


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("[contexts.x\n", "cannot read {}", "at line 1"),
        ("contexts = 3\n", "{} has a wrong `contexts`", "it is 3, and no table"),
        ("[contexts]\nx = 3\n", "{} has a wrong [contexts.x]", "it is 3, and no table"),
        ("current = 3\n", "{} has a wrong `current`", "it is 3, and no text"),
        ("[contexts.x]\nendpoints = 3\n", "{} has a wrong `endpoints` in [contexts.x]", "it is 3"),
        ('currnt = "x"\n', "{} has an unknown key 'currnt'", "did you mean current?"),
        ('[contexts.x]\nendpoint = "a:1"\n', "{} has an unknown key 'endpoint'", "endpoints?"),
    ],
)
def test_a_malformed_file_of_contexts_is_named_with_what_to_do(
    cli: Cli, tmp_path: Path, text: str, what: str, why: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)

    said = cli("job", "list", RAFTSCHED_CONFIG=str(file))

    assert said.exit_code == 2
    assert f"Error: {what.format(file)}" in said.stderr
    assert why in said.stderr
    assert "Try: " in said.stderr


def test_certificates_are_looked_at_before_they_are_used(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("hello")
    bad = str(tmp_path / "bad.pem")

    for words, what in (
        (("--ca-file", bad), f"{bad} holds no certificate"),
        (("--cert-file", bad, "--key-file", bad), f"and {bad} are no certificate and its"),
        (("--ca-file", str(tmp_path / "none")), "No such file or directory\n"),
    ):  # fmt: skip
        said = cli("job", "list", *words)
        assert said.exit_code == 2, said.stderr
        assert what in said.stderr
        assert "Errno" not in said.stderr
        assert "Try: " in said.stderr


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("job", "list", "-n", "shpo"), "shop"),
        (("namespace", "get", "shpo"), "shop"),
        (("calendar", "get", "holiday"), "holidays"),
        (("job", "get", "reprot"), "report"),
        (("alert", "get", "stcuk"), "stuck"),
    ],
)
def test_a_name_that_is_near_is_offered(cli: Cli, words: tuple[str, ...], near: str) -> None:
    cli.ok("namespace", "create", "shop")
    cli.ok("calendar", "create", "holidays", "--yearly", "12-25")
    cli.ok("alert", "put", "stuck", "--lateness-above", "5m")
    daily(cli)

    said = cli(*words)

    assert said.exit_code == 3
    assert f"did you mean {near}?" in said.stderr
    assert "Try: " in said.stderr


def test_a_port_that_is_none_for_clients_is_named_at_once(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"

        def answer() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = port.accept()
                    with caller:
                        caller.recv(1000)
                        caller.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
                        caller.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        said = cli("job", "list", "--endpoints", address, "--timeout", "100s")
        port.shutdown(socket.SHUT_RDWR)

    assert said.exit_code == 4
    assert "what listens there is not a node's port for clients" in said.stderr
    assert "7400" in said.stderr
    assert time.monotonic() - began < 50


def test_a_request_that_is_too_large_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    daily(cli)
    large, huge = tmp_path / "large", tmp_path / "huge"
    large.write_bytes(b"a" * 70_000)
    huge.write_bytes(b"a" * 5_000_000)

    for file in (large, huge):
        said = cli("job", "trigger", "report", "--payload", f"@{file}")
        assert said.exit_code == 2
        assert "the most is 65536" in said.stderr or "at most 4,194,304 can be sent" in said.stderr
        assert "Try: a payload that says where the data is" in said.stderr


def test_a_list_of_jobs_fits_a_terminal_of_80_columns(cli: Cli) -> None:
    daily(cli, "--zone", "America/Los_Angeles")
    cli.ok("job", "create", "month-end-report", "--cron", "*/15 9-17 * * mon-fri",
           "--handler", "h")  # fmt: skip

    shown = seen(cli, "job", "list")

    assert [line for line in shown.splitlines() if len(line.rstrip()) > 80] == []
    assert "month-end-report  active  */15 9-17 * * mon-fri  " in shown
    assert "WAITING" not in shown
    assert "WAITING" in seen(cli, "job", "list", "-o", "wide")
