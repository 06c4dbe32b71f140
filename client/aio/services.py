"""All services of a client, by the names users type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cluster import AsyncAccess, AsyncAlerts, AsyncCluster, AsyncWorkers
from .dead import AsyncDeadLetters, AsyncFlows
from .events import AsyncEvents
from .jobs import AsyncJobs
from .runs import AsyncRuns
from .settings import AsyncCalendars, AsyncNamespaces, AsyncQueues

if TYPE_CHECKING:
    from ..async_client import AsyncClient


class AsyncServices:
    """What hangs on a client."""

    def _attach(self, client: AsyncClient) -> None:
        self.jobs = AsyncJobs(client)
        self.runs = AsyncRuns(client)
        self.queues = AsyncQueues(client)
        self.dead = AsyncDeadLetters(client)
        self.flows = AsyncFlows(client)
        self.calendars = AsyncCalendars(client)
        self.namespaces = AsyncNamespaces(client)
        self.workers = AsyncWorkers(client)
        self.events = AsyncEvents(client)
        self.cluster = AsyncCluster(client)
        self.access = AsyncAccess(client)
        self.alerts = AsyncAlerts(client)
