"""Signing in by an identity provider: OpenID Connect, by authorization code with PKCE.

The gateway is the provider's client: it sends the browser there, and exchanges the code that it
comes back with for an ID token, which becomes the caller's cookie (signin.py). Whether that token
is good is for the cluster to judge, which must know the provider. What is to be remembered on the
way stands in a cookie of ten minutes, so the browser may come back to another gateway.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from .config import Provider
from .exchange import Exchange
from .fetch import NotFetched, fetch, is_address
from .problems import GatewayRefusal

BEGIN, BACK = "/session/oidc", "/session/callback"
KNOWN_S = 600.0  # How long the provider's own description is kept.
AWAY_S = 600  # For whoever has gone there.
WORD_BYTES = 32
PLACE_MAX = 1_000
FIELDS_MAX = 20


class Described(msgspec.Struct):
    """What the provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class Away(msgspec.Struct, array_like=True):
    """What is remembered of whoever has gone to the provider."""

    state: str
    nonce: str
    verifier: str
    to: str


class Granted(msgspec.Struct):
    id_token: str = ""


class Claims(msgspec.Struct):
    nonce: str = ""


class Oidc:
    """See the head of this file."""

    def __init__(self, provider: Provider, prefix: str) -> None:
        self.provider, self._prefix = provider, prefix
        self._described: Described | None = None
        self._described_at = float("-inf")

    async def begin(self, exchange: Exchange, to: str) -> tuple[str, str]:
        """Where to send the browser, and what it is to keep until it comes back."""
        found = await self._describe()
        state, nonce, verifier = (secrets.token_urlsafe(WORD_BYTES) for _ in range(3))
        challenge = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code", "client_id": self.provider.client_id,
            "redirect_uri": self._back(exchange), "scope": " ".join(self.provider.scopes),
            "state": state, "nonce": nonce, "code_challenge": _word(challenge),
            "code_challenge_method": "S256",
        }  # fmt: skip
        place = found.authorization_endpoint
        joined = f"{place}{'&' if '?' in place else '?'}{urlencode(query, quote_via=quote)}"
        away = Away(state, nonce, verifier, to[:PLACE_MAX])
        return joined, _word(msgspec.json.encode(away))

    async def finish(self, exchange: Exchange, kept: str) -> tuple[str, str]:
        """The token of whoever comes back, and where they wanted to go."""
        text = bytes(exchange.scope["query_string"]).decode("latin-1")
        try:
            given = dict(parse_qsl(text, max_num_fields=FIELDS_MAX))
            away = msgspec.json.decode(_unword(kept), type=Away)
        except (ValueError, msgspec.DecodeError):
            raise _refused(
                "this browser has not begun to sign in within the last ten minutes, or keeps no "
                "cookies"
            ) from None
        if not hmac.compare_digest(given.get("state", "").encode(), away.state.encode()):
            raise _refused("the answer of the identity provider belongs to another attempt")
        if "error" in given:
            why = given.get("error_description", "") or given["error"]
            raise _refused(f"the identity provider says: {why[:300]}")
        token = await self._exchanged(exchange, given.get("code", ""), away.verifier)
        if not hmac.compare_digest(_nonce_of(token).encode(), away.nonce.encode()):
            raise _refused("the token of the identity provider belongs to another attempt")
        return token, away.to

    async def _exchanged(self, exchange: Exchange, code: str, verifier: str) -> str:
        provider, found = self.provider, await self._describe()
        form = {
            "grant_type": "authorization_code", "code": code, "code_verifier": verifier,
            "redirect_uri": self._back(exchange), "client_id": provider.client_id,
        }  # fmt: skip
        headers = {}
        if provider.secret:
            pair = f"{quote(provider.client_id, safe='')}:{quote(provider.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            answer = await fetch(found.token_endpoint, form, headers)
            granted = msgspec.json.decode(answer, type=Granted)
        except (NotFetched, msgspec.DecodeError) as error:
            raise _unavailable(f"the code was not exchanged: {error}") from error
        if not granted.id_token:
            raise _unavailable("it sent no ID token; is openid among the scopes?")
        return granted.id_token

    async def _describe(self) -> Described:
        if time.monotonic() - self._described_at > KNOWN_S or self._described is None:
            issuer = self.provider.issuer
            try:
                url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                found = msgspec.json.decode(await fetch(url), type=Described)
            except (NotFetched, msgspec.DecodeError) as error:
                raise _unavailable(str(error)) from error
            if found.issuer != issuer or not is_address(found.authorization_endpoint):
                raise _unavailable(
                    f"it says that it is {found.issuer[:200]!r}, with {issuer!r} asked; correct "
                    "--oidc-issuer"
                )
            self._described, self._described_at = found, time.monotonic()
        return self._described

    def _back(self, exchange: Exchange) -> str:
        scheme = "https" if exchange.is_secure else "http"
        return f"{scheme}://{exchange.headers.get('host', '')}{self._prefix}{BACK}"


def _word(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unword(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _nonce_of(token: str) -> str:
    """It came from the provider itself, and the cluster verifies the signature: this only ties it
    to the browser that has asked."""
    try:
        return msgspec.json.decode(_unword(token.split(".")[1]), type=Claims).nonce
    except (IndexError, ValueError, msgspec.DecodeError):
        return ""


def _refused(why: str) -> GatewayRefusal:
    return GatewayRefusal("UNAUTHENTICATED", f"{why}; sign in again from the page")


def _unavailable(why: str) -> GatewayRefusal:
    return GatewayRefusal("IDENTITY_UNAVAILABLE", f"the identity provider cannot be asked: {why}")
