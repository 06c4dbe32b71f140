"""Time zones are looked at before the leader's loop needs them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from raftsched.cluster import warm_zones
from raftsched.cluster.warm_zones import WarmZones
from raftsched.proto.v1 import calendar_pb2, job_pb2
from raftsched.statemachine import zones

NOW_MS = 1_800_000_000_000


@pytest.fixture
async def warming(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WarmZones]:
    monkeypatch.setattr(zones, "_ZONES", {})
    monkeypatch.setattr(zones, "_WARM", {})
    made = WarmZones()
    yield made
    made.stop()
    await asyncio.to_thread(made.close)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_a_call_waits_for_the_zones_it_names(warming: WarmZones) -> None:
    job, calendar = job_pb2.Job(), calendar_pb2.Calendar(zone="Asia/Tokyo")
    job.spec.timing.zone = "Europe/Berlin"

    await warming.ready(job_pb2.CreateJobRequest(job=job), NOW_MS)
    assert zones.in_use() == ["Europe/Berlin"]
    await warming.ready(calendar_pb2.CreateCalendarRequest(calendar=calendar), NOW_MS)
    assert zones.cold(["Asia/Tokyo", "Europe/Berlin"]) == []


async def test_what_the_leader_uses_is_warmed_one_by_one(
    warming: WarmZones, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    warm = zones.warm

    def note(names: list[str], instant_s: int) -> None:
        assert threading.current_thread().name.startswith("zones")
        asked.append(names)
        warm(names, instant_s)

    monkeypatch.setattr(zones, "warm", note)
    names = list(zones.zone_names()[:10])
    warming.soon([*names, "Europe/Berln", ""], NOW_MS)
    warming.soon(names, NOW_MS)
    began = time.monotonic()
    # A call that names another one does not wait behind all of them.
    job = job_pb2.Job()
    job.spec.timing.zone = "Europe/Berlin"
    await warming.ready(job_pb2.CreateJobRequest(job=job), NOW_MS)
    assert len(asked) < 10
    await until(lambda: not zones.cold(names))

    assert time.monotonic() - began > 9 * warm_zones.REST_S
    assert all(len(one) == 1 for one in asked)
    assert len(asked) == 11


async def test_the_others_hear_of_all_zones_by_and_by(
    warming: WarmZones, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_zones, "NAMED", 4)
    assert warming.in_use() == []
    names = [name for name in zones.zone_names()[:10] if zones.find_zone(name)]

    told = [warming.in_use() for _ in range(4)]

    assert told == [names[:4], names[4:8], names[8:], names[:4]]
