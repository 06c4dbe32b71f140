"""Events: followed, resumed, paged."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.message import Message

from raftsched.cluster.api import events as event_calls
from raftsched.cluster.api import places
from raftsched.cluster.node import event_feed
from raftsched.cluster.raft.journal import CONFIG, NOOP, Entry
from raftsched.proto.v1 import common_pb2, event_pb2, event_pb2_grpc, job_pb2, namespace_pb2
from raftsched.statemachine.model import keys
from raftsched.statemachine.reads import events as events_of

from .conftest import Served, Start
from .fake import FakeNode
from .talk import Anything, create, refusal_of, refused

Kind = event_pb2.EventKind
Revision = common_pb2.Revision


def events(served: Served) -> Anything:
    return event_pb2_grpc.EventServiceStub(served.channel)


async def do(node: FakeNode, *bodies: Message) -> None:
    for body in bodies:
        await node.write(body, "", 5)


class Watch:
    """A watch that was opened."""

    def __init__(self, served: Served, **request: Anything) -> None:
        self.call = events(served).WatchEvents(event_pb2.WatchEventsRequest(**request))
        self.progress = Revision()

    async def opened(self) -> Watch:
        first = await self.frame()
        assert not first.events
        return self

    async def frame(self) -> event_pb2.WatchEventsResponse:
        async with asyncio.timeout(60):
            frame = await self.call.read()
        assert isinstance(frame, event_pb2.WatchEventsResponse), "the watch has ended"
        self.progress = frame.progress
        return frame

    async def events(self, count: int) -> list[event_pb2.Event]:
        found: list[event_pb2.Event] = []
        while len(found) < count:
            found += (await self.frame()).events
        return found

    async def refused(self) -> Anything:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self._ended()
        return refusal_of(caught.value)

    async def _ended(self) -> None:
        async with asyncio.timeout(60):
            while await self.call.read() is not grpc.aio.EOF:
                pass


async def test_a_watch_tells_what_happens_from_now_on(start: Start) -> None:
    served = await start("a")
    await do(served.node, create("before"))
    watch = await Watch(served).opened()
    await do(served.node, create("one"), job_pb2.PauseJobRequest(job="one", reason="why"))
    made, paused = await watch.events(2)
    assert (made.kind, made.job, made.revision) == (
        Kind.EVENT_KIND_JOB_CREATED, "one", Revision(change=2, position=0),
    )  # fmt: skip
    assert (paused.kind, paused.message) == (Kind.EVENT_KIND_JOB_PAUSED, "why")
    assert watch.progress == paused.revision


async def test_a_watch_goes_on_behind_its_progress_on_another_node(start: Start) -> None:
    first, second = await start("a"), await start("b")
    watch = await Watch(first).opened()
    await do(first.node, create("one"), create("two"))
    await watch.events(2)
    watch.call.cancel()
    await do(first.node, create("three"))
    again = await Watch(second, after=watch.progress).opened()
    [event] = await again.events(1)
    assert event.job == "three"


async def test_a_watch_from_a_listing_misses_nothing(start: Start) -> None:
    """The revision of an answer, told in its trailing metadata, is a place to watch from."""
    served = await start("a")
    await do(served.node, create("one"))
    call: Any = served.channel.unary_unary("/raftsched.v1.JobService/ListJobs")
    call = call(b"")
    await call
    told = dict(tuple(await call.trailing_metadata()))["raftsched-revision"]
    change, position = map(int, str(told).split("."))
    await do(served.node, create("two"))
    watch = await Watch(served, after=Revision(change=change, position=position)).opened()
    assert [event.job for event in await watch.events(1)] == ["two"]


async def test_a_watch_begins_in_the_middle_of_a_change(start: Start) -> None:
    served = await start("a")
    jobs = [create(name).job for name in ("a", "b", "c")]
    await do(served.node, job_pb2.ImportJobsRequest(jobs=jobs))
    watch = await Watch(served, after=Revision(change=1, position=0)).opened()
    assert [event.revision.position for event in await watch.events(2)] == [1, 2]


async def test_a_watch_of_a_namespace_that_is_not_there_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever. One that is made a moment later, or was there, is another matter."""
    served = await start("a")
    made = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="shop"))
    slow = events(served).WatchEvents(event_pb2.WatchEventsRequest(namespace="shop"))
    await do(served.node, made)
    await slow.read()
    monkeypatch.setattr(places, "CATCH_UP_S", 0.05)
    found = await refused_watch(served, namespace="shpo")
    assert (found.reason, found.values) == ("NAMESPACE_NOT_FOUND", {"namespace": "shpo"})
    assert "did you mean shop?" in found.message
    later = common_pb2.Revision(change=1)
    await Watch(served, namespace="gone", after=later).opened()


async def test_filters_and_namespaces_choose(start: Start) -> None:
    served = await start("a")
    other = namespace_pb2.Namespace(name="other")
    await do(served.node, namespace_pb2.CreateNamespaceRequest(namespace=other))
    watch = await Watch(served, filter="job=mail-* AND kind=JOB_CREATED").opened()
    elsewhere = await Watch(served, namespace="other").opened()
    await do(served.node, create("report"), create("mail-1"), job_pb2.PauseJobRequest(job="mail-1"))
    await do(served.node, create("mail-2"))
    assert [event.job for event in await watch.events(2)] == ["mail-1", "mail-2"]
    assert (await refused_watch(served, filter="colour=red")).reason == "FILTER_INVALID"
    elsewhere.call.cancel()


async def refused_watch(served: Served, **request: Anything) -> Anything:
    return await Watch(served, **request).refused()


async def test_a_silent_watch_gets_bookmarks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_calls, "BOOKMARK_S", 0.05)
    served = await start("a")
    watch = await Watch(served, filter="job=never").opened()
    before = watch.progress.change
    await do(served.node, create("one"))
    while watch.progress.change == before:
        assert not (await watch.frame()).events
    # What was looked at need not be looked at again.
    assert watch.progress == Revision(change=1, position=0)


async def test_what_the_journal_has_dropped_is_gone(start: Start) -> None:
    served = await start("a")
    await do(served.node, *(create(f"job-{n}") for n in range(6)))
    served.node.world.journal.cut(3)
    found = await refused_watch(served, after=Revision(change=2, position=0))
    assert (found.code, found.reason) == (grpc.StatusCode.OUT_OF_RANGE, "REVISION_GONE")
    assert found.values["oldest"] == "4.0"
    watch = await Watch(served, after=Revision(change=3, position=0)).opened()
    assert [event.job for event in await watch.events(3)] == ["job-3", "job-4", "job-5"]


async def test_a_watcher_that_falls_behind_the_journal_is_told(start: Start) -> None:
    served = await start("a")
    await do(served.node, create("one"))
    watch = await Watch(served, after=Revision(change=0, position=0)).opened()
    await watch.events(1)
    served.server.feed.wake()
    listeners = served.node.replica._listeners
    held = list(listeners)
    # It is told of nothing while it lags, and then what it wants next is gone.
    listeners.clear()
    await do(served.node, create("two"), create("three"))
    served.node.world.journal.cut(3)
    listeners.extend(held)
    await do(served.node, create("four"))
    assert (await watch.refused()).reason == "REVISION_GONE"


async def test_a_node_that_hears_of_no_leader_ends_its_watches(start: Start) -> None:
    served = await start("a")
    # It has just begun, and nobody has said anything yet.
    served.node.driver.stale_s = float("inf")
    watch = await Watch(served).opened()
    await do(served.node, create("one"))
    await watch.events(1)
    served.server.events.clock = lambda: time.monotonic() + 11
    served.server.feed.wake()
    found = await watch.refused()
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "NO_QUORUM")


async def test_a_drain_ends_watches(start: Start) -> None:
    served = await start("a")
    watch = await Watch(served).opened()
    served.node.drain()
    await served.server.drain("the node stops")
    found = await watch.refused()
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


async def test_many_watchers_derive_a_change_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: list[int] = []
    real = events_of.events

    def counting(change: bytes, revision: int, *how: Anything) -> Anything:
        derived.append(revision)
        return real(change, revision, *how)

    monkeypatch.setattr(events_of, "events", counting)
    served = await start("a")
    watches = [await Watch(served).opened() for _ in range(20)]
    await do(served.node, create("one"), create("two"))
    for watch in watches:
        assert [event.job for event in await watch.events(2)] == ["one", "two"]
    assert sorted(derived) == [1, 2]


async def test_an_event_that_cannot_be_derived_ends_no_watch(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = events_of.EVENT_MAKERS[keys.JOB]

    def failing(summary: Anything, key: bytes, value: bytes) -> Anything:
        for event in real(summary, key, value):
            assert event.job != "bad", "no such record"
            yield event

    monkeypatch.setitem(events_of.EVENT_MAKERS, keys.JOB, failing)
    served = await start("a")
    watches = [await Watch(served).opened() for _ in range(3)]
    await do(served.node, create("one"), create("bad"), create("two"))
    for watch in watches:
        assert [event.job for event in await watch.events(2)] == ["one", "two"]
    troubles = served.node.leader.troubles
    assert troubles.counts == {"given up": 1}
    assert troubles.last[0].what == "an event of revision 2"
    assert troubles.last[0].reason.startswith("AssertionError: no such record")


async def test_a_change_that_is_large_is_told_in_several_frames(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_calls, "FRAME_BYTES", 500)
    served = await start("a")
    watch = await Watch(served).opened()
    jobs = [create(f"job-{n}").job for n in range(200)]
    await do(served.node, job_pb2.ImportJobsRequest(jobs=jobs))
    found: list[event_pb2.Event] = []
    frames = 0
    while len(found) < 200:
        frame = await watch.frame()
        frames += 1
        found += frame.events
        assert frame.progress == frame.events[-1].revision
    assert [event.revision.position for event in found] == list(range(200))
    assert frames > 10


async def test_pages_of_what_is_kept(start: Start) -> None:
    await start("a")
    served = await start("b")
    await do(served.node.world.leader, *(create(f"job-{n}") for n in range(7)))  # type: ignore[arg-type]
    names: list[str] = []
    after = None
    while True:
        request = event_pb2.ListEventsRequest(page_size=3, after=after)
        page = await events(served).ListEvents(request)
        names += [event.job for event in page.events]
        after = page.progress
        if page.end:
            break
        assert len(page.events) == 3
    assert names == [f"job-{n}" for n in range(7)]
    page = await events(served).ListEvents(event_pb2.ListEventsRequest(after=after))
    assert (list(page.events), page.end) == ([], True)
    # What has not come yet is no place to go on from.
    after.change += 1
    call = events(served).ListEvents(event_pb2.ListEventsRequest(after=after))
    assert (await refused(call)).reason == "FIELD_INVALID"
    call = events(served).ListEvents(event_pb2.ListEventsRequest(page_size=-1))
    assert (await refused(call)).reason == "FIELD_INVALID"


async def test_a_page_looks_at_so_many_events_and_lets_others_go_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_calls, "EVENTS_LOOKED_AT", 25)
    monkeypatch.setattr(event_calls, "EVENTS_IN_A_STEP", 9)
    served = await start("a")
    for number in range(9):
        jobs = [create(f"job-{number}-{n}").job for n in range(10)]
        await do(served.node, job_pb2.ImportJobsRequest(jobs=jobs))
    # All changes are known, so that nothing else makes a page wait.
    for revision in range(1, 10):
        await served.server.feed.events_of(revision)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    calls, after, found = served.server.events, None, list[str]()
    turning = asyncio.create_task(turn())
    request = event_pb2.ListEventsRequest(filter="job=job-8-3")
    seen = []
    while True:
        if after is not None:
            request.after.CopyFrom(after)
        before = turns
        page = await calls.list(AsCall(), request)  # type: ignore[arg-type]
        seen.append(turns - before)
        found += [event.job for event in page.events]
        after = page.progress
        if page.end:
            break
    turning.cancel()

    assert found == ["job-8-3"]
    assert len(seen) == 4
    assert min(seen) >= 1


class AsCall:
    """A call, as far as a page asks it."""

    def timeout(self) -> float:
        return 5.0


async def test_few_changes_are_derived_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "INLINE_BYTES", 0)
    served = await start("a")
    for number in range(30):
        await do(served.node, create(f"job-{number}"))
    gate, began, most, done = threading.Event(), 0, 0, 0
    real, store = events_of.events, served.node.replica.store
    snapshot = store.snapshot

    def begin() -> Anything:
        nonlocal began, most
        began += 1
        most = max(most, began - done)
        return snapshot()

    def derive(*how: Anything) -> Anything:
        nonlocal done
        assert gate.wait(20)
        done += 1
        return real(*how)

    monkeypatch.setattr(store, "snapshot", begin)
    monkeypatch.setattr(events_of, "events", derive)
    told = [asyncio.create_task(served.server.feed.events_of(n)) for n in range(1, 31)]
    async with asyncio.timeout(60):
        while not began:
            await asyncio.sleep(0.001)
    gate.set()
    assert [one.revision for one in await asyncio.gather(*told)] == list(range(1, 31))
    assert most <= event_feed.DERIVED_AT_ONCE + 1


async def test_changes_that_were_derived_are_kept_within_bytes(start: Start) -> None:
    """Failures with traces are three hundred times as large as what most events say."""
    served = await start("a")
    kept, real = served.server.feed, events_of.events
    story = event_pb2.Event(namespace="default", message="x" * 20_000)

    def many(*how: Anything) -> Anything:
        return [*real(*how), *([story] * 100)]

    for number in range(20):
        await do(served.node, create(f"job-{number}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_of, "events", many)
        for revision in range(1, 21):
            assert len((await kept.events_of(revision)).events) == 101
    held = sum(event.ByteSize() for told in kept._cache.values() for event in told.events)
    assert event_feed.CACHE_BYTES / 2 < held < event_feed.CACHE_BYTES == 16 << 20
    assert 20 in kept._cache
    # What was dropped is derived anew.
    assert [event.job for event in (await kept.events_of(1)).events] == ["job-0"]


def last_base(data: bytes) -> int:
    base = msgspec.msgpack.decode(data)[1]
    assert isinstance(base, int)
    return base


async def test_the_place_of_a_change_is_found_among_others(start: Start) -> None:
    """Entries that are no changes, and a feed that remembers no places."""
    served = await start("a")
    node = served.node
    for number in range(40):
        for _ in range(number % 4):
            index = node.world.journal.base_index + len(node.world.journal.kept) + 1
            kind = CONFIG if number % 2 else NOOP
            node.world.journal.kept.append(Entry(index, 1, kind, b""))
        await do(node, create(f"job-{number}"))
        if number % 5 == 0:
            # One that was decided on a state that was gone by then, so it was not applied.
            [*_, last] = node.world.journal.kept
            other = msgspec.msgpack.encode([1, last_base(last.data), 0, [], [], [], []])
            node.world.journal.append(other)
    node.world.journal.cut(9)
    for revision in [30, *range(served.server.feed.oldest(), 41)]:
        # Each search is one of its own.
        fresh = event_feed.EventFeed(node.replica, node.world.journal, node.leader.troubles.failed)
        told = await fresh.events_of(revision)
        fresh.close()
        assert [event.job for event in told.events] == [f"job-{revision - 1}"]
