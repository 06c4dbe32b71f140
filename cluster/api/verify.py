"""The check of the state: what is derived, computed anew; and the copies of the nodes, compared.

The check reads a snapshot on a thread of its own, one at a time: whoever asks meanwhile joins it,
and it ends when nobody has waited for it for a while. Fingerprints are chains: two that
are equal at one revision were equal at all before, so nodes at different revisions can be compared
each at its own, and shown at the lowest.

What differs is mended in bounded changes, and looked for again, until a check finds nothing. That
belongs to the check: whoever asks for it too joins, so nothing is mended twice from one look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from ...proto.v1 import cluster_pb2
from ...statemachine.core.instants import set_ms, to_ms
from ...statemachine.core.store import Reading
from ...statemachine.model.difference import Difference
from ...statemachine.model.request import Repair, Repaired
from ...statemachine.selfcheck import verify
from ..node import refusals
from ..node.node import Node
from ..node.peer_info import NodeInfo
from .call import Call
from .cluster_status import StatusView

SHOWN = 100
FOUND_MAX = 20_000
MENDED_AT_ONCE = 1_000  # Differences that one request for a change has.
ROUNDS = 1_000  # Looks for what still differs after others were mended.
MEND_S = 30.0  # How long one change may take.
CATCH_UP_S = 2.0  # How long this node waits for a revision that another one has seen.
LINGER_S = 5.0  # A check goes on without anybody who waits for it.
KEPT_S = 60.0  # What it came to is kept, for those who have asked for it.
ASKERS = 1_000  # Of one check, that are remembered.
WAIT_MAX_S = 60.0  # A caller waits to hear how far it is.

T = TypeVar("T")


class CheckStopped(Exception):
    """A check has ended before it was done, since nobody waits for it."""


@dataclass
class StateDifferences:
    """What the check of one state came to."""

    records: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.differences)


@dataclass(frozen=True)
class StateMended:
    """What mending has come to."""

    mended: int
    # Of what was looked for last, what differs still.
    left: int


class Check:
    """One check of the state: how far it is, who asked for it, and how many wait."""

    def __init__(self, actor: str, now_ms: int) -> None:
        self.actor, self.began_at_ms = actor, now_ms
        # Who may hear of it after its end, the newest last.
        self.askers: dict[str, None] = {}
        self.waiting = 0
        self.ended: asyncio.Future[StateDifferences] | None = None
        self.mending: asyncio.Task[StateMended] | None = None
        # Written by its thread and read by the loop, and the other way round.
        self.records = self.looked = 0
        self.is_stopped = False

    @property
    def is_over(self) -> bool:
        is_mended = self.mending is None or self.mending.done()
        return self.ended is not None and self.ended.done() and is_mended

    def asked_by(self, asker: str) -> None:
        self.askers.pop(asker, None)
        self.askers[asker] = None
        if len(self.askers) > ASKERS:
            del self.askers[next(iter(self.askers))]

    async def waited(self, part: asyncio.Future[T], wait_s: float) -> T | None:
        """What a part of it came to; None: it goes on."""
        self.waiting += 1
        try:
            await asyncio.wait([part], timeout=wait_s)
        finally:
            self.waiting -= 1
        return part.result() if part.done() else None


class WatchedReading:
    """A state that counts how much of it is looked at, and ends that when nobody waits for it."""

    def __init__(self, reading: Reading, check: Check) -> None:
        self._reading, self._check = reading, check
        self.get: Callable[[bytes], bytes | None] = reading.get
        self.get_many: Callable[[list[bytes]], list[bytes | None]] = reading.get_many

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        check = self._check
        for entry in self._reading.scan(first, end, backwards=backwards):
            check.looked += 1
            if check.is_stopped:
                raise CheckStopped("nobody waits for it")
            yield entry


class Verifier:
    """See the head of this file."""

    def __init__(self, node: Node, view: StatusView) -> None:
        self.node, self.view = node, view
        self._helper = ThreadPoolExecutor(1, "verify")
        # The one that goes on, or has ended not long ago.
        self._check: Check | None = None

    async def verify(
        self, call: Call, request: cluster_pb2.VerifyStateRequest
    ) -> cluster_pb2.VerifyStateResponse:
        node = self.node
        if request.repair and not node.leads:
            raise refusals.not_leader(node.name, node.leader_address)
        answer = cluster_pb2.VerifyStateResponse()
        if request.validate_only:
            return answer
        check = self._joined(call, request.request_id or call.actor)
        wait_s = call.timeout()
        if request.HasField("wait"):
            wait_s = min(to_ms(request.wait) / 1000, WAIT_MAX_S, call.wait_max())
        give_up = asyncio.get_running_loop().time() + wait_s
        assert check.ended is not None, "it was begun"
        mended = None
        try:
            found = await check.waited(check.ended, wait_s)
            if found is not None and found.count and request.repair:
                left_s = max(0.0, give_up - asyncio.get_running_loop().time())
                mended = await check.waited(self._mending(check, call.actor), left_s)
        finally:
            asyncio.get_running_loop().call_later(LINGER_S, self._look_at, check)
        if found is None or (found.count and request.repair and mended is None):
            if not request.HasField("wait"):
                raise TimeoutError
            answer.running, answer.caller = True, check.actor
            answer.records, answer.looked = check.records, check.looked
            set_ms(answer.begin_time, check.began_at_ms)
            return answer
        answer.records, answer.difference_count = found.records, found.count
        answer.differences.extend(str(one) for one in found.differences[:SHOWN])
        answer.sound = not found.count
        if mended is not None:
            answer.repaired, answer.sound = mended.mended, not mended.left
        differ = answer.difference_count
        await self._compare(call, answer)
        answer.sound = answer.sound and answer.difference_count == differ
        answer.sound = answer.sound and not self._strangers(answer)
        return answer

    def _joined(self, call: Call, asker: str) -> Check:
        """The check that goes on; one that has ended, for who asked for it; or a new one."""
        check = self._check
        if check is None or (check.is_over and asker not in check.askers):
            check = self._check = Check(call.actor, self.node.clock.now_ms())
            check.ended = self._looked(check)
            check.ended.add_done_callback(lambda ended: self._over(check, ended))
        check.asked_by(asker)
        return check

    def _looked(self, check: Check) -> asyncio.Future[StateDifferences]:
        reading = WatchedReading(self.node.snapshot(), check)
        return asyncio.get_running_loop().run_in_executor(self._helper, look, reading, check)

    def _look_at(self, check: Check) -> None:
        """Nobody may wait for it any more. Soon it is over then, and none joins it."""
        if not check.waiting and not check.is_over:
            stop(check)
            self._forget(check)

    def _over(self, check: Check, ended: asyncio.Future[Any]) -> None:
        if not ended.cancelled() and ended.exception() is not None:
            self._forget(check)
        asyncio.get_running_loop().call_later(KEPT_S, self._forget_ended, check)

    def _forget_ended(self, check: Check) -> None:
        """While it mends it is the one to join; its end comes back here."""
        if check.is_over:
            self._forget(check)

    def _forget(self, check: Check) -> None:
        if self._check is check:
            self._check = None

    def _mending(self, check: Check, actor: str) -> asyncio.Task[StateMended]:
        """It is begun once for a check, and goes on while somebody waits for it."""
        if check.mending is None:
            check.mending = asyncio.create_task(self._mend(check, actor))
            check.mending.add_done_callback(lambda ended: self._over(check, ended))
        return check.mending

    async def _mend(self, check: Check, actor: str) -> StateMended:
        """Mend until nothing is found: some entries are right only after others are."""
        mended = in_vain = 0
        for _ in range(ROUNDS):
            # One who asked before may have gone while a change of his was under way: what is
            # decided behind it sees it.
            await self.node.ask(Repair(()), actor, MEND_S)
            found = await self._looked(check)
            rest, before = found.differences, mended
            while rest:
                asked = Repair(tuple(rest[:MENDED_AT_ONCE]))
                reply = cast(Repaired, await self.node.ask(asked, actor, MEND_S))
                mended += reply.mended
                rest = rest[reply.done :]
            in_vain = in_vain + 1 if mended == before else 0
            if not found.count or in_vain > 1:
                break
        return StateMended(mended, found.count)

    async def _compare(self, call: Call, answer: cluster_pb2.VerifyStateResponse) -> None:
        """Hold the copies of the nodes that can be reached against this one."""
        node = self.node
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(CATCH_UP_S, call.timeout())
        node_infos = self._heard()
        while not self._comparable(node_infos) and loop.time() < give_up:
            await asyncio.sleep(0.01)
            node_infos = self._heard()
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

    def _heard(self) -> dict[str, NodeInfo | None]:
        """What the nodes that can be reached sent of themselves just now."""
        peers = self.node.status().peers.items()
        return {
            name: self.view.about(name)
            for name, peer in peers
            if peer.connected and name != self.node.name
        }

    def _comparable(self, node_infos: dict[str, NodeInfo | None]) -> bool:
        """Whether each node was heard, at a revision whose fingerprint is known here: not one that
        is to come, nor one from before the start of this node."""
        return all(
            about is not None and self.node.directory.fingerprint_at(about.revision) is not None
            for about in node_infos.values()
        )

    def _strangers(self, answer: cluster_pb2.VerifyStateResponse) -> bool:
        return len(set(answer.fingerprints.values())) > 1

    def close(self) -> None:
        if self._check is not None:
            stop(self._check)
        self._helper.shutdown(wait=False, cancel_futures=True)


def stop(check: Check) -> None:
    """What it has asked for and is not decided on yet is withdrawn."""
    check.is_stopped = True
    if check.mending is not None:
        check.mending.cancel()


def ahead(name: str, about: NodeInfo, node: Node) -> str:
    """A node holds what its leader does not know as committed, and has had time to hear of."""
    return (
        f"{name} is at revision {about.revision} (entry {about.applied_index}), ahead of its "
        f"leader {node.name} at {node.revision} (entry {node.status().commit}): it took part in "
        "another history, or the others lost theirs; stop it, set its folder aside and keep it, "
        "since it may hold what was acknowledged, and start it with an empty one"
    )


def look(reading: Reading, check: Check) -> StateDifferences:
    """Check one state; on the helper."""
    records = 0
    for _ in reading.scan(b"\0", b"\xff" * 64):
        check.records = records = records + 1
    return StateDifferences(records, verify.verify(reading, FOUND_MAX))
