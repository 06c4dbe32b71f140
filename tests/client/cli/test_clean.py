"""What others wrote does not steer the terminal of whoever looks at it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from raftsched.client import cli as package
from raftsched.client.cli.render.clean import UNSAFE, json_of, visible, yaml_of

from .conftest import Cli

# A title of the window, a second way to begin a sequence, text that runs backwards, a delete.
EVIL = "a\x1b]0;pwned\x1b\\ b\x9b31m c\u202ed \x7f\x07\x00e"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    "words",
    [
        ("job", "get", "evil"), ("job", "get", "evil", "--color", "always"),
        ("job", "list", "-o", "wide"), ("job", "list", "-o", "wide", "--color", "always"),
        ("watch", "--since", "oldest", "--stop"),
        ("job", "get", "evil", "-o", "json"), ("job", "get", "evil", "-o", "jsonl"),
        ("job", "get", "evil", "-o", "yaml"), ("job", "export"), ("job", "export", "-o", "json"),
        ("job", "get", EVIL), ("job", "list", "--filter", EVIL), ("job", "pause", EVIL),
    ],
    ids=lambda words: " ".join(words)[:40],
)  # fmt: skip
def test_signs_of_others_do_not_reach_the_terminal(cli: Cli, words: tuple[str, ...]) -> None:
    cli.ok(
        "job", "create", "evil", "--cron", "0 9 * * *", "--handler", "h",
        "--description", EVIL.replace("\x00", ""), "--owner", EVIL.replace("\x00", ""),
    )  # fmt: skip
    said = cli(*words)
    for text in (said.stdout, said.stderr):
        assert UNSAFE.search(COLOUR.sub("", text)) is None, repr(text)


def test_documents_say_the_same_as_before() -> None:
    said = {EVIL: [EVIL, "Grüße, 世界 \u00a0", "a\nb\tc"]}
    for text, read in ((json_of(said), json.loads), (yaml_of(said), yaml.safe_load)):
        assert read(text) == said
        assert UNSAFE.search(text) is None
    assert yaml_of({"a": "Grüße"}) == "a: Grüße\n"


def test_what_is_seen_keeps_what_is_harmless() -> None:
    plain = "Grüße\n\t世界 👩‍👩‍👧 \u00a0|"
    assert visible(plain) == plain


def test_nothing_is_printed_another_way() -> None:
    """But for words of our own, and a log in a pipe."""
    allowed = {"clean.py": 1, "output.py": 1, "logs.py": 1, "completion.py": 1}
    found = {
        file.name: len(re.findall(r"click\.(echo|secho)\b|(?<![\w.])print\(", file.read_text()))
        for file in Path(package.__file__).parent.rglob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == allowed
