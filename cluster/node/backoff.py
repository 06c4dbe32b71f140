"""How long to wait between tries."""

from __future__ import annotations

from collections.abc import Iterator


def backoff(first_s: float, most_s: float) -> Iterator[float]:
    """`first_s`, each time twice as long, `most_s` at most, without end."""
    wait_s = first_s
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, most_s)
