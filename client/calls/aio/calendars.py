# Made from the contracts and catalog.toml by generate.py; write there.
"""Days that jobs leave out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from ....proto.v1 import calendar_pb2
from ...sdk.days import Days
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    CalendarChanging,
    CalendarWriting,
    calendar_of,
)
from .service import AsyncService


class AsyncCalendars(AsyncService):
    """Days that jobs leave out."""

    async def create(
        self, name: str, days: Sequence[Days], **options: Unpack[CalendarWriting]
    ) -> calendar_pb2.Calendar:
        """Create a calendar.

        days = ["12-25", "12-26", date(2027, 3, 26), "sunday"]
        await client.calendars.create("holidays", days)
        """
        given, writing = parted(options)
        wanted, _ = calendar_of(name, self._namespace(writing), {"days": days, **given})
        request = calendar_pb2.CreateCalendarRequest(calendar=wanted)
        return await self._send(request, calendar_pb2.Calendar, writing)

    async def update(
        self, calendar: str, *, etag: str = "", **options: Unpack[CalendarChanging]
    ) -> calendar_pb2.Calendar:
        """Change what the options speak of; `days` replaces all of them.

        await client.calendars.update("holidays", days=["12-25"])
        """
        given, writing = parted(options)
        wanted, paths = calendar_of(calendar, self._namespace(writing), given)
        if not paths:
            raise ValueError(f"no field is named to change of {calendar!r}")
        wanted.etag = etag
        request = calendar_pb2.UpdateCalendarRequest(calendar=wanted)
        request.update_mask.paths.extend(paths)
        return await self._send(request, calendar_pb2.Calendar, writing)

    async def get(self, calendar: str, **options: Unpack[ReadOptions]) -> calendar_pb2.Calendar:
        """Show one.

        print((await client.calendars.get("holidays")).jobs)
        """
        request = made(calendar_pb2.GetCalendarRequest, calendar=calendar)
        return await self._send(request, calendar_pb2.Calendar, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[calendar_pb2.Calendar]:
        """List them by name.

        async for calendar in client.calendars.list():
            print(calendar.name)
        """
        request = calendar_pb2.ListCalendarsRequest()
        return self._items(request, "calendars", limit, options)

    async def delete(self, calendar: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one.

        await client.calendars.delete("holidays")
        """
        request = made(calendar_pb2.DeleteCalendarRequest, calendar=calendar, etag=etag)
        await self._send(request, calendar_pb2.DeleteCalendarResponse, options)
