"""An issuer of JSON Web Tokens, in memory: its keys change and it goes away as a test likes."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from raftsched.cluster.api.fetch import FetchFailed
from raftsched.proto.v1 import identity_pb2, options_pb2

from .talk import Anything

ISSUER = "https://id.example"
RSA = rsa.generate_private_key(65537, 2048)


class Issuer:
    """See the head of this file."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.more: list[Any] = []
        self.add("k1", "RS256", RSA)

    def add(self, kid: str, algorithm: str, key: object = None) -> None:
        made = {
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        self.keys[kid] = (algorithm, key or made[algorithm]())

    def jwks(self) -> str:
        found = []
        for kid, (algorithm, key) in self.keys.items():
            text = get_default_algorithms()[algorithm].to_jwk(key.public_key())
            found.append({**json.loads(text), "kid": kid, "use": "sig"})
        return json.dumps({"keys": found + self.more})

    async def get(self, url: str) -> bytes:
        self.asked.append(url)
        if self.is_down:
            raise FetchFailed("id.example: connection refused")
        if url == f"{ISSUER}/.well-known/openid-configuration":
            return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
        assert url == f"{ISSUER}/keys", url
        return self.jwks().encode()

    def token(
        self, kid: str = "k1", headers: dict[str, Any] | None = None, **claims: Anything
    ) -> str:
        algorithm, key = self.keys[kid]
        now = int(claims.pop("now", time.time()))
        said = {
            "iss": ISSUER, "sub": "ann", "aud": "raftsched", "iat": now, "exp": now + 600,
            **claims,
        }  # fmt: skip
        said = {name: value for name, value in said.items() if value is not None}
        shown = {name: value for name, value in {"kid": kid, **(headers or {})}.items() if value}
        return jwt.encode(said, key, algorithm, headers=shown)


def rule(
    role: options_pb2.Role.ValueType, claim: str = "sub", value: str = "*", namespace: str = ""
) -> identity_pb2.BindingRule:
    selector = identity_pb2.ClaimSelector(claim=[claim], values=[value])
    return identity_pb2.BindingRule(claims=[selector], role=role, namespace=namespace)


def provider(*rules: identity_pb2.BindingRule, **more: Anything) -> identity_pb2.IdentityProvider:
    issuer = identity_pb2.TokenIssuer(**{"issuer": ISSUER, "audiences": ["raftsched"], **more})
    every = rules or (rule(options_pb2.ROLE_EDITOR),)
    return identity_pb2.IdentityProvider(name="corp", jwt=issuer, rules=every)
