# Made from aio/alerts.py by calls/generate.py; write there.
"""Conditions to be notified of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import alert_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    AlertWriting,
    alert_of,
)
from .service import Service


class Alerts(Service):
    """Conditions to be notified of."""

    def put(self, name: str, **options: Unpack[AlertWriting]) -> alert_pb2.Alert:
        """Create or replace an alert.

        client.alerts.put(
            "stuck", lateness_above=timedelta(minutes=5), webhook="https://..."
        )
        """
        given, writing = parted(options)
        wanted, _ = alert_of(name, self._namespace(writing), given)
        request = alert_pb2.PutAlertRequest(alert=wanted)
        return self._send(request, alert_pb2.Alert, writing)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[alert_pb2.Alert]:
        """The alerts of the namespace by name; `namespace=""` lists the cluster's.

        for alert in client.alerts.list():
            print(alert.name, alert.HasField("raised_time"))
        """
        request = alert_pb2.ListAlertsRequest()
        return self._items(request, "alerts", limit, options)

    def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete one.

        client.alerts.delete("stuck")
        """
        request = made(alert_pb2.DeleteAlertRequest, alert=name, etag=etag)
        self._send(request, alert_pb2.DeleteAlertResponse, options)
