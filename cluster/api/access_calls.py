"""The calls about access that are more than a rule: secrets are made here, keys are looked at, and
callers hear who they are."""

from __future__ import annotations

import secrets
from typing import cast

from google.protobuf.message import Message

from ...proto.contract import Role, Scope, allows, methods
from ...proto.v1 import access_pb2, identity_pb2, options_pb2
from ...statemachine.core import limits
from ...statemachine.core.instants import set_ms
from ...statemachine.core.rejection import Fault, Reason, Refused
from ...statemachine.model.request import CreateToken, RotateToken, TokenCreated
from ..node import refusals
from ..node.bootstrap_token import digest, first_secret
from .auth import PREFIX, bearer
from .call import Call
from .key_sets import fault_of
from .node_port import NodePort
from .unary import OwnCall

SECRET_BYTES = 32
LEVEL = 4


class AccessCalls:
    """See the head of this file."""

    def __init__(self, node: NodePort) -> None:
        self.node = node

    def calls(self) -> dict[str, OwnCall]:
        return {
            "AccessService/CreateAccessToken": self.create,
            "AccessService/RotateAccessToken": self.rotate,
            "AccessService/WhoAmI": self.who_am_i,
            "IdentityService/PutIdentityProvider": self.put_provider,
        }

    def _need_level(self, what: str) -> None:
        if not self.node.knows(LEVEL):
            raise refusals.refused(
                Reason.ERROR_REASON_MEMBER_LACKS,
                f"a member of the cluster runs a version that does not know {what} (raftsched "
                "cluster status shows which); update it first",
                member="", lacks=what,
            )  # fmt: skip

    async def put_provider(
        self, call: Call, request: identity_pb2.PutIdentityProviderRequest
    ) -> Message:
        """Only if all members know what that is, and the keys that somebody wrote down are some."""
        self._need_level("identity providers")
        text = request.identity_provider.jwt.static_keys
        if text and len(text) <= limits.KEY_SET_BYTES and (why := fault_of(text)):
            field = "identity_provider.jwt.static_keys"
            raise Refused.of([Fault(field, Reason.ERROR_REASON_FIELD_INVALID, why)])
        return await self.node.write(request, call.actor, call.timeout(), call.namespace)

    async def who_am_i(self, call: Call, request: access_pb2.WhoAmIRequest) -> access_pb2.Caller:
        """Who calls, and what is open to them. Whoever comes here is known, or need not be."""
        token = call.token
        if token is None:
            kind = access_pb2.Caller.KIND_ANONYMOUS
            return access_pb2.Caller(
                kind=kind, grants=[grant(Role.ROLE_ADMIN, "")], see_payloads=True
            )
        caller = access_pb2.Caller(
            kind=kind_of(call), name=token.name, see_payloads=not call.hides,
            grants=[grant(token.role, token.namespace)],
        )  # fmt: skip
        if token.HasField("expire_time"):
            caller.expire_time.CopyFrom(token.expire_time)
        if call.identity is not None and call.identity.until_ms:
            set_ms(caller.expire_time, call.identity.until_ms)
        return caller

    async def create(
        self, call: Call, request: access_pb2.CreateAccessTokenRequest
    ) -> access_pb2.CreateAccessTokenResponse:
        """Make a token; its secret is in this answer and nowhere else."""
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        shown = bearer(call)
        derived = call.first and bool(shown) and bool(request.request_id)
        if derived and shown:
            secret = first_secret(shown, request.request_id, PREFIX)
        order = CreateToken(request, digest(secret), first=call.first or not call.digest)
        asked = await self.node.ask(order, call.actor, call.timeout(), call.namespace)
        made = cast(TokenCreated, asked)
        if (made.new or derived) and not request.validate_only:
            made.answer.secret = secret
        return cast(access_pb2.CreateAccessTokenResponse, made.answer)

    async def rotate(
        self, call: Call, request: access_pb2.RotateAccessTokenRequest
    ) -> access_pb2.RotateAccessTokenResponse:
        """Make another secret for a token; it is in this answer and nowhere else."""
        self._need_level("rotated secrets")
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        order = RotateToken(request, digest(secret))
        asked = await self.node.ask(order, call.actor, call.timeout(), call.namespace)
        made = cast(TokenCreated, asked)
        if made.new and not request.validate_only:
            made.answer.secret = secret
        return cast(access_pb2.RotateAccessTokenResponse, made.answer)


def kind_of(call: Call) -> access_pb2.Caller.Kind.ValueType:
    """How somebody has shown who they are."""
    if call.identity is None:
        return access_pb2.Caller.KIND_TOKEN
    by_token = call.identity.until_ms > 0
    return access_pb2.Caller.KIND_JWT if by_token else access_pb2.Caller.KIND_CERTIFICATE


def grant(role: options_pb2.Role.ValueType, namespace: str) -> access_pb2.Caller.Grant:
    """What a role opens in a namespace, or, where none is named, in all of them."""
    calls = sorted(
        method.name
        for method in methods()
        if allows(role, method.needs) and not (namespace and method.scope == Scope.SCOPE_ALL)
    )
    return access_pb2.Caller.Grant(namespace=namespace, role=role, calls=calls)
