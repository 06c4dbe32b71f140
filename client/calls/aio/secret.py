"""Secrets for the targets of jobs: they go in, and come out for the leases of workers alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

from ....proto.v1 import secret_pb2
from ...sdk.options import EachCall, ReadOptions, Writing
from ...sdk.values import words
from .service import AsyncService

Secret = secret_pb2.Secret


class AsyncSecrets(AsyncService):
    """Secrets for the targets of jobs, which name them as `secret://NAME`."""

    async def put(
        self,
        name: str,
        value: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> Secret:
        """Create or replace one, labels included; without a value it keeps the one it has.

        await client.secrets.put("api-key", os.environ["API_KEY"])
        """
        wanted = Secret(
            namespace=self._namespace(options), name=name, labels=words(labels or {}, "labels"),
            etag=etag,
        )  # fmt: skip
        request = secret_pb2.PutSecretRequest(secret=wanted, value=value)
        return await self._send(request, Secret, options)

    async def get(self, name: str, **options: Unpack[ReadOptions]) -> Secret:
        """What is known of one; its value is never shown.

        print((await client.secrets.get("api-key")).update_time)
        """
        return await self._send(secret_pb2.GetSecretRequest(secret=name), Secret, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Secret]:
        """List them by name.

        async for secret in client.secrets.list():
            print(secret.name)
        """
        return self._items(secret_pb2.ListSecretsRequest(), "secrets", limit, options)

    async def delete(
        self, name: str, *, etag: str = "", force: bool = False, **options: Unpack[Writing]
    ) -> None:
        """Delete one; with `force` also while jobs name it, whose attempts then fail.

        await client.secrets.delete("api-key")
        """
        request = secret_pb2.DeleteSecretRequest(secret=name, etag=etag, force=force)
        await self._send(request, secret_pb2.DeleteSecretResponse, options)

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
