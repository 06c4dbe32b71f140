"""Puts a backup in the place of the state while the cluster runs.

Each node makes ready what is sealed and says so. The leader waits until all whom it reaches have,
and proposes the one entry when no change is in flight; then it forgets what it knew of the state
before, as one that has just been elected. It also throws away what nobody goes on with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...statemachine.calls import staging
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.core.store import Reading
from ...statemachine.model.record import StagedRecord
from ...statemachine.model.request import DropStage
from ..raft import faults
from ..raft.driver import Driver
from . import refusals, replacement
from .applier import REPLACING, Replica
from .leader_loop import Leader
from .node_spec import NodeSpec
from .peer_info import FEATURE_LEVEL, PeerDirectory
from .replacement import FAILED, FULL, Preparing

logger = logging.getLogger(__name__)


class Restores:
    """See the head of this file."""

    def __init__(
        self, spec: NodeSpec, leader: Leader, replica: Replica, driver: Driver,
        directory: PeerDirectory, introduce: Callable[[], None],
    ) -> None:  # fmt: skip
        self._name, self._leader, self._replica = spec.name, leader, replica
        self._driver, self._directory, self._introduce = driver, directory, introduce
        folder = replica.folder / REPLACING
        self._preparing = Preparing(spec.cluster, FEATURE_LEVEL, folder, self._changed)
        replica.made_ready = self._preparing.wait
        replica.on_replace(self._replaced)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dropping = False

    # What each node does.

    def look(self) -> None:
        """To be called now and then: begin with what is sealed, and say how far it is."""
        self._loop = asyncio.get_running_loop()
        staged = staging.staged_in(self._replica.store)
        self._preparing.look(self._replica.store.snapshot, staged)
        stage = self._preparing.progress
        if stage != self._directory.stage:
            self._directory.stage = stage
            self._introduce()
        if self._leader.leading and not self._dropping:
            self._tidy(self._replica.store, staged)

    def _changed(self) -> None:
        """On the thread that makes it ready."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.look)

    def _replaced(self) -> None:
        restored = self._replica.restored
        assert restored is not None, "a backup took the place of the state"
        logger.warning(
            "%s goes on from revision %d of a backup of %s; revision %d was replaced at entry %d",
            self._name, restored.revision, restored.taken, restored.before, restored.index,
        )  # fmt: skip
        self._directory.applied(self._replica.meta)

    def _tidy(self, store: Reading, staged: StagedRecord | None) -> None:
        """Throw away what nobody goes on with."""
        since_ms = self._leader.now_ms() - staging.SILENT_MS
        is_silent = staged is not None and staged.touched_at_ms < since_ms
        if is_silent or staging.has_orphans(store):
            self._dropping = True

            def ended(_: object = None) -> None:
                self._dropping = False

            try:
                self._leader.ask(DropStage(silent_since_ms=since_ms), "", ended, ended)
            except Refused as full:
                logger.info("%s removes what is left of a backup later: %s", self._name, full)
                ended()

    def close(self) -> None:
        """On a thread, since it may be making something ready."""
        self._preparing.close()

    # What the leader does.

    def lacking(self, staged: StagedRecord) -> list[str]:
        """The members within reach that have not made it ready yet; where less than a majority is
        within reach, those who are not. Raises Refused if one of them cannot."""
        peers, infos = self._driver.status().peers, self._directory.peer_infos
        near = [name for name, peer in peers.items() if peer.connected or name == self._name]
        voters = [name for name, peer in peers.items() if peer.voter]
        if 2 * sum(name in near for name in voters) <= len(voters):
            return sorted(set(voters) - set(near))
        stages = {name: about.stage for name, about in infos.items()}
        stages[self._name] = own = self._preparing.progress
        # This node first: what it finds wrong is wrong for all.
        near.sort(key=lambda name: name != self._name)
        ready = f"{staged.serial} "
        for name in near:
            _refuse_failed(name, stages.get(name, "").removeprefix(ready))
        lacking = [name for name in near if not stages.get(name, "").startswith(ready)]
        for name in near:
            if not lacking and stages[name] != own:
                what = f"{name} comes to another state by it than {self._name}, so it runs another"
                raise _not_possible(f"{what} version")
        return lacking

    async def switch(self, staged: StagedRecord) -> int | None:
        """Put it in the place of the state on all nodes: the index of the entry, or None when it is
        not known whether it was done. Raises CallRefused."""
        made = self._preparing.wait(staged.serial)
        if made is None:
            return None
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int | None] = loop.create_future()

        def reply(index: int | None) -> None:
            self._leader.go_on_anew()
            self._leader.make_alerts()
            if not ended.done():
                ended.set_result(index)

        def begin() -> None:
            data = replacement.order(self._replica.meta, staged, made)
            try:
                self._driver.submit_switch(data, reply)
            except faults.CallRefused as refused:
                logger.warning("%s cannot put the backup back now: %s", self._name, refused)
                reply(None)

        self._leader.alone(begin)
        return await ended


def _refuse_failed(name: str, stage: str) -> None:
    """What a node says of a stage that it could not make ready."""
    if stage.startswith(FULL):
        raise refusals.disk_full(name)
    if stage.startswith(FAILED):
        raise _not_possible(f"{name}: {stage.removeprefix(FAILED)}")


def _not_possible(why: str) -> Refused:
    return refusals.refused(
        Reason.ERROR_REASON_FIELD_INVALID,
        f"the backup cannot be put back, and nothing was changed: {why}",
        field="backup_id",
    )
