# Made from aio/services.py by generate.py; write there.
"""All services of a client, by the names users type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cluster import Access, Alerts, Cluster, Workers
from .dead import DeadLetters, Flows
from .events import Events
from .jobs import Jobs
from .runs import Runs
from .settings import Calendars, Namespaces, Queues

if TYPE_CHECKING:
    from ..sync_client import Client


class Services:
    """What hangs on a client."""

    def _attach(self, client: Client) -> None:
        self.jobs = Jobs(client)
        self.runs = Runs(client)
        self.queues = Queues(client)
        self.dead = DeadLetters(client)
        self.flows = Flows(client)
        self.calendars = Calendars(client)
        self.namespaces = Namespaces(client)
        self.workers = Workers(client)
        self.events = Events(client)
        self.cluster = Cluster(client)
        self.access = Access(client)
        self.alerts = Alerts(client)
