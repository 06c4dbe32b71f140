"""The alerts: rules that Prometheus takes, each with a runbook whose commands can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from raftsched.client.cli import main

from ..rows import each
from .tools import DEPLOY, ROOT, run, tool

FOLDER = DEPLOY / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
SECTIONS = ["What it means", "Look", "Do", "Over"]
# What stands for something of the reader's.
COLUMNS_MAX = 100


def typed(page: str) -> list[list[str]]:
    """The commands of a page, without what stands for something else, in words."""
    found = re.findall(r"^\$ (.+)$", page, re.MULTILINE)
    found += re.findall(r"`([^`]+)`", " ".join(page.split()))
    return [shlex.split(one) for one in found if one.startswith("raftsched ")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rules_are_what_prometheus_takes() -> None:
    promtool = tool("promtool")

    checked = run(promtool, "check", "rules", FOLDER / "rules.yaml")
    tested = run(promtool, "test", "rules", FOLDER / "rules_test.yaml")
    config = run(promtool, "check", "config", FOLDER / "prometheus.yaml")

    assert checked.returncode == 0, checked.stdout
    assert tested.returncode == 0, tested.stdout
    assert config.returncode == 0, config.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rule_that_lost_its_bite_is_found(tmp_path: Path) -> None:
    promtool = tool("promtool")
    text = (FOLDER / "rules.yaml").read_text()
    (tmp_path / "rules.yaml").write_text(text.replace("entries > 1000", "entries > 9000"))
    (tmp_path / "rules_test.yaml").write_text((FOLDER / "rules_test.yaml").read_text())

    tested = run(promtool, "test", "rules", tmp_path / "rules_test.yaml")

    assert tested.returncode == 1
    assert "RaftschedMemberBehind" in tested.stdout


def test_each_alert_has_a_test_and_a_runbook_and_no_runbook_is_left_over() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]

    assert {one["name"] for one in tests[1:]} == set(RULES)
    assert {path.stem for path in RUNBOOKS.glob("Raftsched*.md")} == set(RULES)
    for name, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
        assert rule["labels"]["severity"] in ("warning", "critical")
    index = (RUNBOOKS / "README.md").read_text()
    assert re.findall(r"^\* \[(\w+)\]", index, re.MULTILINE) == list(RULES)


@each("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_says_what_to_do_in_commands_that_are_there(path: Path) -> None:
    page = path.read_text()

    assert [line for line in page.splitlines() if len(line) > COLUMNS_MAX] == []
    links = re.findall(r"\]\(([^)#:]+)\)", page)
    assert [link for link in links if not (path.parent / link).exists()] == []
    for words in typed(page):
        understood(words)
    if path.stem != "README":
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
        assert re.search(r"^\$ raftsched ", page, re.MULTILINE)


@pytest.mark.parametrize("planted", ["raftsched cluster heal", "raftsched cluster status --heal"])
def test_a_command_that_is_gone_is_found(planted: str) -> None:
    with pytest.raises(click.UsageError):
        understood(shlex.split(planted))


def understood(words: list[str]) -> None:
    """Raises a UsageError for what the command does not know."""
    made: click.Command = main
    context = click.Context(main, info_name="raftsched")
    rest = words[1:]
    while isinstance(made, click.Group) and rest:
        name, *rest = rest
        if name.startswith("-"):
            return  # raftsched --help
        found = made.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no {' '.join(words)}")
        made = found
    if "--help" not in rest and not isinstance(made, click.Group):
        made.make_context(made.name, rest, parent=context)
