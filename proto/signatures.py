"""Signs what is sent to somebody's address, so that they know who sent it, when, and that it is
whole; in the form of Standard Webhooks (https://www.standardwebhooks.com), which has libraries for
many languages:

    webhook-id: the run, or the alert and its revision; the same when it is sent again
    webhook-timestamp: seconds since 1970
    webhook-signature: v1,BASE64 v1,BASE64 ...

One signature for each secret, so that a secret can be exchanged: both sides have the old one and
the new one for a while. Each is the HMAC-SHA256 of `id.timestamp.body`. A secret is "whsec_" and 24
to 64 bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping, Sequence

PREFIX = "whsec_"
BYTES_MIN, BYTES_MAX = 24, 64
SECRETS_MAX = 2
SIGNATURES_MAX = 10
TOLERANCE_S = 300
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
VERSION = "v1"


class SignatureInvalid(Exception):
    """What came is not what somebody who has the secret has sent just now; the text says why."""


def key_of(secret: str) -> bytes:
    """ValueError for what is no secret; the text does not show it."""
    try:
        key = base64.b64decode(secret.strip().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a secret for signatures is no base64; write {PREFIX}BASE64") from None
    if not BYTES_MIN <= len(key) <= BYTES_MAX:
        raise ValueError(
            f"a secret for signatures has {len(key)} bytes; it must have {BYTES_MIN} to {BYTES_MAX}"
        )
    return key


def keys_of(secrets: Sequence[str]) -> list[bytes]:
    """ValueError for more than a new secret and an old one. No text here shows any."""
    if isinstance(secrets, str):
        raise TypeError("the secrets for signatures are a single text; write a list of texts")
    if len(secrets) > SECRETS_MAX:
        raise ValueError(
            f"{len(secrets)} secrets for signatures; at most the new one and the old one"
        )
    return [key_of(secret) for secret in secrets]


def signed(keys: Iterable[bytes], message: str, at: int, body: bytes) -> dict[str, str]:
    """The headers that go with a body."""
    found = [f"{VERSION},{_signature(key, message, str(at), body)}" for key in keys]
    return {ID: message, TIMESTAMP: str(at), SIGNATURE: " ".join(found)} if found else {}


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: float,
    tolerance: float = TOLERANCE_S,
) -> str:  # fmt: skip
    """The id of what came, if one of these secrets signed it within `tolerance` seconds of now."""
    given = {name.lower(): text for name, text in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not given.get(name)]
    if missing:
        raise SignatureInvalid(f"without the header {missing[0]}")
    message, at = given[ID], given[TIMESTAMP]
    if not (at.isascii() and at.isdecimal() and len(at) <= 12):
        raise SignatureInvalid(f"{TIMESTAMP} is {at[:20]!r}, and no number of seconds")
    if abs(now - int(at)) > tolerance:
        raise SignatureInvalid(
            f"it was signed {now - int(at):+.0f} s ago, more than {tolerance:g} s away; it may be "
            "sent again by somebody else, or a clock is wrong"
        )
    shown = [one.partition(",") for one in given[SIGNATURE].split()[:SIGNATURES_MAX]]
    shown_texts = [text.encode() for version, _, text in shown if version == VERSION]
    for secret in secrets:
        wanted = _signature(key_of(secret), message, at, body).encode()
        if any(hmac.compare_digest(wanted, one) for one in shown_texts):
            return message
    raise SignatureInvalid("no signature is by one of these secrets")


def _signature(key: bytes, message: str, at: str, body: bytes) -> str:
    text = message.encode() + b"." + at.encode() + b"." + body
    return base64.b64encode(hmac.digest(key, text, "sha256")).decode()
