# Made from aio/access.py by calls/generate.py; write there.
"""Access tokens and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import access_pb2
from ...sdk.options import EachCall, ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    RoleWord,
    TokenWriting,
    token_of,
)
from ...sdk.values import Length, duration
from .service import Service


class Access(Service):
    """Access tokens and the audit log."""

    def create_token(
        self, name: str, role: RoleWord, **options: Unpack[TokenWriting]
    ) -> access_pb2.CreateAccessTokenResponse:
        """Create an access token for the namespace; `namespace=""` is for all of them.

        print(client.access.create_token("ci", "editor").secret)
        """
        given, writing = parted(options)
        wanted, _ = token_of(name, self._namespace(writing), {"role": role, **given})
        request = access_pb2.CreateAccessTokenRequest(access_token=wanted)
        lost = (
            f"the access token {name!r} was created, but its secret was lost with the first "
            "answer and is never shown again; revoke it and create another one"
        )
        return self._with_secret(request, access_pb2.CreateAccessTokenResponse, lost, writing)

    def rotate_token(
        self, name: str, *, overlap: Length | None = None, **options: Unpack[Writing]
    ) -> access_pb2.RotateAccessTokenResponse:
        """Give an access token another secret; the former one opens as well for an hour, or as
        long as `overlap` says.

        print(client.access.rotate_token("ci").secret)
        """
        request = made(
            access_pb2.RotateAccessTokenRequest, access_token=name, overlap=duration(overlap)
        )
        lost = (
            f"the access token {name!r} was rotated, but its new secret was lost with the "
            "first answer and is never shown again; rotate it again, the former one still "
            "opens"
        )
        return self._with_secret(request, access_pb2.RotateAccessTokenResponse, lost, options)

    def whoami(self, **options: Unpack[EachCall]) -> access_pb2.Caller:
        """Who am I, and what may I do? Whoever is known may ask, with any role, and any node
        answers from what it has applied.

        print(client.access.whoami().name)
        """
        request = access_pb2.WhoAmIRequest()
        return self._send(request, access_pb2.Caller, options)

    def list_tokens(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[access_pb2.AccessToken]:
        """The access tokens by name, without their secrets.

        for token in client.access.list_tokens():
            print(token.name)
        """
        request = access_pb2.ListAccessTokensRequest()
        return self._items(request, "access_tokens", limit, options)

    def revoke_token(self, name: str, **options: Unpack[Writing]) -> None:
        """It is not valid from now on; streams that were opened with it, and calls that wait
        (Lease, WaitRun), end with UNAUTHENTICATED within ten seconds. The last one of an admin
        for all namespaces without an end stays: else nobody could make others, or the cluster
        would open to everybody. Create another such one first.

        client.access.revoke_token("ci")
        """
        request = made(access_pb2.RevokeAccessTokenRequest, access_token=name)
        self._send(request, access_pb2.RevokeAccessTokenResponse, options)

    def records(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[access_pb2.AuditRecord]:
        """Who changed what, newest first; what changed all namespaces (RestoreBackup,
        SetStateTime) stands in the log of each. Filter fields: `actor`, `method`, `subject`,
        `time`.

        for record in client.access.records("subject=job/report"):
            print(record.time, record.actor, record.method, record.change)
        """
        request = made(access_pb2.ListAuditRecordsRequest, filter=filter)
        return self._items(request, "records", limit, options)
