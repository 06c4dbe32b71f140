"""What this process is made of, as far as it matters to others: the same build, zones and library
compute the same."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.metadata import version as version_of
from pathlib import Path

from ...statemachine.schedule import zones

PACKAGE = Path(__file__).resolve().parents[2]
# Where the code lies that decides, stores and talks to other nodes.
PARTS = ("cluster", "proto", "statemachine")


@cache
def build() -> str:
    """A short name of the sources: the same for the same code."""
    digest = blake2b(digest_size=6)
    for part in PARTS:
        for path in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def croniter() -> str:
    """The version of the library that reads cron expressions."""
    return version_of("croniter")


def zone_names() -> frozenset[str]:
    return frozenset(zones.zone_names())


@cache
def zones_digest() -> str:
    """A short name of the list of zones."""
    return blake2b("\n".join(zones.zone_names()).encode(), digest_size=6).hexdigest()
