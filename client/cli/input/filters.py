"""The filters that options make, `--since` and `--until` among them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from ..exits import wrong_use
from ..times import PastInstant, instant_text

# What a value in a filter may not have unless it stands in quotes.
QUOTED = re.compile(r'[\s()"\\]|^=')
UNDER_WAY = ("pending", "running", "retrying")
ENDED = ("succeeded", "failed", "cancelled", "skipped")


def window(of: str) -> Callable[[Any], Any]:
    """The two options, of what they look at, such as "that ended"."""

    def add(body: Any) -> Any:  # A click callback.
        for flag, which in (("--until", "before this time"), ("--since", "from this time on")):
            body = click.option(
                flag, type=PastInstant(), metavar="TIME",
                help=f"Only those {of} {which}; 1h is an hour ago.",
            )(body)  # fmt: skip
        return body

    return add


def between(field: str, since: int | None, until: int | None) -> list[str]:
    """The conditions that hold within a window."""
    if since is not None and until is not None and until <= since:
        first, end = (instant_text(ms, "utc", exact=True) for ms in (since, until))
        raise wrong_use(
            "--until is not behind --since", f"it is {end}, and --since is {first}",
            "--since 2h --until 1h",
        )  # fmt: skip
    found = []
    if since is not None:
        found.append(f"{field}>={instant_text(since, 'utc', exact=True)}")
    if until is not None:
        found.append(f"{field}<{instant_text(until, 'utc', exact=True)}")
    return found


def all_of(*parts: str) -> str:
    """Filters joined by AND; each may have an OR."""
    given = [part for part in parts if part]
    return " AND ".join(f"({part})" for part in given) if len(given) > 1 else "".join(given)


def of_ended_runs(text: str, state: str | None, since: int | None, until: int | None) -> str:
    """Of runs: those that ended within the window, and, where it is open, those that have not.
    Runs under way have no end; of these it is when they are due."""
    if since is None and until is None:
        return ""
    if state in UNDER_WAY:
        return " AND ".join(between("due_time", since, until))
    ended = " AND ".join(between("end_time", since, until))
    if state is not None or "state" in text:
        return ended
    # A list shows what has ended only where its filter speaks of states.
    states = UNDER_WAY if until is None else ENDED
    others = " OR ".join(f"state={one.upper()}" for one in states)
    return f"({ended}) OR {others}" if until is None else f"({ended}) AND ({others})"


def condition(text: str, labels: tuple[str, ...] = (), /, **equal: str | None) -> str:
    """A filter from what options say, joined by AND."""
    parts = [text] if text else []
    parts += [
        f"labels.{key}={_value(value)}" for key, _, value in (one.partition("=") for one in labels)
    ]
    for field, value in equal.items():
        if value:
            parts.append(f"{field}={value.upper() if field == 'state' else _value(value)}")
    if text and len(parts) > 1:
        # It may have an OR.
        parts[0] = f"({text})"
    return " AND ".join(parts)


def _value(text: str) -> str:
    if text and not QUOTED.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
