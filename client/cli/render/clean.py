"""What others wrote must not steer the terminal: the one way by which text is printed.

Names, descriptions and messages come from whoever may write to the cluster or carry out its runs.
Signs that a terminal obeys, and those that turn the direction of text, become one that is seen.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from typing import IO, Any

import click

# Controls but for line ends and tabs, the same of the second kind, signs of direction, and halves
# of characters, which nothing can print.
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
SIGN = "\ufffd"
WIDTH_MIN = 40  # Words are not folded narrower than this.


def visible(text: str) -> str:
    """Without what would move the terminal's cursor, or worse."""
    return UNSAFE.sub(SIGN, text)


def flat(text: str) -> str:
    """On one line, without tabs, so that a line stays a row."""
    text = " ".join(text.split()) if any(sign in text for sign in "\t\r\n") else text
    return visible(text)


def echo(
    text: str = "", *, file: IO[Any] | None = None, err: bool = False, nl: bool = True
) -> None:
    """Print text for people, or a document in which such signs are escaped already."""
    click.echo(visible(text), file=file, err=err, nl=nl)


def folded(text: str, width: int, indent: int) -> str:
    """Words on lines of so many signs, the further ones indented."""
    return textwrap.fill(
        text, max(width, WIDTH_MIN), subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False, replace_whitespace=False,
    )  # fmt: skip


def notify(text: str, indent: int = 2) -> None:
    """Print words for people on stderr, folded where that is a terminal."""
    if sys.stderr and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(folded(line, width, indent) for line in text.split("\n"))
    echo(text, err=True)


def json_of(value: Any, **style: Any) -> str:  # Whatever JSON can hold.
    """JSON with the signs that JSON itself would let through escaped as well: the same value."""
    text = json.dumps(value, ensure_ascii=False, **style)
    return UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    # Between strings JSON has line ends only, and those are no such signs.
    return f"\\u{ord(found[0]):04x}"


def yaml_of(value: Any) -> str:
    """YAML likewise; where there is such a sign, all that is beyond ASCII is escaped."""
    import yaml

    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    if UNSAFE.search(text):
        text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=False))
    return text
