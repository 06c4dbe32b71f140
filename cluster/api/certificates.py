"""Who calls by a certificate: the names in it, as gRPC has verified them on this connection.

A follower passes a call on over a connection of its own, so the leader sees the certificate of
that node. So the follower says whose it was, under a key that it has shown the other nodes on the
peer link and nobody else; what says so without such a key counts for nothing.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any

from .call import Call
from .forward import FORWARDED

HEADER = "raftsched-certificate"
# By the name of a claim: what gRPC calls it.
NAMES = {"dns": "peer_dns", "uri": "peer_uri", "email": "peer_email", "ip": "peer_ip"}
COMMON_NAME = "x509_common_name"
# A certificate with more names is known by the first ones: they must fit into metadata.
NAMES_MAX = 10  # Of a kind.
CHARS_MAX = 256
TEXT_MAX = 4_000
Claims = dict[str, Any]


def claims_of(call: Call, keys: Mapping[str, bytes]) -> Claims:
    """The names in the certificate of whoever calls; empty without one."""
    if FORWARDED in call.metadata:
        return opened(str(call.metadata.get(HEADER, "")), call.method.path, keys.values())
    shown = call.context.auth_context()
    found: Claims = {}
    if common := texts(shown.get(COMMON_NAME, ())):
        found["cn"] = common[0]
    for name, called in NAMES.items():
        if held := texts(shown.get(called, ())):
            found[name] = held
    while len(text_of(found)) > TEXT_MAX:
        max((held for held in found.values() if isinstance(held, list)), key=len).pop()
    return found


def text_of(claims: Claims) -> str:
    return json.dumps(claims, separators=(",", ":"))


def texts(values: Iterable[bytes]) -> list[str]:
    """Names that can be shown and compared; others are no names."""
    found = [value.decode("utf-8", "replace") for value in list(values)[:NAMES_MAX]]
    return [one for one in found if one.isprintable() and 0 < len(one) <= CHARS_MAX]


def sealed(claims: Claims, path: str, key: bytes) -> str:
    """What a follower says of a caller whose call it passes on."""
    text = text_of(claims)
    return f"{_seal(text, path, key)} {text}"


def opened(signed: str, path: str, keys: Iterable[bytes]) -> Claims:
    """What a node has shown of a caller; empty if no node has."""
    seal, _, text = signed.partition(" ")
    for key in keys:
        if key and hmac.compare_digest(_seal(text, path, key).encode(), seal.encode()):
            found = json.loads(text)
            assert isinstance(found, dict), "a node has sealed it"
            return found
    return {}


def _seal(text: str, path: str, key: bytes) -> str:
    return hmac.new(key, f"{path} {text}".encode(), "sha256").hexdigest()
