"""Events: followed on any node, or read in pages at the leader.

A watcher holds a place in history and nothing else. It gets one change after the other, in
frames of bounded size, and when it is behind it reads on from the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from ...proto.v1 import common_pb2, event_pb2
from ...statemachine.core import filters, limits
from ...statemachine.core.rejection import Reason
from ...statemachine.model.hiding import hide
from ...statemachine.reads import events
from ..node import refusals
from ..node.event_feed import ChangeEvents, EventFeed, gone
from . import places
from .call import Call
from .caller_limits import CallerShare
from .node_port import NodePort
from .unary import END
from .unread import Unread

UNREAD_S = 10.0  # How long a frame may be on its way to a watcher that does not read.
FRAME_BYTES = 1 << 20
BOOKMARK_S = 5.0  # Half of what is promised.
STALE_S = 10.0
CHANGES_LOOKED_AT = 500  # By one call of ListEvents,
EVENTS_LOOKED_AT = 20_000  # and the events in them; the next call goes on.
EVENTS_IN_A_STEP = 1_000  # Between two breaths of the loop.
Event = event_pb2.Event
Response = event_pb2.WatchEventsResponse


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events somebody wants."""

    namespace: str
    wanted: filters.Filter

    def chosen(self, change_events: ChangeEvents, behind: int) -> list[Event]:
        """The events of a change behind a position that somebody wants."""
        found = change_events.of(self.namespace)
        if behind >= 0:
            found = [event for event in found if event.revision.position > behind]
        if self.wanted.terms:
            found = [event for event in found if events.fits(event, self.namespace, self.wanted)]
        return found


class EventCalls:
    """The event service."""

    def __init__(
        self,
        node: NodePort,
        feed: EventFeed,
        admit: Callable[[Call, Message], None],
        answers: CallerShare,
        unread: Unread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node, self.feed, self.admit = node, feed, admit
        self.answers, self.unread, self.clock = answers, unread, clock
        self.watchers = 0
        # A node that has just begun has not been without a leader for long.
        self._began = clock()

    # Following.

    async def watch(self, call: Call, request: event_pb2.WatchEventsRequest) -> None:
        """Follow events until the caller leaves, or this node cannot derive them any more."""
        self.admit(call, request)
        wanted = EventFilter(request.namespace, events.parse_filter(request.filter))
        after = revision_of(self.feed.revision, END)
        if request.HasField("after"):
            after = request.after
        place = EventPlace(after)
        self._check_kept(place)
        if not request.HasField("after"):
            # Of one that was deleted, what happened before can be gone on with.
            await places.need_here(self.node, self.feed, request.namespace)
        self.watchers += 1
        try:
            # The first word says that the watch stands, and from where.
            await self._write(call, Response(progress=place.progress))
            await self._follow(call, wanted, place)
        finally:
            self.watchers -= 1

    async def _follow(self, call: Call, wanted: EventFilter, place: EventPlace) -> None:
        """Send what comes behind a place; when there is nothing, say so now and then."""
        sent_at = self.clock()
        while True:
            self._check()
            if place.change <= self.feed.revision:
                for frame in frames(await self._next(wanted, place), place.progress):
                    if call.hides:
                        hide(frame)
                    await self._write(call, frame)
                    sent_at = self.clock()
                # A long stretch in which nothing fits must not hold the loop up.
                await asyncio.sleep(0)
            else:
                await self.feed.wait(max(sent_at + BOOKMARK_S - self.clock(), 0.0))
            if self.clock() >= sent_at + BOOKMARK_S:
                await self._write(call, Response(progress=place.progress))
                sent_at = self.clock()

    async def _write(self, call: Call, frame: Response) -> None:
        """Send a frame to a watcher that reads."""
        answers, caller, size = self.answers, call.caller, 2 * frame.ByteSize()
        answers.take(caller, size)
        written = False
        try:
            async with asyncio.timeout(UNREAD_S):
                await call.context.write(frame)
            written = True
        except TimeoutError:
            raise refusals.unread("this watch", UNREAD_S, call.caller) from None
        finally:
            if written:
                answers.give(caller, size)
            else:
                self.unread.give_when_taken(call, size)

    async def _next(self, wanted: EventFilter, place: EventPlace) -> list[Event]:
        """What happened in the next change, as far as somebody wants to know; and move on."""
        change_events = await self.feed.events_of(place.change)
        behind = place.position
        place.passed(change_events)
        return wanted.chosen(change_events, behind)

    def _check_kept(self, place: EventPlace) -> None:
        oldest = self.feed.oldest()
        if place.change < oldest:
            # The last event of a change that is gone is a place to go on from all the same.
            if place.change < oldest - 1:
                raise gone(oldest)
            place.skip()

    def _check(self) -> None:
        if self.node.draining:
            raise refusals.draining(self.node.name, self.node.leader_address)
        if self.node.staleness() > STALE_S and self.clock() - self._began > STALE_S:
            raise refusals.refused(
                Reason.ERROR_REASON_NO_QUORUM,
                f"{self.node.name} has heard from no leader for {STALE_S:.0f} s, so it does not "
                "know what happens; go on from the last progress on another node",
                200,
            )

    def look(self) -> None:
        """Let all watches see whether this node still serves."""
        self.feed.wake()

    # Pages.

    async def list(
        self, call: Call, request: event_pb2.ListEventsRequest
    ) -> event_pb2.ListEventsResponse:
        """A page of what is kept."""
        wanted = EventFilter(request.namespace, events.parse_filter(request.filter))
        size = page_size(request.page_size)
        await self.node.barrier(call.timeout())
        place = EventPlace(revision_of(self.feed.oldest() - 1, END))
        if request.HasField("after"):
            if request.after.change > self.feed.revision:
                raise refusals.refused(
                    Reason.ERROR_REASON_FIELD_INVALID,
                    f"after is {request.after.change}.{request.after.position}, which has not come "
                    f"yet; the last change is {self.feed.revision}",
                    field="after",
                )
            place = EventPlace(request.after)
            self._check_kept(place)
        answer = event_pb2.ListEventsResponse(progress=place.progress)
        room = FRAME_BYTES
        breath = EVENTS_IN_A_STEP
        for _ in range(CHANGES_LOOKED_AT):
            if place.change > self.feed.revision:
                answer.end = True
                break
            if place.looked > EVENTS_LOOKED_AT:
                break
            if place.looked > breath:
                breath = place.looked + EVENTS_IN_A_STEP
                await asyncio.sleep(0)
            for event in await self._next(wanted, place):
                room -= event.ByteSize()
                if len(answer.events) == size or (room < 0 and answer.events):
                    return answer
                answer.events.append(event)
                answer.progress.CopyFrom(event.revision)
            answer.progress.CopyFrom(place.progress)
        return answer


class EventPlace:
    """Where somebody stands in history: the change to look at next, and what of it was seen."""

    __slots__ = ("change", "looked", "position", "progress")

    def __init__(self, after: common_pb2.Revision) -> None:
        self.progress = after
        # How many events it has passed.
        self.looked = 0
        self.change, self.position = after.change, after.position
        if after.position == END:
            self.skip()

    def skip(self) -> None:
        """Nothing of this change is wanted any more."""
        self.change, self.position = self.change + 1, -1

    def passed(self, change_events: ChangeEvents) -> None:
        self.looked += 1 + len(change_events.events)
        self.progress = revision_of(change_events.revision, max(len(change_events.events) - 1, 0))
        self.skip()


def revision_of(change: int, position: int) -> common_pb2.Revision:
    return common_pb2.Revision(change=change, position=position)


def frames(found: list[Event], progress: common_pb2.Revision) -> Iterator[Response]:
    """Events in frames of bounded size; the last one says how far history was looked at."""
    frame, size = Response(), 0
    for event in found:
        size += event.ByteSize()
        if frame.events and size > FRAME_BYTES:
            frame.progress.CopyFrom(frame.events[-1].revision)
            yield frame
            frame, size = Response(), event.ByteSize()
        frame.events.append(event)
    if frame.events:
        frame.progress.CopyFrom(progress)
        yield frame


def page_size(wanted: int) -> int:
    if wanted < 0:
        raise refusals.refused(
            Reason.ERROR_REASON_FIELD_INVALID,
            f"page_size is {wanted}; it must be 0 (for {limits.PAGE_DEFAULT}) or more",
            field="page_size",
        )
    return min(wanted or limits.PAGE_DEFAULT, limits.PAGE)
