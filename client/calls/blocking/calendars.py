# Made from aio/calendars.py by calls/generate.py; write there.
"""Days that jobs leave out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from .service import Service


class Calendars(Service):
    """Days that jobs leave out."""

    def create(
        self, name: str, days: Sequence[Days], **options: Unpack[CalendarWriting]
    ) -> calendar_pb2.Calendar:
        """Create a calendar.

        days = ["12-25", "12-26", date(2027, 3, 26), "sunday"]
        client.calendars.create("holidays", days)
        """
        given, writing = parted(options)
        wanted, _ = calendar_of(name, self._namespace(writing), {"days": days, **given})
        request = calendar_pb2.CreateCalendarRequest(calendar=wanted)
        return self._send(request, calendar_pb2.Calendar, writing)

    def update(
        self, calendar: str, *, etag: str = "", **options: Unpack[CalendarChanging]
    ) -> calendar_pb2.Calendar:
        """Change what the options speak of; `days` replaces all of them.

        client.calendars.update("holidays", days=["12-25"])
        """
        given, writing = parted(options)
        wanted, paths = calendar_of(calendar, self._namespace(writing), given)
        if not paths:
            raise ValueError(f"no field is named to change of {calendar!r}")
        wanted.etag = etag
        request = calendar_pb2.UpdateCalendarRequest(calendar=wanted)
        request.update_mask.paths.extend(paths)
        return self._send(request, calendar_pb2.Calendar, writing)

    def get(self, calendar: str, **options: Unpack[ReadOptions]) -> calendar_pb2.Calendar:
        """Show one.

        print(client.calendars.get("holidays").jobs)
        """
        request = made(calendar_pb2.GetCalendarRequest, calendar=calendar)
        return self._send(request, calendar_pb2.Calendar, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[calendar_pb2.Calendar]:
        """List them by name.

        for calendar in client.calendars.list():
            print(calendar.name)
        """
        request = calendar_pb2.ListCalendarsRequest()
        return self._items(request, "calendars", limit, options)

    def delete(self, calendar: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one.

        client.calendars.delete("holidays")
        """
        request = made(calendar_pb2.DeleteCalendarRequest, calendar=calendar, etag=etag)
        self._send(request, calendar_pb2.DeleteCalendarResponse, options)
