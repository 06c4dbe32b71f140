"""A backup is put back into real nodes while they run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
from pathlib import Path

import grpc
import msgspec
import pytest

from raftsched.cluster.node import backup
from raftsched.cluster.node.applier import REPLACING
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    common_pb2,
    event_pb2,
    event_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from raftsched.statemachine import recovery
from raftsched.statemachine.calls import staging

from .real import Real, cluster, followers_of, leader_of, until
from .talk import Anything, create, refused
from .test_backup import archive_of
from .worker import Worker

CLUSTER = cluster_pb2_grpc.ClusterServiceStub
ACCESS = access_pb2_grpc.AccessServiceStub
EVENTS = event_pb2_grpc.EventServiceStub
JOBS = job_pb2_grpc.JobServiceStub
WORKERS = worker_pb2_grpc.WorkerServiceStub


async def send(real: Real, data: bytes, stage: str = "one") -> str:
    for offset in range(0, len(data), staging.PIECE_BYTES):
        piece = data[offset : offset + staging.PIECE_BYTES]
        answer = await real.stub(CLUSTER).StageBackup(
            cluster_pb2.StageBackupRequest(
                backup_id=stage,
                size=len(data),
                offset=offset,
                data=piece,
                request_id=f"{stage}-{offset}",
            )
        )
        assert answer.received == offset + len(piece)
    return stage


def asked(stage: str = "one", **options: Anything) -> cluster_pb2.RestoreBackupRequest:
    return cluster_pb2.RestoreBackupRequest(backup_id=stage, **options)


async def jobs_of(real: Real) -> set[str]:
    answer = await real.stub(JOBS).ListJobs(job_pb2.ListJobsRequest())
    return {job.name for job in answer.jobs}


async def met(nodes: dict[str, Real]) -> Real:
    """The leader, once all have told each other what they know."""
    await until(
        lambda: all(
            len(real.node.directory.peer_infos) >= len(nodes) - 1 for real in nodes.values()
        )
    )
    return leader_of(nodes)


async def sound(real: Real, count: int) -> None:
    """Only nodes that can be reached are compared, so all must be first."""

    def reached() -> int:
        peers = real.node.status().peers.items()
        return sum(peer.connected for name, peer in peers if name != real.node.name)

    await until(lambda: reached() == count - 1)
    found = await real.stub(CLUSTER).VerifyState(cluster_pb2.VerifyStateRequest())
    assert found.sound, found
    assert len(found.fingerprints) == count


async def test_the_state_of_the_backup_takes_the_place_of_the_present_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = await met(nodes), followers_of(nodes)[0]
        await leader.stub(JOBS).CreateJob(create("old"))
        data, was = await archive_of(leader), leader.node.revision
        await leader.stub(JOBS).CreateJob(create("new"))
        before = leader.node.revision
        status = await leader.stub(CLUSTER).GetClusterStatus(cluster_pb2.GetClusterStatusRequest())

        # By way of a follower, as any other call.
        await send(follower, data)
        answer = await follower.stub(CLUSTER).RestoreBackup(asked())

        assert (answer.backup_revision, answer.backup_cluster, answer.jobs) == (was, "test", 1)
        assert answer.former_revision >= before
        assert answer.revision > answer.former_revision + (recovery.SKIP >> 1)
        assert await jobs_of(leader) == {"old"}
        await leader.stub(JOBS).CreateJob(create("after"))
        await until(lambda: len({real.node.revision for real in nodes.values()}) == 1)
        await sound(leader, 3)
        after = await leader.stub(CLUSTER).GetClusterStatus(cluster_pb2.GetClusterStatusRequest())
        assert (after.cluster_id, after.term) == (status.cluster_id, status.term)
        notes = await leader.stub(ACCESS).ListAuditRecords(access_pb2.ListAuditRecordsRequest())
        assert "RestoreBackup" in {record.method for record in notes.records}
        # It changed each namespace, so it stands in the log of each.
        of_one = access_pb2.ListAuditRecordsRequest(namespace="default", filter="method:Restore")
        [restored] = (await leader.stub(ACCESS).ListAuditRecords(of_one)).records
        assert (restored.namespace, restored.subject) == ("", "cluster")
        # The same again changes nothing.
        again = await leader.stub(CLUSTER).RestoreBackup(asked())
        assert again.former_revision == answer.former_revision
        assert await jobs_of(leader) == {"old", "after"}
        folders = [real.node.replica.folder / REPLACING for real in nodes.values()]
        await until(lambda: not any(folder.exists() for folder in folders))


async def test_what_cannot_be_put_back_changes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        leader = await met(nodes)
        stub = leader.stub(CLUSTER)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)

        nothing = await refused(stub.RestoreBackup(asked()))
        assert (nothing.reason, "begin anew" in nothing.message) == ("FIELD_INVALID", True)
        await send(leader, data[:-2048] + bytes(2048))
        damaged = await refused(stub.RestoreBackup(asked()))
        assert damaged.reason == "FIELD_INVALID"
        assert "nothing was changed" in damaged.message
        # It was thrown away, so the next one may come.
        await stub.StageBackup(
            cluster_pb2.StageBackupRequest(backup_id="two", size=9, offset=0, data=b"part")
        )
        assert (await refused(stub.RestoreBackup(asked("two")))).reason == "FIELD_INVALID"
        other = await refused(send(leader, data, "three"))
        assert other.reason == "BACKLOG_FULL"
        assert await jobs_of(leader) == {"old"}


async def test_a_member_of_an_older_version_keeps_it_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = await met(nodes), followers_of(nodes)[0]
        data = await archive_of(leader)
        infos = leader.node.directory.peer_infos
        older = msgspec.structs.replace(infos[follower.name], feature_level=3)
        monkeypatch.setattr(leader.node.directory, "received", lambda peer, text: None)
        infos[follower.name] = older
        assert (await refused(send(leader, data))).reason == "MEMBER_LACKS"


async def test_what_is_given_up_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await met(nodes)
        await send(leader, bytes(100_000))
        monkeypatch.setattr(staging, "SILENT_MS", 0)
        await until(lambda: staging.staged_in(leader.node.replica.store) is None)
        await until(lambda: not staging.has_orphans(leader.node.replica.store))


async def test_a_member_that_was_away_comes_to_the_same_state(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, (away, _) = await met(nodes), followers_of(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await leader.stub(JOBS).CreateJob(create("new"))
        await away.kill()
        await send(leader, data)
        await leader.stub(CLUSTER).RestoreBackup(asked())
        back = Real(away.node.spec)
        nodes[away.name] = back
        await back.start()
        await until(lambda: back.node.revision == leader.node.revision)
        await leader.stub(JOBS).CreateJob(create("after"))
        await until(lambda: back.node.revision == leader.node.revision)
        await sound(leader, 3)
        assert await jobs_of(back) == {"old", "after"}


async def test_the_leader_is_lost_before_and_the_next_one_carries_it_out(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, (other, _) = await met(nodes), followers_of(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await leader.stub(JOBS).CreateJob(create("new"))
        await send(leader, data)
        await leader.kill()
        left = {name: real for name, real in nodes.items() if real is not leader}
        await until(lambda: any(real.node.leads for real in left.values()))
        # What was sent is in the state of whoever leads.
        answer = await other.stub(CLUSTER).RestoreBackup(asked())
        assert answer.jobs == 1
        assert await jobs_of(other) == {"old"}
        await sound(leader_of(left), 2)


async def test_all_nodes_are_lost_at_once_after_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await met(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await leader.stub(JOBS).CreateJob(create("new"))
        await send(leader, data)
        answer = await leader.stub(CLUSTER).RestoreBackup(asked())
        for name, real in list(nodes.items()):
            await real.stop()
            nodes[name] = Real(real.node.spec)
        for real in nodes.values():
            await real.start()
        await until(lambda: any(real.node.leads for real in nodes.values()))
        again = leader_of(nodes)
        assert await jobs_of(again) == {"old"}
        # Whoever did not hear of it asks again, and learns that it was done.
        repeated = await again.stub(CLUSTER).RestoreBackup(asked())
        assert repeated.former_revision == answer.former_revision
        await until(lambda: len({real.node.revision for real in nodes.values()}) == 1)
        await sound(again, 3)


async def test_watchers_are_told_that_there_is_a_gap(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        leader = await met(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await send(leader, data)
        watch = leader.stub(EVENTS).WatchEvents(event_pb2.WatchEventsRequest())
        await watch.read()

        async def to_the_end() -> str:
            while True:
                await watch.read()

        following = asyncio.ensure_future(to_the_end())
        await leader.stub(CLUSTER).RestoreBackup(asked())
        async with asyncio.timeout(30):
            assert (await refused(following)).reason == "REVISION_GONE"


async def test_a_node_without_room_keeps_it_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 1) as nodes:
        leader = await met(nodes)
        data = await archive_of(leader)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(backup, "_write", full)
        await send(leader, data)
        assert (await refused(leader.stub(CLUSTER).RestoreBackup(asked()))).reason == "DISK_FULL"
        monkeypatch.undo()
        # It was thrown away; with room it is done.
        await send(leader, data, "two")
        await leader.stub(CLUSTER).RestoreBackup(asked("two"))


async def test_everybody_sees_one_state_or_the_other(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await met(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await leader.stub(JOBS).DeleteJob(job_pb2.DeleteJobRequest(job="old"))
        await leader.stub(JOBS).CreateJob(create("new"))
        await until(lambda: len({real.node.revision for real in nodes.values()}) == 1)
        seen: dict[str, list[str]] = {}

        async def look(real: Real, options: common_pb2.ReadOptions, key: str) -> None:
            while True:
                answer = await real.stub(JOBS).ListJobs(job_pb2.ListJobsRequest(read=options))
                names = sorted(job.name for job in answer.jobs)
                seen.setdefault(key, []).append(",".join(names))

        fresh = common_pb2.ReadOptions()
        stale = common_pb2.ReadOptions(consistency=common_pb2.CONSISTENCY_STALE)
        looking = [
            asyncio.ensure_future(look(real, options, f"{name} {what}"))
            for name, real in nodes.items()
            for what, options in (("fresh", fresh), ("stale", stale))
        ]
        await send(leader, data)
        await leader.stub(CLUSTER).RestoreBackup(asked())
        done = {key: len(found) for key, found in seen.items()}
        await until(lambda: all(len(seen[key]) > count + 3 for key, count in done.items()))
        for one in looking:
            one.cancel()
        await asyncio.wait(looking)
        assert len(seen) == 6
        for found in seen.values():
            # First the one, then the other, and nothing else.
            assert [name for name, _ in itertools.groupby(found)] == ["new", "old"], found


async def test_what_was_leased_then_is_done_again_and_its_token_counts_no_more(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await met(nodes)
        await leader.stub(JOBS).CreateJob(create("a"))
        await leader.stub(JOBS).TriggerJob(job_pb2.TriggerJobRequest(job="a"))
        worker = await Worker(leader.channel).hello(credits=1)
        await worker.until(lambda: bool(worker.leases))
        [lease] = worker.leases
        data = await archive_of(leader)
        await send(leader, data)
        answer = await leader.stub(CLUSTER).RestoreBackup(asked())
        assert answer.live_runs == 1
        worker.call.cancel()
        late = worker_pb2.CompleteRequest(run=lease.run, token=lease.token)
        assert (await refused(leader.stub(WORKERS).Complete(late))).reason == "LEASE_LOST"
        other = await Worker(leader.channel).hello(credits=1)
        await other.until(lambda: bool(other.leases))
        [again] = other.leases
        assert (again.run, again.attempt) == (lease.run, lease.attempt + 1)
        assert again.token > lease.token + (1 << 39)
        other.call.cancel()


@pytest.mark.parametrize("proposed", [False, True])
async def test_the_leader_is_lost_in_the_middle_of_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, proposed: bool
) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await met(nodes)
        await leader.stub(JOBS).CreateJob(create("old"))
        data = await archive_of(leader)
        await leader.stub(JOBS).CreateJob(create("new"))
        await send(leader, data)
        submit = {name: real.node.driver.submit_switch for name, real in nodes.items()}
        ending: dict[str, asyncio.Task[None]] = {}

        # On a busy machine another one may lead by now: whoever does is lost.
        for real in nodes.values():

            def lost(entry: bytes, reply: Anything, real: Real = real) -> None:
                if proposed or ending:
                    submit[real.name](entry, reply)
                if not ending:
                    ending[real.name] = asyncio.ensure_future(real.kill())

            monkeypatch.setattr(real.node.driver, "submit_switch", lost)
        # It may have heard of it all the same.
        with contextlib.suppress(grpc.aio.AioRpcError):
            await leader.stub(CLUSTER).RestoreBackup(asked(), timeout=10)
        await asyncio.gather(*ending.values())
        [gone] = ending
        monkeypatch.undo()
        # Whoever asked does not know what came of it, and asks again, whoever leads now.
        one, other = (real for real in nodes.values() if real.name != gone)
        await until(lambda: one.node.leads or other.node.leads)
        answer = await one.stub(CLUSTER).RestoreBackup(asked())
        assert (answer.jobs, answer.backup_cluster) == (1, "test")
        assert await jobs_of(one) == {"old"}
        nodes[gone] = back = Real(nodes[gone].node.spec)
        await back.start()
        await until(lambda: len({real.node.revision for real in nodes.values()}) == 1)
        await sound(one, 3)
