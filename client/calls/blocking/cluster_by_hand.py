# Made from aio/cluster_by_hand.py by calls/generate.py; write there.
"""Why by hand: a backup is a stream of pieces that must be whole, and a restore sends a file by
many calls of `StageBackup` before the one of `RestoreBackup`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from io import SEEK_END
from typing import BinaryIO, Unpack
from uuid import uuid4

from ....proto.v1 import cluster_pb2
from ...sdk.errors import Unavailable
from ...sdk.options import EachCall, Writing, of_the_call
from .service import Service

PIECE_BYTES = 240 << 10  # Of a backup, as StageBackup takes it.


class ClusterByHand(Service):
    """Beside what the contracts say by themselves."""

    def backup(self, **options: Unpack[EachCall]) -> Generator[bytes, None, None]:
        """A backup of a node while it runs, piece by piece; Unavailable if it breaks off.

        with open("backup.tar", "wb") as file:
            for piece in client.cluster.backup():
                file.write(piece)
        """
        total = seen = 0
        request = cluster_pb2.BackupRequest()
        with closing(self._client.stream(request, **of_the_call(options))) as responses:
            for response in responses:
                total = total or response.total
                seen += len(response.data)
                yield response.data
        if seen != total:
            raise Unavailable(f"the backup ended after {seen:,} of {total:,} bytes; make it again")

    def restore(
        self, archive: BinaryIO, *, other_cluster: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.RestoreBackupResponse:
        """Put a backup in the place of the state while the cluster runs. What came behind the
        backup is lost; `timeout` holds for the exchange, which waits until all nodes are ready.

        with open("backup.tar", "rb") as file:
            client.cluster.restore(file, timeout=600)
        """
        size, offset, backup_id = archive.seek(0, SEEK_END), 0, str(uuid4())
        archive.seek(0)
        while piece := archive.read(PIECE_BYTES):
            part = cluster_pb2.StageBackupRequest(
                backup_id=backup_id, size=size, offset=offset, data=piece
            )
            self._send(part, cluster_pb2.StageBackupResponse, {})
            offset += len(piece)
        request = cluster_pb2.RestoreBackupRequest(backup_id=backup_id, other_cluster=other_cluster)
        return self._send(request, cluster_pb2.RestoreBackupResponse, options)
