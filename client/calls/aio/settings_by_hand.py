"""The calls of queues and secrets that have words of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ....proto.v1 import queue_pb2, secret_pb2
from ...sdk.options import EachCall, Writing
from ...sdk.ranges import put
from ...sdk.values import words
from .service import AsyncService


class AsyncQueuesByHand(AsyncService):
    """Beside what the contracts say by themselves."""

    async def update(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        burst: int | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> queue_pb2.Queue:
        """Change limits; None leaves one as it is, 0 takes it away.

        await client.queues.update("mail", concurrency=10, rate=100)
        """
        limits = {"concurrency": concurrency, "rate": rate, "burst": burst}
        wanted = queue_pb2.Queue(namespace=self._namespace(options), name=queue, etag=etag)
        request = queue_pb2.UpdateQueueRequest(queue=wanted)
        for name, value in limits.items():
            if value is not None:
                put(request.queue, name, value)
                request.update_mask.paths.append(name)
        if not request.update_mask.paths:
            raise ValueError(f"no limit of the queue {queue!r} is given")
        return await self._send(request, queue_pb2.Queue, options)


class AsyncSecretsByHand(AsyncService):
    """Beside what the contracts say by themselves."""

    async def put(
        self,
        name: str,
        value: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> secret_pb2.Secret:
        """Create or replace one, labels included; without a value it keeps the one it has.

        await client.secrets.put("api-key", os.environ["API_KEY"])
        """
        wanted = secret_pb2.Secret(
            namespace=self._namespace(options), name=name, labels=words(labels or {}, "labels"),
            etag=etag,
        )  # fmt: skip
        request = secret_pb2.PutSecretRequest(secret=wanted, value=value)
        return await self._send(request, secret_pb2.Secret, options)

    async def rekey(self, **options: Unpack[Writing]) -> secret_pb2.RekeySecretsResponse:
        """Encrypt all secrets of the cluster under the leader's first key; the sums of all steps.

        assert not (await client.secrets.rekey()).unopened
        """
        given: Any = dict(options)
        request_id, steps = given.pop("request_id", ""), 0
        request, done = secret_pb2.RekeySecretsRequest(), secret_pb2.RekeySecretsResponse()
        while True:
            if request_id:
                given["request_id"] = f"{request_id}.{steps}"
            step = await self._step(request, given)
            done.rekeyed, done.unopened = done.rekeyed + step.rekeyed, done.unopened + step.unopened
            done.key_id = step.key_id
            missing = {*done.missing_key_ids, *step.missing_key_ids}
            del done.missing_key_ids[:]
            done.missing_key_ids.extend(sorted(missing))
            if not step.next_page_token:
                return done
            request.page_token, steps = step.next_page_token, steps + 1

    async def _step(
        self, request: secret_pb2.RekeySecretsRequest, options: EachCall
    ) -> secret_pb2.RekeySecretsResponse:
        step = secret_pb2.RekeySecretsRequest()
        step.CopyFrom(request)
        return await self._send(step, secret_pb2.RekeySecretsResponse, options)
