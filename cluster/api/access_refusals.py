"""What callers hear who showed nothing that opens a call."""

from __future__ import annotations

from ...proto.contract import Role
from ...proto.v1 import access_pb2, options_pb2
from ...statemachine.core.rejection import Reason, Refused
from ..node import refusals
from ..node.bootstrap_token import BOOTSTRAP
from ..node.bootstrap_token import PREFIX as BOOTSTRAP_PREFIX

NOBODY = (
    "nobody says who calls; send 'authorization: Bearer SECRET' with the secret of an access token"
)
UNKNOWN = (
    "this secret is that of no access token, or the token has expired; ask an admin for a new one"
)
USED = (
    "this is the secret from a node's folder, which makes the first access token and nothing else, "
    f"and that one was made; {BOOTSTRAP}.used in the folder says when, and which it is. Show its "
    "secret, or ask an admin for a token of your own (raftsched token create)"
)
REVOKED = (
    "the access token of this call was revoked or has expired while it lasted, or its identity "
    "provider vouches for it no more, or it showed none and one is needed now; ask for a new one"
)


def word(role: options_pb2.Role.ValueType) -> str:
    return Role.Name(role).removeprefix("ROLE_")


def unknown(secret: str | None) -> Refused:
    """The secret that was shown is that of no access token."""
    return unauthenticated(USED if (secret or "").startswith(BOOTSTRAP_PREFIX) else UNKNOWN)


def unauthenticated(why: str) -> Refused:
    return refusals.refused(Reason.ERROR_REASON_UNAUTHENTICATED, why)


def forbidden(
    token: access_pb2.AccessToken, needs: options_pb2.Role.ValueType, why: str, namespace: str = ""
) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_FORBIDDEN,
        f"{token.name} may not do this: {why}; ask an admin for a token that may",
        role=word(token.role),
        needs=word(needs),
        namespace=namespace or token.namespace,
    )
