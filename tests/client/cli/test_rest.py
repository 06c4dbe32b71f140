"""Instants and lengths, contexts, completion, the doctor, watching and auditing."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from click.shell_completion import ShellComplete
from google.protobuf.message import Message

from raftsched.client.cli import connectivity, main
from raftsched.client.cli.render.output import Output
from raftsched.client.cli.times import (
    instant_text,
    length_text,
    parse_instant,
    rough_text,
)
from raftsched.client.sdk.lengths import parse_length
from raftsched.proto.v1 import cluster_pb2, event_pb2, job_pb2, run_pb2

from ...rows import each
from ..stage import Stage, breaking_off, dead_endpoint, refusing
from .conftest import Cli
from .test_groups import saying, status

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@each(
    ("text", "ms"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("0.5s", 500), ("250ms", 250), ("2d", 172_800_000)],
)
def test_a_length_is_read(text: str, ms: int) -> None:
    assert parse_length(text) == ms
    assert parse_length(length_text(ms)) == ms


@each("text", ["", "5", "m", "5 m", "-5m", "5m!", "1h 30m"])
def test_what_is_no_length_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_length(text)


@each(
    ("text", "ms"),
    [
        ("now", NOW),
        ("+2h", NOW + 7_200_000),
        ("-30m", NOW - 1_800_000),
        ("2026-01-01T01:00:00+01:00", NOW),
        ("2026-01-01T00:00:00.250Z", NOW + 250),
    ],
)
def test_an_instant_is_read(text: str, ms: int) -> None:
    assert parse_instant(text, NOW) == ms


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "+x", "9999999-01-01"])
def test_what_is_no_instant_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write "):
        parse_instant(text, NOW)


def test_instants_are_exact_for_programs() -> None:
    assert instant_text(NOW + 250, "utc", exact=True) == "2026-01-01T00:00:00.250Z"
    assert instant_text(NOW, "relative", exact=True).startswith("2026-01-01T00:00:00")
    assert instant_text(NOW, "utc") == "2026-01-01 00:00:00Z"


@each(
    ("ms", "text"),
    [(12, "12ms"), (3_200, "3.2s"), (59_000, "59s"), (240_000, "4m"), (9e6, "2h"), (2e8, "2d")],
)
def test_a_rough_length_has_one_unit(ms: float, text: str) -> None:
    assert rough_text(int(ms)) == text


# Contexts.


def test_a_context_is_kept_used_and_overridden(cli: Cli, tmp_path: Path) -> None:
    there = cli.environment.pop("RAFTSCHED_ENDPOINTS")
    cli.ok("config", "add", "here", "--endpoints", there, "-n", "billing", "--timeout", "5s")
    cli.ok("config", "add", "old", "--endpoints", "old.example:1,old.example:2")

    listed = cli.rows("config", "list")
    origins = {row[0]: row[1:] for row in cli.rows("config", "show", "--origin")}
    cli.ok("config", "use", "old")
    shown = {row[0]: row[1] for row in cli.rows("config", "show")}
    named = {row[0]: row[1] for row in cli.rows("config", "show", "--context", "here")}
    by_flag = {row[0]: row[2] for row in cli.rows("config", "show", "--origin", "-n", "x")}

    assert listed[1:] == [
        ["*", "here", there, "billing"],
        ["", "old", "old.example:1,old.example:2", "default"],
    ]
    assert origins["endpoints"] == [there, f"context here in {tmp_path / 'config.toml'}"]
    assert origins["time"] == ["utc", "RAFTSCHED_TIME"]
    assert origins["output"] == ["table", "default"]
    assert (shown["context"], shown["endpoints"]) == ("old", "old.example:1,old.example:2")
    assert (named["endpoints"], named["timeout"]) == (there, "5s")
    assert by_flag["namespace"] == "--namespace"


def test_a_file_in_a_context_is_found_from_everywhere(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    del cli.environment["RAFTSCHED_ENDPOINTS"]
    cli.ok("config", "add", "here", "--endpoints", "a:1", "--token-file", "root.token")

    shown = {row[0]: row[1] for row in cli.rows("config", "show")}

    assert shown["token_file"] == str(tmp_path / "root.token")


def test_no_cluster_is_shown_the_token_of_another(cli: Cli) -> None:
    del cli.environment["RAFTSCHED_ENDPOINTS"]
    cli.ok("config", "add", "prod", "--endpoints", "a:1,b:1", "--token-file", "/t", "-n", "billing")

    def shown(*words: str, **environment: str) -> list[str]:
        said = cli.ok("config", "show", *words, **environment).stdout
        values = dict(line.split("\t") for line in said.splitlines())
        return [values[name] for name in ("endpoints", "token_file", "namespace")]

    assert shown() == ["a:1,b:1", "/t", "billing"]
    assert shown("--endpoints", "b:1") == ["b:1", "/t", "billing"]
    assert shown("--endpoints", "c:1") == ["c:1", "", "default"]
    assert shown(RAFTSCHED_ENDPOINTS="c:1") == ["c:1", "", "default"]
    assert shown(RAFTSCHED_ENDPOINTS="c:1", RAFTSCHED_CONTEXT="prod") == ["c:1", "", "default"]
    # Who types both means both, and a typed context comes before a variable.
    assert shown("--context", "prod", "--endpoints", "c:1") == ["c:1", "/t", "billing"]
    assert shown("--context", "prod", RAFTSCHED_ENDPOINTS="c:1") == ["a:1,b:1", "/t", "billing"]


@pytest.mark.parametrize(
    ("variable", "value"), [("RAFTSCHED_ENDPOINTS", "c:1"), ("RAFTSCHED_CONTEXT", "other")]
)
def test_a_context_that_a_variable_overrules_is_not_said_to_be_used(
    variable: str, value: str, cli: Cli
) -> None:
    del cli.environment["RAFTSCHED_ENDPOINTS"]
    cli.ok("config", "add", "other", "--endpoints", "c:1")
    added = cli.ok("config", "add", "prod", "--endpoints", "a:1", **{variable: value})

    said = cli.ok("config", "use", "prod", **{variable: value})
    again = cli.ok("config", "add", "prod", "-n", "x", **{variable: value})
    fine = cli.ok("config", "use", "prod", RAFTSCHED_ENDPOINTS="a:1")

    assert "comes before" not in added.stderr
    for one in (said, again):
        assert f"{variable}={value} comes before it, so commands do not use it" in one.stderr
        assert f"unset {variable}, or name it each time: --context prod" in one.stderr
    assert fine.stderr == "Commands talk to prod now: a:1.\n"


def test_a_context_that_was_kept_is_told_to_programs(cli: Cli) -> None:
    words = ("config", "add", "prod", "--endpoints", "a:1")

    assert cli.json(*words).items() >= {"name": "prod", "endpoints": "a:1"}.items()
    assert cli.json("config", "use", "prod")["name"] == "prod"
    assert cli.ok("config", "use", "prod", "-o", "name").stdout == "prod\n"


def test_commands_talk_to_the_context_that_is_used(cli: Cli) -> None:
    there = cli.environment.pop("RAFTSCHED_ENDPOINTS")
    cli.ok("config", "add", "here", "--endpoints", there)

    cli.ok("job", "create", "x", "--handler", "h")

    assert cli.ok("job", "list", "-o", "name", RAFTSCHED_CONTEXT="here").stdout == "x\n"


def test_a_context_that_is_not_there_is_answered_with_a_near_one(cli: Cli) -> None:
    cli.ok("config", "add", "production", "--endpoints", "a:1")

    said = cli("job", "list", "--context", "prodution")

    assert said.exit_code == 3
    assert "did you mean production?" in said.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("contexts = 3 =", "cannot read"),
        ("wrong = 1", "unknown key 'wrong'"),
        ('[contexts.a]\nendpoint = "x"', "did you mean endpoints?"),
        ('[contexts.a]\nendpoints = "x"\noutput = "jsn"', "output in context a"),
    ],
)
def test_a_wrong_file_of_contexts_is_named_with_the_mistake(
    text: str, why: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(text)

    said = cli("job", "list", "--context", "a")

    assert said.exit_code == 2
    assert why in said.stderr
    assert str(tmp_path / "config.toml") in said.stderr


def test_a_context_is_forgotten(cli: Cli) -> None:
    cli.ok("config", "add", "a", "--endpoints", "a:1")

    cli.ok("config", "remove", "a", "--yes")

    assert cli.ok("config", "list").stderr.startswith("No contexts.")
    assert json.loads(cli.ok("config", "list", "-o", "json").stdout) == []


# Completion.


def completed(cli: Cli, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    for name, value in cli.environment.items():
        monkeypatch.setenv(name, value)
    *before, last = words
    found = ShellComplete(main, {}, "raftsched", "_X").get_completions(list(before), last)
    return [item.value for item in found]


def test_names_of_jobs_are_completed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("report", "remind", "mail"):
        cli.ok("job", "create", name, "--handler", "h", "--queue", f"{name}-queue")

    assert completed(cli, monkeypatch, "job", "get", "re") == ["remind", "report"]
    assert completed(cli, monkeypatch, "job", "list", "--queue", "m") == ["mail-queue"]
    assert completed(cli, monkeypatch, "jo") == ["job"]
    assert "trigger" in completed(cli, monkeypatch, "job", "tr")
    assert completed(cli, monkeypatch, "job", "list", "--state", "pa") == ["paused"]


def test_completion_is_silent_when_nobody_answers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cli.environment["RAFTSCHED_ENDPOINTS"] = dead_endpoint()

    found = completed(cli, monkeypatch, "job", "get", "re")

    assert found == []
    assert capfd.readouterr() == ("", "")


def test_completion_has_300_ms_to_find_a_node(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def nobody(endpoints: object, timeout_s: float) -> dict[str, str]:
        timeouts.append(timeout_s)
        return {"a:1": "gone"}

    monkeypatch.setattr(connectivity, "unreachable", nobody)

    assert completed(cli, monkeypatch, "job", "get", "re") == []
    assert timeouts == [0.3]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, cli: Cli) -> None:
    assert "_RAFTSCHED_COMPLETE" in cli.ok("completion", shell).stdout


# The doctor.


def test_the_doctor_finds_nothing_wrong_with_a_sound_cluster(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    stage.nodes[0].faults.append(saying(status(quorum=True, margin=1)))

    said = cli.ok("doctor", "--folder", str(tmp_path), "--listen", "127.0.0.1:0")

    found = {row.split("\t")[1]: row.split("\t")[0] for row in said.stdout.splitlines()}
    assert found[f"node {stage.endpoints}"] == "ok"
    assert found["disk sync"] in ("ok", "warning")
    assert found["port 127.0.0.1:0"] == "ok"
    assert found["margin"] == "ok"
    assert "this clock" in found


def test_the_doctor_names_what_is_wrong_and_what_to_do(cli: Cli, stage: Stage) -> None:
    gone = dead_endpoint()
    stage.nodes[0].faults.append(saying(status(quorum=False, problems=["the disk is full"])))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        said = cli(
            "doctor", "--listen", f"127.0.0.1:{port}", "-o", "json",
            RAFTSCHED_ENDPOINTS=f"{gone},{stage.endpoints}",
        )  # fmt: skip

    found = {one["check"]: one for one in json.loads(said.stdout)}
    assert said.exit_code == 1
    assert found[f"node {gone}"]["verdict"] == "wrong"
    assert "raftsched dev, or start the node" in found[f"node {gone}"]["then"]
    assert found[f"node {stage.endpoints}"]["verdict"] == "wrong"
    assert found[f"port 127.0.0.1:{port}"]["verdict"] == "wrong"
    assert found["problem"]["text"] == "the disk is full"


@pytest.mark.parametrize(
    ("others", "verdict", "words"),
    [
        (("a", "b"), "ok", "a, b"),
        (("b", "a"), "warning", "they differ: n1: a, b; n2: b, a"),
        ((), "warning", "they differ: n1: a, b; n2: none"),
    ],
)
def test_the_doctor_compares_the_keys_for_secrets(
    cli: Cli, stage: Stage, others: tuple[str, ...], verdict: str, words: str
) -> None:
    seen = status(quorum=True, margin=1)
    del seen.nodes[:]
    seen.nodes.add(name="n1", version="1", key_ids=["a", "b"])
    seen.nodes.add(name="n2", version="1", key_ids=others)
    seen.nodes.add(name="n3")  # Nothing is known of what is not there.
    stage.nodes[0].faults.append(saying(seen))
    found = {row.split("\t")[1]: row.split("\t") for row in cli.ok("doctor").stdout.splitlines()}
    assert (found["keys for secrets"][0], found["keys for secrets"][2]) == (verdict, words)


def strained() -> cluster_pb2.ClusterStatus:
    seen = status(quorum=True, margin=1)
    seen.node, seen.leader, seen.long_steps = "n1", "n1", 3
    for what, ms in (("decide: FireTimers", 250), ("compile zones", 120)):
        step = seen.last_long_steps.add(what=what)
        step.duration.FromMilliseconds(ms)
        step.time.GetCurrentTime()
    seen.refused.update({"watchers_by_caller": 12, "failures": 3, "UNAUTHENTICATED": 1})
    return seen


@pytest.mark.parametrize(
    "words",
    [
        ("cluster", "status"), ("cluster", "status", "--color", "always"), ("doctor",),
        ("cluster", "status", "--color", "always", "-o", "wide"), ("doctor", "--color", "always"),
        ("top", "--once", "--every", "10ms"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_strains_a_node_is_said_in_words(
    words: tuple[str, ...], cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood in the JSON only; with what to do, and within 80 columns."""
    node, seen = stage.nodes[0], strained()
    normal = node.answer

    def answer(request: Message) -> Message:
        return seen if isinstance(request, cluster_pb2.GetClusterStatusRequest) else normal(request)

    monkeypatch.setattr(node, "answer", answer)

    said = cli(*words, NO_COLOR="1", COLUMNS="80").output

    text = " ".join(said.split())
    assert "3 steps of n1 lasted too long" in text
    assert "the last 0.25 s" in text
    assert "decide: FireTimers" in text
    assert "n1 refused 15 calls by its limits: watchers_by_caller 12, failures 3" in text
    assert "raise those under [limits] of n1" in text
    assert "UNAUTHENTICATED 1" in text
    assert ("0.12 s compile zones" in text) == ("wide" in words)
    if "always" in words:
        told = said.split("NODE ")[0]  # A table may be wider.
        assert max(map(len, told.splitlines())) <= 80


def test_the_doctor_tells_a_refusal_from_silence(cli: Cli, stage: Stage) -> None:
    stage.token = "s3cret"

    said = cli("doctor", "-o", "json")

    [node] = [one for one in json.loads(said.stdout) if one["check"].startswith("node ")]
    assert node["text"] == "refuses: the token is not valid"
    assert "--token-file" in node["then"]


# Watching.


def test_past_events_are_listed_and_filtered(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")
    cli.ok("job", "pause", "x")

    every = cli.rows("watch", "--since", "oldest", "--no-follow")
    later = cli.rows("watch", "--since", every[0][0], "--no-follow")

    assert [row[2:4] for row in every] == [["job created", "x"], ["job paused", "x"]]
    assert later == every[1:]


def test_a_stream_that_breaks_is_taken_up_where_it_was(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftsched.client.cli.commands import watch

    monkeypatch.setattr(watch, "REST_S", 0.01)
    cli.ok("job", "create", "x", "--handler", "h")
    cli.ok("job", "pause", "x")
    stage.nodes[0].faults.append(breaking_off())
    said = cli.ok("watch", "--since", "0.0", "--count", "2", "-o", "jsonl")

    kinds = [json.loads(line)["kind"] for line in said.stdout.splitlines()]
    assert kinds == ["EVENT_KIND_JOB_CREATED", "EVENT_KIND_JOB_PAUSED"]
    watches = [one for one in stage.nodes[0].heard if isinstance(one, event_pb2.WatchEventsRequest)]
    assert len(watches) == 2


def test_what_was_seen_is_not_told_again(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftsched.client.cli.commands import watch

    monkeypatch.setattr(watch, "REST_S", 0.01)
    cli.ok("job", "create", "x", "--handler", "h")
    line = Output.line
    seen: list[str] = []

    def broken_behind_it(out: Output, event: Message) -> None:
        line(out, event)
        seen.append(out.format)
        if len(seen) == 1:
            stage.nodes[0].faults.append(breaking_off())
            stage.act(lambda machine: machine.do(job_pb2.PauseJobRequest(job="x")))

    monkeypatch.setattr(Output, "line", broken_behind_it)
    said = cli.ok("watch", "--since", "0.0", "--count", "2", "-o", "name")

    assert said.stdout == "1.0\n2.0\n"
    assert "taking it up where it was" in said.stderr


def test_a_watch_says_to_a_person_that_it_stands(cli: Cli) -> None:
    cli.ok("job", "create", "x", "--handler", "h")
    words = ("watch", "--since", "0.0", "--count", "1")

    assert "Watching; Ctrl-C ends it." in cli.ok(*words, "--color", "always").stderr
    assert cli.ok(*words).stderr == ""


def test_a_watch_that_a_limit_refuses_says_so_at_once_and_goes_on(cli: Cli, stage: Stage) -> None:
    """It was silent for the whole timeout."""
    cli.ok("job", "create", "x", "--handler", "h")
    why = "the limit 'watchers_by_caller' of this node is reached: 1000 for ci; again in 0.6 s"
    refused = refusing("NODE_LIMIT", why, 600, limit="watchers_by_caller", maximum="1000")
    stage.nodes[0].turned_away.extend([refused, refused])

    said = cli.ok("watch", "--since", "0.0", "--count", "1", "-o", "name", "--timeout", "9s")

    assert said.stdout == "1.0\n"
    assert said.stderr.count(why) == 1
    assert "waits, for up to 9 s" in said.stderr
    stage.nodes[0].turned_away.extend([refused] * 9)
    given_up = cli("watch", "--timeout", "1s")
    assert given_up.exit_code == 4
    assert why in given_up.stderr
    assert "Try: the same in 0.6 s" in given_up.stderr


@pytest.mark.parametrize("words", [("--kind", "nonsense"), ("--filter", "kind=bar")])
def test_a_kind_that_is_none_is_refused(words: tuple[str, ...], cli: Cli) -> None:
    said = cli("watch", "--no-follow", *words)

    assert said.exit_code == 2
    assert "is no kind; there are JOB_CREATED, " in said.stderr


def test_a_revision_that_is_none_says_how_it_is_written(cli: Cli) -> None:
    said = cli("watch", "--since", "someday")

    assert said.exit_code == 2
    assert "--since 17.3, or --since oldest" in said.stderr


def test_events_that_are_gone_end_with_6(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(refusing("REVISION_GONE", "gone", oldest="9.0"))

    said = cli("watch", "--since", "1.0", "--no-follow")

    assert said.exit_code == 6
    assert "watch without --since" in said.stderr


# Auditing.


def test_an_audit_proves_that_nothing_is_missing(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--cron", "0 * * * *")
    stage.act(lambda machine: machine.at("2026-01-01T03:30"))
    stage.finish()

    one = cli.ok("audit", "x")
    every = cli.rows("audit", "--all")
    ledger = cli.rows("audit", "x", "--ledger")

    assert "Job x: sound, 3 of 3 scheduled times have an outcome." in one.stderr
    assert one.stdout.splitlines()[0] == "OUTCOME\tTIMES"
    assert every[1] == ["x", "yes", "3", "3", "0", "0", "0", "0"]
    assert ledger[0] == ["SCHEDULED", "TO", "TIMES", "OUTCOME"]


def test_a_gap_ends_with_1(cli: Cli, stage: Stage) -> None:
    answer = job_pb2.AuditJobResponse(sound=False, expected=2, recorded=1)
    answer.missing.add().FromMilliseconds(NOW)
    stage.nodes[0].faults.append(saying(answer))

    said = cli("audit", "x")

    assert said.exit_code == 1
    assert "1 without an outcome: 2026-01-01T00:00:00Z" in said.stderr
    assert "the ledger of job x is not sound" in said.stderr


def finding(verdict: str, count: int = 1) -> job_pb2.AuditJobResponse:
    """An audit that found one thing."""
    answer = job_pb2.AuditJobResponse(expected=9, recorded=9)
    one = answer.findings.add(reason="the reason", count=count, outcome=run_pb2.OUTCOME_COALESCED)
    one.verdict = job_pb2.AuditFinding.Verdict.Value(f"VERDICT_{verdict}")
    one.scheduled_time.FromMilliseconds(NOW)
    if verdict == "WRONG":
        answer.wrong, one.should = count, run_pb2.OUTCOME_LATE
    else:
        answer.unjudged = count
    if count > 1:
        one.last_scheduled_time.FromMilliseconds(NOW + 3_600_000)
    return answer


def test_a_wrong_outcome_is_named_with_its_reason(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(saying(finding("WRONG")))

    done = cli("audit", "x")

    assert done.exit_code == 1
    assert "NOT SOUND" in done.stderr
    line = "2026-01-01T00:00:00Z: coalesced, should be late: the reason"
    assert line in done.stderr.splitlines()


def test_what_cannot_be_judged_ends_with_8(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(saying(finding("UNJUDGED", 7)))

    done = cli("audit", "x")

    assert done.exit_code == 8
    assert "NOT PROVED" in done.stderr
    span = "2026-01-01T00:00:00Z to 2026-01-01T01:00:00Z (7)"
    assert f"{span}: coalesced, cannot be judged: the reason" in done.stderr.splitlines()
    assert "Try: raftsched audit x --from 2026-01-01T01:00:00.001Z" in done.stderr


def test_what_waits_is_named_with_what_it_waits_for(cli: Cli, stage: Stage) -> None:
    answer = job_pb2.AuditJobResponse(sound=True, waiting_times=4)
    one = answer.waiting.add(count=4, awaits="the resume of the job")
    one.scheduled_time.FromMilliseconds(NOW)
    one.last_scheduled_time.FromMilliseconds(NOW + 3_600_000)
    one.since_time.FromMilliseconds(NOW + 1)
    stage.nodes[0].faults.append(saying(answer))

    done = cli("audit", "x")

    said = (done.stdout + done.stderr).splitlines()
    span = "2026-01-01T00:00:00Z to 2026-01-01T01:00:00Z (4), since 2026-01-01T00:00:00.001Z"
    assert f"  {span}: waits for the resume of the job" in said, said


def test_what_was_asked_for_is_counted(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h")
    for _ in range(3):
        cli.ok("job", "trigger", "x")

    done = cli.ok("audit", "x")

    assert "3 triggered or backfilled: 0 with an outcome, 3 under way." in done.stderr


def test_an_audit_of_all_goes_on_behind_a_job_that_is_refused(cli: Cli, stage: Stage) -> None:
    for name in ("a", "b"):
        cli.ok("job", "create", name, "--handler", "h", "--cron", "0 * * * *")
    first, second = cli.rows("audit", "--all")[1:]
    listed = [lambda node, request, context, answer: answer()] * 2
    together = job_pb2.AuditJobsResponse()
    together.audits.add(job="a", reason="FIELD_INVALID", message="a wrong range")
    together.audits.add(job="b", audit=job_pb2.AuditJobResponse(sound=True))
    stage.nodes[0].faults.extend(
        [*listed, saying(together), refusing("FIELD_INVALID", "a wrong range")]
    )

    said = cli("audit", "--all")

    assert [first[0], second[0]] == ["a", "b"]
    assert "cannot audit job a: a wrong range" in said.stderr
    assert "b\tyes" in said.stdout
    assert "1 job was not audited" in said.stderr
    assert said.exit_code != 0


def test_an_audit_of_all_asks_for_many_at_once_and_where_it_cannot_one_by_one(
    cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        cli.ok("job", "create", name, "--handler", "h", "--cron", "0 * * * *")
    monkeypatch.setattr("raftsched.client.cli.commands.audit.TOGETHER", 4)
    stage.act(lambda machine: machine.at("2026-01-01T03:30"))
    stage.finish()
    node = stage.nodes[0]

    def asked(done: list[list[str]]) -> list[type]:
        assert [row[:3] for row in done[1:]] == [[name, "yes", "3"] for name in names]
        kinds = [type(request) for request in node.heard]
        node.heard.clear()
        return kinds[2:]

    node.heard.clear()
    many: type[Message] = job_pb2.AuditJobsRequest
    one: type[Message] = job_pb2.AuditJobRequest
    assert asked(cli.rows("audit", "--all")) == [many, many]

    def first_only(
        node: object, request: object, context: object, answer: Callable[[], Message]
    ) -> Message:
        found = answer()
        assert isinstance(found, job_pb2.AuditJobsResponse)
        del found.audits[1:]
        found.partial = True
        return found

    listed = [lambda node, request, context, answer: answer()] * 2
    node.faults.extend([*listed, first_only])
    assert asked(cli.rows("audit", "--all")) == [many, many, many]

    def of_before(
        node: object, request: object, context: grpc.ServicerContext, answer: object
    ) -> NoReturn:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")

    node.faults.extend([*listed, of_before])
    assert asked(cli.rows("audit", "--all")) == [many, one, one, one, one, many]


def test_an_audit_of_all_counts_what_is_sound_and_shows_a_person_the_others(
    cli: Cli, stage: Stage
) -> None:
    for name in ("a", "b"):
        cli.ok("job", "create", name, "--handler", "h", "--cron", "0 * * * *")
    stage.act(lambda machine: machine.at("2026-01-01T03:30"))
    stage.finish()
    words = ("audit", "--all", "--color", "always")

    sound, whole, piped = cli.ok(*words), cli.ok(*words, "-o", "wide"), cli.ok("audit", "--all")

    count = "2 of 2 jobs sound, 6 of 6 scheduled times have an outcome."
    assert (sound.stdout, count in sound.stderr, count in piped.stderr) == ("", True, True)
    assert [line.split()[0] for line in whole.stdout.splitlines()[1:]] == ["a", "b"]

    listed = [lambda node, request, context, answer: answer()] * 2
    together = job_pb2.AuditJobsResponse()
    together.audits.add(job="a", audit=job_pb2.AuditJobResponse(sound=True))
    together.audits.add(job="b", audit=finding("UNJUDGED", 7))
    stage.nodes[0].faults.extend([*listed, saying(together)])
    doubtful = cli(*words)

    assert doubtful.exit_code == 8
    assert [line.split()[0] for line in doubtful.stdout.splitlines()[1:]] == ["b"]
    assert "1 of 2 jobs sound" in doubtful.stderr
    assert "the audit of it alone says why" in doubtful.stderr
    assert "Try: raftsched audit b" in doubtful.stderr


def test_a_range_that_is_too_long_is_audited_in_parts(cli: Cli, stage: Stage) -> None:
    cli.ok("job", "create", "x", "--handler", "h", "--cron", "0 * * * *")
    stage.act(lambda machine: machine.at("2026-01-01T03:30"))
    stage.finish()
    stage.nodes[0].faults.append(refusing("LIMIT_EXCEEDED", "more than 10,000 scheduled times"))

    said = cli.json("audit", "x", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T03:30:00Z")

    assert (said["sound"], said["expected"], said["recorded"]) == (True, "3", "3")


def test_an_audit_needs_a_job_or_all(cli: Cli) -> None:
    assert cli("audit").exit_code == 2
    assert cli("audit", "x", "--all").exit_code == 2
