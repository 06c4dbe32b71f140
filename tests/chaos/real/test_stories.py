"""Real nodes under faults, for a short while: every promise is kept, and a broken rule is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched.chaos.real import builds, netns_links
from raftsched.cluster.local.process import ProcessFailed

PATIENCE_S = 400
RUN = "from raftsched.client.cli import main; main()"


def chaos(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    # Lateness says more of the machine that runs the tests than of the cluster, so it may be great.
    ended = subprocess.run(
        [
            sys.executable, "-c", RUN, "chaos", "run", *arguments,
            "--dir", str(folder / "run"), "--report", str(folder / "page.html"), "-o", "json",
            "--late-ms", "5000", "--quiet-ms", "500", "--recover", "30",
        ],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1]), ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_promises_are_kept_under_mixed_faults(tmp_path: Path) -> None:
    code, found, words = chaos(tmp_path, "mixed", "--seconds", "40", "--seed", "4")
    assert (code, found["verdict"]) == (0, "ok"), words
    assert found["faults"] >= 3
    assert found["acknowledged"] > 100
    assert found["firings"] > 100
    assert "Every promise was kept" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.skipif(
    bool(netns_links.missing()), reason=f"no namespaces here: {netns_links.missing()}"
)
def test_promises_are_kept_where_the_kernel_cuts_the_links(tmp_path: Path) -> None:
    words = ["partition", "--seconds", "25", "--seed", "2", "--links", "namespaces"]
    code, found, words_said = chaos(tmp_path, *words)
    assert (code, found["verdict"]) == (0, "ok"), words_said
    assert found["links"] == "namespaces"
    assert found["faults"] >= 3
    # A slow cable leaves none when there is little to carry.
    assert found["faults_without_sign"] <= 1


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_nodes_go_to_this_build_and_back_under_load(tmp_path: Path) -> None:
    try:
        older = builds.from_git(tmp_path)
    except ProcessFailed as error:
        pytest.skip(f"no older build here: {error}")
    place = ["--with", str(tmp_path / older.name)]
    code, found, words = chaos(tmp_path, "upgrade", "--seconds", "10", *place)
    assert (code, found["verdict"]) == (0, "ok"), words
    assert [step["step"] for step in found["steps"]] == ["upgrade"] * 3 + ["rollback"] * 3
    assert found["faults_without_sign"] == 0
    assert all(step["firings"] for step in found["steps"])


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_the_command_for_upgrades_takes_all_nodes_there_and_back(tmp_path: Path) -> None:
    try:
        older = builds.from_git(tmp_path)
    except ProcessFailed as error:
        pytest.skip(f"no older build here: {error}")
    place = ["--with", str(tmp_path / older.name)]
    code, found, words = chaos(tmp_path, "upgrade-by-command", "--seconds", "10", *place)
    assert (code, found["verdict"]) == (0, "ok"), words
    assert [step["step"] for step in found["steps"]] == ["upgrade-all", "rollback-all"]
    assert (found["stops"], found["faults_without_sign"]) == (6, 0)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(("rule", "invariant"), [("firing", "S2")])
def test_a_broken_rule_is_found_and_named(tmp_path: Path, rule: str, invariant: str) -> None:
    code, found, words = chaos(tmp_path, "kill-any", "--seconds", "12", "--break-rule", rule)
    assert (code, found["verdict"]) == (1, "violated"), words
    assert invariant in found["by_invariant"]
    assert "A promise was broken" in (tmp_path / "page.html").read_text()
