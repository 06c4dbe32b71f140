"""The cluster itself: members, leadership, draining, snapshots, and the check of the state.

Of these calls nothing is in the state, so their request ids are remembered in this node's memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from google.protobuf.message import Message

from ...proto.v1 import cluster_pb2
from ...statemachine.core.rejection import Fault, Reason, Refused
from ...statemachine.firing.set_time import LEAST_MS, consequences
from ...statemachine.model import validate
from ...statemachine.model.request import SetTime, TimeSet
from ..node import refusals
from ..node.node import Node
from ..raft import faults
from ..raft.membership import is_address
from .call import Call
from .cluster_status import StatusView, too_few
from .forward import FORWARDED, ForwardedAnswer, ForwardPeers
from .leadership import Leadership
from .node_port import NodePort
from .places import only_of
from .restore_calls import RestoreCalls
from .unary import OwnCall
from .verify import Verifier

HAND_OVER_S = 3.0
SEEN_S = 1.0  # How long a leader that has gone waits to see who leads now.
SNAPSHOT_LOOK_S = 0.02
REMEMBERED = 1_000
SET_TIME_LEVEL = 2
Status = cluster_pb2.ClusterStatus


class ClusterCalls:
    """The cluster service."""

    def __init__(
        self, node: Node, view: StatusView, peers: ForwardPeers, leadership: Leadership,
        shed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.node, self.view, self.peers, self.leadership = node, view, peers, leadership
        # Sends workers and watchers elsewhere.
        self.shed = shed
        self.verifier = Verifier(node, view)
        self.restores = RestoreCalls(node, self._need_level)
        self._answers: OrderedDict[str, tuple[bytes, Message]] = OrderedDict()

    def calls(self) -> Mapping[str, OwnCall]:
        return {
            "ClusterService/GetClusterStatus": self.status,
            "ClusterService/AddNode": self._once(self.add),
            "ClusterService/RemoveNode": self._once(self.remove),
            "ClusterService/MoveNode": self._once(self.move),
            "ClusterService/TransferLeadership": self._once(self.transfer),
            "ClusterService/DrainNode": self.drain,
            "ClusterService/TakeSnapshot": self._once(self.snapshot),
            "ClusterService/SetStateTime": self._once(self.set_time),
            "ClusterService/VerifyState": self.verifier.verify,
            "ClusterService/StageBackup": self.restores.stage,
            "ClusterService/RestoreBackup": self._once(self.restores.restore),
        }

    def _once(self, own: Callable[[Call, Any], Awaitable[Message]]) -> OwnCall:
        async def answer(call: Call, request: Any) -> Message:  # noqa: ANN401
            whole, request_id = request.SerializeToString(deterministic=True), request.request_id
            before = self._answers.get(request_id) if request_id else None
            if before is not None and before[0] != whole:
                raise refusals.refused(
                    Reason.ERROR_REASON_REQUEST_ID_REUSED,
                    f"the request_id '{request_id}' came before with another request; make a new "
                    "id for each request",
                    request_id=request_id,
                )
            if before is not None:
                return before[1]
            found = await own(call, request)
            if request_id:
                self._answers[request_id] = (whole, found)
                if len(self._answers) > REMEMBERED:
                    self._answers.popitem(last=False)
            return found

        return answer

    async def status(self, call: Call, request: cluster_pb2.GetClusterStatusRequest) -> Status:
        return self.view.show(only_of(cast("NodePort", self.node), call))

    # Members.

    async def add(self, call: Call, request: cluster_pb2.AddNodeRequest) -> Status:
        """Admit a node that has introduced itself."""
        addresses = {"peer_address": request.peer_address, "client_address": request.client_address}
        faults_ = validate.name("name", request.name)
        for field, address in addresses.items():
            faults_ += _address(field, address)
        faults_ += self._taken(request.name, addresses)
        if faults_:
            raise Refused.of(faults_)
        consensus = self.node.consensus
        if request.name in consensus.members:
            raise refusals.refused(
                Reason.ERROR_REASON_NAME_EXISTS,
                f"{request.name} is a member already; 'raftsched cluster status' shows all",
                kind="node",
                name=request.name,
            )
        listens = consensus.address_of_applicant(request.name)
        if listens and listens != request.peer_address:
            raise refusals.refused(
                Reason.ERROR_REASON_FIELD_INVALID,
                f"peer_address is {request.peer_address}, but {request.name} says that it listens "
                f"on {listens}; give that, or change its configuration",
                field="peer_address",
            )
        if request.validate_only:
            return self._tried(partial(consensus.check_add, request.name, request.client_address))
        add = partial(self.node.driver.add_member, request.name, request.client_address)
        return await self._change(call, add)

    async def remove(self, call: Call, request: cluster_pb2.RemoveNodeRequest) -> Status:
        """Take a node out of the cluster."""
        self._need(request.node)
        if request.validate_only:
            consensus = self.node.consensus
            shown = self._tried(partial(consensus.check_remove, request.node))
            left = len({*consensus.voters} - {request.node})
            shown.problems.extend(filter(None, [too_few(left, len(self.node.spec.members))]))
            return shown
        return await self._change(call, partial(self.node.driver.remove_member, request.node))

    async def move(self, call: Call, request: cluster_pb2.MoveNodeRequest) -> Status:
        """Write down that a node has other addresses."""
        self._need(request.node)
        faults_ = list(self._wrong_moves(request))
        if faults_:
            raise Refused.of(faults_)
        peer, client = request.peer_address, request.client_address
        member = self.node.consensus.members[request.node]
        if (peer or member.address, client or member.client) == (member.address, member.client):
            return self.view.show()
        if request.validate_only:
            return self._tried(partial(self.node.consensus.check_move, request.node, peer, client))
        move = partial(self.node.driver.move_member, request.node, peer, client)
        return await self._change(call, move)

    def _wrong_moves(self, request: cluster_pb2.MoveNodeRequest) -> Iterator[Fault]:
        addresses = {"peer_address": request.peer_address, "client_address": request.client_address}
        if not any(addresses.values()):
            yield Fault("peer_address", Reason.ERROR_REASON_FIELD_INVALID,
                        "and client_address are empty; say where the node is now")  # fmt: skip
        for field, address in addresses.items():
            if address:
                yield from _address(field, address)
        yield from self._taken(request.node, addresses)

    def _taken(self, node: str, addresses: Mapping[str, str]) -> Iterator[Fault]:
        """Addresses at which somebody else is already, or the same for two purposes."""
        taken = {
            address: f"where {who} reach {name}"
            for name, peer in self.node.status().peers.items()
            for who, address in (
                ("nodes", peer.address), ("clients", self.node.client_address(name)),
            )
            if name != node
        }  # fmt: skip
        for field, address in addresses.items():
            if address and address in taken:
                yield Fault(field, Reason.ERROR_REASON_FIELD_INVALID,
                            f"is '{address}', {taken[address]}; move that one first")  # fmt: skip
        if addresses["peer_address"] and addresses["peer_address"] == addresses["client_address"]:
            yield Fault("client_address", Reason.ERROR_REASON_FIELD_INVALID,
                        "is the peer_address too; nodes and clients need a port each")  # fmt: skip

    async def _change(self, call: Call, change: Callable[[float], Awaitable[int | None]]) -> Status:
        timeout = call.timeout()
        try:
            index = await change(timeout)
        except faults.CallRefused as refused:
            raise self._refused(refused) from refused
        if index is None:
            if call.timeout() > SNAPSHOT_LOOK_S:
                raise refusals.leader_changed(self.node.name)
            raise refusals.commit_timeout(timeout)
        return self.view.show()

    def _tried(self, change: Callable[[], object]) -> Status:
        """Refuse as the change itself would be."""
        try:
            change()
        except faults.CallRefused as refused:
            raise self._refused(refused) from refused
        return self.view.show()

    def _refused(self, refused: faults.CallRefused) -> Refused:
        if not self.node.leads:
            return refusals.not_leader(self.node.name, self.node.leader_address)
        return refusals.refused(
            Reason.ERROR_REASON_MEMBERSHIP_REFUSED, str(refused), detail=str(refused)
        )

    def _need(self, name: str) -> None:
        members = self.node.consensus.members
        if name not in members:
            raise refusals.refused(
                Reason.ERROR_REASON_NODE_NOT_FOUND,
                f"there is no node '{name}'; there are {', '.join(sorted(members))}",
                node=name,
            )

    # Leadership.

    async def transfer(self, call: Call, request: cluster_pb2.TransferLeadershipRequest) -> Status:
        """Hand the leadership over."""
        if request.node:
            self._need(request.node)
        if request.node != self.node.name and request.validate_only:
            self._need_target(request.node)
        elif request.node != self.node.name:
            await self._hand_over(call, request.node)
        return self.view.show()

    def _need_target(self, target: str) -> None:
        try:
            self.node.consensus.check_transfer(target)
        except faults.CallRefused as refused:
            raise self._stays(target, str(refused)) from refused

    def _stays(self, target: str, why: str) -> Refused:
        return refusals.refused(
            Reason.ERROR_REASON_TRANSFER_REFUSED,
            f"leadership stays at {self.node.name}: {why}",
            target=target,
        )

    async def _hand_over(self, call: Call, target: str) -> None:
        timeout = min(call.timeout(), HAND_OVER_S)
        try:
            gone = await self.node.driver.transfer(target or None, timeout)
        except faults.CallRefused as refused:
            raise self._stays(target, str(refused)) from refused
        if not gone:
            raise self._stays(target, "no follower took it over in time")
        give_up = self.leadership.clock() + min(SEEN_S, call.timeout())
        while not self.leadership.elsewhere() and self.leadership.clock() < give_up:
            await self.leadership.changed(give_up - self.leadership.clock())

    async def drain(
        self, call: Call, request: cluster_pb2.DrainNodeRequest
    ) -> Message | ForwardedAnswer:
        """Free a node of its duties, or let it serve again; another node does that itself."""
        node = self.node
        if request.node != node.name:
            return await self._pass_to(call, request)
        if request.validate_only:
            if node.leads and not request.resume:
                self._need_target("")
            return self.view.show()
        if request.resume:
            node.resume()
            self.shed("")
            return self.view.show()
        if node.leads:
            await self._hand_over(call, "")
        node.drain()
        self.shed(f"{node.name} was asked to drain")
        return self.view.show()

    async def _pass_to(self, call: Call, request: cluster_pb2.DrainNodeRequest) -> ForwardedAnswer:
        self._need(request.node)
        address = self.node.client_address(request.node)
        if address and FORWARDED not in call.metadata:
            passed = await self.peers.pass_on(call, request.SerializeToString(), address)
            if passed is not None:
                return passed
        raise refusals.no_quorum(self.node.name)

    # Snapshots.

    async def snapshot(
        self, call: Call, request: cluster_pb2.TakeSnapshotRequest
    ) -> cluster_pb2.TakeSnapshotResponse:
        """Write a snapshot now, unless there is one of this very state."""
        node, consensus = self.node, self.node.consensus
        revision, index = node.revision, consensus.applied_index
        while not request.validate_only and consensus.snapshot_index < index:
            if node.status().full:
                raise refusals.disk_full(node.name)
            consensus.make_snapshot()
            await asyncio.sleep(SNAPSHOT_LOOK_S)
        latest = consensus.latest_snapshot
        size = sum(file.size for file in latest.files) if latest is not None else 0
        return cluster_pb2.TakeSnapshotResponse(revision=revision, size=size)

    # Time.

    async def set_time(
        self, call: Call, request: cluster_pb2.SetStateTimeRequest
    ) -> cluster_pb2.SetStateTimeResponse:
        """Set the time of the state back to what the clocks say."""
        node = self.node
        await node.barrier(call.timeout())
        if not node.clock.sure or node.leader.skew_ms:
            raise refusals.clock_skew(node.leader.skew_ms)
        from_ms, to_ms = node.replica.meta.now_ms, node.clock.now_ms()
        if from_ms - to_ms < LEAST_MS:
            raise refusals.refused(
                Reason.ERROR_REASON_FIELD_INVALID,
                f"the state's time is {max(0, from_ms - to_ms)} ms ahead of the clocks, so there "
                "is nothing to set back",
                field="",
            )
        self._need_level(SET_TIME_LEVEL)
        snapshot = node.snapshot()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, consequences, snapshot, from_ms, to_ms)
        if request.validate_only:
            return found
        after = b""
        while True:
            body = SetTime(request, from_ms, to_ms, after)
            done = await node.ask(body, call.actor, call.timeout(), call.namespace)
            assert isinstance(done, TimeSet)
            after = done.after
            if not after:
                return found

    def _need_level(self, level: int) -> None:
        """Refuse what a member could not apply: it would end there."""
        for name in self.node.consensus.members:
            about = self.node.directory.peer_infos.get(name)
            if name != self.node.name and (about is None or about.feature_level < level):
                why = "has not shown what it knows" if about is None else f"runs {about.version}"
                raise refusals.refused(
                    Reason.ERROR_REASON_MEMBER_LACKS,
                    f"{name} {why}, and a version that does not know this would end by it; update "
                    "or start it first, or remove it from the cluster",
                    member=name,
                )


def _address(field: str, text: str) -> list[Fault]:
    if is_address(text):
        return []
    return [Fault(field, Reason.ERROR_REASON_FIELD_INVALID,
                           f"is '{text[:100]}'; write host:port")]  # fmt: skip
