# Made from the contracts and catalog.toml by generate.py; write there.
"""Secrets for the targets of jobs, which name them as `secret://NAME`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from ....proto.v1 import secret_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    SecretWriting,
    secret_of,
)
from .secrets_by_hand import AsyncSecretsByHand


class AsyncSecrets(AsyncSecretsByHand):
    """Secrets for the targets of jobs, which name them as `secret://NAME`."""

    async def put(
        self, name: str, value: str = "", **options: Unpack[SecretWriting]
    ) -> secret_pb2.Secret:
        """Create or replace one, labels included; without a value it keeps the one it has.

        await client.secrets.put("api-key", os.environ["API_KEY"])
        """
        given, writing = parted(options)
        wanted, _ = secret_of(name, self._namespace(writing), given)
        request = secret_pb2.PutSecretRequest(secret=wanted, value=value)
        return await self._send(request, secret_pb2.Secret, writing)

    async def get(self, name: str, **options: Unpack[ReadOptions]) -> secret_pb2.Secret:
        """Show what is known of one; its value is never shown.

        print((await client.secrets.get("api-key")).update_time)
        """
        request = made(secret_pb2.GetSecretRequest, secret=name)
        return await self._send(request, secret_pb2.Secret, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[secret_pb2.Secret]:
        """List them by name.

        async for secret in client.secrets.list():
            print(secret.name)
        """
        request = secret_pb2.ListSecretsRequest()
        return self._items(request, "secrets", limit, options)

    async def delete(
        self, name: str, *, etag: str = "", force: bool = False, **options: Unpack[Writing]
    ) -> None:
        """Delete one; with `force` also while jobs name it, whose attempts then fail.

        await client.secrets.delete("api-key")
        """
        request = made(secret_pb2.DeleteSecretRequest, secret=name, etag=etag, force=force)
        await self._send(request, secret_pb2.DeleteSecretResponse, options)
