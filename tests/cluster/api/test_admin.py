"""The cluster service, on real nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from raftsched.cluster.api import cluster_status
from raftsched.cluster.api import verify as verify_module
from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.node import gossip
from raftsched.cluster.node.damage import set_aside
from raftsched.cluster.node.node_spec import MemberAddresses
from raftsched.cluster.node.peer_info import NodeInfo
from raftsched.proto.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2_grpc
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import encode

from .real import Real, cluster, followers_of, leader_of, until
from .talk import create, refused
from .worker import Worker

Shown = cluster_pb2.Node
CLUSTER = cluster_pb2_grpc.ClusterServiceStub
JOBS = job_pb2_grpc.JobServiceStub
STATUS = cluster_pb2.GetClusterStatusRequest()
TRIES = 20


async def test_each_node_shows_the_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        await leader.stub(JOBS).CreateJob(create("report"))
        worker = await Worker(leader.channel).hello()
        await until(
            lambda: all(len(real.node.directory.peer_infos) == 2 for real in nodes.values())
        )
        await until(lambda: len({real.node.revision for real in nodes.values()}) == 1)
        heard = [real.node.directory.peer_infos for real in followers_of(nodes)]
        await until(lambda: all(peer_infos[leader.name].workers == 1 for peer_infos in heard))
        for real in nodes.values():
            shown = await real.stub(CLUSTER).GetClusterStatus(STATUS)
            assert (shown.cluster_id, shown.node, shown.leader) == ("test", real.name, leader.name)
            assert (shown.quorum, shown.margin, shown.jobs) == (True, 1, 1)
            assert shown.workers == 1
            # The default alerts are made in a change of their own, or in that of the job.
            now = leader.node.term, leader.node.revision, 1
            assert (shown.term, shown.revision, shown.oldest_revision) == now
            assert shown.fingerprint == leader.node.replica.meta.fingerprint.hex()
            assert list(shown.problems) == []
            assert [one.name for one in shown.nodes] == ["n1", "n2", "n3"]
            roles = {one.name: one.role for one in shown.nodes}
            assert roles.pop(leader.name) == Shown.ROLE_LEADER
            assert set(roles.values()) == {Shown.ROLE_FOLLOWER}
            for one in shown.nodes:
                assert one.client_address == nodes[one.name].address
                assert (one.reachable, one.serving, one.version) == (True, True, "1.2.3")
                assert one.zone_edition
        worker.call.cancel()


async def test_nodes_know_each_other_soon_after_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gossip, "INTERVAL", 3_600.0)
    async with cluster(tmp_path, 3) as nodes:
        await until(
            lambda: all(len(real.node.directory.peer_infos) == 2 for real in nodes.values())
        )
        other = followers_of(nodes)[0]
        leader = leader_of(nodes)
        await other.stub(CLUSTER).DrainNode(cluster_pb2.DrainNodeRequest(node=leader.name))
        await until(lambda: not other.node.directory.peer_infos[leader.name].serving)


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        lost, other = followers_of(nodes)
        await lost.kill()
        await until(lambda: not leader.node.status().peers[lost.name].connected)
        shown = await leader.stub(CLUSTER).GetClusterStatus(STATUS)
        assert (shown.quorum, shown.margin) == (True, 0)
        assert f"{lost.name} is not reachable from {leader.name}." in shown.problems
        await other.kill()
        await until(lambda: not leader.node.leads)
        shown = await leader.stub(CLUSTER).GetClusterStatus(STATUS)
        assert not shown.quorum
        assert any("no majority" in problem for problem in shown.problems)


async def test_sums_over_many_namespaces_are_told_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_status, "SUMS_S", 3_600.0)
    async with cluster(tmp_path, 1) as nodes:
        leader = leader_of(nodes)

        async def made(name: str) -> int:
            await leader.node.write(create(name), "", 5)
            shown = await leader.stub(CLUSTER).GetClusterStatus(STATUS)
            return int(shown.jobs)

        assert [await made("a"), await made("b")] == [1, 2]
        monkeypatch.setattr(cluster_status, "SUMMED", 0)
        assert [await made("c"), await made("d")] == [3, 3]


async def test_leadership_is_handed_over(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        before = leader_of(nodes)
        target, other = followers_of(nodes)
        request = cluster_pb2.TransferLeadershipRequest(node=target.name, request_id="t1")
        shown = await other.stub(CLUSTER).TransferLeadership(request)
        assert shown.leader == target.name
        await until(lambda: target.node.leads)
        # What was done once is not done again, though somebody else leads by now.
        assert (await before.stub(CLUSTER).TransferLeadership(request)).leader == target.name
        found = await refused(
            other.stub(CLUSTER).TransferLeadership(cluster_pb2.TransferLeadershipRequest(node="n9"))
        )
        assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "NODE_NOT_FOUND")


async def test_a_node_alone_keeps_its_leadership(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        stub = nodes["n1"].stub(CLUSTER)
        found = await refused(stub.TransferLeadership(cluster_pb2.TransferLeadershipRequest()))
        assert found.code == grpc.StatusCode.FAILED_PRECONDITION
        assert found.reason == "TRANSFER_REFUSED"
        found = await refused(stub.DrainNode(cluster_pb2.DrainNodeRequest(node="n1")))
        assert found.reason == "TRANSFER_REFUSED"
        assert not nodes["n1"].node.draining


async def test_a_node_is_freed_of_its_duties_and_serves_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        drained = leader_of(nodes)
        other = followers_of(nodes)[0]
        worker = await Worker(drained.channel).hello()
        drain = cluster_pb2.DrainNodeRequest(node=drained.name)
        await other.stub(CLUSTER).DrainNode(drain)
        assert drained.node.draining
        await worker.ended()
        assert worker.redirect.leader in {"", *(real.address for real in followers_of(nodes))}
        await until(lambda: any(real.node.leads for real in nodes.values() if real is not drained))
        found = await refused(drained.stub(JOBS).CreateJob(create("report")))
        assert found.reason == "DRAINING"
        # It is still asked about the cluster, and can be told to serve again.
        shown = await drained.stub(CLUSTER).GetClusterStatus(STATUS)
        assert not next(one for one in shown.nodes if one.name == drained.name).serving
        resume = cluster_pb2.DrainNodeRequest(node=drained.name, resume=True)
        await drained.stub(CLUSTER).DrainNode(resume)
        assert (await drained.stub(JOBS).CreateJob(create("report"))).name == "report"


async def test_members_go_and_strangers_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        gone, other = followers_of(nodes)
        stub = other.stub(CLUSTER)
        for wrong, reason in (
            (cluster_pb2.AddNodeRequest(name="n9", peer_address="x", client_address="y:1"),
             "FIELD_INVALID"),
            (cluster_pb2.AddNodeRequest(name="n1", peer_address="x:1", client_address="y:1"),
             "NAME_EXISTS"),
            (cluster_pb2.AddNodeRequest(name="n9", peer_address="x:1", client_address="y:1"),
             "MEMBERSHIP_REFUSED"),
        ):  # fmt: skip
            assert (await refused(stub.AddNode(wrong))).reason == reason
        remove = cluster_pb2.RemoveNodeRequest(node=gone.name, validate_only=True)
        await stub.RemoveNode(remove)
        assert gone.name in leader.node.status().peers
        remove.validate_only = False
        shown = await stub.RemoveNode(remove)
        assert [one.name for one in shown.nodes] == sorted({leader.name, other.name})
        assert any("no failure is survived" in problem for problem in shown.problems)
        last = cluster_pb2.RemoveNodeRequest(node=other.name, validate_only=True)
        shown = await stub.RemoveNode(last)
        assert any("everything is lost" in problem for problem in shown.problems)
        await until(lambda: gone.node.was_removed)
        found = await refused(stub.RemoveNode(cluster_pb2.RemoveNodeRequest(node=gone.name)))
        assert found.reason == "NODE_NOT_FOUND"


async def test_what_is_tried_without_effect_is_refused_as_if_it_were_meant(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        alone = nodes["n1"].stub(CLUSTER)
        stranger = cluster_pb2.AddNodeRequest(
            name="n9", peer_address="x:1", client_address="y:1", validate_only=True
        )
        last = cluster_pb2.RemoveNodeRequest(node="n1", validate_only=True)
        nobody = cluster_pb2.TransferLeadershipRequest(validate_only=True)
        drain = cluster_pb2.DrainNodeRequest(node="n1", validate_only=True)
        assert "has not introduced itself" in (await refused(alone.AddNode(stranger))).message
        assert "is the last voter" in (await refused(alone.RemoveNode(last))).message
        assert (await refused(alone.TransferLeadership(nobody))).reason == "TRANSFER_REFUSED"
        assert (await refused(alone.DrainNode(drain))).reason == "TRANSFER_REFUSED"


async def test_a_node_that_is_added_is_shown_where_the_call_says(tmp_path: Path) -> None:
    """Also when it says otherwise itself, as behind a translated address, or nothing yet."""
    async with cluster(tmp_path, 1) as nodes:
        leader = nodes["n1"]
        stub = leader.stub(CLUSTER)
        peer, own = (f"127.0.0.1:{port}" for port in free_ports(2))
        listed = {**leader.node.spec.members, "n2": MemberAddresses(peer=peer, client=own)}
        new = Real(replace(leader.node.spec, name="n2", folder=tmp_path / "n2", members=listed))
        await new.start()
        try:
            await until(lambda: "n2" in leader.node.driver.core.applicants)
            add = cluster_pb2.AddNodeRequest(
                name="n2", peer_address=peer, client_address=leader.address
            )
            found = await refused(stub.AddNode(add))
            assert [fault[0] for fault in found.faults] == ["client_address"]
            add.client_address = "n2.example:7400"
            added = shown_at(await stub.AddNode(add), "n2")
            assert added == (peer, "n2.example:7400")
            await until(lambda: leader.node.status().peers["n2"].voter)
            await until(lambda: "n1" in new.node.directory.peer_infos)
            seen = await new.stub(CLUSTER).GetClusterStatus(STATUS)
            assert shown_at(seen, "n2") == (peer, "n2.example:7400")
            assert any(
                f"raftsched cluster move n2 --client {own}" in line for line in seen.problems
            )
        finally:
            await new.stop()


def shown_at(status: cluster_pb2.ClusterStatus, name: str) -> tuple[str, str]:
    """Where a node is, as a status has it."""
    [one] = [one for one in status.nodes if one.name == name]
    return one.peer_address, one.client_address


async def test_a_node_that_moved_is_found_at_its_new_addresses(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        moved, other = followers_of(nodes)
        peer, client = (f"127.0.0.1:{port}" for port in free_ports(2))
        request = cluster_pb2.MoveNodeRequest(
            node=moved.name, peer_address=peer, client_address=client, validate_only=True
        )
        stub = other.stub(CLUSTER)
        await stub.MoveNode(request)
        assert leader.node.client_address(moved.name) == moved.address
        request.validate_only = False
        shown = await stub.MoveNode(request)
        [one] = [one for one in shown.nodes if one.name == moved.name]
        assert (one.peer_address, one.client_address) == (peer, client)
        # Until it is there it says that it is not.
        await until(lambda: moved.node.client_address(moved.name) == client)
        shown = await moved.stub(CLUSTER).GetClusterStatus(STATUS)
        lines = [line for line in shown.problems if "was given" in line]
        assert len(lines) == 2
        assert f"at {moved.address} for clients, and the cluster was given {client};" in lines[1]

        await moved.stop()
        there = {**moved.node.spec.members, moved.name: MemberAddresses(peer=peer, client=client)}
        back = nodes[moved.name] = Real(replace(moved.node.spec, members=there))
        await back.start()
        await until(lambda: leader.node.status().peers[back.name].connected)
        await until(lambda: back.node.leader_name)
        assert all(real.node.driver.links._addresses[back.name][0] == peer
                   for real in (leader, other))  # fmt: skip
        shown = await back.stub(CLUSTER).GetClusterStatus(STATUS)
        assert not [line for line in shown.problems if "was given" in line]
        await other.stub(CLUSTER).TransferLeadership(
            cluster_pb2.TransferLeadershipRequest(node=back.name)
        )
        assert other.node.leader_address == client
        assert (await other.stub(JOBS).CreateJob(create("report"))).name == "report"


async def test_a_move_to_nowhere_or_to_another_node_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        stub = followers_of(nodes)[0].stub(CLUSTER)
        n2 = nodes["n2"].node.spec.members["n2"]
        asked: tuple[tuple[dict[str, Any], str, str], ...] = (
            ({"node": "n9", "peer_address": "x:1"}, "NODE_NOT_FOUND", "there is no node 'n9'"),
            ({"node": "n1"}, "FIELD_INVALID", "say where the node is now"),
            ({"node": "n1", "peer_address": "x"}, "FIELD_INVALID", "write host:port"),
            ({"node": "n1", "client_address": "a b:1"}, "FIELD_INVALID", "write host:port"),
            ({"node": "n1", "client_address": n2.peer}, "FIELD_INVALID", "where nodes reach n2"),
            ({"node": "n1", "peer_address": n2.client}, "FIELD_INVALID", "where clients reach n2"),
            ({"node": "n1", "peer_address": "x:1", "client_address": "x:1"}, "FIELD_INVALID",
             "need a port each"),
        )  # fmt: skip
        for wrong, reason, words in asked:
            found = await refused(stub.MoveNode(cluster_pb2.MoveNodeRequest(**wrong)))
            assert found.reason == reason
            assert words in found.message + str(found.faults)
        leader, lost = leader_of(nodes), followers_of(nodes)
        for real in lost:
            await real.kill()
        move = cluster_pb2.MoveNodeRequest(node="n1", peer_address="x:1")
        found = await refused(leader.stub(CLUSTER).MoveNode(move, timeout=1.0))
        assert found.reason in {"COMMIT_TIMEOUT", "LEADER_CHANGED", "NO_QUORUM", "NOT_LEADER"}


async def test_a_request_id_stands_for_one_request(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        stub = nodes["n1"].stub(CLUSTER)
        await stub.TakeSnapshot(cluster_pb2.TakeSnapshotRequest(request_id="r"))
        other = cluster_pb2.TakeSnapshotRequest(request_id="r", validate_only=True)
        assert (await refused(stub.TakeSnapshot(other))).reason == "REQUEST_ID_REUSED"


async def test_a_snapshot_is_made_on_the_node_that_is_asked(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = leader_of(nodes), followers_of(nodes)[0]
        await leader.stub(JOBS).CreateJob(create("report"))
        await until(lambda: follower.node.revision >= 1)
        made = await follower.stub(CLUSTER).TakeSnapshot(cluster_pb2.TakeSnapshotRequest())
        assert made.size > 0
        assert follower.node.driver.core.snapshots.last_index > 0
        assert leader.node.driver.core.snapshots.last_index == 0
        shown = await follower.stub(CLUSTER).GetClusterStatus(STATUS)
        assert shown.HasField("snapshot_time")
        for _ in range(TRIES):
            again = await follower.stub(CLUSTER).TakeSnapshot(cluster_pb2.TakeSnapshotRequest())
            if again.revision == made.revision:
                break
            made = again  # An alert was raised or cleared meanwhile.
        assert again == made


async def test_a_sound_state_is_verified_on_all_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader, follower = leader_of(nodes), followers_of(nodes)[0]
        for number in range(5):
            await leader.stub(JOBS).CreateJob(create(f"job-{number}"))
        directories = [real.node.directory for real in nodes.values()]
        await until(
            lambda: len({i.revision for one in directories for i in one.peer_infos.values()}) == 1
        )
        for real in (leader, follower):
            found = await real.stub(CLUSTER).VerifyState(cluster_pb2.VerifyStateRequest())
            assert (found.sound, found.difference_count) == (True, 0)
            assert found.records > 10
            assert set(found.fingerprints) == {"n1", "n2", "n3"}
            assert len(set(found.fingerprints.values())) == 1
        repair = cluster_pb2.VerifyStateRequest(repair=True)
        assert (await refused(follower.stub(CLUSTER).VerifyState(repair))).reason == "NOT_LEADER"


async def test_what_is_derived_and_wrong_is_found_and_mended(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        await real.stub(JOBS).CreateJob(create("report"))
        store = real.node.replica.store
        key = next(key for key, _ in store.scan(b"u", b"v"))
        value = store.get(key)
        assert value is not None
        store.write([], [key])
        stub = real.stub(CLUSTER)
        found = await stub.VerifyState(cluster_pb2.VerifyStateRequest())
        assert (found.sound, found.difference_count, len(found.differences)) == (False, 1, 1)
        found = await stub.VerifyState(cluster_pb2.VerifyStateRequest(repair=True))
        assert (found.sound, found.repaired) == (True, 1)
        assert store.get(key) is not None


async def test_a_copy_that_differs_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        odd = followers_of(nodes)[0]
        meta = read_meta(odd.node.replica.store)
        meta.fingerprint = b"0" * 16
        odd.node.replica.store.write([(keys.META, encode(meta))], [])
        await leader.stub(JOBS).CreateJob(create("report"))
        await until(lambda: odd.name in leader.node.directory.differing)
        found = await leader.stub(CLUSTER).VerifyState(cluster_pb2.VerifyStateRequest())
        assert not found.sound
        assert found.fingerprints[odd.name] != found.fingerprints[leader.name]
        assert any(odd.name in difference for difference in found.differences)


async def test_files_that_were_set_aside_are_told(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        real = nodes["n1"]
        (real.node.spec.folder / "of-old").touch()
        set_aside(real.node.spec.folder, ["of-old"], "a test")
        shown = await real.stub(CLUSTER).GetClusterStatus(STATUS)
        assert any("set files aside as damaged" in problem for problem in shown.problems)


async def test_a_node_that_is_ahead_of_its_leader_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: nothing was said of it, since there is nothing to compare it with."""
    monkeypatch.setattr(verify_module, "CATCH_UP_S", 0.1)
    async with cluster(tmp_path, 3) as nodes:
        leader = leader_of(nodes)
        odd = followers_of(nodes)[0]
        words = odd.node.directory.message

        def ahead(said: bytes) -> bytes:
            about = msgspec.json.decode(said, type=NodeInfo)
            return msgspec.json.encode(msgspec.structs.replace(about, revision=about.revision + 9))

        odd.node.directory.message = lambda *a, **k: ahead(words(*a, **k))  # type: ignore[method-assign]
        peer_infos = leader.node.directory.peer_infos
        await until(
            lambda: odd.name in peer_infos and peer_infos[odd.name].revision > leader.node.revision
        )
        found = await leader.stub(CLUSTER).VerifyState(cluster_pb2.VerifyStateRequest())

        assert not found.sound
        assert found.difference_count == len(found.differences) == 1
        for word in (odd.name, f"ahead of its leader {leader.name}", "set its folder aside"):
            assert word in found.differences[0]


async def test_two_servers_on_one_port_are_one_too_many(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        server = type(nodes["n1"].server)(nodes["n1"].node, nodes["n1"].address)
        with pytest.raises(OSError, match="in use"):
            await server.start()
        await asyncio.sleep(0)
