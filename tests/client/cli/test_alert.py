"""Alerts, and the log of who changed what."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from raftsched.client.cli.commands import alert
from raftsched.proto.v1 import alert_pb2
from raftsched.statemachine.calls import alerts
from raftsched.statemachine.model.request import MakeAlerts, Observe
from raftsched.statemachine.model.workers import WorkerCounts
from raftsched.statemachine.tenants.own_alerts import OWN_ALERTS

from ..stage import Stage
from .conftest import Cli


@pytest.mark.parametrize(
    ("options", "condition", "said"),
    [
        (["--dead-letters-above", "0"], {"deadLettersAbove": "0"}, "dead letters above 0"),
        (["--lateness-above", "5m"], {"latenessAbove": "300s"}, "lateness above 5m"),
        (
            ["--workers-below", "mail:2"],
            {"workersBelow": {"queue": "mail", "minimum": 2}},
            "workers below 2 on queue mail",
        ),
        (["--no-margin", "--cluster"], {"noMargin": True}, "no margin"),
        (["--clock-skew-above", "200ms", "--cluster"], {"clockSkewAbove": "0.200s"},
         "clock skew above 200ms"),
        (["--no-quorum", "--cluster"], {"noQuorum": True}, "no quorum"),
        (["--broken-jobs-above", "2"], {"brokenJobsAbove": "2"}, "broken jobs above 2"),
        (["--long-step-above", "1s", "--cluster"], {"longStepAbove": "1s"}, "long step above 1s"),
        (["--leader-changes-above", "5", "--cluster"], {"leaderChangesAbove": "5"},
         "leader changes above 5"),
        (["--members-differ", "--cluster"], {"membersDiffer": True}, "members differ"),
        (["--set-aside-above", "0", "--cluster"], {"setAsideAbove": "0"}, "set aside above 0"),
    ],
)  # fmt: skip
def test_an_alert_has_one_condition(
    options: list[str], condition: dict[str, Any], said: str, cli: Cli
) -> None:
    where = ["--cluster"] if "--cluster" in options else []
    put = cli.ok("alert", "put", "one", *options, "--hold", "90s")
    got = cli.json("alert", "get", "one", *where)
    titles, row = cli.rows("alert", "list", *where, "-o", "wide")
    shown = dict(zip(titles, row, strict=True))

    assert put.stderr == f"Alert one is raised when: {said} for 1m30s.\n"
    assert got["condition"] == condition
    assert (shown["STATE"], shown["CONDITION"], shown["HOLD"]) == ("calm", said, "1m30s")
    assert shown["NAMESPACE"] == ("cluster" if where else "default")


def test_an_alert_is_replaced_guarded_and_deleted(cli: Cli) -> None:
    cli.ok("alert", "put", "one", "--lateness-above", "5m", "--webhook", "https://example.org/a")
    etag = cli.json("alert", "get", "one")["etag"]
    cli.ok("alert", "put", "one", "--lateness-above", "6m", "--etag", etag)
    late = cli("alert", "put", "one", "--lateness-above", "7m", "--etag", etag)
    tried = cli.ok("alert", "delete", "one", "--dry-run")
    unasked = cli("alert", "delete", "one")
    deleted = cli.ok("alert", "delete", "one", "--yes")

    assert late.exit_code == 6
    assert "read it again" in late.stderr
    assert "webhook" not in json.dumps(cli.json("alert", "list"))
    again = "  To make it again: raftsched alert put one -n default --lateness-above 6m\n"
    assert tried.stderr == f"Alert one deleted. (dry run: nothing was changed)\n{again}"
    assert unasked.exit_code == 2
    assert deleted.stderr == f"Alert one deleted.\n{again}"
    gone = cli("alert", "delete", "one", "--yes")
    assert gone.exit_code == 3
    assert "Try: raftsched alert list\n       raftsched alert list --cluster" in gone.stderr
    assert cli.ok("alert", "list").stderr == "No alerts here; --cluster lists its own.\n"


def test_every_condition_of_the_contract_has_an_option() -> None:
    kinds = {field.name for field in alert_pb2.AlertCondition.DESCRIPTOR.oneofs[0].fields}

    assert kinds <= {parameter.name for parameter in alert.put.params}
    assert alert.OF_CLUSTER == alerts.OF_CLUSTER


def test_what_makes_an_alert_of_the_cluster_again_is_said(cli: Cli, stage: Stage) -> None:
    """The help names what makes each as it was from the start, and so does its deletion."""
    stage.act(lambda machine: machine.do(MakeAlerts()))
    told = [
        line.strip() for line in cli.ok("alert", "put", "--help").stdout.splitlines()
        if line.startswith("    raftsched alert put ")
    ]  # fmt: skip
    before = {one["name"]: one for one in cli.json("alert", "list", "--cluster")["alerts"]}
    assert {line.split()[3] for line in told} == set(OWN_ALERTS) == set(before)

    for line in told:
        name = line.split()[3]
        gone = cli.ok("alert", "delete", name, "--cluster", "--yes").stderr
        assert gone.splitlines()[1] == f"  To make it again: {line}"
        cli.ok(*shlex.split(line)[1:])

    after = {one["name"]: one for one in cli.json("alert", "list", "--cluster")["alerts"]}
    assert after == before
    url = "https://example.org/a?b"
    cli.ok("alert", "put", "long-steps", "--cluster", "--long-step-above", "2s", "--hold", "1m",
           "--webhook", url)  # fmt: skip
    gone = cli.ok("alert", "delete", "long-steps", "--cluster", "--yes").stderr
    assert shlex.split(gone)[-4:] == ["--hold", "1m", "--webhook", url]


def test_an_alert_that_is_raised_says_since_when(cli: Cli, stage: Stage) -> None:
    cli.ok("alert", "put", "fragile", "--no-margin", "--cluster")
    stage.act(lambda machine: machine.do(Observe(WorkerCounts(), False, 0, 100, b"")))

    titles, row = cli.rows("alert", "list", "--cluster")

    shown = dict(zip(titles, row, strict=True))
    assert shown["STATE"] == "raised"
    assert shown["SINCE"].startswith("20")


@pytest.mark.parametrize(
    ("options", "why", "then"),
    [
        ([], "for one none is given", "raftsched alert put one --lateness-above 5m"),
        (
            ["--dead-letters-above", "1", "--lateness-above", "1s"],
            "there are 2: --dead-letters-above, --lateness-above",
            "another alert for each other",
        ),
        (["--no-margin"], "--no-margin is about the cluster", "the same with --cluster"),
        (["--workers-below", "mail"], "write it as mail:2", ""),
        (["--lateness-above", "soon"], "write a number and a unit", ""),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_before_anything_is_done(
    options: list[str], why: str, then: str, cli: Cli, stage: Stage
) -> None:
    said = cli("alert", "put", "one", *options)

    assert said.exit_code == 2
    assert why in " ".join(said.stderr.split())
    assert then in said.stderr
    assert stage.nodes[0].heard == []


def test_an_alert_that_is_not_there_has_a_near_name(cli: Cli) -> None:
    cli.ok("alert", "put", "stuck", "--lateness-above", "5m")

    said = cli("alert", "get", "stcuk")

    assert said.exit_code == 3
    assert "there is no alert stcuk in namespace default" in said.stderr
    assert "did you mean stuck?" in said.stderr
    assert "Try: raftsched alert list\n" in said.stderr


def test_the_audit_log_says_who_changed_what(cli: Cli) -> None:
    cli.ok("job", "create", "report", "--handler", "h")
    cli.ok("job", "update", "report", "--priority", "high")
    cli.ok("namespace", "create", "billing")
    cli.ok("job", "create", "other", "--handler", "h", "-n", "billing")

    rows = cli.rows("audit-log", "--subject", "job/report")
    everywhere = {one["subject"] for one in cli.json("audit-log", "-A")["records"]}
    created = cli.json("audit-log", "--method", "CreateJob")["records"]

    assert rows[0] == ["TIME", "ACTOR", "METHOD", "SUBJECT", "CHANGED"]
    assert [row[2] for row in rows[1:]] == ["UpdateJob", "CreateJob"]
    assert "priority" in rows[1][4]
    assert {"job/report", "job/other"} <= everywhere
    assert [one["subject"] for one in created] == ["job/report"]
    assert cli.ok("audit-log", "--actor", "nobody").stderr.startswith(
        "No such changes of namespace"
    )
