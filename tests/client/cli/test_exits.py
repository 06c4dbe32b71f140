"""Exit codes and the three parts of an error: what, why with the value, what to type next."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from raftsched.client.cli import main
from raftsched.client.cli.commands.token import keep_to_owner
from raftsched.client.cli.connectivity import unreachable
from raftsched.client.cli.exits import Exit
from raftsched.client.sdk import course
from raftsched.proto.v1 import access_pb2, options_pb2

from ..stage import BlackHole, Stage, dead_endpoint, losing_the_answer, refusing
from .conftest import Cli
from .test_groups import saying

# Reason -> exit code, what is said to be typed next.
REFUSALS = {
    "FIELD_INVALID": (Exit.USAGE, ""),
    "CRON_INVALID": (Exit.USAGE, "raftsched job next 'EXPRESSION'"),
    "ZONE_UNKNOWN": (Exit.USAGE, "an IANA name such as Europe/Berlin"),
    "LIMIT_EXCEEDED": (Exit.USAGE, ""),
    "NAMESPACE_NOT_FOUND": (Exit.NOT_FOUND, "raftsched namespace list\n       raftsched namespace"),
    "JOB_NOT_FOUND": (Exit.NOT_FOUND, "raftsched job list"),
    "NO_QUORUM": (Exit.UNREACHABLE, "raftsched cluster status --endpoints NODE"),
    "UNAUTHENTICATED": (Exit.FORBIDDEN, "--token-file FILE"),
    "FORBIDDEN": (Exit.FORBIDDEN, "an access token with the role that is needed"),
    "JOB_EXISTS": (
        Exit.CONFLICT,
        "raftsched job get report\n       raftsched job update report ...",
    ),
    "ETAG_MISMATCH": (Exit.CONFLICT, "read it again"),
    "JOB_PAUSED": (Exit.CONFLICT, "raftsched job resume report\n       the same with --force"),
    "OVERLAP_REFUSED": (Exit.CONFLICT, "raftsched run list --job report"),
    "QUOTA_EXCEEDED": (Exit.CONFLICT, "raftsched namespace get default"),
    "COMMIT_TIMEOUT": (Exit.OUTCOME_UNKNOWN, "--request-id"),
    "STATE_DIVERGED": (Exit.UNREACHABLE, ""),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_has_its_exit_code_and_three_parts(reason: str, cli: Cli, stage: Stage) -> None:
    exit_code, then = REFUSALS[reason]
    # A wait that is longer than the call may take: it is not tried again, however long a try lasts.
    fault = refusing(reason, f"no, by {reason}", 120_000, job="report", namespace="default")
    stage.nodes[0].faults.append(fault)

    said = cli("job", "trigger", "report", "--timeout", "60s")

    assert not stage.nodes[0].faults

    assert said.exit_code == exit_code, said.output
    assert said.stdout == ""
    first, *_ = said.stderr.splitlines()
    assert first.startswith("Error: ")
    assert "trigger job report" in first
    assert f"no, by {reason}" in said.stderr
    assert then in said.stderr


def test_all_wrong_fields_are_named_at_once(cli: Cli) -> None:
    said = cli(
        "job", "create", "x", "--handler", "h", "--zone", "Europe/Berln", "--cron", "61 * * * *"
    )

    assert said.exit_code == Exit.USAGE
    assert "Error: cannot create job x" in said.stderr
    assert "timing.zone" in said.stderr
    assert "Europe/Berlin" in said.stderr
    assert "cron" in said.stderr


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(cli: Cli) -> None:
    cli.ok("job", "create", "report", "--handler", "h")

    said = cli("job", "get", "reprot")

    assert said.exit_code == Exit.NOT_FOUND
    assert "did you mean report?" in said.stderr


def test_a_write_that_nobody_answered_says_how_to_learn_what_became_of_it(
    cli: Cli, stage: Stage
) -> None:
    cli.ok("job", "create", "report", "--handler", "h")
    stage.nodes[0].faults.append(losing_the_answer(grpc.StatusCode.INTERNAL))

    lost = cli("job", "trigger", "report")
    request_id = lost.stderr.split("--request-id ")[1].split(",")[0]
    again = cli.json("job", "trigger", "report", "--request-id", request_id)

    assert lost.exit_code == Exit.OUTCOME_UNKNOWN
    assert lost.stderr.startswith(
        "Error: it is not known whether this was done: trigger job report"
    )
    assert [run["id"] for run in cli.json("run", "list")["runs"]] == [again["id"]]


def test_a_command_of_several_writes_is_repeated_as_a_whole(cli: Cli, stage: Stage) -> None:
    for name in ("a", "b"):
        cli.ok("job", "create", name, "--handler", "h")
        cli.ok("job", "trigger", name)
    [a, b] = sorted(run["id"] for run in cli.json("run", "list")["runs"])
    node = stage.nodes[0]

    def first_passes(*call: Any) -> Message:
        node.faults.append(losing_the_answer(grpc.StatusCode.INTERNAL))
        answer: Message = call[3]()
        return answer

    node.faults.append(first_passes)
    lost = cli("run", "cancel", a, b)
    request_id = lost.stderr.split("--request-id ")[1].split(",")[0]
    again = cli.ok("run", "cancel", a, b, "--request-id", request_id)

    assert lost.exit_code == Exit.OUTCOME_UNKNOWN
    assert again.stderr == f"Run {a} is cancelled.\nRun {b} is cancelled.\n"


def test_no_server_is_told_apart_and_says_how_to_start_one(cli: Cli) -> None:
    gone = dead_endpoint()

    said = cli("job", "next", "0 9 * * *", "--timeout", "200ms", RAFTSCHED_ENDPOINTS=gone)

    assert said.exit_code == Exit.UNREACHABLE
    assert said.stderr.splitlines() == [
        "Error: no node can be reached",
        f"  {gone}: Connection refused",
        "  start a cluster here (dev), find out why (doctor), or name another node",
        "  Try: raftsched dev",
        "       raftsched doctor",
        "       the same with --endpoints HOST:PORT",
    ]


def test_one_node_that_listens_is_enough(cli: Cli, stage: Stage, black_hole: BlackHole) -> None:
    nodes = f"{dead_endpoint()},{black_hole.address},{stage.endpoints}"

    assert unreachable(nodes.split(","), 5.0) == {}


def test_a_token_is_shown_from_a_file_or_the_environment(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    stage.token = "s3cret"
    (tmp_path / "token").write_text("s3cret\n")

    without = cli("job", "list")
    by_file = cli("job", "list", "--token-file", str(tmp_path / "token"))
    by_variable = cli("job", "list", RAFTSCHED_TOKEN="s3cret")
    no_file = cli("job", "list", "--token-file", str(tmp_path / "gone"))

    assert without.exit_code == Exit.FORBIDDEN
    assert (by_file.exit_code, by_variable.exit_code) == (0, 0)
    assert no_file.exit_code == Exit.USAGE
    assert "s3cret" not in cli("config", "show", "--origin", RAFTSCHED_TOKEN="s3cret").output


def test_what_to_type_next_names_the_namespace(cli: Cli) -> None:
    cli.ok("namespace", "create", "billing")

    for kind, words in (("queue", ("get", "x")), ("calendar", ("get", "x"))):
        said = cli(kind, *words, "-n", "billing")

        assert said.exit_code == 3
        assert f"Try: raftsched {kind} list -n billing\n" in said.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("create x --handler h --every 1ms", "'1 ms': it must be between 1 s and"),
        ("create x --handler h --every 99999d", "'99999 days': it must be between"),
        ("create x --handler h --keep-history 99999d", "it is 99999 days; it must be from"),
        ("backfill a --from 2026-01-02Z --to 2026-01-01Z", "it is 2026-01-01T00:00:00Z, from_time"),
        (
            "backfill a --from 2000-01-01Z --to 2025-01-01Z",
            "the range has over 10000 scheduled times;",
        ),
        ("list --timeout 0s", "no call can be answered within 0s"),
    ],
)
def test_a_refusal_shows_what_was_typed(words: str, why: str, cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "h", "--cron", "* * * * *")

    said = cli("job", *words.replace("Z", "T00:00:00Z").split())

    assert said.exit_code in (2, 6)
    assert why in said.stderr


def test_a_wrong_endpoint_names_where_it_comes_from(cli: Cli) -> None:
    said = cli("job", "list", RAFTSCHED_ENDPOINTS="http://here")

    assert said.exit_code == Exit.USAGE
    assert "'http://here'" in said.stderr
    assert "RAFTSCHED_ENDPOINTS" in said.stderr


def test_an_interrupt_ends_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(main), "get_command", interrupt)

    said = cli("job", "list")

    assert said.exit_code == Exit.INTERRUPTED
    assert "Interrupted" in said.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["job", "delete", "report"],
        ["job", "drop-backlog", "report"],
        ["dead", "purge", "--all"],
        ["namespace", "delete", "billing"],
        ["calendar", "delete", "holidays"],
        ["cluster", "remove", "node-3"],
    ],
)
def test_what_destroys_does_not_without_a_yes(words: list[str], cli: Cli, stage: Stage) -> None:
    said = cli(*words)

    assert said.exit_code == Exit.USAGE
    assert "there is no terminal to ask on" in said.stderr
    assert "--yes" in said.stderr
    assert not stage.nodes[0].heard


def test_a_server_fault_is_a_failure(cli: Cli, stage: Stage) -> None:
    from ..stage import breaking_off

    stage.nodes[0].faults.append(breaking_off(grpc.StatusCode.UNIMPLEMENTED, "not known"))

    said = cli("job", "get", "report")

    assert said.exit_code == Exit.FAILED
    assert "not known" in said.stderr


def test_a_fault_of_our_own_is_told_without_a_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*args: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(type(main), "get_command", fault)

    said = cli("job", "list", fault="expected")

    assert said.exit_code == Exit.FAILED
    assert "ZeroDivisionError: by nought" in said.stderr
    assert "RAFTSCHED_DEBUG=1" in said.stderr


@pytest.mark.parametrize(
    ("said", "then"),
    [
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "--ca-file FILE"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "raftsched node config check"),
        ("Hostname Verification Check failed.", "a name that is in the certificate"),
        ("Failed to create security handshaker.", "--cert-file and --key-file of one pair"),
        ("WRONG_VERSION_NUMBER", "the same without --ca-file"),
        ("Socket closed", "--ca-file FILE if the nodes want TLS"),
        ("something new", "raftsched doctor"),
    ],
)
def test_a_connection_that_is_not_trusted_says_what_to_give(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch, said: str, then: str
) -> None:
    # No second try fits into the call, however long the first one takes.
    monkeypatch.setattr(course, "BACKOFF_FIRST_S", 200.0)
    monkeypatch.setattr(course, "BACKOFF_CAP_S", 200.0)

    def broken(node: object, request: object, context: grpc.ServicerContext, answer: Any) -> Any:
        words = f"failed to connect to all addresses; last error: UNKNOWN: {said}"
        context.abort(grpc.StatusCode.UNAVAILABLE, words)

    stage.nodes[0].faults.append(broken)

    told = cli("job", "list", "--timeout", "60s")

    assert told.exit_code == Exit.UNREACHABLE
    assert then in told.stderr.split("Try: ")[1]


def test_a_cluster_without_a_leader_is_named_so(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftsched.client.cli.session.LEADERLESS_S", 0.0)
    monkeypatch.setattr(course, "ELECTION_WARNED_S", 0.0)
    nobody = refusing("NO_QUORUM", "n3 knows no leader that a majority follows; try again")
    for words, stale in ((("job", "get", "a"), True), (("job", "pause", "a"), False)):
        stage.nodes[0].faults.append(nobody)

        said = cli(*words)

        assert said.exit_code == Exit.UNREACHABLE
        assert said.stderr.startswith(
            f"Error: cannot {' job '.join(words[1:])}: the cluster has no"
        )
        assert "Try: raftsched cluster status\n" in said.stderr
        assert ("the same with --stale" in said.stderr) == stale
        assert not stage.nodes[0].faults
    # A time that was typed is waited for; a node that knows one again is enough.
    stage.nodes[0].faults.append(nobody)
    said = cli("job", "get", "a", "--timeout", "20s")
    assert said.exit_code == Exit.NOT_FOUND
    assert "Note: there is no leader yet; trying again (Ctrl-C ends it)" in said.stderr


def test_a_token_of_one_namespace_is_told_which(cli: Cli, stage: Stage) -> None:
    grants = [access_pb2.Caller.Grant(role=options_pb2.ROLE_EDITOR, namespace="billing")]
    caller = access_pb2.Caller(kind=access_pb2.Caller.KIND_TOKEN, name="ci", grants=grants)

    def refused(*words: str) -> str:
        answers = [refusing("FORBIDDEN", "you need the role viewer"), saying(caller)]
        stage.nodes[0].faults.extend(answers)
        said = cli("job", "list", *words)
        assert said.exit_code == Exit.FORBIDDEN
        stage.nodes[0].faults.clear()
        return said.stderr

    assert "no namespace was named, so it was default; yours is billing" in refused()
    assert "Try: the same with -n billing" in refused()
    assert "billing" not in refused("-n", "default")
    caller.grants.add(role=options_pb2.ROLE_VIEWER, namespace="other")
    assert "billing" not in refused()


@pytest.mark.parametrize("verb", ["create", "rotate"])
def test_a_secret_in_a_file_is_for_its_owner_alone(
    verb: str, cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    token = access_pb2.AccessToken(name="ci", role=options_pb2.ROLE_EDITOR, namespace="default")
    kinds = {"create": access_pb2.CreateAccessTokenResponse,
             "rotate": access_pb2.RotateAccessTokenResponse}  # fmt: skip
    made = kinds[verb](access_token=token, secret="s3cret")
    words = ("token", verb, "ci", *(("--role", "editor") if verb == "create" else ()))
    file = tmp_path / "ci.token"
    stage.nodes[0].faults.append(saying(made))

    said = cli.ok(*words, "--to", str(file))

    assert (said.stdout, file.read_text()) == ("", "s3cret\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "s3cret" not in said.stderr
    assert "you alone may read (0600)" in said.stderr
    again = cli(*words, "--to", str(file))
    assert (again.exit_code, file.read_text()) == (Exit.CONFLICT, "s3cret\n")
    assert cli(*words, "--to", str(tmp_path / "no" / "x")).exit_code == Exit.USAGE
    # A shell makes the file of stdout, for everybody to read.
    shared = tmp_path / "shared"
    with shared.open("w") as stdout:
        shared.chmod(0o644)
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr("sys.stdout", stdout)
            assert keep_to_owner()
            assert not keep_to_owner()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o600


def test_half_a_certificate_and_an_empty_token_are_refused_by_name(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")

    half = cli("job", "list", "--cert-file", str(tmp_path / "empty"))
    empty = cli("job", "list", "--token-file", str(tmp_path / "empty"))

    assert (half.exit_code, empty.exit_code) == (Exit.USAGE, Exit.USAGE)
    assert "add --key-file FILE" in half.stderr
    assert "holds no access token" in empty.stderr


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (b"Access token ci: editor. This is its secret:\nrs_s3cret\n", "it has 2 lines"),
        ("rs_s3cret\u2013".encode(), "a character beyond ASCII"),
        (b"\xff\xfers_s3cret", "can't decode"),
    ],
)
def test_a_bad_token_is_not_called_a_bad_endpoint(
    held: bytes, why: str, cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)

    said = cli("job", "list", "--token-file", str(file))

    assert said.exit_code == Exit.USAGE
    assert f"{file}" in said.stderr.splitlines()[0]
    assert why in said.stderr
    assert "it comes from: --token-file" in said.stderr
    assert "endpoints" not in said.stderr
    assert "s3cret" not in said.stderr
    said = cli("job", "list", RAFTSCHED_TOKEN="rs_a\nb")
    assert "RAFTSCHED_TOKEN holds no access token" in said.stderr
    said = cli("job", "list", "--token-file", str(tmp_path))
    assert f"cannot read {tmp_path}" in said.stderr
    said = cli("job", "list", "--timeout", "48h")
    assert "no call may take as long as 2d" in said.stderr
    assert "endpoints" not in said.stderr


def test_a_command_that_looks_like_a_shells_has_a_note(cli: Cli) -> None:
    said = cli.ok("job", "create", "a", "--shell", "echo a | tr a b")

    assert "'|' is handed to echo as a word" in said.stderr
    assert "Note" not in cli.ok("job", "create", "b", "--shell", "sh -c 'echo a | tr a b'").stderr


def test_no_attempt_at_all_is_refused(cli: Cli) -> None:
    said = cli("job", "create", "a", "--handler", "h", "--max-attempts", "0")

    assert said.exit_code == Exit.USAGE
    assert "0 is not in the range x>=1" in said.stderr


def test_a_token_is_not_sent_in_plain_text(cli: Cli) -> None:
    said = cli("job", "list", "--endpoints", "10.0.0.9:7400", RAFTSCHED_TOKEN="secret")
    assert said.exit_code == 5
    assert "without encryption" in said.stderr
    assert "--insecure yes" in said.stderr
    assert "--ca-file FILE" in said.stderr
    assert "secret" not in said.output
