"""The cluster itself, its workers, who may do what, and what to be told about."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from io import SEEK_END
from typing import BinaryIO, Literal, TypedDict, Unpack
from uuid import uuid4

from ....proto.v1 import access_pb2, alert_pb2, cluster_pb2, options_pb2, worker_pb2
from ...sdk import fields
from ...sdk.errors import OutcomeUnknown, Unavailable
from ...sdk.fields import Fields, same
from ...sdk.options import EachCall, ReadOptions, Writing, of_the_call, parted
from ...sdk.values import Length, choice, duration, timestamp
from .service import AsyncService

PIECE_BYTES = 240 << 10  # Of a backup, as StageBackup takes it.
RoleWord = Literal["admin", "editor", "worker", "viewer"]


class AsyncCluster(AsyncService):
    """Look at the cluster and change its members."""

    async def status(self, **options: Unpack[EachCall]) -> cluster_pb2.ClusterStatus:
        """The cluster as one node sees it: that of `endpoint`, or any.

        print((await client.cluster.status()).leader)
        """
        return await self._status(cluster_pb2.GetClusterStatusRequest(), options)

    async def add(
        self, name: str, peer_address: str, client_address: str, **options: Unpack[Writing]
    ) -> cluster_pb2.ClusterStatus:
        """Add a node; it learns first and votes once it has caught up.

        await client.cluster.add("n4", "10.0.0.4:7401", "10.0.0.4:7400")
        """
        request = cluster_pb2.AddNodeRequest(
            name=name, peer_address=peer_address, client_address=client_address
        )
        return await self._status(request, options)

    async def remove(self, node: str, **options: Unpack[Writing]) -> cluster_pb2.ClusterStatus:
        """Remove a node; it is told and stops.

        await client.cluster.remove("n4")
        """
        return await self._status(cluster_pb2.RemoveNodeRequest(node=node), options)

    async def move(
        self,
        node: str,
        *,
        peer_address: str = "",
        client_address: str = "",
        **options: Unpack[Writing],
    ) -> cluster_pb2.ClusterStatus:
        """Give a node other addresses; its name and its state stay.

        await client.cluster.move("n3", peer_address="10.0.0.9:7401")
        """
        request = cluster_pb2.MoveNodeRequest(
            node=node, peer_address=peer_address, client_address=client_address
        )
        return await self._status(request, options)

    async def drain(
        self, node: str, *, resume: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.ClusterStatus:
        """Free a node of its duties before it is stopped, or let it serve again.

        await client.cluster.drain("n3")
        """
        request = cluster_pb2.DrainNodeRequest(node=node, resume=resume)
        return await self._status(request, options)

    async def transfer(
        self, node: str = "", **options: Unpack[Writing]
    ) -> cluster_pb2.ClusterStatus:
        """Hand the leadership over, to `node` or to the follower that is furthest.

        await client.cluster.transfer("n2")
        """
        return await self._status(cluster_pb2.TransferLeadershipRequest(node=node), options)

    async def snapshot(self, **options: Unpack[Writing]) -> cluster_pb2.TakeSnapshotResponse:
        """Make a snapshot on a node, now.

        await client.cluster.snapshot(endpoint="10.0.0.2:7400")
        """
        request = cluster_pb2.TakeSnapshotRequest()
        return await self._send(request, cluster_pb2.TakeSnapshotResponse, options)

    async def set_time(self, **options: Unpack[Writing]) -> cluster_pb2.SetStateTimeResponse:
        """Set the state's time back to what the clocks say, after clocks that were ahead.

        print((await client.cluster.set_time(validate_only=True)).scheduled_times)
        """
        request = cluster_pb2.SetStateTimeRequest()
        return await self._send(request, cluster_pb2.SetStateTimeResponse, options)

    async def verify(
        self, *, repair: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.VerifyStateResponse:
        """Compute all that is derived anew and compare, on one node.

        assert (await client.cluster.verify(timeout=600)).sound
        """
        request = cluster_pb2.VerifyStateRequest(repair=repair)
        return await self._send(request, cluster_pb2.VerifyStateResponse, options)

    async def backup(self, **options: Unpack[EachCall]) -> AsyncGenerator[bytes, None]:
        """A backup of a node while it runs, piece by piece; Unavailable if it breaks off.

        with open("backup.tar", "wb") as file:
            async for piece in client.cluster.backup():
                file.write(piece)
        """
        total = seen = 0
        request = cluster_pb2.BackupRequest()
        async with aclosing(self._client.stream(request, **of_the_call(options))) as responses:
            async for response in responses:
                total = total or response.total
                seen += len(response.data)
                yield response.data
        if seen != total:
            raise Unavailable(f"the backup ended after {seen:,} of {total:,} bytes; make it again")

    async def restore(
        self, archive: BinaryIO, *, other_cluster: bool = False, **options: Unpack[Writing]
    ) -> cluster_pb2.RestoreBackupResponse:
        """Put a backup in the place of the state while the cluster runs. What came behind the
        backup is lost; `timeout` holds for the exchange, which waits until all nodes are ready.

        with open("backup.tar", "rb") as file:
            await client.cluster.restore(file, timeout=600)
        """
        size, offset, backup_id = archive.seek(0, SEEK_END), 0, str(uuid4())
        archive.seek(0)
        while piece := archive.read(PIECE_BYTES):
            part = cluster_pb2.StageBackupRequest(
                backup_id=backup_id, size=size, offset=offset, data=piece
            )
            await self._send(part, cluster_pb2.StageBackupResponse, {})
            offset += len(piece)
        request = cluster_pb2.RestoreBackupRequest(backup_id=backup_id, other_cluster=other_cluster)
        return await self._send(request, cluster_pb2.RestoreBackupResponse, options)

    async def _status(
        self,
        request: cluster_pb2.GetClusterStatusRequest
        | cluster_pb2.AddNodeRequest
        | cluster_pb2.RemoveNodeRequest
        | cluster_pb2.MoveNodeRequest
        | cluster_pb2.DrainNodeRequest
        | cluster_pb2.TransferLeadershipRequest,
        options: EachCall,
    ) -> cluster_pb2.ClusterStatus:
        return await self._send(request, cluster_pb2.ClusterStatus, options)


class AsyncWorkers(AsyncService):
    """The workers that the leader knows."""

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[EachCall]
    ) -> AsyncIterator[worker_pb2.Worker]:
        """The sessions by id; `namespace=""` lists all.

        async for worker in client.workers.list("queue=mail"):
            print(worker.worker, worker.leased, worker.slots)
        """
        request = worker_pb2.ListWorkersRequest(filter=filter)
        return self._items(request, "workers", limit, options)

    async def drain(
        self, worker: str, reason: str = "", **options: Unpack[Writing]
    ) -> worker_pb2.DrainWorkerResponse:
        """Tell a worker to finish what it has and take no more.

        await client.workers.drain("host-1.4711.x7", "new version")
        """
        request = worker_pb2.DrainWorkerRequest(worker=worker, reason=reason)
        return await self._send(request, worker_pb2.DrainWorkerResponse, options)


class AsyncAccess(AsyncService):
    """Access tokens and the audit log."""

    async def whoami(self, **options: Unpack[EachCall]) -> access_pb2.Caller:
        """Who calls, and what they may do.

        print((await client.access.whoami()).name)
        """
        return await self._send(access_pb2.WhoAmIRequest(), access_pb2.Caller, options)

    async def create_token(
        self,
        name: str,
        role: RoleWord,
        *,
        see_payloads: bool = False,
        calls_per_second: int = 0,
        expires: datetime | None = None,
        **options: Unpack[Writing],
    ) -> access_pb2.CreateAccessTokenResponse:
        """Create an access token for the namespace; `namespace=""` is for all of them.

        print((await client.access.create_token("ci", "editor")).secret)
        """
        token = access_pb2.AccessToken(
            name=name, role=choice(options_pb2.Role, "ROLE_", role),
            namespace=self._namespace(options), see_payloads=see_payloads,
            expire_time=timestamp(expires), calls_per_second=calls_per_second,
        )  # fmt: skip
        request = access_pb2.CreateAccessTokenRequest(access_token=token)
        made = await self._send(request, access_pb2.CreateAccessTokenResponse, options)
        if not made.secret and not options.get("validate_only"):
            raise OutcomeUnknown(
                f"the access token {name!r} was created, but its secret was lost with the first "
                "answer and is never shown again; revoke it and create another one"
            )
        return made

    def list_tokens(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[access_pb2.AccessToken]:
        """The access tokens by name, without their secrets.

        async for token in client.access.list_tokens():
            print(token.name)
        """
        request = access_pb2.ListAccessTokensRequest()
        return self._items(request, "access_tokens", limit, options)

    async def rotate_token(
        self, name: str, *, overlap: Length | None = None, **options: Unpack[Writing]
    ) -> access_pb2.RotateAccessTokenResponse:
        """Give an access token another secret; the former one opens as well for an hour, or as
        long as `overlap` says.

        print((await client.access.rotate_token("ci")).secret)
        """
        request = access_pb2.RotateAccessTokenRequest(access_token=name, overlap=duration(overlap))
        made = await self._send(request, access_pb2.RotateAccessTokenResponse, options)
        if not made.secret and not options.get("validate_only"):
            raise OutcomeUnknown(
                f"the access token {name!r} was rotated, but its new secret was lost with the "
                "first answer and is never shown again; rotate it again, the former one still opens"
            )
        return made

    async def revoke_token(self, name: str, **options: Unpack[Writing]) -> None:
        """Make an access token invalid.

        await client.access.revoke_token("ci")
        """
        request = access_pb2.RevokeAccessTokenRequest(access_token=name)
        await self._send(request, access_pb2.RevokeAccessTokenResponse, options)

    def records(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[access_pb2.AuditRecord]:
        """Who changed what, newest first.

        async for record in client.access.records("subject=job/report"):
            print(record.time, record.actor, record.method, record.change)
        """
        request = access_pb2.ListAuditRecordsRequest(filter=filter)
        return self._items(request, "records", limit, options)


class AlertOptions(TypedDict, total=False):
    """What may be said about an alert: one condition, and what to do."""

    dead_letters_above: int
    lateness_above: Length
    # Queue and minimum.
    workers_below: tuple[str, int]
    broken_jobs_above: int
    # From here on for the cluster only: `namespace=""`.
    no_margin: bool
    clock_skew_above: Length
    no_quorum: bool
    long_step_above: Length
    leader_changes_above: int
    members_differ: bool
    set_aside_above: int
    # For all of them.
    hold: Length
    webhook: str
    etag: str


class AlertWriting(AlertOptions, Writing, total=False):
    """What may be said where an alert is written."""


class AsyncAlerts(AsyncService):
    """Conditions to be told about."""

    async def put(self, name: str, **options: Unpack[AlertWriting]) -> alert_pb2.Alert:
        """Create or replace an alert.

        await client.alerts.put("stuck", lateness_above=timedelta(minutes=5), webhook="https://...")
        """
        about, writing = parted(options)
        alert = alert_pb2.Alert(namespace=self._namespace(writing), name=name)
        fields.write(alert, about, _ALERT)
        return await self._send(alert_pb2.PutAlertRequest(alert=alert), alert_pb2.Alert, writing)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[alert_pb2.Alert]:
        """The alerts of the namespace by name; `namespace=""` lists the cluster's.

        async for alert in client.alerts.list():
            print(alert.name, alert.HasField("raised_time"))
        """
        return self._items(alert_pb2.ListAlertsRequest(), "alerts", limit, options)

    async def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete an alert.

        await client.alerts.delete("stuck")
        """
        request = alert_pb2.DeleteAlertRequest(alert=name, etag=etag)
        await self._send(request, alert_pb2.DeleteAlertResponse, options)


def _workers_below(value: tuple[str, int]) -> alert_pb2.WorkersBelow:
    return alert_pb2.WorkersBelow(queue=value[0], minimum=value[1])


_ALERT: Fields = {
    "dead_letters_above": ("condition.dead_letters_above", same),
    "lateness_above": ("condition.lateness_above", duration),
    "workers_below": ("condition.workers_below", _workers_below),
    "no_margin": ("condition.no_margin", same),
    "clock_skew_above": ("condition.clock_skew_above", duration),
    "no_quorum": ("condition.no_quorum", same),
    "broken_jobs_above": ("condition.broken_jobs_above", same),
    "long_step_above": ("condition.long_step_above", duration),
    "leader_changes_above": ("condition.leader_changes_above", same),
    "members_differ": ("condition.members_differ", same),
    "set_aside_above": ("condition.set_aside_above", same),
    "hold": ("hold", duration),
    "webhook": ("webhook", same),
    "etag": ("etag", same),
}
