"""Make the typed calls: `aio/` from the contracts, and all that blocks from what is asynchronous.

python -m raftsched.client.calls.generate            # rewrite them; `./dev proto` does
python -m raftsched.client.calls.generate --check    # fail if they differ
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .from_contracts import asynchronous

CALLS = Path(__file__).resolve().parent
AIO, BLOCKING = CALLS / "aio", CALLS / "blocking"
SDK, ROOT = CALLS.parent / "sdk", CALLS.parents[1]
# What is left out or written otherwise, in this order; docstrings and examples included.
CHANGES = (
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\baclosing\b", "closing"),
    (r"\[(\w+) async for \1 in (.+)\]", r"list(\2)"),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\basync_(core|connections)\b", r"\1"),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"The asynchronous client", "The blocking client"),
    (
        r"Talks to a cluster from one asyncio loop. The same methods as Client, to be awaited.",
        "Talks to a cluster, blocking the calling thread. Safe to share between threads.",
    ),
    (r"It belongs to the loop of its first call. Nothing is connected before that.",
     "Nothing is connected before the first call."),
    (r"# Made from [^\n]*\n", ""),
)  # fmt: skip
NOTE = "# Made from {source} by calls/generate.py; write there.\n"


def made() -> dict[Path, str]:
    """The text of each file that is made, as it is to be."""
    found = _formatted({AIO / name: text for name, text in asynchronous().items()})
    by_hand = [path for path in sorted(AIO.glob("*.py")) if _is_by_hand(path)]
    sources = {BLOCKING / path.name: path.read_text() for path in by_hand}
    sources |= {BLOCKING / path.name: text for path, text in found.items()}
    sources[SDK / "core.py"] = (SDK / "async_core.py").read_text()
    blocking = {path: _blocking(text, path) for path, text in sources.items()}
    blocking[BLOCKING / "__init__.py"] = INIT
    return found | _formatted(blocking)


def _is_by_hand(path: Path) -> bool:
    return path.name.endswith("_by_hand.py") or path.name in ("run.py", "service.py")


INIT = '''"""The calls of the blocking client, by service, made from `aio/`."""\n'''


def _blocking(text: str, path: Path) -> str:
    text = _without_groups(text)
    for pattern, other in CHANGES:
        text = re.sub(pattern, other, text)
    source = "async_core.py" if path.name == "core.py" else f"aio/{path.name}"
    return NOTE.format(source=source) + text


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


def _formatted(texts: Mapping[Path, str]) -> dict[Path, str]:
    """In the style of the house; imports that are not used are left out."""
    with tempfile.TemporaryDirectory() as folder:
        places = {path: Path(folder, path.relative_to(ROOT)) for path in texts}
        for path, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(texts[path])
        shutil.copy(ROOT / "pyproject.toml", folder)
        for command in (
            ["check", "--select", "I,F401,UP028", "--fix-only", "--unsafe-fixes", "-q"],
            ["format", "-q"],
        ):
            ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "."]
            subprocess.run(ruff, cwd=folder, check=True)
        return {path: place.read_text() for path, place in places.items()}


def stale(wanted: Mapping[Path, str]) -> list[Path]:
    """What is there and is not what it should be, or should not be there."""
    left = [path for path in BLOCKING.glob("*.py") if path not in wanted]
    return left + [
        path for path, text in wanted.items() if not path.exists() or path.read_text() != text
    ]


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m raftsched.client.calls.generate [--check]\n")
        return 2
    wanted = made()
    found = stale(wanted)
    if arguments:
        for path in found:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date; run ./dev proto\n")
        return 1 if found else 0
    for path in found:
        if path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
