"""Who leads, where clients find each member, and who wants to know when that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .consensus_view import ConsensusView
from .leader_loop import Leader
from .peer_info import PeerDirectory


class Whereabouts:
    """See the head of this file."""

    def __init__(
        self,
        me: str,
        clients: Mapping[str, str],
        consensus: ConsensusView,
        leader: Leader,
        directory: PeerDirectory,
    ) -> None:
        # By name, where clients find each member as this node's settings list it.
        self._me, self._clients, self._consensus = me, clients, consensus
        self._leader, self._directory = leader, directory
        self._listeners: list[Callable[[], None]] = []

    @property
    def leader_name(self) -> str:
        if self._leader.leading:
            return self._me
        leader = self._consensus.known_leader
        # It may still be finding out that it leads no more.
        return leader if leader != self._me else ""

    @property
    def leader_address(self) -> str:
        """Where clients find the leader; empty when none is known."""
        return self.client_address(self.leader_name)

    def client_address(self, name: str) -> str:
        member = self._consensus.members.get(name)
        if member is not None and member.client:
            return member.client  # It was moved: what the cluster was given counts.
        info = self._directory.peer_infos.get(name)
        if info is not None:
            return info.client_address
        return self._clients.get(name, "")

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a listener called on the loop whenever any of this may have changed."""
        self._listeners.append(listener)

    def changed(self) -> None:
        for listener in self._listeners:
            listener()
