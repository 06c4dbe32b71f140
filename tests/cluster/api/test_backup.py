"""Backups of real nodes."""

from __future__ import annotations

import io
import json
import random
import tarfile
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from raftsched.cluster.api import backup_calls
from raftsched.proto.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2_grpc
from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.selfcheck import verify

from .real import Real, cluster, followers_of, leader_of, until
from .talk import Anything, create, refusal_of

CLUSTER = cluster_pb2_grpc.ClusterServiceStub
JOBS = job_pb2_grpc.JobServiceStub
REQUEST = cluster_pb2.BackupRequest()


async def archive_of(real: Real) -> bytes:
    answers = [answer async for answer in real.stub(CLUSTER).Backup(REQUEST)]
    assert [bool(answer.total) for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert answers[0].total == sum(len(answer.data) for answer in answers)
    return b"".join(answer.data for answer in answers)


def nothing_left(real: Real) -> bool:
    folder = real.node.backups
    return not folder.exists() or not list(folder.iterdir())


async def test_an_archive_holds_the_state_of_one_revision(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, asked = leader_of(nodes), followers_of(nodes)[0]
        for number in range(20):
            await leader.stub(JOBS).CreateJob(create(f"job-{number}"))
        # The default alerts are made in a change of their own, or in that of a job.
        last = leader.node.revision
        await until(lambda: asked.node.revision == last)
        data = await archive_of(asked)
        meta = asked.node.replica.meta
        await until(lambda: nothing_left(asked))

    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        files = {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]
        archive.extractall(tmp_path / "out", filter="data")
    said = json.loads(files.pop("manifest.json"))
    assert names[-1] == "manifest.json"
    assert (said["format"], said["cluster"], said["node"]) == (1, "test", asked.name)
    assert (said["revision"], said["fingerprint"]) == (last, meta.fingerprint.hex())
    assert {file["name"]: (file["size"], file["sha256"]) for file in said["files"]} == {
        name: (len(body), sha256(body).hexdigest()) for name, body in files.items()
    }
    store = RocksStore(tmp_path / "out" / "state")
    assert read_meta(store) == meta
    assert len(list(store.scan(keys.JOB, keys.after(keys.JOB)))) == 20
    assert verify.verify(store) == []
    store.close()


async def test_what_happens_meanwhile_is_not_in_it_and_does_not_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        await real.stub(JOBS).CreateJob(create("before"))
        call = aiter(real.stub(CLUSTER).Backup(REQUEST))
        first = await anext(call)
        first_revision = real.node.revision
        for number in range(10):
            await real.stub(JOBS).CreateJob(create(f"meanwhile-{number}"))
        snapshot = await real.stub(CLUSTER).TakeSnapshot(cluster_pb2.TakeSnapshotRequest())
        # Alerts may have come and gone beside them.
        assert snapshot.revision >= first_revision + 10
        data = first.data + b"".join([answer.data async for answer in call])
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            body = archive.extractfile("manifest.json")
            assert body is not None
            assert json.loads(body.read())["revision"] <= first_revision


async def test_a_caller_that_leaves_or_does_not_read_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One piece is more than gRPC buffers for who does not read.
    monkeypatch.setattr(backup_calls, "UNREAD_S", 0.3)
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        for number in range(120):
            request = create(f"job-{number}")
            request.job.spec.payload.data = random.Random(number).randbytes(60_000)
            await real.stub(JOBS).CreateJob(request)
        left = real.stub(CLUSTER).Backup(REQUEST)
        await left.read()
        assert not nothing_left(real)
        left.cancel()
        await until(lambda: nothing_left(real))

        unread = real.stub(CLUSTER).Backup(REQUEST)
        await until(lambda: not nothing_left(real))
        await until(lambda: nothing_left(real))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in unread:
                pass
        found = refusal_of(ended.value)
        assert (found.reason, "nobody read" in found.message) == ("BACKLOG_FULL", True)
        assert len(await archive_of(real)) > 5_000_000


async def test_backups_are_bounded_and_a_node_that_doubts_its_state_gives_none(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        await real.stub(JOBS).CreateJob(create("report"))

        async def refusal() -> str:
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await archive_of(real)
            return refusal_of(ended.value).reason

        calls: Anything = real.server._following["ClusterService/Backup"][0]
        calls.__self__.under_way = backup_calls.BACKUPS_MAX
        assert await refusal() == "BACKLOG_FULL"
        calls.__self__.under_way = 0
        real.node.directory.diverged = True
        assert await refusal() == "STATE_DIVERGED"
        real.node.directory.diverged = False
        real.node.driver.core.node.journal_full = True
        assert await refusal() == "DISK_FULL"
        real.node.driver.core.node.journal_full = False


async def test_files_of_a_backup_that_a_crash_left_go_at_the_start(tmp_path: Path) -> None:
    left = tmp_path / "n1" / "backups" / "1"
    left.mkdir(parents=True)
    (left / "000012.sst").write_bytes(b"left")
    async with cluster(tmp_path, 1):
        assert not left.exists()
