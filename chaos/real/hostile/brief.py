"""What the harness and the process of an attack send each other."""

from __future__ import annotations

import msgspec


class AttackBrief(msgspec.Struct, frozen=True):
    """What the harness gives an attacker."""

    name: str
    seed: int
    namespace: str
    seconds: float
    # After so long it is broken off.
    limit: float
    # What has to be done in a time may take so many times as long, where more goes on beside it.
    slack: float
    # Of each node: where it listens for clients, for other nodes, and for HTTP.
    nodes: tuple[tuple[str, str, str], ...]
    # By role: editor, worker, viewer, admin.
    tokens: dict[str, str]
    # Where the gateway beside the first node listens.
    gateway: str = ""


class AttackFindings(msgspec.Struct):
    """What an attacker reports to the harness at its end."""

    calls: int = 0
    refused: int = 0
    # What should not have been possible, or was not done in time.
    wrong: list[str] = []
    figures: dict[str, float] = {}
    codes: dict[str, int] = {}
    # Of each kind of refusal the first words.
    words: dict[str, str] = {}
