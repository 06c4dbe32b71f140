"""Runs, queues, dead letters, flows, calendars, namespaces, workers and the cluster."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.client.cli.times import now_ms
from raftsched.proto.v1 import access_pb2, cluster_pb2, identity_pb2, options_pb2, worker_pb2

from ...statemachine.driver import Machine
from ..stage import Fault, Stage, refusing
from .conftest import Cli


def saying(answer: Message) -> Fault:
    """A node that answers with this, whatever it is asked."""

    def fault(node: Any, request: Any, context: Any, normal: Callable[[], Message]) -> Message:
        return answer

    return fault


def fail(stage: Stage) -> None:
    """A worker takes all that is ready, and fails for good."""

    def work(machine: Machine) -> None:
        machine.fire()
        for lease in machine.grant("w1"):
            machine.fail(lease, "ValueError", message="bad input", fatal=True)

    stage.act(work)


@pytest.fixture
def run_id(cli: Cli) -> str:
    cli.ok("job", "create", "x", "--handler", "h")
    return cli.ok("job", "trigger", "x", "-o", "name").stdout.strip()


def test_waiting_for_a_run_that_succeeds_ends_with_0(cli: Cli, stage: Stage, run_id: str) -> None:
    stage.finish(b'{"rows": 7}')

    said = cli.ok("run", "wait", run_id)

    assert "state\tsucceeded" in said.stdout
    assert 'result\t{"rows": 7}' in said.stdout


def test_waiting_for_a_run_that_fails_ends_with_1(cli: Cli, stage: Stage, run_id: str) -> None:
    fail(stage)

    said = cli("run", "wait", run_id)

    assert said.exit_code == 1
    assert f"Error: run {run_id} ended as failed\n  ValueError: bad input" in said.stderr
    assert f"Try: raftsched run get {run_id}" in said.stderr


def test_waiting_too_long_ends_with_7(cli: Cli, run_id: str) -> None:
    for words in (("--timeout", "500ms"), ("--for", "1ms", "--timeout", "30s")):
        assert cli("run", "wait", run_id, *words).exit_code == 7
    said = cli("run", "wait", run_id, "--for", "1ms")

    assert said.exit_code == 7
    assert f"run {run_id} has not ended" in said.stderr
    assert "it is pending after 1ms" in said.stderr


def test_whoever_waits_hears_why_a_run_has_not_started(
    cli: Cli, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftsched.client.cli.commands.run.FIRST_MS", 1)
    said = cli("run", "wait", run_id, "--for", "300ms")

    assert f"{run_id} waits: no worker" in said.stderr
    assert said.stderr.count(" waits: ") == 1


def test_runs_are_listed_shown_explained_and_cancelled(cli: Cli, run_id: str) -> None:
    rows = cli.rows("run", "list", "--job", "x")
    details = dict(cli.rows("run", "get", run_id))
    explained = cli.ok("run", "explain", run_id).stdout.splitlines()
    cancelled = cli.ok("run", "cancel", run_id, "--reason", "wrong")

    assert rows[1][:2] == [run_id, "pending"]
    assert details["cause"] == "trigger"
    assert explained[0].split("\t") == ["OBSTACLE", "UNTIL", "MESSAGE"]
    assert explained[1].startswith("no worker\t")
    assert cancelled.stderr == f"Run {run_id} is cancelled.\n"
    assert cli("run", "cancel", run_id, "--now").exit_code == 6
    assert cli.rows("run", "list", "--state", "cancelled")[1][0] == run_id


def test_a_run_that_does_not_retry_cannot_be_hurried(cli: Cli, run_id: str) -> None:
    said = cli("run", "retry", run_id)

    assert said.exit_code == 6
    assert f"raftsched run explain {run_id}" in said.stderr


def test_a_queue_that_is_made_by_its_name_is_said_to_be_new(cli: Cli, run_id: str) -> None:
    first, again, known = (
        cli.ok("queue", "update", name, "--rate", "5") for name in ("nosuch", "nosuch", "default")
    )

    assert first.stderr.endswith(" It is new: no job has named it yet.\n")
    assert "new" not in again.stderr + known.stderr


def test_queues_are_limited_paused_and_resumed(cli: Cli, run_id: str) -> None:
    cli.ok("queue", "update", "default", "--concurrency", "5", "--rate", "50", "--burst", "100")
    limited = cli.json("queue", "get", "default")
    cli.ok("queue", "update", "default", "--rate", "0")
    paused = cli.ok("queue", "pause", "default", "--reason", "provider is down")
    rows = cli.rows("queue", "list", "-o", "wide")
    resumed = cli.ok("queue", "resume", "default")

    assert (limited["concurrency"], limited["rate"], limited["burst"]) == (5, 50, 100)
    assert paused.stderr == "Queue default paused, 1 run waits.\n"
    assert dict(zip(*rows, strict=True)) | {"OLDEST": ""} == {
        "NAME": "default", "STATE": "paused", "READY": "1", "OLDEST": "", "LEASED": "0",
        "WORKERS": "0", "CONCURRENCY": "5", "RATE": "", "BURST": "100",
        "REASON": "provider is down",
    }  # fmt: skip
    assert resumed.stderr == "Queue default resumed, 1 run waits.\n"


def test_dead_letters_are_mended_and_run_again(cli: Cli, stage: Stage, run_id: str) -> None:
    fail(stage)

    listed = cli.rows("dead", "list", "--kind", "ValueError")
    edited = cli.ok("dead", "edit", run_id, "--payload", "[1]", "--requeue")

    assert listed[1][0] == run_id
    assert edited.stderr == f"Run {run_id} has a new payload and runs again.\n"
    assert dict(cli.rows("run", "get", run_id))["payload"] == "[1]"
    assert cli("dead", "get", run_id).exit_code == 3


def test_many_dead_letters_are_requeued_or_purged(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--overlap", "allow")
    for _ in range(3):
        cli.ok("job", "trigger", "x")
    fail(stage)

    unclear = cli("dead", "requeue", "--yes")
    tried = cli.ok("dead", "purge", "--all", "--dry-run")
    requeued = cli.ok("dead", "requeue", "--job", "x", "--yes")
    fail(stage)
    purged = cli.ok("dead", "purge", "--all", "--yes")

    assert unclear.exit_code == 2
    assert "raftsched dead requeue --job JOB, or --all" in unclear.stderr
    assert tried.stderr == "3 dead letters forgotten. (dry run: nothing was changed)\n"
    assert requeued.stderr == "3 dead letters to run again.\n"
    assert purged.stderr == "3 dead letters forgotten.\n"
    assert cli.json("dead", "list")["runs"] == []


def test_flows_show_where_each_job_stands(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "load", "--handler", "h")
    cli.ok("job", "create", "clean", "--handler", "h", "--after", "load")
    cli.ok("job", "create", "sum", "--handler", "h", "--after", "clean", "--after", "load:any-end")
    cli.ok("job", "trigger", "load")
    stage.finish()

    flow = cli.rows("flow", "list", "--job", "load")[1]
    steps = cli.rows("flow", "get", flow[0])
    edges = cli.rows("flow", "graph", "clean")
    drawn = cli.ok("flow", "graph", "clean", "--color", "always").stdout

    assert flow[1] == "live"
    assert [row[:3] for row in steps[1:]] == [
        ["load", "fired", "succeeded"], ["clean", "fired", "pending"], ["sum", "waiting", ""],
    ]  # fmt: skip
    assert ["load", "sum", "any end"] in edges
    assert drawn.splitlines() == [
        "load", "└─ clean  <--", "   └─ sum", "└─ sum (on any end)",
    ]  # fmt: skip


def test_a_flow_of_a_file_is_drawn_by_its_name(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text(
        "flow: night\ncron: 0 2 * * *\njobs:\n  load: {handler: h}\n"
        "  sum: {handler: h, after: load}\n  apart: {handler: h}\n"
    )
    cli.ok("job", "apply", "-f", str(file), "--yes")

    drawn = cli.ok("flow", "graph", "night", "--color", "always").stdout
    missing = cli("flow", "graph", "day")

    assert drawn.splitlines() == ["apart", "load", "└─ sum"]
    assert cli.rows("flow", "graph", "night")[1:] == [["load", "sum", "success"]]
    assert missing.exit_code == 3
    assert "there is no job 'day'" in missing.stderr


def test_a_long_chain_is_drawn_within_a_terminal(cli: Cli, tmp_path: Path) -> None:
    lines = [
        json.dumps({
            "name": f"step-{n}",
            "spec": {"action": {"handler": "h"},
                     "upstream": {"jobs": [{"job": f"step-{n - 1}"}] if n else []}},
        })
        for n in range(100)
    ]  # fmt: skip
    file = tmp_path / "chain.jsonl"
    file.write_text("\n".join(lines))
    cli.ok("job", "import", str(file))

    drawn = cli.ok("flow", "graph", "step-50", "--color", "always").stdout.splitlines()

    assert len(drawn) == 100
    assert drawn[99].strip() == "└─ (99) step-99"
    assert drawn[50].strip() == "└─ (50) step-50  <--"
    assert max(map(len, drawn)) <= 80


def test_calendars_are_made_and_shown(cli: Cli) -> None:
    cli.ok(
        "calendar", "create", "holidays", "--date", "2026-04-03", "--yearly", "12-25",
        "--weekday", "sun", "--range", "2026-12-28:2026-12-31", "--zone", "Europe/Berlin",
    )  # fmt: skip
    made = cli.json("calendar", "get", "holidays")
    cli.ok("calendar", "update", "holidays", "--yearly", "01-01", "--description", "few")
    wrong = cli("calendar", "update", "holidays", "--range", "2026-12-28")

    assert made["rules"] == [
        {"date": "2026-04-03"}, {"yearly": "12-25"}, {"weekday": 7},
        {"range": {"first": "2026-12-28", "last": "2026-12-31"}},
    ]  # fmt: skip
    assert cli.json("calendar", "get", "holidays")["rules"] == [{"yearly": "01-01"}]
    assert cli.rows("calendar", "list")[1][:2] == ["holidays", "1"]
    assert wrong.exit_code == 2
    cli.ok("calendar", "delete", "holidays", "--yes")


def test_namespaces_have_quotas(cli: Cli) -> None:
    cli.ok("namespace", "create", "billing", "--max-jobs", "1", "--keep-failed", "90d")
    cli.ok("job", "create", "a", "--handler", "h", "-n", "billing")
    over = cli("job", "create", "b", "--handler", "h", "-n", "billing")
    cli.ok("namespace", "update", "billing", "--max-jobs", "0", "--description", "money")
    kept = cli.json("namespace", "get", "billing")

    assert over.exit_code == 6
    assert "quota" in over.stderr
    assert kept["keepFailed"] == "7776000s"
    assert "jobs" not in kept.get("quota", {})
    used = cli("namespace", "delete", "billing", "--yes")
    assert used.exit_code == 6
    assert "Try: raftsched job list -n billing\n" in used.stderr
    always = cli("namespace", "delete", "default", "--yes")
    assert "Try" not in always.stderr
    titles, billing, default = cli.rows("namespace", "list")
    assert [billing[0], default[0]] == ["billing", "default"]
    assert {"MAX JOBS", "MAX RUNS", "MAX LEASES", "CALLS/S"} <= set(titles)


def test_workers_are_listed_and_drained(cli: Cli, stage: Stage) -> None:
    worker = worker_pb2.Worker(
        worker="mail-1", slots=10, leased=3, queues=["a", "b", "c", "d"], draining=True
    )
    stage.nodes[0].faults.append(saying(worker_pb2.ListWorkersResponse(workers=[worker])))
    listed = cli.rows("worker", "list")
    stage.nodes[0].faults.append(saying(worker_pb2.DrainWorkerResponse(leased=3)))
    drained = cli.ok("worker", "drain", "mail-1")

    assert listed[1][:4] == ["mail-1", "draining", "3/10", "a,b,c +1"]
    assert drained.stderr == "Worker mail-1 takes no more runs; it still works on 3.\n"


def status(**fields: Any) -> cluster_pb2.ClusterStatus:
    nodes = [
        cluster_pb2.Node(
            name=f"node-{number}", client_address=f"127.0.0.1:740{number}", reachable=number < 3,
            serving=True, version="0.1.0", clock_skew=Duration(nanos=-4_000_000),
            role=cluster_pb2.Node.ROLE_LEADER if number == 1 else cluster_pb2.Node.ROLE_FOLLOWER,
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    return cluster_pb2.ClusterStatus(
        cluster_id="c-1", node="node-1", leader="node-1", term=7, nodes=nodes, **fields
    )


def test_the_status_is_a_line_for_each_node(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(saying(status(quorum=True, problems=["node-3 is gone"])))

    said = cli.ok("cluster", "status")

    rows = [line.split("\t") for line in said.stdout.splitlines()]
    assert rows[1][:4] == ["node-1", "leader", "serving", "127.0.0.1:7401"]
    assert rows[3][2] == "unreachable"
    assert rows[1][5] == "-4ms"
    assert said.stderr == "Problem: node-3 is gone\n"


def test_a_person_gets_a_summary_above_it(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(saying(status(quorum=True, margin=1, jobs=12_345)))

    said = cli.ok("cluster", "status", "--color", "always", NO_COLOR="1").stdout

    assert "Leader    node-1, term 7" in said
    assert "Quorum    yes; can lose 1 node" in said
    assert "12,345 jobs" in said


def test_the_status_shows_elections_disks_and_certificates(cli: Cli, stage: Stage) -> None:
    whole = status(quorum=True)
    end = (now_ms() // 1_000 + 10 * 86_400 + 3_600) * 1_000
    for node, sync_ms, certificate_ms in zip(
        whole.nodes, (4.25, 212.0, 0.0), (end, 0, None), strict=True
    ):
        if sync_ms:
            node.slowest_sync.FromMicroseconds(round(1_000 * sync_ms))
        if certificate_ms is not None:
            node.certificate_end_time.FromMilliseconds(certificate_ms)
    for term, (leader, before, reason) in {
        7: ("node-1", "node-2", "REASON_CONNECTION_LOST"), 6: ("node-2", "node-1", "REASON_SILENT"),
        5: ("node-1", "node-3", "REASON_HANDED_OVER"), 4: ("node-3", "", "REASON_UNSPECIFIED"),
    }.items():  # fmt: skip
        whole.elections.add(
            term=term, leader=leader, before=before, time=Timestamp(seconds=1_800_000_000),
            reason=cluster_pb2.Election.Reason.Value(reason),
        )  # fmt: skip

    def seen(*options: str) -> str:
        stage.nodes[0].faults.append(saying(whole))
        return cli.ok("cluster", "status", "--time", "utc", *options).stdout

    rows = [line.split("\t") for line in seen().splitlines()]
    assert rows[0][6:8] == ["SYNC", "CERTIFICATE"]
    assert [row[6] for row in rows[1:]] == ["4.2ms", "212ms", ""]
    ends = f"{datetime.fromtimestamp(end / 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert [row[7] for row in rows[1:]] == [ends, "not valid", ""]
    person = seen("--color", "always")
    said = "2027-01-15 08:00:00Z node-1 in term 7, as the connection to node-2 was lost"
    assert f"Elections 4 elections within a day; {said}" in " ".join(person.split())
    assert "term 6" not in person
    shown = [re.sub(r"\x1b\[\d*m", "", line).split() for line in person.splitlines()[-3:]]
    assert [row[-2:] for row in shown[:2]] == [["4.2ms", "10d"], ["not", "valid"]]
    wide = seen("--color", "always", "-o", "wide")
    assert "node-2 in term 6, as node-1 was silent" in wide
    assert "node-1 in term 5, as node-3 handed over" in wide
    assert "node-3 in term 4\n" in wide
    known = json.loads(seen("-o", "json"))
    assert [one["term"] for one in known["elections"]] == ["7", "6", "5", "4"]
    assert known["nodes"][1]["slowestSync"] == "0.212s"
    assert known["nodes"][1]["certificateEndTime"] == "1970-01-01T00:00:00Z"


def test_no_quorum_ends_with_4_and_still_shows_what_is_known(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(saying(status(quorum=False)))

    said = cli("cluster", "status")

    assert said.exit_code == 4
    assert "node node-1 sees no quorum" in said.stderr
    assert "node-3" in said.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["add", "node-4", "--peer", "h:1", "--client", "h:2"],
            "Node node-4 added; it learns now.",
        ),
        (["remove", "node-3", "--yes"], "Node node-3 removed; 2 nodes left."),
        (["move", "node-2", "--peer", "h:1"], "Node node-2 moved."),
        (["drain", "node-1"], "Node node-1 drains; node-1 leads."),
        (["transfer", "node-1"], "node-1 leads now, term 7."),
    ],
)
def test_members_and_leadership_are_changed(
    words: list[str], told: str, cli: Cli, stage: Stage
) -> None:
    stage.nodes[0].faults.append(saying(status(quorum=True)))

    said = cli.ok("cluster", *words)

    assert said.stderr == f"{told}\n"
    assert getattr(stage.nodes[0].heard[-1], "request_id")  # noqa: B009  # Each has one.


def test_a_snapshot_says_its_size(cli: Cli, stage: Stage) -> None:
    answer = cluster_pb2.TakeSnapshotResponse(revision=9, size=12_300_000)
    stage.nodes[0].faults.append(saying(answer))

    assert cli.ok("cluster", "snapshot").stderr == "Snapshot of revision 9, 12.3 MB.\n"


def test_a_state_that_differs_ends_with_1(cli: Cli, stage: Stage) -> None:
    answer = cluster_pb2.VerifyStateResponse(
        records=1000, revision=9, difference_count=1, differences=["counter of x is 1, not 2"],
        fingerprints={"node-1": "aa", "node-2": "bb"},
    )  # fmt: skip
    stage.nodes[0].faults.append(saying(answer))

    said = cli("cluster", "verify")

    assert said.exit_code == 1
    assert "1,000 records at revision 9: NOT SOUND: 1 difference." in said.stderr
    assert "counter of x is 1, not 2" in said.stdout
    assert "The nodes differ." in said.stderr


def test_a_check_of_the_state_is_waited_for_and_asked_for_on_one_node(
    cli: Cli, stage: Stage
) -> None:
    """Seen before: after 30 s the command gave up, and the check went on."""
    running = cluster_pb2.VerifyStateResponse(running=True, looked=5_000, caller="ops")
    running.begin_time.FromJsonString("2026-11-20T12:00:00Z")
    sound = cluster_pb2.VerifyStateResponse(sound=True, records=1000, revision=9)
    node = stage.nodes[0]
    node.faults.extend([saying(running), saying(running), saying(sound)])

    said = cli.ok("cluster", "verify")

    first, second, third = [
        one for one in node.heard if isinstance(one, cluster_pb2.VerifyStateRequest)
    ]
    assert first == second == third
    assert first.request_id
    assert first.HasField("wait")
    assert said.stderr.count("checks its state since 2026-11-20T12:00:00Z, for ops.") == 1
    assert "1,000 records at revision 9: sound." in said.stderr


def test_a_secret_is_data_and_nothing_else_is(cli: Cli, stage: Stage) -> None:
    token = access_pb2.AccessToken(name="ci", role=options_pb2.ROLE_EDITOR, namespace="billing")
    known = access_pb2.ListAccessTokensResponse(access_tokens=[token])
    made = access_pb2.CreateAccessTokenResponse(access_token=token, secret="s3cret")
    stage.nodes[0].faults.extend([saying(made), saying(known)])

    created = cli.ok("token", "create", "ci", "--role", "editor", "-n", "billing")
    listed = cli.rows("token", "list")

    assert created.stdout == "s3cret\n"
    assert created.stderr == "Access token ci: editor in namespace billing. This is its secret:\n"
    assert listed[1][:3] == ["ci", "editor", "billing"]


PROVIDER = """
name: corp
jwt: {issuer: https://login.example.org, audiences: [raftsched]}
rules:
- claims: [{claim: [groups], values: ["team-*"]}]
  role: editor
  namespace: default
"""


def test_an_identity_provider_is_put_from_a_file_and_shown(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "corp.yaml"
    file.write_text(PROVIDER)
    selector = identity_pb2.ClaimSelector(claim=["groups"], values=["team-*"])
    rule = identity_pb2.BindingRule(
        claims=[selector], role=options_pb2.ROLE_EDITOR, namespace="default"
    )
    issuer = identity_pb2.TokenIssuer(issuer="https://login.example.org", audiences=["raftsched"])
    made = identity_pb2.IdentityProvider(name="corp", jwt=issuer, rules=[rule])
    page = identity_pb2.ListIdentityProvidersResponse(identity_providers=[made])
    stage.nodes[0].faults.extend([saying(made), saying(page), saying(made)])
    assert cli.ok("identity", "put", "-f", str(file)).stderr.startswith(
        "Identity provider corp has 1 rule."
    )
    listed = cli.rows("identity", "list")
    assert listed[1][:5] == ["corp", "tokens", "https://login.example.org", "raftsched", "1"]
    assert "team-*" in cli.ok("identity", "get", "corp", "-o", "yaml").stdout
    for wrong, why in (("rules: 7", "rules"), ("a: [", "is no YAML"), ("- x", "no fields"),
                       ("nam: x", "nam")):  # fmt: skip
        file.write_text(wrong)
        said = cli("identity", "put", "-f", str(file))
        assert (said.exit_code, why in said.stderr) == (2, True), said.stderr


def test_the_first_token_is_made_with_the_secret_of_a_node(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    token = access_pb2.AccessToken(name="root", role=options_pb2.ROLE_ADMIN)
    made = access_pb2.CreateAccessTokenResponse(access_token=token, secret="s3cret")
    stage.nodes[0].faults.append(saying(made))
    stage.token = "rsb_first"
    file, own = tmp_path / "bootstrap-secret", tmp_path / "mine"
    file.write_text("rsb_first\n")
    own.write_text("rs_old\n")

    said = cli.ok("token", "bootstrap", "--secret-file", str(file), "--token-file", str(own))

    assert said.stdout == "s3cret\n"
    assert "Access token root: admin in all namespaces." in said.stderr


def test_the_way_to_the_first_token_is_said_once(cli: Cli, stage: Stage) -> None:
    how = "raftsched token bootstrap --secret-file /d/secret"
    for words in (("job", "list"), ("doctor",)):
        stage.nodes[0].faults.append(
            refusing("NOT_BOOTSTRAPPED", f"On the machine of a node: {how}", file="/d/secret")
        )
        said = cli(*words).output
        assert said.count("token bootstrap") == said.count(how) == 1


def test_setting_the_time_back_is_told_of_as_done_only_when_it_is(cli: Cli, stage: Stage) -> None:
    answer = cluster_pb2.SetStateTimeResponse(jobs=1, scheduled_times=60, runs=2)
    answer.from_time.FromSeconds(3600)
    stage.nodes[0].faults.extend([saying(answer), saying(answer)])

    tried = cli.ok("cluster", "set-time", "--dry-run").stderr
    done = cli.ok("cluster", "set-time", "--yes").stderr

    assert "would go from 1970-01-01T01:00:00Z back to 1970-01-01T00:00:00Z" in tried
    assert "would move back" in tried
    assert "(dry run: nothing was changed)" in tried
    assert "would" not in done
    assert "60 scheduled times of 1 job" in done
    assert max(map(len, (tried + done).splitlines())) <= 110


@pytest.mark.parametrize(
    ("reason", "values", "why", "then"),
    [
        ("UNAUTHENTICATED", {}, "has its first access token", "raftsched token create"),
        ("NOT_BOOTSTRAPPED", {"file": "/d/secret"}, "asked has it in /d/secret", "/d/secret, on"),
        ("", {}, "until there is a token", "FOLDER/bootstrap-secret"),
    ],
)
def test_why_there_is_no_secret_is_said(
    reason: str, values: dict[str, Any], why: str, then: str, cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    if reason:
        stage.nodes[0].faults.append(refusing(reason, "no", **values))
    file = tmp_path / "bootstrap-secret"
    file.write_bytes(b"" if reason else b"\xff")

    none = cli("token", "bootstrap", "--secret-file", str(file))

    assert none.exit_code == 5
    assert f"{file} cannot be read" in none.stderr
    assert why in none.stderr
    assert then in none.stderr.split("Try: ")[1]


def test_a_secret_that_was_used_says_when_and_by_what(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "bootstrap-secret"
    (tmp_path / "bootstrap-secret.used").write_text("used on Thursday by root\n")
    stage.token = "s3cret"
    for text in (None, "rsb_copy"):
        if text:
            file.write_text(text)
        said = cli("token", "bootstrap", "--secret-file", str(file))

        assert said.exit_code == 5
        assert f"{file}.used says: used on Thursday by root" in said.stderr
        assert "Try: raftsched token create" in said.stderr


# A worker of one's own.

MODULE = """
from raftsched.client import Worker

worker = Worker()
stopped = []

class Still(Worker):
    def run(self):
        print("serving", self.handlers)

other = Still()

@other.handler("send-mail")
def send(context): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"jobs_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def test_a_worker_of_a_module_is_run(cli: Cli, module: str) -> None:
    said = cli.ok("worker", "run", f"{module}:other")

    assert said.stdout == "serving ('send-mail',)\n"
    assert said.stderr.startswith("Handlers: send-mail. Ctrl-C drains")


@pytest.mark.parametrize(
    ("where", "why", "exit_code"),
    [
        ("nowhere_at_all", "there is no module nowhere_at_all", 3),
        ("{}:stopped", "is a list, not a Worker", 2),
        ("{}:gone", "gone is not there", 2),
        ("{}", "has 2 workers", 2),
        ("{}:worker", "has no handlers", 1),
    ],
)
def test_what_is_no_worker_says_why(
    where: str, why: str, exit_code: int, cli: Cli, module: str
) -> None:
    said = cli("worker", "run", where.format(module))

    assert said.exit_code == exit_code
    assert why in said.stderr


def test_ready_made_executors_are_run_without_a_module(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftsched.client import Worker
    from raftsched.client.worker.executors import isolation

    seen: list[Worker] = []
    readable: list[int] = []

    def serve(worker: Worker) -> None:
        seen.append(worker)
        readable.append(is_readable())

    def is_readable() -> int:
        """Whether others of the same user may read this process's memory."""
        return int(ctypes.CDLL(None).prctl(isolation.PR_GET_DUMPABLE, 0, 0, 0, 0))

    before = is_readable()
    monkeypatch.setattr(Worker, "run", serve)

    said = cli.ok(
        "worker", "run", "--executor", "shell", "--executor", "grpc", "--queue", "q",
        "--label", "gpu=yes", "--slots", "3",
    )  # fmt: skip

    hello = seen[0]._hello()
    assert said.stderr.startswith("Handlers: grpc, shell.")
    assert (list(hello.queues), dict(hello.labels), hello.slots) == (["q"], {"gpu": "yes"}, 3)
    assert list(hello.namespaces) == ["default"]
    # Before it opens any executor.
    assert (readable, is_readable()) == ([0], before)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--memory", "512M", "--processes", "9", "--isolation", "none"), 0, ""),
        (("--memory", "half"), 2, "write 512M or 2G"),
        (("--memory", "1K"), 2, "memory is 1024"),
        (("--isolation", "chroot"), 2, "bubblewrap"),
        (("--executor", "http", "--deny-address", "any", "--allow-address", "10.0.0.0/8"), 0, ""),
        (("--executor", "http", "--allow-address", "everything"), 2, "write 10.1.0.0/16"),
        (("--executor", "http", "--sign-with", "SECRETS"), 0, ""),
        (("--executor", "http", "--sign-with", "WRONG"), 2, "whsec_"),
    ],
)
def test_what_ready_made_executors_may_do_is_checked_at_once(
    cli: Cli, words: tuple[str, ...], code: int, why: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from raftsched.client import Worker

    monkeypatch.setattr(Worker, "run", lambda worker: None)
    files = {"SECRETS": f"whsec_{'AQID' * 8}\n", "WRONG": "plain-text-secret"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / word) if word in files else word for word in words]

    said = cli("worker", "run", "--executor", "shell", *given)

    assert said.exit_code == code, said.stderr
    assert why in said.stderr
    assert "plain-text" not in said.stderr


def test_a_worker_is_a_module_or_executors(cli: Cli) -> None:
    assert cli("worker", "run").exit_code == 2
    assert cli("worker", "run", "a:b", "--executor", "shell").exit_code == 2
