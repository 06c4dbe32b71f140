"""For whoever is called by jobs or by alerts: was this really sent by us, and just now?

from raftsched.client import webhooks

webhooks.verify(request.headers, request.body, ["whsec_..."])

Both sides have the same secret; while it is exchanged they have the new one and the old one. The
form is that of Standard Webhooks, so a library of theirs does as well.
"""

from __future__ import annotations

import base64
import secrets as _secrets
import time
from collections.abc import Mapping, Sequence

from ..proto.signatures import PREFIX, TOLERANCE_S, SignatureInvalid
from ..proto.signatures import verify as _verify

__all__ = ["SignatureInvalid", "new_secret", "verify"]
SECRET_BYTES = 32


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *,
    tolerance: float = TOLERANCE_S,
) -> str:  # fmt: skip
    """The id of what came: the run, or the alert and its revision, the same when it is sent again.
    SignatureInvalid if none of the secrets signed it, or not within `tolerance` seconds."""
    return _verify(headers, body, secrets, now=time.time(), tolerance=tolerance)


def new_secret() -> str:
    """A secret for both sides."""
    return PREFIX + base64.b64encode(_secrets.token_bytes(SECRET_BYTES)).decode()
