"""Make `blocking/` from `aio/`: the same calls without `async` and `await`.

    python client/calls/generate.py

`tests/client/test_blocking.py` refuses a `blocking/` that is not what this makes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "aio"
TARGET = Path(__file__).parent / "blocking"
# What is left out or written otherwise, in this order; docstrings and examples included.
CHANGES = (
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\baclosing\b", "closing"),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\basync_client\b", "sync_client"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"the asynchronous client", "the blocking client"),
)
NOTE = "# Made from aio/{name} by generate.py; write there.\n"


def blocking() -> dict[str, str]:
    """The text of each file of `blocking/`."""
    return {path.name: _blocking(path) for path in sorted(SOURCE.glob("*.py"))}


def _blocking(path: Path) -> str:
    text = path.read_text()
    if path.name == "__init__.py":
        text = '"""The calls of the blocking client, by service, made from `aio/`."""\n'
    text = _without_groups(text)
    for pattern, other in CHANGES:
        text = re.sub(pattern, other, text)
    return _formatted(NOTE.format(name=path.name) + text, path.name)


def _without_groups(text: str) -> str:
    """Write `await x` for `(await x)`: what is grouped for await alone needs no parentheses."""
    while (found := re.search(r"(?<!\w)\(await ", text)) is not None:
        depth = 0
        for end in range(found.start(), len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if not depth:
                break
        text = text[: found.start()] + text[found.start() + 1 : end] + text[end + 1 :]
    return text


def _formatted(text: str, name: str) -> str:
    for command in (
        ["check", "--select", "I,F401,UP028", "--fix-only", "--unsafe-fixes", "-q"],
        ["format", "-q"],
    ):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET / name), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, text in blocking().items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
