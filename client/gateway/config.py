"""The settings of a gateway, with the limits that keep any one caller from taking all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .wire import Network

# Seconds: for the head of a request, for its body, between two requests on a connection, and for
# whoever does not read the answer.
HEAD_S, BODY_S, IDLE_S, READ_S = 10.0, 30.0, 75.0, 30.0
HEAD_BYTES = 32 << 10
# A call takes so many bytes of JSON for each byte that its request may have, and some.
JSON_FACTOR, JSON_BYTES = 3, 64 << 10
# Larger bodies and answers are read and written on threads beside the loop.
BESIDE_BYTES = 16 << 10
# Larger bodies are not parsed before the cluster knows whose they are.
KNOWN_BYTES = 64 << 10
# JSON values in a body: each takes some 10 µs.
VALUES_MAX = 100_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """By the names that refusals give."""

    connections: int = 2_000
    connections_by_address: int = 1_000
    # Requests under way; answers that are streams, or that are waited for; and bodies under way.
    requests: int = 500
    streams: int = 1_000
    body_mb: int = 64
    # Long answers that nobody has read yet.
    answers_mb: int = 64
    # Of over 16 KiB, that wait for their turn to be parsed.
    large_bodies: int = 8

    @staticmethod
    def share(maximum: int) -> int:
        """What one address may have of it."""
        return (maximum + 1) // 2


@dataclass(frozen=True, slots=True)
class Provider:
    """Who vouches for people, by OpenID Connect, and as whom the gateway is known there."""

    issuer: str
    client_id: str
    # Empty for a public client, which PKCE alone protects.
    secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")

    @property
    def name(self) -> str:
        """For people."""
        return urlsplit(self.issuer).netloc


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it."""

    limits: Limits = field(default_factory=Limits)
    # Pages of these origins may call, as browsers say it: "https://ops.example".
    cors_origins: frozenset[str] = frozenset()
    # Names in the header Host beside addresses and localhost; None: any name.
    hosts: frozenset[str] | None = frozenset()
    certificate: str = ""
    key: str = ""
    # A path in front of all others, "/a"; and proxies that may say for whom they ask.
    prefix: str = ""
    proxies: tuple[Network, ...] = ()
    # By whom people may sign in on the web page.
    provider: Provider | None = None


def body_bytes(request_bytes: int) -> int:
    """The longest body of a call whose request may have so many bytes."""
    return JSON_FACTOR * request_bytes + JSON_BYTES
