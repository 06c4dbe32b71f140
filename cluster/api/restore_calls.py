"""A backup is put back into the cluster that runs: its pieces are taken, then it replaces the
state. What happens in between stands in node/restoring.py."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import datetime

from ...proto.v1 import cluster_pb2
from ...statemachine.calls import staging
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.model import validate
from ...statemachine.model.record import RestoredRecord, StagedRecord
from ...statemachine.model.request import DropStage, SealStage, StagePiece
from ..node import refusals
from ..node.node import Node
from .call import Call

LEVEL = 4
LOOK_S = 0.05
AGAIN_S = 15.0  # A stage that is being made ready is touched, so that nobody takes it for given up.
LAST_S = 5.0  # What the exchange itself may take, of the caller's time.
ANSWER_S = 1.0  # What is kept of that for the answer.


class RestoreCalls:
    """See the head of this file."""

    def __init__(self, node: Node, need_level: Callable[[int], None]) -> None:
        self._node, self._need_level = node, need_level

    async def stage(
        self, call: Call, request: cluster_pb2.StageBackupRequest
    ) -> cluster_pb2.StageBackupResponse:
        """Take a piece."""
        self._check(request.backup_id)
        if request.validate_only:
            return cluster_pb2.StageBackupResponse(received=request.offset)
        piece = StagePiece(
            request.backup_id, request.size, request.offset, request.data, request.request_id
        )
        received = await self._node.ask(piece, call.actor, call.timeout())
        assert isinstance(received, int), received
        return cluster_pb2.StageBackupResponse(received=received)

    async def restore(
        self, call: Call, request: cluster_pb2.RestoreBackupRequest
    ) -> cluster_pb2.RestoreBackupResponse:
        """Put what was sent in the place of the state, once."""
        node = self._node
        await node.barrier(call.timeout())
        if (done := node.replica.restored) is not None and done.id == request.backup_id:
            return self._answer(done)
        self._check(request.backup_id)
        staged = staging.staged_in(node.replica.store)
        if request.validate_only and staged is not None and staged.received == staged.size:
            return cluster_pb2.RestoreBackupResponse(former_revision=node.revision)
        staged = await self._seal(call, request)
        await self._ready(call, request, staged)
        try:
            async with asyncio.timeout(max(call.timeout() - ANSWER_S, ANSWER_S)):
                index = await node.restores.switch(staged)
        except TimeoutError:
            raise refusals.commit_timeout(call.seconds) from None
        done = node.replica.restored
        if index is None or done is None or done.id != request.backup_id:
            raise refusals.leader_changed(node.name)
        return self._answer(done)

    def _check(self, backup_id: str) -> None:
        if faults := validate.name("backup_id", backup_id):
            raise Refused.of(faults)
        self._need_level(LEVEL)

    async def _seal(self, call: Call, request: cluster_pb2.RestoreBackupRequest) -> StagedRecord:
        seal = SealStage(request.backup_id, secrets.token_hex(8), request.other_cluster)
        staged = await self._node.ask(seal, call.actor, call.timeout())
        assert isinstance(staged, StagedRecord), staged
        return staged

    async def _ready(
        self, call: Call, request: cluster_pb2.RestoreBackupRequest, staged: StagedRecord
    ) -> None:
        """Return when all members within reach have made it ready; else it is thrown away."""
        node, loop = self._node, asyncio.get_running_loop()
        touched_at = loop.time()
        while True:
            node.restores.look()
            try:
                lacking = node.restores.lacking(staged)
            except Refused:
                await self._drop(call, staged)
                raise
            if not lacking:
                return
            if not node.leads:
                raise refusals.leader_changed(node.name)
            if call.timeout() < LAST_S:
                await self._drop(call, staged)
                raise refusals.refused(
                    Reason.ERROR_REASON_NO_QUORUM,
                    f"{', '.join(lacking)} did not make the backup ready within "
                    f"{call.seconds:.0f} s, and nothing was changed; see 'raftsched cluster "
                    "status', or give it more time",
                )
            await asyncio.sleep(LOOK_S)
            if loop.time() - touched_at > AGAIN_S:
                touched_at = loop.time()
                await self._seal(call, request)

    async def _drop(self, call: Call, staged: StagedRecord) -> None:
        while await self._node.ask(DropStage(staged.serial), call.actor, call.timeout()):
            pass

    def _answer(self, done: RestoredRecord) -> cluster_pb2.RestoreBackupResponse:
        answer = cluster_pb2.RestoreBackupResponse(
            backup_revision=done.revision, backup_cluster=done.cluster, jobs=done.jobs,
            live_runs=done.live_runs, former_revision=done.before, revision=self._node.revision,
        )  # fmt: skip
        answer.backup_time.FromDatetime(datetime.fromisoformat(done.taken))
        return answer
