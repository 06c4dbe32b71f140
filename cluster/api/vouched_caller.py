"""Somebody who came with the word of an identity provider or with a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...proto.v1 import access_pb2


@dataclass(frozen=True, slots=True)
class VouchedCaller:
    """Somebody a provider vouches for, as long as both stay as they are."""

    # What they may do, and as whom.
    token: access_pb2.AccessToken
    claims: Mapping[str, Any]
    # The provider, and of which keys it was.
    provider: bytes
    edition: int
    # Until when; 0: as long as its connection.
    until_ms: int = 0
