"""New clusters out of what is left of old ones: whole nodes, in one process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node.node_spec import MemberAddresses, NodeSpec
from raftsched.cluster.ops import config as configs
from raftsched.cluster.ops.config import Config
from raftsched.cluster.ops.data_dir import Folder
from raftsched.cluster.ops.exits import NodeCannotStart, NodeExit
from raftsched.cluster.ops.recovery import Standing, look, recover, restore
from raftsched.cluster.raft.disk import RealDisk
from raftsched.cluster.raft.faults import Broken
from raftsched.cluster.raft.journal import Journal, JournalLimits
from raftsched.cluster.raft.snapshot import Snapshots
from raftsched.proto.v1 import cluster_pb2, event_pb2, event_pb2_grpc, job_pb2, job_pb2_grpc
from raftsched.statemachine.selfcheck import verify

from ..api.real import Real, cluster, followers_of, leader_of, until
from ..api.talk import Anything, create, refusal_of
from ..api.test_backup import CLUSTER, archive_of
from ..api.worker import Worker

JOBS = job_pb2_grpc.JobServiceStub
NAMES = ("n1", "n2", "n3")


def yes(standing: Standing) -> bool:
    return True


class Housed(Real):
    """A node that holds its folder as its process would."""

    def __init__(self, spec: NodeSpec) -> None:
        self.folder = Folder(spec.folder, spec.cluster, spec.name)
        super().__init__(spec)

    async def kill(self) -> None:
        await super().kill()
        self.folder.close()


class Place:
    """Where a cluster is to be: addresses and folders."""

    def __init__(self, folder: Path, name: str = "test", names: tuple[str, ...] = NAMES) -> None:
        self.folder, self.name = folder, name
        ports = free_ports(6)
        self.members = {
            node: MemberAddresses(
                peer=f"127.0.0.1:{ports.pop()}", client=f"127.0.0.1:{ports.pop()}"
            )
            for node in names
        }

    def config(self, node: str) -> Config:
        members = {
            n: configs.MemberSection(peer=m.peer, client=m.client) for n, m in self.members.items()
        }
        return Config(
            name=node, cluster=self.name, folder=str(self.folder / node), members=members,
            segment_mb=8, cache_mb=8,
        )  # fmt: skip

    def node(self, node: str) -> Real:
        return Housed(
            NodeSpec(
                name=node, cluster=self.name, folder=self.folder / node, members=self.members,
                cache_bytes=8 << 20, version="1.2.3", journal=JournalLimits(segment=8 << 20),
            )
        )  # fmt: skip


@asynccontextmanager
async def running(place: Place, names: Iterable[str]) -> AsyncIterator[dict[str, Real]]:
    nodes = {name: place.node(name) for name in names}
    try:
        for real in nodes.values():
            await real.start()
        yield nodes
    finally:
        for real in nodes.values():
            await real.stop()


async def one_voice(nodes: dict[str, Real]) -> None:
    """Wait until all of them vote and have one state."""
    await until(lambda: any(real.node.leads for real in nodes.values()))
    await until(lambda: all(sum(p.voter for p in r.node.status().peers.values()) == len(nodes)
                            for r in nodes.values()), 30)  # fmt: skip
    await until(lambda: len({r.node.replica.meta.fingerprint for r in nodes.values()}) == 1)


async def saved(folder: Path) -> tuple[Path, Anything]:
    """A backup of a cluster in which a run is leased, and the lease."""
    async with cluster(folder, 3) as nodes:
        leader, asked = leader_of(nodes), followers_of(nodes)[0]
        for number in range(5):
            await leader.stub(JOBS).CreateJob(create(f"job-{number}"))
        await leader.stub(JOBS).TriggerJob(job_pb2.TriggerJobRequest(job="job-0"))
        worker = await Worker(leader.channel).hello(credits=1)
        await worker.until(lambda: bool(worker.leases))
        [lease] = worker.leases
        await until(lambda: len({r.node.revision for r in nodes.values()}) == 1)
        data = await archive_of(asked)
        worker.call.cancel()
    file = folder / "backup.tar"
    await asyncio.to_thread(file.write_bytes, data)
    return file, lease


async def test_a_backup_becomes_a_cluster_of_three(tmp_path: Path) -> None:
    file, lease = await saved(tmp_path / "old")
    place = Place(tmp_path / "new")

    made = restore(place.config("n2"), file)

    assert (made.jobs, made.live_runs, made.others) == (5, 1, ["n1", "n3"])
    async with running(place, ["n2", "n1", "n3"]) as nodes:
        await until(lambda: nodes["n2"].node.leads)
        await one_voice(nodes)
        leader = leader_of(nodes)
        meta = leader.node.replica.meta
        assert meta.revision > made.revision + (1 << 39)
        assert verify.verify(leader.node.replica.store) == []
        worker = await Worker(leader.channel).hello(credits=1)
        await worker.until(lambda: bool(worker.leases))
        [again] = worker.leases
        assert again.run == lease.run
        assert again.token > lease.token + (1 << 39)
        worker.call.cancel()
        audit = job_pb2.AuditJobRequest(job="job-0")
        assert (await leader.stub(JOBS).AuditJob(audit)).sound
        # Nobody goes on watching from a revision whose successors were lost.
        request = event_pb2.WatchEventsRequest()
        request.after.change = made.revision + 3
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await leader.stub(event_pb2_grpc.EventServiceStub).WatchEvents(request).read()
        assert refusal_of(ended.value).reason == "REVISION_GONE"
        await nodes["n2"].kill()
        await until(lambda: any(r.up and r.node.leads for r in nodes.values()))
        await leader_of(nodes).stub(JOBS).CreateJob(create("after"))


async def test_a_backup_is_put_back_where_nothing_is_lost_by_it(tmp_path: Path) -> None:
    file, _ = await saved(tmp_path / "old")
    place = Place(tmp_path / "new")
    data = file.read_bytes()
    bent, cut = tmp_path / "bent.tar", tmp_path / "cut.tar"
    bent.write_bytes(data[:3_000] + bytes([data[3_000] ^ 1]) + data[3_001:])
    cut.write_bytes(data[: len(data) // 2])

    def code(place: Place, archive: Path, node: str = "n1") -> int:
        with pytest.raises(NodeCannotStart) as refused:
            restore(place.config(node), archive)
        return refused.value.code

    for wrong in (bent, cut, tmp_path / "none.tar"):
        assert code(place, wrong) == NodeExit.NO_BACKUP
        assert not list((tmp_path / "new" / "n1").glob("consensus"))
    assert code(Place(tmp_path / "new", "other"), file) == NodeExit.OTHER_CLUSTER
    (tmp_path / "new" / "n1" / "something").write_text("")
    assert code(place, file) == NodeExit.FOLDER_FOREIGN
    shutil.rmtree(tmp_path / "new" / "n1")
    restore(place.config("n1"), file)
    assert code(place, file) == NodeExit.FOLDER_FOREIGN
    async with running(place, ["n1"]):
        with pytest.raises(NodeCannotStart, match="n1 run as nodes") as refused:
            await asyncio.to_thread(restore, place.config("n2"), file)
        assert refused.value.code == NodeExit.CLUSTER_LIVES
    other = Place(tmp_path / "rehearsal", "rehearsal")
    assert restore(other.config("n1"), file, other=True).jobs == 5


async def test_a_restore_that_was_cut_off_is_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = await saved(tmp_path / "old")
    config = Place(tmp_path / "new").config("n1")

    def power_goes(self: Folder) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Folder, "own", power_goes)
    with pytest.raises(KeyboardInterrupt):
        restore(config, file)
    monkeypatch.undo()

    with pytest.raises(NodeCannotStart, match="not empty and no node's folder"):
        Folder(Path(config.folder), "test", "n1")


async def test_two_nodes_that_were_restored_apart_both_end(tmp_path: Path) -> None:
    file, _ = await saved(tmp_path / "old")
    place = Place(tmp_path / "new")
    restore(place.config("n1"), file)
    restore(place.config("n2"), file)

    async with running(place, ["n1", "n2"]) as nodes:
        await until(lambda: all(real.node.ended.done() for real in nodes.values()))

        for real in nodes.values():
            with pytest.raises(Broken, match="restored or recovered apart"):
                real.node.ended.result()


async def test_a_survivor_becomes_a_cluster_and_the_others_join(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with running(place, NAMES) as nodes:
        await one_voice(nodes)
        leader = leader_of(nodes)
        for number in range(5):
            await leader.stub(JOBS).CreateJob(create(f"job-{number}"))
        await one_voice(nodes)
        kept, lost = (real.name for real in followers_of(nodes))
        revision = leader.node.revision
        await nodes[kept].kill()
        with pytest.raises(NodeCannotStart, match=f"start {kept} instead") as refused:
            await asyncio.to_thread(recover, place.config(kept), yes)
        assert refused.value.code == NodeExit.CLUSTER_LIVES
        with pytest.raises(NodeCannotStart) as refused:
            await asyncio.to_thread(recover, place.config(lost), yes)
        assert refused.value.code == NodeExit.FOLDER_LOCKED

    before = look(place.config(kept))
    assert (before.voters, before.alive) == (list(NAMES), [])
    assert before.revision == revision
    assert recover(place.config(kept), lambda standing: False) is None
    assert look(place.config(kept)) == before
    for name in (leader.name, lost):
        shutil.copytree(tmp_path / name, tmp_path / "aside" / name)
        shutil.rmtree(tmp_path / name)
    made = recover(place.config(kept), yes)
    assert made is not None
    assert (made.jobs, made.revision) == (5, revision)

    async with running(place, [kept, leader.name, lost]) as nodes:
        await one_voice(nodes)
        meta = leader_of(nodes).node.replica.meta
        assert meta.revision > revision + (1 << 39)
        assert verify.verify(leader_of(nodes).node.replica.store) == []
        await leader_of(nodes).stub(JOBS).CreateJob(create("after"))
        # One of the former disks comes back: it is not let in, and changes nothing.
        await nodes[lost].stop()
        shutil.rmtree(tmp_path / lost)
        shutil.move(tmp_path / "aside" / lost, tmp_path / lost)
        former = nodes[lost] = place.node(lost)
        await former.start()
        others = [real for real in nodes.values() if real is not former]
        await until(lambda: any(real.node.leads for real in others))
        await until(lambda: lost in others[0].node.driver.foreign)
        shown = (
            await others[0].stub(CLUSTER).GetClusterStatus(cluster_pb2.GetClusterStatusRequest())
        )
        assert any(f"The folder of {lost} holds another history" in p for p in shown.problems)
        leading = next(real for real in others if real.node.leads)
        await leading.stub(JOBS).CreateJob(create("without-it"))
        assert former.node.revision == revision


async def test_what_was_not_applied_yet_counts_in_a_recovery(tmp_path: Path) -> None:
    """Somebody may have been told of it."""
    place = Place(tmp_path)
    async with running(place, NAMES) as nodes:
        await one_voice(nodes)
        leader = leader_of(nodes)
        await leader.stub(JOBS).CreateJob(create("early"))
        kept = followers_of(nodes)[0]
        await until(lambda: kept.node.revision == leader.node.revision)
        journal, core = kept.node.driver.core.journal, kept.node.driver.core
        core.applying.apply_committed = lambda: False  # type: ignore[method-assign]
        await leader.stub(JOBS).CreateJob(create("late"))
        await until(lambda: journal.synced_index == leader.node.driver.core.journal.last_index)
        revision = kept.node.revision

    made = recover(place.config(kept.name), yes)
    assert made is not None
    assert (made.jobs, made.revision) == (2, revision + 1)


async def test_a_journal_that_begins_behind_the_state_is_enough(tmp_path: Path) -> None:
    """The snapshot ends with entries that changed nothing, and all before it was cut."""
    place = Place(tmp_path, names=("n1",))
    async with running(place, ["n1"]) as nodes:
        await until(lambda: nodes["n1"].node.leads)
        await nodes["n1"].stub(JOBS).CreateJob(create("kept"))
    async with running(place, ["n1"]) as nodes:
        await until(lambda: nodes["n1"].node.leads)
        core = nodes["n1"].node.driver.core
        core.make_snapshot()
        await until(lambda: core.snapshots.last_index > 0)
        state = nodes["n1"].node.replica.meta.applied_index
    disk = RealDisk(tmp_path / "n1" / "consensus")
    journal, snapshots = Journal(disk, JournalLimits(segment=8 << 20), "0" * 16), Snapshots(disk)
    latest = snapshots.latest
    assert latest is not None
    assert latest.index > state
    journal.reset(latest.index, latest.term, latest.configs)
    batch = journal.take()
    assert batch is not None
    batch.run()
    disk.close()

    made = recover(place.config("n1"), yes)

    assert made is not None
    assert (made.jobs, made.others) == (1, [])
    async with running(place, ["n1"]) as nodes:
        await until(lambda: nodes["n1"].node.leads)


async def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, names=("n1",))
    with pytest.raises(NodeCannotStart, match="no node's folder"):
        recover(place.config("n1"), yes)
    Folder(tmp_path / "n1", "test", "n1").close()
    with pytest.raises(NodeCannotStart, match="never belonged to a cluster"):
        recover(place.config("n1"), yes)
    shutil.rmtree(tmp_path / "n1")
    async with running(place, ["n1"]) as nodes:
        await until(lambda: nodes["n1"].node.leads)
    [current] = (tmp_path / "n1" / "state").glob("state-*/CURRENT")
    current.write_text("nonsense")
    with pytest.raises(NodeCannotStart, match="cannot be opened") as refused:
        recover(place.config("n1"), yes)
    assert refused.value.code == NodeExit.DAMAGED
