"""Jobs in files: one schema in four formats, applied, compared, imported and exported."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import grpc
import pytest
import yaml

from raftsched.client.sdk import imports
from raftsched.proto.v1 import job_pb2

from ..stage import Stage, breaking_off
from .conftest import Cli

TOML = """
[[jobs]]
name = "report"
[jobs.spec]
labels = { team = "a", tier = 1 }
priority = "high"
action = { handler = "build" }
schedules = [{ cron = "0 9 * * *" }, { interval = "90m" }, { once = 2026-05-01T12:00:00Z }]
payload = { json = { day = "monday" } }
retry = { first = "500ms", max_attempts = 7 }
overlap = { rule = "queue-one" }
"""
YAML = """
name: report
spec:
  labels: {team: a, tier: 1}
  priority: PRIORITY_HIGH
  action: {handler: build}
  schedules:
    - cron: {expression: "0 9 * * *"}
    - interval: 90m
    - once: 2026-05-01T12:00:00Z
  payload:
    json: {day: monday}
  retry: {first: 0.5s, maxAttempts: 7}
  overlap: {rule: queue one}
---
name: other
spec: {action: {shell: {argv: ["true"], useShell: false}}}
"""
SPEC = {
    "labels": {"team": "a", "tier": "1"},
    "action": {"handler": "build"},
    "payload": {"data": "eyJkYXkiOiAibW9uZGF5In0=", "contentType": "application/json"},
    "priority": "PRIORITY_HIGH",
    "schedules": [
        {"cron": {"expression": "0 9 * * *"}},
        {"interval": {"every": "5400s"}},
        {"once": {"time": "2026-05-01T12:00:00Z"}},
    ],
    "overlap": {"rule": "RULE_QUEUE_ONE"},
    "retry": {"maxAttempts": 7, "first": "0.500s"},
}


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def lines(count: int, **spec: object) -> str:
    return "".join(
        json.dumps({"name": f"job-{number:05}", "spec": {"action": {"handler": "h"}, **spec}})
        + "\n"
        for number in range(count)
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", TOML),
        ("a.yaml", YAML),
        ("a.json", json.dumps([{"name": "report", "spec": SPEC}])),
        ("a.jsonl", json.dumps({"name": "report", "spec": SPEC})),
        ("-", YAML),
        ("-", json.dumps({"jobs": [{"name": "report", "spec": SPEC}]})),
    ],
)
def test_each_format_says_the_same_job(name: str, text: str, cli: Cli, tmp_path: Path) -> None:
    path = name if name == "-" else write(tmp_path, name, text)

    cli.ok("job", "apply", "-f", path, typed=text)

    assert cli.json("job", "get", "report")["spec"] == SPEC


def test_an_instant_in_a_file_means_the_same_on_every_machine(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    text = "name: x\nspec:\n  action: {handler: h}\n  schedules: [{once: '2026-05-01T12:00:00'}]\n"

    cli.ok("job", "apply", "-f", write(tmp_path, "a.yaml", text))
    monkeypatch.undo()
    time.tzset()

    [schedule] = cli.json("job", "get", "x")["spec"]["schedules"]
    assert schedule == {"once": {"time": "2026-05-01T12:00:00Z"}}


def test_applying_twice_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, "jobs/a.toml", TOML)
    write(tmp_path, "jobs/deeper/b.yaml", "name: b\nspec: {action: {handler: h}}\n")

    first = cli.ok("job", "apply", "-f", str(tmp_path / "jobs"))
    version = cli.json("job", "get", "report")["version"]
    again = cli.ok("job", "apply", "-f", str(tmp_path / "jobs"))

    assert [line.split("\t")[:2] for line in first.stdout.splitlines()[1:]] == [
        ["report", "created"], ["b", "created"],
    ]  # fmt: skip
    assert first.stderr == "2 created, 0 updated, 0 unchanged, 0 refused\n"
    assert again.stderr == "0 created, 0 updated, 2 unchanged, 0 refused\n"
    assert cli.json("job", "get", "report")["version"] == version


def test_upstream_jobs_are_made_first(cli: Cli, tmp_path: Path) -> None:
    def job(name: str, *upstream: str) -> dict[str, object]:
        return {"name": name, "spec": {"action": {"handler": "h"}, "upstream": {"jobs": upstream}}}

    path = write(tmp_path, "a.json", json.dumps([job("c", "b"), job("b", "a"), job("a")]))

    cli.ok("job", "apply", "-f", path)

    assert cli.ok("job", "list", "-o", "name").stdout == "a\nb\nc\n"


def test_all_faults_of_all_files_are_named_at_once(cli: Cli, tmp_path: Path, stage: Stage) -> None:
    path = write(
        tmp_path, "a.yaml",
        "name: x\nspec:\n  prioritty: high\n  queue: [1]\n  retry: {first: soon}\n"
        "  priority: urgent\n  action: {handler: h, http: {url: x}}\n---\nspec: {}\n",
    )  # fmt: skip
    write(tmp_path, "b.yaml", "name: y\n---\nname: y\n")

    said = cli("job", "apply", "-f", path, "-f", str(tmp_path / "b.yaml"))

    assert said.exit_code == 2
    for fault in (
        f"{path}: job x: spec.prioritty: there is no such field; did you mean spec.priority?",
        "spec.queue: [1] is not a text",
        "spec.retry.first: 'soon' is not a length of time; write a number and a unit",
        "spec.priority: 'urgent' is none of high, medium, low",
        "spec.action.http: handler is set as well; keep one of them",
        f"{path}: job 2: it has no name",
        "job y is also in",
    ):
        assert fault in said.stderr
    assert not stage.nodes[0].heard


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "x = "), ("a.yaml", "a: [1"), ("a.json", "{"), ("b.jsonl", "{")]
)
def test_a_file_that_is_damaged_is_named(name: str, text: str, cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, name, text)

    said = cli("job", "apply", "-f", path)

    assert said.exit_code == 2
    assert f"cannot read {path}" in said.stderr


def a_job(payload: object) -> str:
    return json.dumps({"name": "x", "spec": {"action": {"handler": "h"}, "payload": payload}})


@pytest.mark.parametrize(
    "payload",
    [
        {"data": '{"n": 1}'}, {"data": "hello"}, {"data": "aGVsbG8"}, {"data": 5}, {"n": 1},
        "hello", {"text": 5}, {"text": "a", "json": 1},
    ],
)  # fmt: skip
def test_a_payload_that_is_no_base64_is_refused(
    payload: object, cli: Cli, tmp_path: Path, stage: Stage
) -> None:
    said = cli("job", "apply", "-f", write(tmp_path, "a.jsonl", a_job(payload) + "\n"))

    assert said.exit_code == 2
    assert "job x: spec.payload: " in said.stderr
    assert (
        "write {json: ...}, {text: ...} or {data: BASE64}" in said.stderr or "keep" in said.stderr
    )
    assert not stage.nodes[0].heard


@pytest.mark.parametrize(
    ("data", "kind", "written"),
    [
        (b'{"n": [1, "\xc3\xa4"]}', "application/json", {"json": {"n": [1, "ä"]}}),
        (b'{"n":1}', "application/json", {"text": '{"n":1}', "contentType": "application/json"}),
        (b'{"n": 1}', "x/y", {"text": '{"n": 1}', "contentType": "x/y"}),
        (b"null", "application/json", {"json": None}),
        (b"one\ntwo", "text/plain", {"text": "one\ntwo"}),
        (b"one", "", {"text": "one", "contentType": ""}),
        (b"\xff\x00", "x/y", {"data": "/wA=", "contentType": "x/y"}),
    ],
)
@pytest.mark.parametrize("form", ["yaml", "export"])
def test_a_payload_is_written_in_words_that_can_be_applied(
    data: bytes, kind: str, written: object, form: str, cli: Cli, tmp_path: Path
) -> None:
    payload = {"data": base64.b64encode(data).decode(), "contentType": kind}
    cli.ok("job", "apply", "-f", "-", typed=a_job(payload))
    words = ("get", "x", "-o", "yaml") if form == "yaml" else ("export",)

    said = cli.ok("job", *words).stdout
    job = {key: value for key, value in yaml.safe_load(said).items() if key in ("name", "spec")}
    again = cli.ok("job", "apply", "-f", "-", typed=yaml.safe_dump(job))

    assert job["spec"]["payload"] == written
    assert again.stderr == "0 created, 0 updated, 1 unchanged, 0 refused\n"


def test_all_that_is_shown_of_a_job_can_be_applied(cli: Cli) -> None:
    cli.ok("job", "apply", "-f", "-", typed=YAML.split("---")[0])
    cli.ok("job", "pause", "report", "--reason", "x", "--until", "+2h")
    cli.ok("job", "skip", "report", "2026-02-01T09:00:00Z")

    for form in ("yaml", "json"):
        shown = cli.ok("job", "get", "report", "-o", form).stdout
        said = cli.ok("job", "apply", "-f", "-", typed=shown)

        assert said.stderr == "0 created, 0 updated, 1 unchanged, 0 refused\n"


def test_a_payload_may_leave_its_kind_out(cli: Cli) -> None:
    text = a_job({"text": "a", "contentType": None, "data": None})

    cli.ok("job", "apply", "-f", "-", typed=text)

    assert cli.json("job", "get", "x")["spec"]["payload"]["contentType"] == "text/plain"


def test_a_line_that_is_damaged_is_named(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", a_job({"text": "a"}) + "\n\nbroken line\n")

    for verb in (("import", path), ("apply", "-f", path)):
        said = cli("job", *verb)

        assert said.exit_code == 2
        assert "line 3, column 1: Expecting value: broken line\n" in said.stderr


@pytest.mark.parametrize("verb", [("apply", "--dry-run", "-f"), ("diff", "-f")])
def test_a_dry_run_does_not_say_that_the_others_are_done(
    verb: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    bad = {"name": "bad", "spec": {"action": {"handler": "h"}, "schedules": [{"cron": "61 * *"}]}}
    path = write(tmp_path, "a.jsonl", f"{a_job({'text': 'a'})}\n{json.dumps(bad)}\n")

    said = cli("job", *verb, path)

    assert said.exit_code == 1
    assert "1 job refused\n  this was a dry run: nothing was done\n" in said.stderr


def test_a_folder_without_jobs_is_a_mistake(cli: Cli, tmp_path: Path) -> None:
    said = cli("job", "apply", "-f", str(tmp_path))

    assert said.exit_code == 2
    assert "there are no jobs in" in said.stderr


def test_a_refused_job_does_not_stop_the_others(cli: Cli, tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.yaml",
        "jobs:\n- name: bad\n  spec: {action: {handler: h}, schedules: [{cron: '61 * * * *'}]}\n"
        "- name: good\n  spec: {action: {handler: h}}\n",
    )  # fmt: skip

    said = cli("job", "apply", "-f", path)

    assert said.exit_code == 1
    assert "1 job refused" in said.stderr
    assert said.stdout.splitlines()[1].startswith("bad\trefused\t\tCRON_INVALID\t")
    assert cli.ok("job", "list", "-o", "name").stdout == "good\n"


def test_pruning_deletes_what_has_the_label_and_is_in_no_file(cli: Cli, tmp_path: Path) -> None:
    for name, team in (("old", "a"), ("keep", "b")):
        cli.ok("job", "create", name, "--handler", "h", "--label", f"team={team}")
    path = write(tmp_path, "a.toml", TOML)

    unasked = cli("job", "apply", "-f", path, "--prune", "team=a")
    tried = cli.ok("job", "apply", "-f", path, "--prune", "team=a", "--dry-run")
    before = cli.ok("job", "list", "-o", "name", "--filter", "state=ACTIVE").stdout
    cli.ok("job", "apply", "-f", path, "--prune", "team=a", "--yes")

    assert unasked.exit_code == 2
    assert "Job old deleted. (dry run: nothing was changed)" in tried.stderr
    assert before == "keep\nold\n"
    after = cli.ok("job", "list", "-o", "name", "--filter", "state=ACTIVE").stdout
    assert after == "keep\nreport\n"


def test_a_difference_is_shown_field_by_field(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "a.toml", TOML)
    cli.ok("job", "apply", "-f", path)
    same = cli.ok("job", "diff", "-f", path, "--exit-code")
    cli.ok("job", "update", "report", "--priority", "low", "--owner", "ann")
    write(
        tmp_path, "a.toml", TOML + '\n[[jobs]]\nname = "new"\n[jobs.spec.action]\nhandler = "h"\n'
    )

    said = cli("job", "diff", "-f", path, "--exit-code")

    assert same.stderr == "No difference in 1 job.\n"
    assert said.exit_code == 1
    assert said.stdout.splitlines() == [
        "~ report",
        "    owner: ann -> (unset)",
        "    priority: low -> high",
        "+ new",
    ]
    assert cli("job", "diff", "-f", path).exit_code == 0
    applied = cli.rows("job", "apply", "-f", path)
    assert applied[1][:3] == ["report", "updated", "spec.owner, spec.priority"]


def test_a_viewer_may_see_a_difference(cli: Cli, stage: Stage, tmp_path: Path) -> None:
    more = '\n[[jobs]]\nname = "new"\n[jobs.spec.action]\nhandler = "h"\n'
    path = write(tmp_path, "a.toml", TOML)
    cli.ok("job", "apply", "-f", path)
    stage.views = True
    same = cli.ok("job", "diff", "-f", path, "--exit-code")
    stage.views = False
    cli.ok("job", "update", "report", "--priority", "low", "--http", "POST http://me:pw@h/x?k=v")
    write(tmp_path, "a.toml", TOML.replace('"build"', '"make"') + more)
    stage.views = True

    said = cli("job", "diff", "-f", path, "--exit-code")
    results = cli.json("job", "diff", "-f", path)["results"]

    note = "Note: only an editor may ask whether the cluster would take them"
    assert same.stderr == (
        f"{note}; 1 value hidden from you, not compared.\nNo difference in 1 job.\n"
    )
    assert said.exit_code == 1
    assert said.stdout.splitlines() == [
        "~ report",
        "    action: (unset) -> make",
        "    action.http.method: POST -> (unset)",
        "    action.http.url: http://(hidden)@h/x?(hidden) -> (unset)",
        "    priority: low -> high",
        "+ new",
    ]
    assert [one["verdict"] for one in results] == ["VERDICT_UPDATED", "VERDICT_CREATED"]
    applied = cli("job", "apply", "-f", path)
    assert applied.exit_code == 5


def test_a_file_for_one_namespace_is_not_put_into_another(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", "name: x\nnamespace: billing\nspec: {action: {handler: h}}\n")
    cli.ok("namespace", "create", "billing")

    refused = cli("job", "apply", "-f", path, "-n", "default")
    cli.ok("job", "apply", "-f", path)

    assert refused.exit_code == 2
    assert "job x belongs to namespace billing, the command says default" in refused.stderr
    assert cli.ok("job", "list", "-n", "billing", "-o", "name").stdout == "x\n"


@pytest.mark.parametrize("form", ["jsonl", "yaml", "json"])
def test_what_is_exported_can_be_imported(form: str, cli: Cli, tmp_path: Path) -> None:
    cli.ok("job", "apply", "-f", write(tmp_path, "a.toml", TOML))
    cli.ok("job", "create", "after", "--handler", "h", "--after", "report")
    path = str(tmp_path / f"out.{form}")

    said = cli.ok("job", "export", "--to", path, "-o", form)
    piped = cli.ok("job", "export", "-o", form).stdout
    cli.ok("job", "delete", "after", "report", "--yes")
    cli.stage.act(lambda machine: machine.fire())
    cli.ok("job", "import", path)

    assert said.stderr == f"2 jobs exported to {path}.\n"
    assert Path(path).read_text() == piped
    assert cli.json("job", "get", "report")["spec"] == SPEC
    assert cli.json("job", "get", "after")["spec"]["upstream"] == {"jobs": [{"job": "report"}]}


def test_an_import_of_what_is_there_says_so_in_a_few_lines(cli: Cli, tmp_path: Path) -> None:
    lines = [json.dumps({"name": f"j{n}", "spec": {"action": {"handler": "h"}}}) for n in range(40)]
    path = write(tmp_path, "jobs.jsonl", "\n".join(lines))
    cli.ok("job", "import", path)

    again = cli("job", "import", path)

    assert again.exit_code == 1
    assert again.stderr.count("JOB_EXISTS:") == 10
    assert "and 30 others (40 JOB_EXISTS in all); -o jsonl prints each" in again.stderr
    assert "Try: the same with --update, to replace them" in again.stderr
    programs = cli("job", "import", path, "-o", "jsonl").stdout
    assert len(programs.splitlines()) == 40


@pytest.mark.parametrize("form", ["jsonl", "json", "yaml"])
def test_what_a_viewer_exported_is_not_imported_without_its_payloads(
    form: str, cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    """The payload was left out of the export, and the import took it away."""
    cli.ok("job", "create", "a", "--handler", "h", "--payload", '{"key": "secret"}')
    stage.views = True
    shown = cli.ok("job", "get", "a").stdout
    file = tmp_path / f"jobs.{form}"
    exported = cli.ok("job", "export", "--to", str(file), "-o", form).stderr
    stage.views = False
    said = cli("job", "import", str(file), "--update")

    assert "secret" not in shown + file.read_text()
    assert "values of 1 job are hidden from you, so this cannot be imported" in exported
    assert "(hidden)" in shown
    assert said.exit_code in (1, 2)
    assert "with a token that may see payloads" in said.stderr
    spec = cli.json("job", "get", "a")["spec"]
    assert base64.b64decode(spec["payload"]["data"]) == b'{"key": "secret"}'


def test_an_import_leaves_what_is_there_unless_told_to_update_it(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", lines(3, owner="new"))
    cli.ok("job", "create", "job-00001", "--handler", "h", "--owner", "old")

    first = cli("job", "import", path)
    owner = cli.json("job", "get", "job-00001")["spec"]["owner"]
    second = cli.ok("job", "import", path, "--update")

    assert first.exit_code == 1
    assert first.stderr.startswith("refused job-00001: JOB_EXISTS:")
    assert "2 created, 0 updated, 0 unchanged, 1 refused." in first.stderr
    assert owner == "old"
    assert second.stderr == "0 created, 1 updated, 2 unchanged, 0 refused.\n"


def test_an_import_prints_a_warning_of_each_kind(cli: Cli, tmp_path: Path) -> None:
    odd = "".join(
        json.dumps({"name": f"job-{number}", "spec": {
            "action": {"handler": "h"}, "schedules": [{"cron": {"expression": "59/15 * * * *"}}],
        }}) + "\n"
        for number in range(12)
    )  # fmt: skip
    path = write(tmp_path, "a.jsonl", odd)

    first = cli.ok("job", "import", path)
    shown = first.stderr.splitlines()

    # They are alike, so one stands for all of them.
    assert len(shown) == 2
    assert shown[0].startswith("Note on job-0: ")
    assert shown[0].endswith(" (and 11 jobs alike; -o jsonl prints each)")


def test_an_import_that_stopped_goes_on_from_there(
    cli: Cli, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "JOBS_MAX", 10)
    path = write(tmp_path, "a.jsonl", lines(45))
    node = stage.nodes[0]

    def third_fails(request: object) -> None:
        if isinstance(request, job_pb2.ImportJobsRequest) and len(chunks()) == 3:
            node.faults.append(breaking_off(grpc.StatusCode.INTERNAL, "broken"))

    def chunks() -> list[job_pb2.ImportJobsRequest]:
        return [one for one in node.heard if isinstance(one, job_pb2.ImportJobsRequest)]

    class Ears(list[object]):
        def append(self, heard: object) -> None:
            super().append(heard)
            third_fails(heard)

    monkeypatch.setattr(node, "heard", Ears())
    stopped = cli("job", "import", path)
    lost = chunks()[-1]
    monkeypatch.setattr(node, "heard", [])
    resumed = cli.ok("job", "import", path)

    assert stopped.exit_code == 7
    assert "the same command again: it goes on after 20 jobs" in stopped.stderr
    assert resumed.stderr.startswith("Going on after 20 jobs: 20 created")
    assert "45 created, 0 updated, 0 unchanged, 0 refused." in resumed.stderr
    assert len(chunks()) == 3
    # What was lost is repeated under its id, so it is not done twice.
    assert chunks()[0] == lost
    assert not list((tmp_path / "state").rglob("*.json"))


def test_an_interrupted_import_says_how_to_go_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "JOBS_MAX", 10)
    path = write(tmp_path, "a.jsonl", lines(25))
    took = imports.ImportProgress.took

    def interrupted(progress: imports.ImportProgress, answer: job_pb2.ImportJobsResponse) -> None:
        took(progress, answer)
        if progress.done == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(imports.ImportProgress, "took", interrupted)
    stopped = cli("job", "import", path)
    monkeypatch.setattr(imports.ImportProgress, "took", took)
    resumed = cli.ok("job", "import", path)

    assert stopped.exit_code == 130
    assert "Next: the same command again: it goes on after 20 jobs" in stopped.stderr
    assert "25 created" in resumed.stderr


def test_a_completed_import_is_done_again_when_it_is_typed_again(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", lines(1))
    cli.ok("job", "import", path)
    cli.ok("job", "delete", "job-00000", "--yes")
    cli.stage.act(lambda machine: machine.fire())

    cli.ok("job", "import", path)

    assert cli.ok("job", "list", "-o", "name").stdout == "job-00000\n"


def test_an_import_in_a_pipe_gives_its_results_to_programs(cli: Cli) -> None:
    said = cli.ok("job", "import", "-", "-o", "jsonl", typed=lines(2))

    assert [json.loads(line) for line in said.stdout.splitlines()] == [
        {"job": "job-00000", "verdict": "VERDICT_CREATED"},
        {"job": "job-00001", "verdict": "VERDICT_CREATED"},
    ]


def test_a_cycle_is_left_to_the_cluster_to_refuse(cli: Cli, tmp_path: Path) -> None:
    text = "".join(
        f"- {{name: {name}, spec: {{action: {{handler: h}}, upstream: {{jobs: [{after}]}}}}}}\n"
        for name, after in (("a", "b"), ("b", "a"))
    )

    said = cli("job", "apply", "-f", write(tmp_path, "a.yaml", text))

    assert said.exit_code == 1
    assert "JOB_NOT_FOUND" in said.stdout
