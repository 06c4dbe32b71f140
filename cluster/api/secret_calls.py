"""Secrets for the targets of jobs, where they are plain text: a value is encrypted here before the
rules see it, and decrypted here for the worker that holds the lease.

No request with a value goes further than this, nor does one into a log. What the rules remember of
a request is a fingerprint under a key, since a plain hash could be tried with likely values.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

import structlog
from google.protobuf.message import Message

from ...proto.v1 import secret_pb2, worker_pb2
from ...statemachine.core import limits, pages
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.model import keys
from ...statemachine.model.record import SecretRecord, parse
from ...statemachine.model.request import (
    ResealSecrets,
    ResolveSecrets,
    SealedSecret,
    SecretChanged,
    StoreSecret,
)
from ...statemachine.model.view import View
from ...statemachine.tenants import namespaces, target_secrets
from ..node import refusals
from ..node.secret_keys import NotOpened, SecretKey
from .call import Call
from .node_port import NodePort
from .rates import Bucket, fill
from .unary import OwnCall

LEVEL = 4
TRIES = 5  # Of a put, where others put the same one at the same time.
RESOLVED_PER_S = 1_000  # For a worker.
BUCKETS = 10_000
# What the audit log has: each job and worker once in so long, and in all so many a second.
NOTED_S = 3_600.0
NOTED = 10_000
NOTES_PER_S = 10
TO_WRITE = (
    "write [secrets] key_file = FILE into its configuration, the same on all nodes, with 32 random "
    "bytes in base64 in the file (openssl rand -base64 32)"
)
logs = structlog.get_logger("raftsched.cluster.api.secret_calls")
Resealing = tuple[bytes, SealedSecret]


class SecretCalls:
    """See the head of this file."""

    def __init__(self, node: NodePort, clock: Callable[[], float] = time.monotonic) -> None:
        self.node, self.clock = node, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        # When the audit log last noted which secrets went to a worker for a job.
        self._noted: OrderedDict[tuple[object, ...], float] = OrderedDict()
        self._notes = Bucket(NOTES_PER_S, NOTES_PER_S, clock(), 0)

    def calls(self) -> dict[str, OwnCall]:
        return {
            "SecretService/PutSecret": self.put,
            "SecretService/RekeySecrets": self.rekey,
            "WorkerService/ResolveSecrets": self.resolve,
        }

    # Put.

    async def put(self, call: Call, request: secret_pb2.PutSecretRequest) -> Message:
        """Encrypt a value, and have it stored unless another came in between."""
        self._need_level()
        target_secrets.check(request.secret, request.value)
        key = self._first_key()
        whole = request.SerializeToString(deterministic=True)
        digests = tuple(one.fingerprint(whole) for one in self.node.secret_keys.keys)
        bare = secret_pb2.PutSecretRequest()
        bare.CopyFrom(request)
        bare.ClearField("value")
        for _ in range(TRIES):
            sealed = None
            if request.value:
                place = target_secrets.next_place(self._view(), request.secret)
                sealed = key.seal(place, request.value)
            order = StoreSecret(bare, digests, sealed)
            answer = await self.node.ask(order, call.actor, call.timeout(), call.namespace)
            if not isinstance(answer, SecretChanged):
                return cast(Message, answer)
        raise refusals.backlog_full(
            f"others put the secret '{request.secret.name}' again and again at the same time"
        )

    def _view(self) -> View:
        return View(self.node.replica.store, self.node.sessions.wall_ms())

    def _need_level(self) -> None:
        if not self.node.knows(LEVEL):
            raise lacking("", "secrets", (
                "a member of the cluster runs a version that does not know secrets (raftsched "
                "cluster status shows which); update it first"
            ))  # fmt: skip

    def _first_key(self) -> SecretKey:
        """The key under which this node encrypts, if all members that were heard have it."""
        found = self.node.secret_keys.keys
        if not found:
            raise refusals.refused(
                Reason.ERROR_REASON_SECRET_KEY_MISSING,
                f"{self.node.name} leads and has no key for secrets; {TO_WRITE}, and restart it",
                node=self.node.name,
            )  # fmt: skip
        member = self.node.lacks_key(found[0].id)
        if member:
            raise lacking(member, f"the key {found[0].id}", (
                f"{member} does not have the key {found[0].id}, so no worker would get the secret "
                f"if it led; give all nodes the same [secrets]: {TO_WRITE}"
            ))  # fmt: skip
        return found[0]

    # Rekey.

    async def rekey(self, call: Call, request: secret_pb2.RekeySecretsRequest) -> Message:
        """Decrypt some secrets, and encrypt them under the first key."""
        self._need_level()
        key = self._first_key()
        paging = pages.read("rekey", 0, key.id, limits.REKEYED, request.page_token)
        answer = secret_pb2.RekeySecretsResponse(key_id=key.id)
        resealed: list[Resealing] = []
        missing: set[str] = set()
        size, last = 0, b""
        first = pages.first_behind(paging, keys.TARGET_SECRET, keys.after(keys.TARGET_SECRET))
        for place, value in islice(self._secrets(first), limits.REKEYED):
            if size >= limits.REKEYED_BYTES:
                break
            last, record = place, parse(place, value, SecretRecord)
            size += len(record.sealed)
            if record.key_id == key.id:
                continue
            sealed = self._resealed(place, record, key)
            if sealed is None:
                answer.unopened += 1
                if self.node.secret_keys.find(record.key_id) is None:
                    missing.add(record.key_id)
            else:
                resealed.append((record.sealed, sealed))
        if last and next(self._secrets(last + b"\0"), None) is not None:
            answer.next_page_token = pages.token_of(paging, last)
        answer.missing_key_ids.extend(sorted(missing))
        order = ResealSecrets(request, tuple(resealed), answer)
        return cast(Message, await self.node.ask(order, call.actor, call.timeout(), call.namespace))

    def _secrets(self, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.node.replica.store.scan(first, keys.after(keys.TARGET_SECRET))

    def _resealed(self, key: bytes, record: SecretRecord, to: SecretKey) -> SealedSecret | None:
        """The same under another key; None if this node cannot open it."""
        namespace = namespaces.find(self._view(), record.settings.namespace)
        if namespace is None or namespace.number != int.from_bytes(key[1:5], "big"):
            return None  # Its namespace was deleted, and it goes as well in a moment.
        place = target_secrets.place_of(namespace, record.settings.name, record.value_version)
        former = self.node.secret_keys.find(record.key_id)
        if former is None:
            return None
        try:
            return to.seal(place, former.open(SealedSecret(place, record.key_id, record.sealed)))
        except NotOpened as error:
            logs.error("a secret is not encrypted anew", why=str(error))
            return None

    # Resolve.

    async def resolve(
        self, call: Call, request: worker_pb2.ResolveSecretsRequest
    ) -> worker_pb2.ResolveSecretsResponse:
        """The values for the worker that holds the lease."""
        self._count(request.worker)
        found = await self._ask(call, ResolveSecrets(request, noted=False))
        jid = (keys.run_key(request.run) or (0, 0))[0]
        noting = (jid, request.worker, *(one.place for one in found))
        if found and self._is_to_note(noting):
            found = await self._ask(call, ResolveSecrets(request, noted=True))
        answer = worker_pb2.ResolveSecretsResponse()
        for one in found:
            answer.secrets[one.place.name] = self._opened(one)
        if found:
            logs.info(
                "secrets given", run=request.run, worker=keys.worker_id(request.worker),
                token=request.token, actor=call.actor, secrets=[one.place.name for one in found],
            )  # fmt: skip
        return answer

    def _opened(self, sealed: SealedSecret) -> str:
        key = self.node.secret_keys.find(sealed.key_id)
        if key is None:
            raise refusals.refused(
                Reason.ERROR_REASON_SECRET_KEY_MISSING,
                f"{self.node.name} leads and does not have the key {sealed.key_id}, under which "
                f"the secret '{sealed.place.name}' is encrypted; add it to [secrets] on all nodes, "
                "or put the secret again",
                node=self.node.name, key_id=sealed.key_id,
            )  # fmt: skip
        try:
            return key.open(sealed)
        except NotOpened as error:
            logs.error("a secret does not open", why=str(error))
            raise refusals.refused(
                Reason.ERROR_REASON_SECRET_KEY_MISSING, str(error),
                node=self.node.name, key_id=sealed.key_id,
            ) from None  # fmt: skip

    def _count(self, worker: str) -> None:
        """Refuse a worker that asks too often."""
        now = self.clock()
        bucket = self._buckets.pop(worker, None)
        bucket = bucket or Bucket(RESOLVED_PER_S, RESOLVED_PER_S, now, now)
        fill(bucket, now)
        self._buckets[worker] = bucket
        drop_oldest(self._buckets, BUCKETS)
        if bucket.left < 1:
            name = keys.worker_id(worker)
            raise refusals.refused(
                Reason.ERROR_REASON_RATE_LIMITED,
                f"the worker {name} may ask for the secrets of {RESOLVED_PER_S} leases a second; "
                "try again in a moment",
                refusals.RETRY_MS,
                worker=name, maximum=RESOLVED_PER_S,
            )  # fmt: skip
        bucket.left -= 1

    async def _ask(self, call: Call, order: ResolveSecrets) -> list[SealedSecret]:
        asked = await self.node.ask(order, call.actor, call.timeout(), call.namespace)
        return cast("list[SealedSecret]", asked)

    def _is_to_note(self, what: tuple[object, ...]) -> bool:
        """Whether the audit log is to have it. With all of them it would soon have nothing else."""
        now = self.clock()
        if now - self._noted.get(what, -NOTED_S) < NOTED_S:
            return False
        fill(self._notes, now)
        if self._notes.left < 1:
            return False
        self._notes.left -= 1
        self._noted[what] = now
        self._noted.move_to_end(what)
        drop_oldest(self._noted, NOTED)
        return True


def drop_oldest(found: OrderedDict[Any, Any], most: int) -> None:
    while len(found) > most:
        found.popitem(last=False)


def lacking(member: str, what: str, why: str) -> Refused:
    return refusals.refused(Reason.ERROR_REASON_MEMBER_LACKS, why, member=member, lacks=what)
