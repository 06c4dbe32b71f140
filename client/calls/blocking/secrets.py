# Made from aio/secrets.py by calls/generate.py; write there.
"""Secrets for the targets of jobs, which name them as `secret://NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import secret_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    SecretWriting,
    secret_of,
)
from .secrets_by_hand import SecretsByHand


class Secrets(SecretsByHand):
    """Secrets for the targets of jobs, which name them as `secret://NAME`."""

    def put(
        self, name: str, value: str = "", **options: Unpack[SecretWriting]
    ) -> secret_pb2.Secret:
        """Create or replace one, labels included; without a value it keeps the one it has.

        client.secrets.put("api-key", os.environ["API_KEY"])
        """
        given, writing = parted(options)
        wanted, _ = secret_of(name, self._namespace(writing), given)
        request = secret_pb2.PutSecretRequest(secret=wanted, value=value)
        return self._send(request, secret_pb2.Secret, writing)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> secret_pb2.Secret:
        """Show what is known of one; its value is never shown.

        print(client.secrets.get("api-key").update_time)
        """
        request = made(secret_pb2.GetSecretRequest, secret=name)
        return self._send(request, secret_pb2.Secret, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[secret_pb2.Secret]:
        """List them by name.

        for secret in client.secrets.list():
            print(secret.name)
        """
        request = secret_pb2.ListSecretsRequest()
        return self._items(request, "secrets", limit, options)

    def delete(
        self, name: str, *, etag: str = "", force: bool = False, **options: Unpack[Writing]
    ) -> None:
        """Delete one; with `force` also while jobs name it, whose attempts then fail.

        client.secrets.delete("api-key")
        """
        request = made(secret_pb2.DeleteSecretRequest, secret=name, etag=etag, force=force)
        self._send(request, secret_pb2.DeleteSecretResponse, options)
