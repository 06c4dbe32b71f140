"""The keys of issuers: fetched by each node for itself, beside its loop, and never by a rule.

A set is fetched every ten minutes, and sooner when a token names a key that is not in it, but not
more often than every 30 s, however many such tokens come. While an issuer cannot be reached its
last good set goes on, for a day.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from ...proto.v1 import identity_pb2
from ...statemachine.core.limits import KEYS_OF_ISSUER
from ...statemachine.tenants.providers import KINDS_OF_KEYS, is_address, key_set_fault
from .fetch import FetchFailed, fetch

REFRESH_S = 600.0
RETRY_S = 30.0
KEEP_S = 86_400.0
WELL_KNOWN = "/.well-known/openid-configuration"
# By the kind of key, or its curve: what may be signed with it.
FITTING = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
    "Ed448": frozenset({"EdDSA"}),
}
RSA_BITS_LEAST, RSA_BITS_MOST = 2_048, 8_192
KID_CHARS = 256
logs = structlog.get_logger("raftsched.cluster.api.key_sets")
Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, and what may be signed with it."""

    jwk: dict[str, Any]
    fitting: frozenset[str]
    kid: str

    def by(self, algorithm: str) -> PyJWK:
        return PyJWK(self.jwk, algorithm)


@dataclass(slots=True, eq=False)
class KeySet:
    """That of one issuer."""

    keys: tuple[PublicKey, ...] = ()
    # When it came, and when it was last asked for; 0: never.
    fetched_at: float = 0.0
    tried_at: float = 0.0
    # Why it could not be had the last time.
    why: str = ""
    task: asyncio.Task[None] | None = None
    # Counts the sets that differed.
    edition: int = 0
    made: dict[tuple[str, str], PyJWK] = field(default_factory=dict)

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key with this id; without one the only key that fits."""
        fitting = [one for one in self.keys if algorithm in one.fitting]
        found = [one for one in fitting if kid is None or one.kid == kid]
        if len(found) != 1:
            return None
        place = (found[0].kid, algorithm)
        if place not in self.made:
            self.made[place] = found[0].by(algorithm)
        return self.made[place]

    def replace(self, keys: tuple[PublicKey, ...]) -> None:
        if keys != self.keys:
            self.keys, self.made = keys, {}
            self.edition += 1


class KeySets:
    """See the head of this file."""

    def __init__(self, get: Fetch = fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self.get, self.clock = get, clock
        self.by_issuer: dict[tuple[str, str], KeySet] = {}

    def of(self, issuer: identity_pb2.TokenIssuer) -> KeySet:
        """What is known now."""
        place = (issuer.issuer, issuer.static_keys or issuer.jwks_uri)
        found = self.by_issuer.get(place)
        if found is None:
            found = self.by_issuer[place] = KeySet()
            if issuer.static_keys:
                found.replace(keys_in(issuer.static_keys))
        if not issuer.static_keys and found.keys and self._age(found) > KEEP_S:
            found.replace(())
        return found

    def _age(self, found: KeySet) -> float:
        return self.clock() - found.fetched_at

    def keep(self, issuers: list[identity_pb2.TokenIssuer]) -> None:
        """Have the keys of these, and of no others. To be called now and then."""
        wanted = {(one.issuer, one.static_keys or one.jwks_uri): one for one in issuers}
        for place in self.by_issuer.keys() - wanted.keys():
            gone = self.by_issuer.pop(place)
            if gone.task is not None:
                gone.task.cancel()
        for issuer in wanted.values():
            found, now = self.of(issuer), self.clock()
            after = RETRY_S if found.why else REFRESH_S
            if not issuer.static_keys and (not found.tried_at or now - found.tried_at >= after):
                self._begin(issuer, found)

    def ask(self, issuer: identity_pb2.TokenIssuer) -> asyncio.Task[None] | None:
        """A key is missing: the fetch that may bring it, if it is time for one."""
        found = self.of(issuer)
        if issuer.static_keys or found.task is not None:
            return found.task
        if found.tried_at and self.clock() - found.tried_at < RETRY_S:
            return None
        return self._begin(issuer, found)

    def _begin(self, issuer: identity_pb2.TokenIssuer, found: KeySet) -> asyncio.Task[None] | None:
        if found.task is None:
            found.tried_at = self.clock()
            found.task = asyncio.create_task(self._fetch(issuer, found), name="key set")
        return found.task

    async def _fetch(self, issuer: identity_pb2.TokenIssuer, found: KeySet) -> None:
        try:
            text = await self._text(issuer)
            # To make keys takes a while.
            keys = await asyncio.get_running_loop().run_in_executor(None, keys_in, text)
            if not keys:
                raise FetchFailed(f"{issuer.issuer} has no key that is understood")
            found.replace(keys)
            found.fetched_at, found.why = self.clock(), ""
        except Exception as error:  # A document that breaks it must not end every node.
            found.why = str(error) if isinstance(error, FetchFailed) else repr(error)
            kept = f"{len(found.keys)} keys go on" if found.keys else "its tokens are refused"
            logs.warning("keys not fetched", issuer=issuer.issuer, why=found.why, then=kept)
        finally:
            found.task = None

    async def _text(self, issuer: identity_pb2.TokenIssuer) -> str:
        uri = issuer.jwks_uri
        if not uri:
            metadata = document(await self.get(issuer.issuer.rstrip("/") + WELL_KNOWN))
            if metadata.get("issuer") != issuer.issuer:
                other = str(metadata.get("issuer"))[:200]
                raise FetchFailed(f"{issuer.issuer} says there that it is {other}")
            named = metadata.get("jwks_uri")
            if not isinstance(named, str) or not is_address(named):
                raise FetchFailed(f"{issuer.issuer} names no jwks_uri that may be asked")
            uri = named
        text = (await self.get(uri)).decode("utf-8", "replace")
        document(text.encode())
        return text

    def close(self) -> None:
        for found in self.by_issuer.values():
            if found.task is not None:
                found.task.cancel()


def document(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FetchFailed("what came is no JSON") from error
    if not isinstance(found, dict):
        raise FetchFailed("what came is no object of JSON")
    return found


def keys_in(text: str) -> tuple[PublicKey, ...]:
    """The keys of a set that may sign tokens; others are left out, as their issuer may have keys
    for other ends in it."""
    listed = document(text.encode()).get("keys")
    if not isinstance(listed, list):
        raise FetchFailed("what came is no JWK set")
    found = [key for jwk in listed[:KEYS_OF_ISSUER] if (key := key_of(jwk)) is not None]
    return tuple(found)


def key_of(jwk: Any) -> PublicKey | None:  # noqa: ANN401  # JSON of anybody.
    if not isinstance(jwk, dict) or jwk.get("kty") not in KINDS_OF_KEYS:
        return None
    if jwk.get("use", "sig") != "sig" or not isinstance(jwk.get("kid", ""), str):
        return None
    kind = jwk["kty"] if jwk["kty"] == "RSA" else jwk.get("crv")
    fitting = FITTING.get(kind, frozenset()) if isinstance(kind, str) else frozenset()
    if "alg" in jwk:
        fitting = fitting & {jwk["alg"]} if isinstance(jwk["alg"], str) else frozenset()
    public = {name: value for name, value in jwk.items() if name in PUBLIC}
    key = PublicKey(public, fitting, jwk.get("kid", "")[:KID_CHARS])
    return key if fitting and is_sound(key) else None


PUBLIC = frozenset({"kty", "crv", "n", "e", "x", "y"})


def is_sound(key: PublicKey) -> bool:
    """Whether it can be made, and is neither weak nor so large that it costs much."""
    try:
        made = key.by(next(iter(key.fitting))).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return False
    bits = getattr(made, "key_size", None) if key.jwk["kty"] == "RSA" else RSA_BITS_LEAST
    return isinstance(bits, int) and RSA_BITS_LEAST <= bits <= RSA_BITS_MOST


def fault_of(text: str) -> str:
    """Why a JWK set that somebody wrote down would not do; empty if it does."""
    why = key_set_fault(text)
    if why:
        return why
    listed = json.loads(text)["keys"]
    wrong = next((place for place, jwk in enumerate(listed) if key_of(jwk) is None), None)
    if wrong is None:
        return ""
    return f"key {wrong} in it is not understood, or too short; RSA keys have 2,048 bits or more"
