# Made from aio/identity.py by generate.py; write there.
"""Who vouches for callers beside the access tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import identity_pb2
from ...sdk.options import ReadOptions, Writing
from .service import Service

Provider = identity_pb2.IdentityProvider


class IdentityProviders(Service):
    """Identity providers: issuers of JSON Web Tokens, and certificates of clients."""

    def put(self, provider: Provider, **options: Unpack[Writing]) -> Provider:
        """Create or replace one.

        client.identity.put(IdentityProvider(name="corp", jwt=TokenIssuer(...), rules=[...]))
        """
        request = identity_pb2.PutIdentityProviderRequest(identity_provider=provider)
        return self._send(request, Provider, options)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> Provider:
        """Get one.

        print(client.identity.get("corp").rules)
        """
        request = identity_pb2.GetIdentityProviderRequest(identity_provider=name)
        return self._send(request, Provider, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[Provider]:
        """List them by name.

        for provider in client.identity.list():
            print(provider.name)
        """
        request = identity_pb2.ListIdentityProvidersRequest()
        return self._items(request, "identity_providers", limit, options)

    def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one: whoever it vouched for is refused.

        client.identity.delete("corp")
        """
        request = identity_pb2.DeleteIdentityProviderRequest(identity_provider=name, etag=etag)
        self._send(request, identity_pb2.DeleteIdentityProviderResponse, options)
