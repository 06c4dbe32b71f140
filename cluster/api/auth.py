"""Who calls, and what they may do: access tokens, looked up by the hash of their secret, and those
for whom an identity provider vouches (identities.py).

Where `tokens` is on, nobody may call before the first one was made, which takes the secret from a
node's folder (bootstrap_token.py). Elsewhere a cluster without tokens takes everybody for an admin.
The first token closes it, so it must be one that can make others; the last such one stays, so a
closed cluster stays closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from typing import Any, cast

from google.protobuf.message import Message

from ...proto.contract import Method, Named, Role, Scope, allows, named
from ...proto.v1 import access_pb2, options_pb2, worker_pb2
from ...statemachine.calls import filtered
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.runs import recorded
from ...statemachine.tenants import access, namespaces
from ..node import refusals
from ..node.admin_recovery import PREFIX as RECOVERY_PREFIX
from ..node.bootstrap_token import digest, first_secret
from ..node.hello import check
from .access_refusals import NOBODY, REVOKED, UNKNOWN, forbidden, unauthenticated, unknown, word
from .bootstrap_secrets import BootstrapSecrets
from .call import Call
from .certificates import HEADER, claims_of, sealed
from .failures import Failures
from .foreign_runs import is_foreign
from .identities import Identities, is_jwt
from .node_port import NodePort
from .places import number_of
from .vouched_caller import VouchedCaller
from .worker_names import name_of

Token = access_pb2.AccessToken
WorkerHello = worker_pb2.WorkerHello
# Each word of theirs is answered by itself.
JUDGED_ALONE = worker_pb2.HeartbeatRequest | worker_pb2.ReportResultsRequest
# They say which worker they are of.
OF_WORKERS = WorkerHello | JUDGED_ALONE | worker_pb2.ResolveSecretsRequest
BEARER = "bearer "
PREFIX = "rs_"  # So that a secret that was published is found by those who look for such.
CREATE = "AccessService/CreateAccessToken"
RECOVERED = "recover-admin"  # Who made a token with the secret of a majority's folders, there.
BOOTSTRAPPED = "bootstrap"  # Who made the first token, in the audit log.
# The place that is no namespace: the whole cluster. No name holds such a sign.
ALL = "*"
# What an empty namespace means.
EMPTY = {
    Scope.SCOPE_DEFAULT: namespaces.DEFAULT,
    Scope.SCOPE_CLUSTER: ALL,
    Scope.SCOPE_VISIBLE: ALL,
}
CATCH_UP_S = 1.0  # How long a follower may take to hear of a token that was just made.
CATCH_UP_LOOK_S = 0.01
STRANGER_S = 0.1
PROVIDERS_S = 1.0  # Between two looks at what keys are wanted.
WAITING_MAX = 500


class AccessCheck:
    """See the head of this file."""

    def __init__(
        self, node: NodePort, failures: int = 100, identities: Identities | None = None
    ) -> None:
        self.node = node
        self.identities = identities or Identities(lambda: node.replica.store, self._now_ms)
        # Whether there are tokens, and the revision at which this was so.
        self._closed = (-1, False)
        self.failures = Failures(failures)
        self._next_look = 0.0
        # Calls that wait for this node's state, or for a refusal.
        self._waiting = 0
        self._bootstraps = BootstrapSecrets(node)

    def identify(self, call: Call) -> Awaitable[None] | None:
        """Find out who calls, and refuse what they may do nowhere, before a byte of the request is
        read: on any node, by what its own state knows. What takes longer is to be awaited."""
        if not self._is_closed():
            call.caller = call.address
            return self._admit_first(call) if self.node.needs_token else None
        secret = bearer(call)
        if secret is not None:
            call.digest = digest(secret)
            if secret.startswith(RECOVERY_PREFIX):
                return self._recover(call)
            if is_jwt(secret):
                return self._identify_vouched(call, secret)
            token = self._find(call)
            if token is not None:
                self._know(call, token)
                return None
        elif (identity := self._certified(call)) is not None:
            self._know_identity(call, identity)
            return None
        return self._identify_late(call, secret)

    async def _recover(self, call: Call) -> None:
        """Let the secret that a majority of the nodes have in their folders make access tokens."""
        if call.method.name != CREATE or not self.failures.allow(call.address):
            raise await self._stranger(call, unauthenticated(UNKNOWN))
        if not self.node.leads:
            # The leader knows what the nodes show.
            call.caller, call.is_stranger = call.address, True
            return
        known, voters = self.node.recovering(call.digest)
        if not known:
            raise await self._stranger(call, unauthenticated(UNKNOWN))
        if 2 * known <= voters:
            why = (
                f"{known} of {voters} voters have this secret in their folders, and a majority is "
                "needed: raftsched node recover-admin --secret-file FILE on the machines of others"
            )
            raise await self._stranger(call, unauthenticated(why))
        token = Token(name=RECOVERED, role=Role.ROLE_ADMIN)
        call.token, call.actor, call.caller = token, RECOVERED, RECOVERED

    def _identify_vouched(self, call: Call, secret: str) -> Awaitable[None] | None:
        """The same for a token that an identity provider has issued."""
        identity = self.identities.known(call.digest)
        if identity is None:
            return self._verify(call, secret)
        self._know_identity(call, identity)
        return None

    async def _verify(self, call: Call, secret: str) -> None:
        """What is refused on a follower is looked at again when that knows what the leader does:
        the provider may be a moment old."""
        try:
            identity = await self.identities.verify(secret, call.digest)
        except Refused as refusal:
            if self.node.leads:
                raise await self._stranger(call, refusal) from None
            await self._catch_up(call)
            try:
                identity = await self.identities.verify(secret, call.digest)
            except Refused as again:
                raise await self._stranger(call, again) from None
        self._know_identity(call, identity)

    def _certified(self, call: Call) -> VouchedCaller | None:
        """Who calls by a certificate alone: with a token as well the call is that of the token."""
        if self.identities.of_certificates() is None:
            return None
        claims = claims_of(call, self.node.forward_keys)
        identity = self.identities.of_certificate(claims)
        if identity is not None and not self.node.leads:
            seal = sealed(claims, call.method.path, self.node.forward_keys[self.node.name])
            call.vouched = ((HEADER, seal),)
        return identity

    def _know_identity(self, call: Call, identity: VouchedCaller) -> None:
        call.identity = identity
        call.digest = call.digest or digest(identity.token.name)
        self._know(call, identity.token)

    async def _identify_late(self, call: Call, secret: str | None) -> None:
        """The same for a secret that this node does not know, or none."""
        token = await self._who(call, secret)
        if token is not None:
            self._know(call, token)
            return
        # Perhaps the call that made the first token comes again, which its request id says.
        call.caller, call.is_stranger = call.address, True

    def _know(self, call: Call, token: Token) -> None:
        """Somebody has shown this token."""
        call.token, call.actor, call.caller = token, token.name, token.name
        if call.identity is None:
            self.node.leader.token_uses.note(token.name)
        call.namespace = token.namespace
        call.hides = token.role == Role.ROLE_VIEWER and not token.see_payloads
        if not allows(token.role, call.method.needs):
            raise forbidden(token, call.method.needs,
                            f"{call.method.name} needs {word(call.method.needs)}")  # fmt: skip

    def admit(self, call: Call, request: Message) -> None:
        """Refuse what the caller may not do with this, by what the request says."""
        if isinstance(request, WorkerHello | worker_pb2.LeaseRequest):
            check(request if isinstance(request, WorkerHello) else request.hello)
        if not self._is_closed():
            return
        if self._again(call, request):
            return
        token = call.token
        if token is None:
            # Or the first token was made since it was asked who calls.
            raise unknown(bearer(call))
        method = call.method
        needs = needed(method, request)
        if not allows(token.role, needs):
            about = "" if needs == method.needs else " for the cluster's own"
            raise forbidden(token, needs, f"{method.name}{about} needs {word(needs)}")
        if token.namespace and method.scope != Scope.SCOPE_NONE:
            self._check_place(call, request, token)
        if call.hides and (field := filtered.hidden_field(request)):
            why = f"a viewer without see_payloads may not search {field}, which may hold secrets"
            raise forbidden(token, needs, why)
        self._name_worker(request, token)

    def check(self, call: Call) -> None:
        """Refuse whoever began a call that lasts with a token that is valid no more, or, before
        there were tokens, without one."""
        if not self._is_closed():
            return
        if call.identity is not None:
            if not self.identities.holds(call.identity):
                raise unauthenticated(REVOKED)
            return
        token = access.find(self.node.replica.store, call.digest, self._now_ms())
        if token is None:
            raise unauthenticated(REVOKED)
        self.node.leader.token_uses.note(token.name)

    def _is_closed(self) -> bool:
        revision = self.node.revision
        if self._closed[0] != revision:
            self._closed = (revision, access.any_token(self.node.replica.store))
        return self._closed[1]

    async def _admit_first(self, call: Call) -> None:
        """Let nobody do anything but make the first token, by the secret from a node's folder."""
        if not self.node.leads:
            await self._catch_up(call)
            if self._is_closed():
                if (waits := self.identify(call)) is not None:
                    await waits
                return
        secret = bearer(call) or ""
        # A follower may not have heard of the secrets of all nodes, and the leader looks again.
        known = bool(secret) and not self.node.leads
        known = known or self._bootstraps.is_known(secret)
        if not known and call.method.name == CREATE:
            known = await self._bootstraps.hear(call, secret, self._is_closed)
            if self._is_closed():
                if (waits := self.identify(call)) is not None:
                    await waits
                return
        if not known or call.method.name != CREATE:
            raise await self._stranger(call, self._not_bootstrapped())
        call.first, call.actor, call.caller = True, BOOTSTRAPPED, call.address

    def _not_bootstrapped(self) -> Refused:
        file = self.node.bootstrap_file
        return refusals.refused(
            Reason.ERROR_REASON_NOT_BOOTSTRAPPED,
            "no access token was made yet, so nobody may call. On the machine of a node: "
            f"raftsched token bootstrap --secret-file {file}",
            file=file,
        )

    def _again(self, call: Call, request: Message) -> bool:
        """Whether this is the call that made the first token, sent again since its answer was
        lost. Only the same request gets it: the rules remember which that was."""
        if call.method.name != CREATE:
            return False
        asked = cast(access_pb2.CreateAccessTokenRequest, request)
        secret = bearer(call)
        if not (secret and asked.request_id):
            return False
        made = digest(first_secret(secret, asked.request_id, PREFIX))
        token = access.find(self.node.replica.store, made, self._now_ms())
        if token is None or token.name != asked.access_token.name:
            return False
        call.first, call.actor = True, BOOTSTRAPPED
        return True

    async def _who(self, call: Call, secret: str | None) -> Token | None:
        """Whose secret is shown that this node does not know; None if only the request can say."""
        if secret is None:
            raise await self._stranger(call, unauthenticated(NOBODY))
        token = None
        if not self.node.leads:
            # It may have been made a moment ago, and this node has not heard of it.
            await self._catch_up(call)
            token = self._find(call)
        if token is None and not (call.method.name == CREATE and self.failures.allow(call.address)):
            raise await self._stranger(call, unknown(secret))
        return token

    def _find(self, call: Call) -> Token | None:
        return access.find(self.node.replica.store, call.digest, self._now_ms())

    async def _catch_up(self, call: Call) -> None:
        """Return when this node knows all that was so when the call came."""
        until = call.began + min(CATCH_UP_S, call.timeout())
        while self.node.staleness() > (now := time.monotonic()) - call.began:
            if now >= until or self._waiting >= WAITING_MAX:
                raise self.node.nobody_leads()
            self._waiting += 1
            try:
                await asyncio.sleep(CATCH_UP_LOOK_S)
            finally:
                self._waiting -= 1

    async def _stranger(self, call: Call, refusal: Refused) -> Refused:
        """What somebody without a valid token hears. Who comes again and again waits for it, so
        that the loop has time for others."""
        if self.failures.allow(call.address):
            return refusal
        if self._waiting < WAITING_MAX:
            self._waiting += 1
            try:
                await asyncio.sleep(STRANGER_S)
            finally:
                self._waiting -= 1
        return refusals.node_limit("failures", self.failures.rate, call.address)

    def _check_place(self, call: Call, request: Message, token: Token) -> None:
        """A token for one namespace opens nothing else."""
        method, where = call.method, token.namespace
        if method.scope == Scope.SCOPE_OF_WORK:
            self._check_work(request, where)
            return
        if method.scope in EMPTY:
            if method.scope == Scope.SCOPE_VISIBLE:
                # So it is shown no more than that.
                asked = cast(Any, request)
                asked.namespace = asked.namespace or where
            places = self._places(request, EMPTY[method.scope])
        else:
            why = f"{method.name} is about the whole cluster, and this token is for one namespace"
            raise forbidden(token, method.needs, why)
        for place in places:
            if place != where:
                about = "the cluster itself" if place == ALL else place
                why = f"this token is for the namespace {where}, and the call is about {about}"
                raise forbidden(token, method.needs, why, place)

    def _places(self, request: Message, default: str) -> Iterator[str]:
        """The namespaces that a request is about; `default` is where it names none."""
        for name in named(request, Named.NAMED_NAMESPACE):
            yield name or default

    def _check_work(self, request: Message, where: str) -> None:
        """What is of another namespace is answered as if it were not there."""
        if isinstance(request, JUDGED_ALONE):
            return
        only = number_of(self.node, where)
        for run in named(request, Named.NAMED_RUN):
            if is_foreign(run, only):
                raise Refused(recorded.no_run(run))

    def _name_worker(self, request: Message, token: Token) -> None:
        """Let a request say which worker it is about, in place of the id that others may have."""
        if isinstance(request, worker_pb2.LeaseRequest):
            request = request.hello
        if isinstance(request, OF_WORKERS):
            request.worker = name_of(self.node, token.namespace, request.worker)

    def _now_ms(self) -> int:
        return self.node.sessions.wall_ms()

    def look(self, now: float) -> None:
        """Have the keys of identity providers. To be called often."""
        if now >= self._next_look:
            self._next_look = now + PROVIDERS_S
            self.identities.keep()


def bearer(call: Call) -> str | None:
    """The secret that a caller shows."""
    shown = call.metadata.get("authorization", "")
    if not isinstance(shown, str) or not shown.lower().startswith(BEARER):
        return None
    return shown[len(BEARER) :].strip()


def needed(method: Method, request: Message) -> options_pb2.Role.ValueType:
    """What a call needs: whoever changes what belongs to the cluster itself must be an admin."""
    if method.scope != Scope.SCOPE_CLUSTER or method.harmless:
        return method.needs
    whose = any(named(request, Named.NAMED_NAMESPACE))
    return method.needs if whose else Role.ROLE_ADMIN
