"""Callers for whom an identity provider vouches: by a JSON Web Token, or by a certificate.

A token is verified here, on each node that is asked, from its metadata. What its header says only
chooses among what the provider's settings allow: the algorithm must be in their list and fit the
key, and an id of a key is looked up in the set of that issuer and nowhere else. Before the
signature is known to be right nobody learns why a token is not taken, since a stranger could try
out what there is; then its owner is, in full. The log has the reason in any case.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, cast

import jwt
import structlog
from jwt.api_jws import PyJWS

from ...proto.v1 import access_pb2, identity_pb2
from ...statemachine.core.instants import iso_text, ms_or
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.core.store import Reading
from ...statemachine.model.record import IdentityProviderRecord, parse
from ...statemachine.tenants import providers
from ..node import refusals
from .key_sets import KeySets
from .vouched_caller import VouchedCaller

Token = access_pb2.AccessToken
ALGORITHMS = ("RS256", "ES256", "EdDSA")
LEEWAY_MS = 30_000
SUBJECT_CHARS = 256
JWT_CHARS = 7_500
KNOWN_MAX = 5_000  # Tokens that were verified and are not looked at again.
WAIT_S = 6.0  # For the keys of an issuer.
WAITING_MAX = 200
LOGGED, PERIOD_S = 20, 10.0
S_MAX = 253_402_300_799  # The last second of the year 9999, which all texts of instants hold.
NOT_TAKEN = (
    "this token is of no identity provider that the cluster knows, or its signature is not right; "
    "ask an admin (raftsched identity list), whose nodes have the reason in their logs"
)
NO_KEYS = (
    "this token cannot be verified now, since the keys of its issuer cannot be had; try again in a "
    "moment"
)
logs = structlog.get_logger("raftsched.cluster.api.identities")


class NotTaken(Exception):
    """Why a token is not taken: for the log alone, unless its signature was right."""


@dataclass(frozen=True, slots=True)
class StoredProvider:
    """A provider as it is stored, and what that says."""

    key: bytes
    value: bytes
    settings: identity_pb2.IdentityProvider


class Identities:
    """See the head of this file."""

    def __init__(
        self, store: Callable[[], Reading], wall_ms: Callable[[], int],
        sets: KeySets | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self.wall_ms, self.clock = store, wall_ms, clock
        self.sets = sets or KeySets()
        self._entries: list[StoredProvider] = []
        self._known: OrderedDict[bytes, VouchedCaller] = OrderedDict()
        self._waiting = 0
        self._since, self._logged = float("-inf"), 0

    # Providers.

    def _look(self) -> list[StoredProvider]:
        """The providers as they are now."""
        found = list(providers.entries(self._store()))
        if found != [(one.key, one.value) for one in self._entries]:
            self._entries = [
                StoredProvider(key, value, parse(key, value, IdentityProviderRecord).settings)
                for key, value in found
            ]
            self._known.clear()
        return self._entries

    def keep(self) -> None:
        """Have the keys of all issuers. To be called now and then."""
        issuers = [one.settings.jwt for one in self._look() if one.settings.HasField("jwt")]
        self.sets.keep(issuers)

    def of_issuer(self, issuer: object) -> StoredProvider | None:
        for one in self._look():
            if one.settings.HasField("jwt") and one.settings.jwt.issuer == issuer:
                return one
        return None

    def of_certificates(self) -> StoredProvider | None:
        return next((e for e in self._look() if e.settings.HasField("certificates")), None)

    # Tokens.

    def known(self, digest: bytes) -> VouchedCaller | None:
        """Who has shown a token of this hash before, if they still may."""
        self._look()
        found = self._known.get(digest)
        if found is None or not self._stands(found):
            return None
        self._known.move_to_end(digest)
        return found

    def _stands(self, found: VouchedCaller) -> bool:
        if found.until_ms and found.until_ms <= self.wall_ms():
            return False
        entry = next((one for one in self._entries if one.key == found.provider), None)
        if entry is None:
            return False
        jwt_of = entry.settings.HasField("jwt")
        return not jwt_of or self.sets.of(entry.settings.jwt).edition == found.edition

    def holds(self, found: VouchedCaller) -> bool:
        """Whether who began a call that lasts may still have it: the provider is there, its rules
        say the same, and the token has not expired."""
        if found.until_ms and found.until_ms <= self.wall_ms():
            return False
        entry = next((one for one in self._look() if one.key == found.provider), None)
        if entry is None:
            return False
        rule = providers.bound(entry.settings.rules, found.claims)
        return rule is not None and token_of(found.token.name, rule) == found.token

    async def verify(self, text: str, digest: bytes) -> VouchedCaller:
        """Whose token this is; Refused if it is not taken."""
        try:
            found = await self._verify(text)
        except NotTaken as error:
            self._log(str(error))
            raise refused(NOT_TAKEN) from None
        self._known[digest] = found
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return found

    async def _verify(self, text: str) -> VouchedCaller:
        header, claims = unverified(text)
        entry = self.of_issuer(claims.get("iss"))
        if entry is None:
            raise NotTaken(f"no provider has the issuer {claims.get('iss')!r:.200}")
        issuer = entry.settings.jwt
        allowed, algorithm = issuer.algorithms or ALGORITHMS, header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in allowed:
            raise NotTaken(f"alg is {algorithm!r:.40}, and {entry.settings.name} takes {allowed}")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise NotTaken("kid is no text")
        edition = await self._check_signature(entry, text, kid, algorithm)
        # From here on it is a token of that issuer, and its owner may know what is wrong with it.
        until_ms = self._until_ms(issuer, claims)
        name = f"{issuer.issuer}#{subject_of(claims)}"
        rule = providers.bound(entry.settings.rules, claims)
        if rule is None:
            raise unbound(name, entry.settings.name)
        return VouchedCaller(token_of(name, rule), claims, entry.key, edition, until_ms)

    async def _check_signature(
        self, entry: StoredProvider, text: str, kid: str | None, algorithm: str
    ) -> int:
        """Of which key set it is; NotTaken if of none."""
        issuer = entry.settings.jwt
        await self._have_key(issuer, kid, algorithm)
        keys = self.sets.of(issuer)
        if not self._is_signed(entry, text, kid, algorithm):
            # Some issuers give a new key the id of the old one, or none.
            edition = keys.edition
            await self._fetched(issuer)
            if keys.edition == edition or not self._is_signed(entry, text, kid, algorithm):
                raise NotTaken(f"{entry.settings.name}: its signature is not right")
        return keys.edition

    def _is_signed(self, entry: StoredProvider, text: str, kid: str | None, algorithm: str) -> bool:
        """Whether by this key; NotTaken if there is none, or it cannot be read."""
        keys = self.sets.of(entry.settings.jwt)
        key = keys.find(kid, algorithm)
        if key is None:
            if not keys.keys:
                raise unavailable()
            raise NotTaken(f"{entry.settings.name} has no key {kid!r:.200} for {algorithm}")
        try:
            PyJWS(algorithms=[algorithm]).decode_complete(text, key, algorithms=[algorithm])
        except jwt.InvalidSignatureError:
            return False
        except jwt.PyJWTError as error:
            raise NotTaken(f"{entry.settings.name}: {error}") from error
        return True

    async def _have_key(
        self, issuer: identity_pb2.TokenIssuer, kid: str | None, algorithm: str
    ) -> None:
        """Have this key, if it is there or may be asked for."""
        if self.sets.of(issuer).find(kid, algorithm) is not None:
            return
        await self._fetched(issuer)

    async def _fetched(self, issuer: identity_pb2.TokenIssuer) -> None:
        """Wait for the keys of an issuer, if it is time to ask for them."""
        task = self.sets.ask(issuer)
        if task is None:
            return
        if self._waiting >= WAITING_MAX:
            raise unavailable()
        self._waiting += 1
        try:
            # Others may wait for it too.
            await asyncio.wait([task], timeout=WAIT_S)
        finally:
            self._waiting -= 1

    def _until_ms(self, issuer: identity_pb2.TokenIssuer, claims: Mapping[str, Any]) -> int:
        """Until when it is valid; Refused if it is not, with the reason."""
        now_ms, leeway_ms = self.wall_ms(), ms_or(issuer, "leeway", LEEWAY_MS)
        shown = audiences_of(claims)
        if not set(shown) & set(issuer.audiences):
            wanted = " or ".join(issuer.audiences)
            raise refused(
                f"this token is for the audience {', '.join(shown)[:300] or 'of nobody'}, and "
                f"{wanted} is wanted; have your provider make one for that"
            )
        until_ms = instant_of(claims, "exp")
        if until_ms is None:
            raise refused("this token has no end (exp); have your provider make one that has")
        if until_ms + leeway_ms <= now_ms:
            raise refused(
                f"this token expired at {iso_text(until_ms)}, and it is {iso_text(now_ms)} here; "
                "have your provider make a new one"
            )
        for name in ("nbf", "iat"):
            from_ms = instant_of(claims, name)
            if from_ms is not None and from_ms - leeway_ms > now_ms:
                raise refused(
                    f"this token is valid from {iso_text(from_ms)} on ({name}), and it is "
                    f"{iso_text(now_ms)} here; look at the clocks of your provider and the node"
                )
        return min(until_ms + leeway_ms, S_MAX * 1000)

    # Certificates.

    def of_certificate(self, claims: Mapping[str, Any]) -> VouchedCaller | None:
        """Who shows a certificate with these names; None if certificates open nothing here."""
        entry = self.of_certificates()
        if entry is None or not claims:
            return None
        name = f"certificate:{name_in(claims)}"
        rule = providers.bound(entry.settings.rules, claims)
        if rule is None:
            raise unbound(name, entry.settings.name)
        return VouchedCaller(token_of(name, rule), claims, entry.key, 0)

    def _log(self, why: str) -> None:
        now = self.clock()
        if now - self._since >= PERIOD_S:
            self._since, self._logged = now, 0
        self._logged += 1
        if self._logged <= LOGGED:
            logs.warning("token not taken", why=why)

    def close(self) -> None:
        self.sets.close()


def is_jwt(secret: str) -> bool:
    """Whether somebody shows such a token: secrets of ours have no dots."""
    return secret.count(".") == 2


def unverified(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token says of itself."""
    if len(text) > JWT_CHARS:
        raise NotTaken(f"it has {len(text)} characters; the most is {JWT_CHARS}")
    try:
        made = PyJWS().decode_complete(text, options={"verify_signature": False})
        claims = json.loads(made["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise NotTaken(f"it is no token: {error}") from error
    if not isinstance(claims, dict):
        raise NotTaken("its claims are no object")
    return cast("dict[str, Any]", made["header"]), claims


def audiences_of(claims: Mapping[str, Any]) -> list[str]:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    return [one for one in audiences if isinstance(one, str)]


def subject_of(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or len(subject) > SUBJECT_CHARS:
        raise refused(
            "this token does not say of whom it is (sub), in 1 to 256 characters; have your "
            "provider make one that does"
        )
    if not subject.isprintable():
        raise refused("the subject of this token (sub) has characters that cannot be printed")
    return subject


def instant_of(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"{name} in this token is no number of seconds")
    # NaN is long ago, and what is beyond all calendars as far away as may be.
    if isinstance(value, float) and isnan(value):
        return 0
    return int(min(max(value, 0), S_MAX) * 1000)


def name_in(claims: Mapping[str, Any]) -> str:
    """By what a certificate is known: the first of its names that there is."""
    for kind in ("uri", "dns", "email", "ip"):
        if claims.get(kind):
            return str(claims[kind][0])
    return str(claims.get("cn", ""))


def token_of(name: str, rule: identity_pb2.BindingRule) -> Token:
    """What somebody may do, as an access token would say it."""
    return Token(
        name=name,
        role=rule.role,
        namespace=rule.namespace,
        see_payloads=rule.see_payloads,
        calls_per_second=rule.calls_per_second,
    )


def refused(why: str) -> Refused:
    return refusals.refused(Reason.ERROR_REASON_UNAUTHENTICATED, why)


def unavailable() -> Refused:
    return refusals.refused(Reason.ERROR_REASON_IDENTITY_UNAVAILABLE, NO_KEYS)


def unbound(name: str, provider: str) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_FORBIDDEN,
        f"{name} is known, but no rule of the identity provider {provider} fits; ask an admin for "
        "one (raftsched identity put)",
        role="", needs="", namespace="",
    )  # fmt: skip
