"""What users read uses the words of the product: the old ones do not come back.

Looked at: help texts and messages of client/, comments of the contracts, and the README. The
dictionary stands beside each word: what to write instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .rows import each

ROOT = Path(__file__).parent.parent
INSTEAD = {
    r"said|told": "sent, named, says",
    r"ring|rung": "fire",
    r"herds?": "jobs that are due at once",
    r"occasions?": "occurrence, run",
    r"most of runs": "maximum of runs",
    r"waves?": "flow run",
    r"by hand": "manual, manually",
    r"words of progress": "progress reports",
    r"foresee\w*|foresight": "forecast, preview",
    r"nominal": "scheduled",
    r"surprises": "unexpected outcomes",
    r"in line|take turns|takes? its turn": "wait in the queue",
    r"as the API has it": "list the fields",
    r"TOOK": "DURATION",
    r"(?:nodes?|more|one) may fail": "can lose N nodes",
    r"beats?": "heartbeat",
    r"cut by such pieces": "segment size",
    r"LIVE|MAX LIVE": "RUNNING, WAITING",
}
OLD = re.compile("|".join(rf"\b(?:{word})\b" for word in INSTEAD))
# What is typed or read by programs as it is.
NAMES = re.compile(
    r"`[^`]*`|\bWorkRequest\.beat"
    r"|\b[\w-]*herd-failover|\bbench (?:herd|[\w-]+ herd)|\bherd\b(?= --)"
)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, without docstrings but those of commands, which are help texts."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
        and not any(isinstance(one, ast.Call) for one in getattr(node, "decorator_list", ()))
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.lineno, node.value


def texts() -> Iterator[tuple[str, int, str]]:
    for path in sorted((ROOT / "client").rglob("*.py")):
        for line, text in strings(path):
            # A single word in small letters is a name, not a sentence.
            if " " in text or text.isupper():
                yield path.relative_to(ROOT).as_posix(), line, text
    for path in sorted((ROOT / "proto" / "v1").glob("*.proto")):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            if (at := text.find("//")) >= 0:
                yield path.relative_to(ROOT).as_posix(), line, text[at:]
    for line, text in enumerate((ROOT / "README.md").read_text().splitlines(), 1):
        yield "README.md", line, text


def old_words(texts: Iterator[tuple[str, int, str]]) -> list[str]:
    return [
        f"{name}:{line}: {found[0]!r} in {text.strip()[:60]!r}"
        for name, line, text in texts
        for found in OLD.finditer(NAMES.sub("", text))
    ]


def test_nobody_reads_old_words() -> None:
    assert old_words(texts()) == []


@each(
    ("text", "found"),
    [
        ("it is not said which", 1), ("a wave waits", 1), ("started by hand", 1), ("TOOK", 1),
        ("use `held` of the wave", 1), ("a flow run waits", 0), ("string", 0), ("during", 0),
    ],
)  # fmt: skip
def test_an_old_word_is_found(text: str, found: int) -> None:
    assert len(old_words(iter([("x", 1, text)]))) == found
