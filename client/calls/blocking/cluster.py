# Made from aio/cluster.py by calls/generate.py; write there.
"""Look at the cluster and change its members."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Unpack

from ....proto.v1 import cluster_pb2
from ...sdk.options import EachCall, Writing
from ...sdk.ranges import made
from ...sdk.values import Length, choice, duration, timestamp
from .cluster_by_hand import ClusterByHand


class Cluster(ClusterByHand):
    """Look at the cluster and change its members."""

    def status(self, **options: Unpack[EachCall]) -> cluster_pb2.ClusterStatus:
        """The cluster as one node sees it: that of `endpoint`, or any.

        print(client.cluster.status().leader)
        """
        request = cluster_pb2.GetClusterStatusRequest()
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def figures(
        self,
        *,
        step: Literal["second", "ten_seconds", "minute"] | None = None,
        since: datetime | None = None,
        **options: Unpack[EachCall],
    ) -> cluster_pb2.GetFiguresResponse:
        """Get how the cluster has done, the oldest first. Every node keeps it in memory since it
        started, so the node that is asked answers by itself, also without a leader. The newest
        entry grows as long as its stretch lasts: ask again from its time.

        for one in client.cluster.figures(step="minute").figures:
            print(one)
        """
        request = made(
            cluster_pb2.GetFiguresRequest,
            step=None if step is None else choice(cluster_pb2.Figures.Step, "STEP_", step),
            since_time=timestamp(since),
        )
        return self._send(request, cluster_pb2.GetFiguresResponse, options)

    def add(
        self, name: str, peer_address: str, client_address: str, **options: Unpack[Writing]
    ) -> cluster_pb2.ClusterStatus:
        """Add a node that was started with this cluster's nodes in its list. It learns first and
        votes once it has caught up.

        client.cluster.add("n4", "10.0.0.4:7401", "10.0.0.4:7400")
        """
        request = made(
            cluster_pb2.AddNodeRequest,
            name=name,
            peer_address=peer_address,
            client_address=client_address,
        )
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def remove(self, node: str, **options: Unpack[Writing]) -> cluster_pb2.ClusterStatus:
        """Remove a node; it is notified and stops.

        client.cluster.remove("n4")
        """
        request = made(cluster_pb2.RemoveNodeRequest, node=node)
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def move(
        self,
        node: str,
        *,
        peer_address: str = "",
        client_address: str = "",
        **options: Unpack[Writing],
    ) -> cluster_pb2.ClusterStatus:
        """Give a node other addresses; its name and its state stay.

        client.cluster.move("n3", peer_address="10.0.0.9:7401")
        """
        request = made(
            cluster_pb2.MoveNodeRequest,
            node=node,
            peer_address=peer_address,
            client_address=client_address,
        )
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def drain(
        self, node: str, *, resume: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.ClusterStatus:
        """Free a node of its duties before it is stopped: it hands the leadership over, sends
        workers and watchers elsewhere and refuses new calls with DRAINING, but still votes and
        keeps its copy. `resume` takes that back.

        client.cluster.drain("n3")
        """
        request = made(cluster_pb2.DrainNodeRequest, node=node, resume=resume)
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def transfer(self, node: str = "", **options: Unpack[Writing]) -> cluster_pb2.ClusterStatus:
        """Hand the leadership over, to `node` or to the follower that is furthest.

        client.cluster.transfer("n2")
        """
        request = made(cluster_pb2.TransferLeadershipRequest, node=node)
        return self._send(request, cluster_pb2.ClusterStatus, options)

    def snapshot(self, **options: Unpack[Writing]) -> cluster_pb2.TakeSnapshotResponse:
        """Make a snapshot on the node that is asked, now.

        client.cluster.snapshot(endpoint="10.0.0.2:7400")
        """
        request = cluster_pb2.TakeSnapshotRequest()
        return self._send(request, cluster_pb2.TakeSnapshotResponse, options)

    def set_time(self, **options: Unpack[Writing]) -> cluster_pb2.SetStateTimeResponse:
        """Set the time of the state back to what the clocks say, after clocks that were ahead
        have moved it. While it is ahead nothing that was planned comes to pass. What was decided
        meanwhile, ahead of its time, will not come again; `validate_only` says how much that is.
        A job that decided so stands still until the last such time, or until ResumeJob or other
        schedules.

        print(client.cluster.set_time(validate_only=True).scheduled_times)
        """
        request = cluster_pb2.SetStateTimeRequest()
        return self._send(request, cluster_pb2.SetStateTimeResponse, options)

    def verify(
        self, *, repair: bool = False, wait: Length | None = None, **options: Unpack[Writing]
    ) -> cluster_pb2.VerifyStateResponse:
        """Compute every derived table and counter anew on the node that is asked and compare; and
        compare the fingerprints of all reachable nodes at one revision. One check goes on at a
        time: whoever asks meanwhile gets the answer of that one. It ends when nobody has waited
        for it for 5 s.

        assert client.cluster.verify(timeout=600).sound
        """
        request = made(cluster_pb2.VerifyStateRequest, repair=repair, wait=duration(wait))
        return self._send(request, cluster_pb2.VerifyStateResponse, options)
