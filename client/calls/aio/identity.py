"""Who vouches for callers beside the access tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from ....proto.v1 import identity_pb2
from ...sdk.options import ReadOptions, Writing
from .service import AsyncService

Provider = identity_pb2.IdentityProvider


class AsyncIdentityProviders(AsyncService):
    """Identity providers: issuers of JSON Web Tokens, and certificates of clients."""

    async def put(self, provider: Provider, **options: Unpack[Writing]) -> Provider:
        """Create or replace one.

        await client.identity.put(IdentityProvider(name="corp", jwt=TokenIssuer(...), rules=[...]))
        """
        request = identity_pb2.PutIdentityProviderRequest(identity_provider=provider)
        return await self._send(request, Provider, options)

    async def get(self, name: str, **options: Unpack[ReadOptions]) -> Provider:
        """Get one.

        print((await client.identity.get("corp")).rules)
        """
        request = identity_pb2.GetIdentityProviderRequest(identity_provider=name)
        return await self._send(request, Provider, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Provider]:
        """List them by name.

        async for provider in client.identity.list():
            print(provider.name)
        """
        request = identity_pb2.ListIdentityProvidersRequest()
        return self._items(request, "identity_providers", limit, options)

    async def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one: whoever it vouched for is refused.

        await client.identity.delete("corp")
        """
        request = identity_pb2.DeleteIdentityProviderRequest(identity_provider=name, etag=etag)
        await self._send(request, identity_pb2.DeleteIdentityProviderResponse, options)
