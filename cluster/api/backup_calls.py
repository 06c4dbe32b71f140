"""Backup: a node streams an archive of its state while it runs.

The checkpoint is made where snapshots are made, so that no other state is put in its place
meanwhile; it shares its files with the state by links. Everything else happens on a thread of the
backup's own, a piece at a time, as fast as the caller reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.message import Message

from ...proto.v1 import cluster_pb2
from ..node import backup, refusals
from ..node.backup import StateArchive
from ..node.node import Node
from ..node.peer_info import FEATURE_LEVEL, ZONE_EDITION
from ..raft.disk import FULL
from .call import Call

logger = logging.getLogger(__name__)

BACKUPS_MAX = 2  # At a time. Each keeps files on the disk that the state has done with.
WAIT_S = 10.0  # For a snapshot that is being written; callers give up after 15 s of silence.
UNREAD_S = 60.0  # What a caller that does not read is waited for.


class BackupCalls:
    """See the head of this file."""

    def __init__(self, node: Node, admit: Callable[[Call, Message], None]) -> None:
        self.node, self.admit = node, admit
        self.under_way = 0
        self._made = 0

    async def stream(self, call: Call, request: cluster_pb2.BackupRequest) -> None:
        """Send an archive. Whatever ends this, the files go."""
        self.admit(call, request)
        node = self.node
        if node.directory.diverged:
            raise refusals.state_diverged(node.name)
        if node.status().full:
            raise refusals.disk_full(node.name)
        if self.under_way >= BACKUPS_MAX:
            raise refusals.backlog_full(f"{node.name} is streaming {BACKUPS_MAX} backups already")
        self.under_way += 1
        try:
            await self._send(call, await self._take())
        except OSError as error:
            if error.errno in FULL:
                raise refusals.disk_full(node.name) from error
            raise
        finally:
            self.under_way -= 1

    async def _take(self) -> StateArchive:
        """Make the checkpoint, or give up when others are at it for too long."""
        node, self._made = self.node, self._made + 1
        folder = node.backups / str(self._made)
        about: dict[str, object] = {
            "cluster": node.spec.cluster, "node": node.name, "term": node.term,
            "feature_level": FEATURE_LEVEL, "version": node.spec.version,
            "zone_edition": ZONE_EDITION,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(node.spec.wall_ms() / 1000)),
        }  # fmt: skip
        try:
            async with asyncio.timeout(WAIT_S):
                return await node.driver.in_bulk(
                    "make a backup",
                    lambda: backup.take(node.replica, folder, about),
                    StateArchive.remove,
                )
        except TimeoutError:
            raise refusals.backlog_full(
                f"{node.name} is busy with a snapshot for over {WAIT_S:.0f} s"
            ) from None

    async def _send(self, call: Call, made: StateArchive) -> None:
        helper, loop = ThreadPoolExecutor(1, "backup"), asyncio.get_running_loop()
        began, total = time.monotonic(), made.total
        pieces = made.pieces()
        sent = 0
        try:
            while (piece := await loop.run_in_executor(helper, next, pieces, b"")) != b"":
                answer = cluster_pb2.BackupResponse(data=piece, total=0 if sent else total)
                async with asyncio.timeout(UNREAD_S):
                    await call.context.write(answer)
                sent += len(piece)
            logger.info("backup of revision %d sent: %d bytes in %.1f s", made.meta.revision,
                        sent, time.monotonic() - began)  # fmt: skip
        except TimeoutError:
            raise refusals.backlog_full(
                f"nobody read the backup for {UNREAD_S:.0f} s, after {sent} of {total} bytes"
            ) from None
        finally:
            # Behind the read that may be under way.
            helper.submit(made.remove)
            helper.shutdown(wait=False)
