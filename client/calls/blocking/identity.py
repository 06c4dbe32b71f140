# Made from aio/identity.py by calls/generate.py; write there.
"""Identity providers: issuers of JSON Web Tokens, and certificates of clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import identity_pb2
from ...sdk.options import ReadOptions, Writing
from ...sdk.ranges import made
from .service import Service


class IdentityProviders(Service):
    """Identity providers: issuers of JSON Web Tokens, and certificates of clients."""

    def put(
        self, provider: identity_pb2.IdentityProvider, **options: Unpack[Writing]
    ) -> identity_pb2.IdentityProvider:
        """Create or replace one. With a non-empty etag, only that version is replaced.

        corp = IdentityProvider(name="corp", jwt=TokenIssuer(...), rules=[...])
        client.identity.put(corp)
        """
        request = made(identity_pb2.PutIdentityProviderRequest, identity_provider=provider)
        return self._send(request, identity_pb2.IdentityProvider, options)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> identity_pb2.IdentityProvider:
        """Get one.

        print(client.identity.get("corp").rules)
        """
        request = made(identity_pb2.GetIdentityProviderRequest, identity_provider=name)
        return self._send(request, identity_pb2.IdentityProvider, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[identity_pb2.IdentityProvider]:
        """List them by name.

        for provider in client.identity.list():
            print(provider.name)
        """
        request = identity_pb2.ListIdentityProvidersRequest()
        return self._items(request, "identity_providers", limit, options)

    def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one: whoever it vouched for is refused from now on; streams and calls that wait
        end with UNAUTHENTICATED within ten seconds.

        client.identity.delete("corp")
        """
        request = made(
            identity_pb2.DeleteIdentityProviderRequest, identity_provider=name, etag=etag
        )
        self._send(request, identity_pb2.DeleteIdentityProviderResponse, options)
