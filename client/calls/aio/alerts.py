# Made from the contracts and catalog.toml by generate.py; write there.
"""Conditions to be notified of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from ....proto.v1 import alert_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    AlertWriting,
    alert_of,
)
from .service import AsyncService


class AsyncAlerts(AsyncService):
    """Conditions to be notified of."""

    async def put(self, name: str, **options: Unpack[AlertWriting]) -> alert_pb2.Alert:
        """Create or replace an alert.

        await client.alerts.put(
            "stuck", lateness_above=timedelta(minutes=5), webhook="https://..."
        )
        """
        given, writing = parted(options)
        wanted, _ = alert_of(name, self._namespace(writing), given)
        request = alert_pb2.PutAlertRequest(alert=wanted)
        return await self._send(request, alert_pb2.Alert, writing)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[alert_pb2.Alert]:
        """The alerts of the namespace by name; `namespace=""` lists the cluster's.

        async for alert in client.alerts.list():
            print(alert.name, alert.HasField("raised_time"))
        """
        request = alert_pb2.ListAlertsRequest()
        return self._items(request, "alerts", limit, options)

    async def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one.

        await client.alerts.delete("stuck")
        """
        request = made(alert_pb2.DeleteAlertRequest, alert=name, etag=etag)
        await self._send(request, alert_pb2.DeleteAlertResponse, options)
