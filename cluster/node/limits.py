"""What callers may hold of a node: one section of its settings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

LIMIT_MAX = 1_000_000
# How often a worker says that it is alive, where nobody says otherwise: in the settings, for a node
# that tests make, and for the sessions of its workers.
HEARTBEAT_MS = 10_000


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the settings."""


ANSWERS_MB_MIN = 16  # Twice what the largest answer holds.


class CallerLimits(Section, frozen=True, kw_only=True):
    """What callers may hold of this node. A caller is an access token, or an address."""

    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Connections of clients. A limit on open files can make it less.",
        ),
    ] = 10_000
    calls: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Calls under way.")] = 10_000
    calls_by_caller: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Of these, those of one caller.",
        ),
    ] = 5_000
    body_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="What calls under way came with, in MiB.",
        ),
    ] = 128
    body_mb_by_caller: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Of this, what came from one caller, in MiB.",
        ),
    ] = 64
    answers_mb: Annotated[
        int,
        Meta(
            ge=ANSWERS_MB_MIN,
            le=LIMIT_MAX,
            description="Memory of answers that were not taken yet, in MiB.",
        ),
    ] = 256
    answers_mb_by_caller: Annotated[
        int,
        Meta(
            ge=ANSWERS_MB_MIN,
            le=LIMIT_MAX,
            description="Of these, those for one caller, in MiB.",
        ),
    ] = 32
    streams: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Streams of workers.")] = 25_000
    streams_by_caller: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Of these, those of one caller. Workers may share a token.",
        ),
    ] = 20_000
    watchers: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Streams of events, and as many of the health service.",
        ),
    ] = 2_000
    watchers_by_caller: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Of these, those of one caller.",
        ),
    ] = 1_000
    waits: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Calls that wait for a run to end, or for a lease.",
        ),
    ] = 8_000
    waits_by_caller: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Of these, those of one caller.",
        ),
    ] = 4_000
    failures: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="Calls a second of an address without a valid token; more wait.",
        ),
    ] = 100
