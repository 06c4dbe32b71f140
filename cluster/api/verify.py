"""The check of the state: what is derived, computed anew; and the copies of the nodes, compared.

The check reads a snapshot on a thread of its own, one at a time. Fingerprints are chains: two that
are equal at one revision were equal at all before, so nodes at different revisions can be compared
each at its own, and shown at the lowest.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from ...proto.v1 import cluster_pb2
from ...statemachine.core.store import Reading
from ...statemachine.model.request import Repair, Repaired
from ...statemachine.selfcheck import verify
from ..node import refusals
from ..node.node import Node
from ..node.peer_info import NodeInfo
from .call import Call
from .cluster_status import StatusView

SHOWN = 100
FOUND_MAX = 20_000
REPAIRS = 1_000  # Entries mended by one change.
ROUNDS = 1_000
CATCH_UP_S = 2.0  # How long this node waits for a revision that another one has seen.


@dataclass
class StateDifferences:
    """What the check of one state came to."""

    records: int = 0
    differences: list[str] = field(default_factory=list)
    count: int = 0


class Verifier:
    """See the head of this file."""

    def __init__(self, node: Node, view: StatusView) -> None:
        self.node, self.view = node, view
        self._helper = ThreadPoolExecutor(1, "verify")
        self._busy = False

    async def verify(
        self, call: Call, request: cluster_pb2.VerifyStateRequest
    ) -> cluster_pb2.VerifyStateResponse:
        node = self.node
        if request.repair and not node.leads:
            raise refusals.not_leader(node.name, node.leader_address)
        if self._busy:
            raise refusals.backlog_full(f"{node.name} verifies its state already")
        answer = cluster_pb2.VerifyStateResponse()
        if request.validate_only:
            return answer
        self._busy = True
        # Whoever asked may leave; the thread goes on to its end, and one at a time is enough.
        checking = asyncio.get_running_loop().run_in_executor(self._helper, look, node.snapshot())
        checking.add_done_callback(self._done)
        found = await asyncio.shield(checking)
        answer.records, answer.difference_count = found.records, found.count
        answer.differences.extend(found.differences)
        if request.repair and found.count:
            answer.repaired = await self._repair(call)
        await self._compare(call, answer)
        answer.sound = not answer.difference_count or answer.repaired == answer.difference_count
        answer.sound = answer.sound and not self._strangers(answer)
        return answer

    def _done(self, checking: asyncio.Future[StateDifferences]) -> None:
        self._busy = False
        if not checking.cancelled():
            checking.exception()

    async def _repair(self, call: Call) -> int:
        """Mend until there is nothing left: some entries are right only after others are."""
        mended = 0
        for _ in range(ROUNDS):
            reply = await self.node.ask(Repair(REPAIRS), call.actor, call.timeout(), call.namespace)
            part = cast(Repaired, reply).mended
            if not part:
                break
            mended += len(part)
        return mended

    async def _compare(self, call: Call, answer: cluster_pb2.VerifyStateResponse) -> None:
        """Hold the copies of the nodes that can be reached against this one."""
        node = self.node
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(CATCH_UP_S, call.timeout())
        node_infos = self._said()
        while (None in node_infos.values() or self._behind(node_infos)) and loop.time() < give_up:
            await asyncio.sleep(0.01)
            node_infos = self._said()
        found = {name: about for name, about in node_infos.items() if about is not None}
        mine = {
            name: node.directory.fingerprint_at(about.revision) for name, about in found.items()
        }
        known = {name: about for name, about in found.items() if mine[name] is not None}
        lowest = min((about.revision for about in known.values()), default=node.revision)
        own = node.directory.fingerprint_at(lowest) or node.replica.meta.fingerprint
        answer.revision = lowest
        answer.fingerprints[node.name] = own.hex()
        for name, about in known.items():
            fingerprint = mine[name]
            assert fingerprint is not None, "the others were left out"
            same = fingerprint.hex() == about.fingerprint
            answer.fingerprints[name] = own.hex() if same else about.fingerprint
            if not same:
                answer.difference_count += 1
                answer.differences.append(
                    f"the state of {name} at revision {about.revision} is not that of {node.name}; "
                    "of three, the one that differs from both others is wrong: stop it, set its "
                    "folder aside, start it with an empty one"
                )
        if node.leads:
            for name, about in found.items():
                if about.revision > node.revision:
                    answer.difference_count += 1
                    answer.differences.append(ahead(name, about, node))

    def _said(self) -> dict[str, NodeInfo | None]:
        """What the nodes that can be reached said of themselves just now."""
        peers = self.node.status().peers.items()
        return {
            name: self.view.about(name)
            for name, peer in peers
            if peer.connected and name != self.node.name
        }

    def _behind(self, node_infos: dict[str, NodeInfo | None]) -> bool:
        """Whether another node has seen a revision that this one has not."""
        newest = max(
            (about.revision for about in node_infos.values() if about is not None), default=0
        )
        return self.node.revision < newest

    def _strangers(self, answer: cluster_pb2.VerifyStateResponse) -> bool:
        return len(set(answer.fingerprints.values())) > 1

    def close(self) -> None:
        self._helper.shutdown(wait=False, cancel_futures=True)


def ahead(name: str, about: NodeInfo, node: Node) -> str:
    """A node holds what its leader does not know as committed, and has had time to hear of."""
    return (
        f"{name} is at revision {about.revision} (entry {about.applied_index}), ahead of its "
        f"leader {node.name} at {node.revision} (entry {node.status().commit}): it took part in "
        "another history, or the others lost theirs; stop it, set its folder aside and keep it, "
        "since it may hold what was acknowledged, and start it with an empty one"
    )


def look(reading: Reading) -> StateDifferences:
    """Check one state; on the helper."""
    differences = verify.verify(reading, FOUND_MAX)
    records = sum(1 for _ in reading.scan(b"\0", b"\xff" * 64))
    return StateDifferences(records, [str(one) for one in differences[:SHOWN]], len(differences))
