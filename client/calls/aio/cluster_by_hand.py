"""The calls of the cluster that carry files, and those that show a secret once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from io import SEEK_END
from typing import BinaryIO, Literal, Unpack
from uuid import uuid4

from ....proto.v1 import access_pb2, cluster_pb2, options_pb2
from ...sdk.errors import OutcomeUnknown, Unavailable
from ...sdk.options import EachCall, Writing, of_the_call
from ...sdk.values import Length, choice, duration, timestamp
from .service import AsyncService

PIECE_BYTES = 240 << 10  # Of a backup, as StageBackup takes it.
RoleWord = Literal["admin", "editor", "worker", "viewer"]


class AsyncClusterByHand(AsyncService):
    """Beside what the contracts say by themselves."""

    async def backup(self, **options: Unpack[EachCall]) -> AsyncGenerator[bytes, None]:
        """A backup of a node while it runs, piece by piece; Unavailable if it breaks off.

        with open("backup.tar", "wb") as file:
            async for piece in client.cluster.backup():
                file.write(piece)
        """
        total = seen = 0
        request = cluster_pb2.BackupRequest()
        async with aclosing(self._client.stream(request, **of_the_call(options))) as responses:
            async for response in responses:
                total = total or response.total
                seen += len(response.data)
                yield response.data
        if seen != total:
            raise Unavailable(f"the backup ended after {seen:,} of {total:,} bytes; make it again")

    async def restore(
        self, archive: BinaryIO, *, other_cluster: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.RestoreBackupResponse:
        """Put a backup in the place of the state while the cluster runs. What came behind the
        backup is lost; `timeout` holds for the exchange, which waits until all nodes are ready.

        with open("backup.tar", "rb") as file:
            await client.cluster.restore(file, timeout=600)
        """
        size, offset, backup_id = archive.seek(0, SEEK_END), 0, str(uuid4())
        archive.seek(0)
        while piece := archive.read(PIECE_BYTES):
            part = cluster_pb2.StageBackupRequest(
                backup_id=backup_id, size=size, offset=offset, data=piece
            )
            await self._send(part, cluster_pb2.StageBackupResponse, {})
            offset += len(piece)
        request = cluster_pb2.RestoreBackupRequest(backup_id=backup_id, other_cluster=other_cluster)
        return await self._send(request, cluster_pb2.RestoreBackupResponse, options)


class AsyncAccessByHand(AsyncService):
    """Beside what the contracts say by themselves."""

    async def create_token(
        self,
        name: str,
        role: RoleWord,
        *,
        see_payloads: bool = False,
        calls_per_second: int = 0,
        expires: datetime | None = None,
        **options: Unpack[Writing],
    ) -> access_pb2.CreateAccessTokenResponse:
        """Create an access token for the namespace; `namespace=""` is for all of them.

        print((await client.access.create_token("ci", "editor")).secret)
        """
        token = access_pb2.AccessToken(
            name=name, role=choice(options_pb2.Role, "ROLE_", role),
            namespace=self._namespace(options), see_payloads=see_payloads,
            expire_time=timestamp(expires), calls_per_second=calls_per_second,
        )  # fmt: skip
        request = access_pb2.CreateAccessTokenRequest(access_token=token)
        made = await self._send(request, access_pb2.CreateAccessTokenResponse, options)
        if not made.secret and not options.get("validate_only"):
            raise OutcomeUnknown(
                f"the access token {name!r} was created, but its secret was lost with the first "
                "answer and is never shown again; revoke it and create another one"
            )
        return made

    async def rotate_token(
        self, name: str, *, overlap: Length | None = None, **options: Unpack[Writing]
    ) -> access_pb2.RotateAccessTokenResponse:
        """Give an access token another secret; the former one opens as well for an hour, or as
        long as `overlap` says.

        print((await client.access.rotate_token("ci")).secret)
        """
        request = access_pb2.RotateAccessTokenRequest(access_token=name, overlap=duration(overlap))
        made = await self._send(request, access_pb2.RotateAccessTokenResponse, options)
        if not made.secret and not options.get("validate_only"):
            raise OutcomeUnknown(
                f"the access token {name!r} was rotated, but its new secret was lost with the "
                "first answer and is never shown again; rotate it again, the former one still opens"
            )
        return made
