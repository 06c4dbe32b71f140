"""The cluster itself: who is there, who leads, snapshots, and the check of the state."""

from __future__ import annotations

from collections.abc import Mapping

from ..feed import Feed
from .calls import Own
from .forward import Peers
from .port import Node


class ClusterCalls:
    """The cluster service."""

    def __init__(self, node: Node, feed: Feed, peers: Peers) -> None:
        self.node, self.feed, self.peers = node, feed, peers

    def calls(self) -> Mapping[str, Own]:
        return {}
