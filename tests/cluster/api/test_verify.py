"""Verifying the state while it lasts: who joins, who hears how far it is, and when it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from raftsched.cluster.api import verify as verify_module
from raftsched.proto.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2, job_pb2_grpc
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.store import Reading
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import UsageRecord, encode, parse

from .real import cluster, until

CLUSTER = cluster_pb2_grpc.ClusterServiceStub


async def test_who_verifies_meanwhile_joins_and_who_asks_again_hears_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: the second one was refused, and the first one had to wait in silence."""
    may_end, looks = threading.Event(), []

    def look(reading: Reading, check: verify_module.Check) -> verify_module.StateDifferences:
        looks.append(check)
        check.looked = 17
        assert may_end.wait(30)
        return real_look(reading, check)

    real_look = verify_module.look
    monkeypatch.setattr(verify_module, "look", look)
    async with cluster(tmp_path, 1) as nodes:
        stub = nodes["n1"].stub(CLUSTER)
        # Right after an election the state may have no entry.
        await until(lambda: nodes["n1"].node.revision > 0)
        asked = cluster_pb2.VerifyStateRequest(request_id="mine", wait=duration(10))
        first = await stub.VerifyState(asked)
        other = asyncio.ensure_future(stub.VerifyState(cluster_pb2.VerifyStateRequest()))
        again = await stub.VerifyState(asked)
        assert (first.running, again.running, again.looked) == (True, True, 17)
        assert first.begin_time == again.begin_time
        assert not first.sound
        may_end.set()
        joined = await other
        own = await stub.VerifyState(asked)

        assert (joined.sound, joined.running, own.sound, own.running) == (True, False, True, False)
        assert own.records == joined.records > 0
        assert len(looks) == 1
        await stub.VerifyState(cluster_pb2.VerifyStateRequest(request_id="another"))
        assert len(looks) == 2


async def test_two_who_have_it_mended_have_it_mended_once(tmp_path: Path) -> None:
    """A counter is moved by what it was off, so twice would be wrong again."""
    async with cluster(tmp_path, 1) as nodes:
        real, jobs = nodes["n1"], nodes["n1"].stub(job_pb2_grpc.JobServiceStub)
        for number in range(3):
            job = job_pb2.Job(name=f"j{number}")
            job.spec.action.handler = "work"
            await jobs.CreateJob(job_pb2.CreateJobRequest(job=job))
        store = real.node.replica.store
        usage = parse(keys.usage(0), store.get(keys.usage(0)) or b"", UsageRecord)
        usage.jobs += 7
        store.write([(keys.usage(0), encode(usage))], [])
        stub, asked = real.stub(CLUSTER), cluster_pb2.VerifyStateRequest(repair=True)

        both = await asyncio.gather(stub.VerifyState(asked), stub.VerifyState(asked))

        for found in both:
            assert (found.sound, found.difference_count, found.repaired) == (True, 1, 1)
        asked.request_id = "another"
        again = await stub.VerifyState(asked)
        assert (again.sound, again.difference_count, again.repaired) == (True, 0, 0)
        assert parse(keys.usage(0), store.get(keys.usage(0)) or b"", UsageRecord).jobs == 3


async def test_a_verification_ends_soon_after_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, may_look = threading.Event(), threading.Event(), threading.Event()

    def look(reading: Reading, check: verify_module.Check) -> verify_module.StateDifferences:
        begun.set()
        limit = time.monotonic() + 30
        try:
            while time.monotonic() < limit:
                next(iter(reading.scan(b"\0", b"\xff" * 64)), None)
                # It leaves the interpreter to the loop.
                may_look.wait(0.005)
        finally:
            ended.set()
        raise AssertionError("nobody has ended it")

    real_look = verify_module.look
    monkeypatch.setattr(verify_module, "look", look)
    monkeypatch.setattr(verify_module, "LINGER_S", 0.05)
    async with cluster(tmp_path, 1) as nodes:
        stub = nodes["n1"].stub(CLUSTER)
        # It is ended at an entry, and right after an election the state may have none.
        await until(lambda: nodes["n1"].node.revision > 0)
        call = stub.VerifyState(cluster_pb2.VerifyStateRequest())
        await until(begun.is_set)
        asked = cluster_pb2.VerifyStateRequest(request_id="mine", wait=duration(10))
        assert (await stub.VerifyState(asked)).running
        call.cancel()

        await until(ended.is_set)
        monkeypatch.setattr(verify_module, "look", real_look)
        asked.wait.CopyFrom(duration(60_000))
        assert (await stub.VerifyState(asked)).sound
