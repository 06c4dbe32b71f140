"""Jobs in the words of the options: read, written, described for editors, refused with the word."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftsched.client.cli.commands.example import VALUES, lines
from raftsched.client.cli.input import flat
from raftsched.client.cli.input.schema import schema
from raftsched.client.cli.input.specfile import read_job
from raftsched.proto.v1 import job_pb2

from ...rows import each
from .conftest import Cli

# What a word stands beside, and what it takes the place of.
BESIDE = {
    "headers": "http", "expect_status": "http", "use_shell": "shell", "env": "shell",
    "warn_on_exit": "shell", "tls": "grpc", "content_type": "payload",
}  # fmt: skip
ACTIONS = ("handler", "http", "shell", "grpc")
FLOW = """
flow: nightly
cron: 0 2 * * *
zone: Europe/Berlin
labels: {team: data}
jobs:
  extract: {handler: extract}
  clean: {handler: clean, after: extract, labels: {slow: yes}}
  report: {handler: report, after: [clean, "extract:any-end"], zone: Asia/Tokyo}
"""
TABLE = """\
name,handler,cron,labels.team,payload.customer,cron
a,work,0 9 * * *,x,"acme, inc",0 18 * * *
b,work,,,,

c,work,@daily,,
"""


def job_of(said: object) -> tuple[job_pb2.Job, list[str]]:
    faults: list[str] = []
    return read_job(said, "f.yaml: job 1", faults), faults


def of_words(words: Mapping[str, str]) -> dict[str, Any]:
    return {"name": "x", **{word: yaml.safe_load(value) for word, value in words.items()}}


def wrong(said: Any, kind: Mapping[str, Any], whole: Mapping[str, Any], at: str = "") -> str:
    """What a value has that its schema does not allow; as much of the draft as ours uses."""
    if "$ref" in kind:
        kind = whole["$defs"][kind["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in kind:
        found = [wrong(said, one, whole, at) for one in kind["anyOf"]]
        return "" if "" in found else f"{at}: none of {found}"
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float),
        "integer": int,
    }  # fmt: skip
    wanted = [kind["type"]] if isinstance(kind.get("type"), str) else kind.get("type", [])
    fits = [isinstance(said, kinds[one]) and (one == "boolean" or not isinstance(said, bool))
            for one in wanted]  # fmt: skip
    if wanted and not any(fits):
        return f"{at}: {said!r} is none of {wanted}"
    if "enum" in kind and said not in kind["enum"]:
        return f"{at}: {said!r} is none of {kind['enum']}"
    if isinstance(said, str) and not re.search(kind.get("pattern", ""), said):
        return f"{at}: {said!r} does not fit {kind['pattern']}"
    if isinstance(said, int) and not (
        kind.get("minimum", said) <= said <= kind.get("maximum", said)
    ):
        return f"{at}: {said} is out of range"
    return next(filter(None, _wrong_below(said, kind, whole, at)), "")


def _wrong_below(said: Any, kind: Mapping[str, Any], whole: Any, at: str) -> Iterator[str]:
    if isinstance(said, list) and "items" in kind:
        yield from (wrong(one, kind["items"], whole, f"{at}[]") for one in said)
    if isinstance(said, dict):
        known, others = kind.get("properties", {}), kind.get("additionalProperties", {})
        yield from (f"{at}: no {key}" for key in kind.get("required", ()) if key not in said)
        for key, value in said.items():
            if key not in known and others is False:
                yield f"{at}: {key} is not known"
            else:
                yield wrong(value, known.get(key, others or {}), whole, f"{at}.{key}")


WHOLE = schema()


def misfit(said: Any) -> str:
    return wrong(json.loads(json.dumps(said, default=str)), WHOLE, WHOLE)


def test_each_word_of_a_job_is_read_written_and_in_the_schema() -> None:
    assert {*VALUES} == {flat.SINGULARS.get(word, word) for word in flat.options()}
    for word, value in VALUES.items():
        action = BESIDE.get(word, "handler")
        words = {word: value, **({action: VALUES[action]} if word not in ACTIONS else {})}
        if action == "payload":
            words["handler"] = "h"
        said = of_words(words)

        job, faults = job_of(said)

        assert faults == [], word
        again = flat.written(job)
        assert again is not None, word
        assert misfit(said) == misfit(again) == "", word


@pytest.mark.parametrize("seed", [1, 2])
def test_any_words_together_come_back_to_the_byte(seed: int) -> None:
    draw = random.Random(seed)
    plain = [word for word in VALUES if word not in (*BESIDE, *ACTIONS)]
    for _ in range(100):
        action = draw.choice(ACTIONS)
        beside = [word for word, other in BESIDE.items() if other == action]
        chosen = draw.sample(plain, draw.randrange(len(plain)))
        several = draw.sample(beside, draw.randrange(len(beside) + 1))
        said = of_words({word: VALUES[word] for word in (action, *several, *chosen)})
        job, faults = job_of(said)
        assert faults == []

        words = flat.written(job)

        assert words is not None
        assert job_of(yaml.safe_load(yaml.safe_dump(words))) == (job, [])
        assert misfit(words) == ""


@each(
    ("data", "kind", "written"),
    [
        (b'{"a": 1}', "application/json", {"payload": {"a": 1}}),
        (b'{"a":1}', "application/json", {"payload": '{"a":1}'}),
        (b'{"text": "x"}', "application/json", {"payload": {"text": "x"}}),
        (b'{"data": "eA=="}', "application/json", {"payload": {"data": "eA=="}}),
        (b"5", "application/json", {"payload": 5}),
        (b'"x"', "application/json", {"payload": '"x"'}),
        (b"hello", "text/plain", {"payload": "hello"}),
        (b"5", "text/plain", {"payload": "5", "content_type": "text/plain"}),
        (b"a\nb", "x/y", {"payload": "a\nb", "content_type": "x/y"}),
        (b"\xff", "x/y", None), (b"@x", "text/plain", None), (b"no", "application/json", None),
    ],
)  # fmt: skip
def test_a_payload_is_written_so_that_it_comes_back(
    data: bytes, kind: str, written: dict[str, Any] | None
) -> None:
    job = job_pb2.Job(name="x")
    job.spec.action.handler = "h"
    job.spec.payload.data, job.spec.payload.content_type = data, kind

    words = flat.written(job)

    expected = None if written is None else {"name": "x", "handler": "h", **written}
    assert words == expected
    if words is not None:
        assert job_of(words) == (job, [])


def test_what_words_cannot_hold_has_the_form_of_the_api(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    mixed = [{"interval": "90m"}, {"cron": "0 9 * * *"}]
    jobs = [
        {"name": "mixed", "spec": {"action": {"handler": "h"}, "schedules": mixed}},
        {"name": "plain", "handler": "h", "every": ["90m", "2h"], "cron": "0 9 * * *"},
        {"name": "wire", "handler": "h", "schedules": mixed},
    ]
    cli.ok("job", "apply", "-f", "-", typed=json.dumps({"jobs": jobs}))

    cli.ok("job", "export", "--to", str(file))

    mixed_again, plain, wire = yaml.safe_load_all(file.read_text())
    assert mixed_again["spec"] == wire["spec"]
    assert plain == {
        "name": "plain", "namespace": "default", "handler": "h", "cron": "0 9 * * *",
        "every": ["1h30m", "2h"],
    }  # fmt: skip
    assert "3 unchanged" in cli.ok("job", "apply", "-f", str(file)).stderr


def test_options_and_words_make_the_same_job(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "hook.yaml"
    words = (
        "--every", "5m", "--http", "PUT https://example.org/hook", "--header", "Accept: text/plain",
        "--header", "Authorization: secret://hook", "--expect-status", "200", "--expect-status",
        "404", "--zone", "Europe/Berlin", "--label", "team=a", "--retry-factor", "100",
        "--retry-jitter", "0", "--retry-total", "6h", "--payload", '{"day": 1}',
    )  # fmt: skip
    cli.ok("job", "create", "hook", *words)
    cli.ok("job", "export", "-o", "yaml", "--to", str(file))
    text = file.read_text()

    assert "4 " not in text.splitlines()[0]
    assert yaml.safe_load(text) == {
        "name": "hook", "namespace": "default", "labels": {"team": "a"},
        "http": "PUT https://example.org/hook",
        "headers": {"Accept": "text/plain", "Authorization": "secret://hook"},
        "expect_status": [200, 404], "every": "5m", "payload": {"day": 1}, "zone": "Europe/Berlin",
        "retry_factor": 100, "retry_jitter": 0, "retry_total": "6h",
    }  # fmt: skip
    assert "1 unchanged" in cli.ok("job", "apply", "-f", str(file)).stderr
    file.write_text(text.replace("retry_factor: 100", "retry-factor: 150"))
    assert "retry.factor_percent: 100 -> 150" in cli.ok("job", "diff", "-f", str(file)).stdout


@each(
    ("said", "fault"),
    [
        ({"zoen": "UTC"}, "zoen: there is no such word; did you mean zone?"),
        ({"gap_rule": "next"}, "gap_rule: there is no such word; did you mean spec.timing.gap"),
        ({"spec": {"zone": "UTC"}}, "spec.zone: there is no such field; did you mean "
                                    "spec.timing.zone, or zone beside the name of a job without"),
        ({"spec": {}, "priority": "high"}, "there is no such field; did you mean spec.priority"),
        ({"spec": {"timing": {"zon": "x"}}}, "spec.timing.zon: there is no such field; did you "
                                             "mean spec.timing.zone?"),
        ({"every": "5"}, "every: '5' is not a length of time"),
        ({"at": "+5m"}, "at: '+5m' is not an instant; write 2026-11-18T09:00:00Z"),
        ({"priority": "urgent"}, "priority: 'urgent' is not one of 'high', 'medium', 'low'"),
        ({"queue": ["a"]}, "queue: ['a'] is a list, and it has one value"),
        ({"zone": {"a": "b"}}, "zone: {'a': 'b'} is a table, and this is none"),
        ({"http": "GET http://x"}, "handler and http together; a job does one thing"),
        ({"headers": {"A": "b"}}, "headers without http or grpc; it is a header of a call"),
        ({"after": "a:bad"}, "'bad' is no end; there are success, failure, any-end"),
        ({"payload": "{bad"}, "looks like JSON and is none"),
        ({"payload": "@file"}, "payload: no file is read from here"),
        ({"tls": "perhaps"}, "tls: 'perhaps' is not true or false"),
        ({"cron": "@daily", "schedules": []}, ""),
        ({"cron": "@daily", "schedules": [{"cron": "@daily"}]}, "schedules: it stands beside cron"),
        ({"zone": "x" * 300 + "y", "labels": "x" * 300}, "x…"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_with_the_right_one(said: dict[str, Any], fault: str) -> None:
    whole = {"name": "x", **({} if "spec" in said else {"handler": "h"}), **said}

    _, faults = job_of(whole)

    assert any(fault in one for one in faults) if fault else faults == [], faults
    assert all(len(one) < 300 for one in faults)


def test_a_flow_is_one_document(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(FLOW)
    assert misfit(yaml.safe_load(FLOW)) == ""

    cli.ok("job", "apply", "-f", str(file))

    jobs = {one["name"]: one["spec"] for one in cli.json("job", "list")["jobs"]}
    assert list(jobs) == ["clean", "extract", "report"]
    assert jobs["extract"]["schedules"] == [{"cron": {"expression": "0 2 * * *"}}]
    assert "schedules" not in jobs["clean"]
    assert [one["job"] for one in jobs["report"]["upstream"]["jobs"]] == ["clean", "extract"]
    assert [jobs[name]["timing"]["zone"] for name in jobs] == ["Europe/Berlin"] * 2 + ["Asia/Tokyo"]
    assert jobs["clean"]["labels"] == {"flow": "nightly", "team": "data", "slow": "true"}
    for text in ("flow: a\n", "flow: a\njobs: [b]\n", "flow: a\njobs: {b: c}\n"):
        file.write_text(text)
        said = cli("job", "apply", "-f", str(file))
        assert said.exit_code == 2
        assert "flow" in said.stderr


def test_jobs_come_from_a_table(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(TABLE)

    assert "3 created" in cli.ok("job", "import", str(file)).stderr
    assert "3 unchanged" in cli.ok("job", "import", "-", "--csv", "--update", typed=TABLE).stderr

    a = cli.json("job", "get", "a")["spec"]
    assert [one["cron"]["expression"] for one in a["schedules"]] == ["0 9 * * *", "0 18 * * *"]
    assert a["labels"] == {"team": "x"}
    assert "schedules" not in cli.json("job", "get", "b")["spec"]
    for text, why in (
        ("nme,handler\na,b\n", "its first line has no column `name`"),
        ("name,handler\na,b,c\n", "line 2 has 3 cells, and the first has 2"),
        ("name,handler,priority\na,b,urgent\n", "job a: priority: 'urgent' is not one of"),
        ("name,handler,labels,labels.a\na,b,x=1,y\n", "line 2 has labels and labels.a"),
        ('name,handler\na,"b\n', "unexpected end of data"), ("", "no column `name`"),
    ):  # fmt: skip
        file.write_text(text)
        said = cli("job", "import", str(file))
        assert said.exit_code == 2
        assert why in said.stderr


def test_a_job_to_begin_with_can_be_applied(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    printed = cli.ok("job", "init").stdout

    cli.ok("job", "init", "nightly", "--to", str(file))

    assert max(map(len, printed.splitlines())) <= 80
    assert printed.replace("name: report", "name: nightly") == file.read_text()
    assert "1 created" in cli.ok("job", "apply", "-f", str(file)).stderr
    assert cli("job", "init", "--to", str(file)).exit_code == 6
    assert cli("job", "init", "--to", str(tmp_path / "no" / "x.yaml")).exit_code == 2
    assert json.loads(cli.ok("job", "schema").stdout) == WHOLE
    assert [line for line in lines("on") if line.startswith("name")] == ["name: 'on'"]
