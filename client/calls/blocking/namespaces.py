# Made from aio/namespaces.py by calls/generate.py; write there.
"""Tenants, their quotas, and how long their history is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import namespace_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    NamespaceWriting,
    namespace_of,
)
from .service import Service


class Namespaces(Service):
    """Tenants, their quotas, and how long their history is kept."""

    def create(self, name: str, **options: Unpack[NamespaceWriting]) -> namespace_pb2.Namespace:
        """Create a namespace.

        client.namespaces.create("shop", jobs=10_000, keep_failed=timedelta(days=90))
        """
        given, writing = parted(options)
        wanted, _ = namespace_of(name, self._namespace(writing), given)
        request = namespace_pb2.CreateNamespaceRequest(namespace=wanted)
        return self._send(request, namespace_pb2.Namespace, writing)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> namespace_pb2.Namespace:
        """Show a namespace and what it uses.

        print(client.namespaces.get("shop").usage.jobs)
        """
        request = made(namespace_pb2.GetNamespaceRequest, namespace=name)
        return self._send(request, namespace_pb2.Namespace, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[namespace_pb2.Namespace]:
        """List them by name.

        for namespace in client.namespaces.list():
            print(namespace.name)
        """
        request = namespace_pb2.ListNamespacesRequest()
        return self._items(request, "namespaces", limit, options)

    def update(
        self, name: str, *, etag: str = "", **options: Unpack[NamespaceWriting]
    ) -> namespace_pb2.Namespace:
        """Change what the options speak of; None takes a thing away.

        client.namespaces.update("shop", jobs=20_000)
        """
        given, writing = parted(options)
        wanted, paths = namespace_of(name, self._namespace(writing), given)
        if not paths:
            raise ValueError(f"no field is named to change of {name!r}")
        wanted.etag = etag
        request = namespace_pb2.UpdateNamespaceRequest(namespace=wanted)
        request.update_mask.paths.extend(paths)
        return self._send(request, namespace_pb2.Namespace, writing)

    def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete an empty one.

        client.namespaces.delete("shop")
        """
        request = made(namespace_pb2.DeleteNamespaceRequest, namespace=name, etag=etag)
        self._send(request, namespace_pb2.DeleteNamespaceResponse, options)
