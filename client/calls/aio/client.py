# Made from catalog.toml by generate.py; write there.
"""The asynchronous client with its typed calls, each kind loaded when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ...sdk.async_core import AsyncClientCore

if TYPE_CHECKING:
    from .access import AsyncAccess
    from .alerts import AsyncAlerts
    from .calendars import AsyncCalendars
    from .cluster import AsyncCluster
    from .dead import AsyncDeadLetters
    from .events import AsyncEvents
    from .flows import AsyncFlows
    from .identity import AsyncIdentityProviders
    from .jobs import AsyncJobs
    from .namespaces import AsyncNamespaces
    from .queues import AsyncQueues
    from .runs import AsyncRuns
    from .secrets import AsyncSecrets
    from .workers import AsyncWorkers


class AsyncClient(AsyncClientCore):
    """Talks to a cluster from one asyncio loop. The same methods as Client, to be awaited.

    async with AsyncClient("node-1:7400,node-2:7400", namespace="shop") as client:
        await client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
        run = await client.jobs.trigger("report")
        print(await run.result(timeout=60))

    It belongs to the loop of its first call. Nothing is connected before that. Each call has a
    deadline, goes to the leader where that is known, and is tried again at another node, with the
    same request_id, as long as that can help and the deadline allows.
    """

    @cached_property
    def jobs(self) -> AsyncJobs:
        """Create jobs, look at them, change them, run them manually."""
        from .jobs import AsyncJobs

        return AsyncJobs(self)

    @cached_property
    def runs(self) -> AsyncRuns:
        """Look at runs, and end them."""
        from .runs import AsyncRuns

        return AsyncRuns(self)

    @cached_property
    def queues(self) -> AsyncQueues:
        """Look at queues and bound what is leased from them."""
        from .queues import AsyncQueues

        return AsyncQueues(self)

    @cached_property
    def dead(self) -> AsyncDeadLetters:
        """Runs that used up their attempts, and wait for a person."""
        from .dead import AsyncDeadLetters

        return AsyncDeadLetters(self)

    @cached_property
    def flows(self) -> AsyncFlows:
        """Flow runs: passes through jobs that depend on each other."""
        from .flows import AsyncFlows

        return AsyncFlows(self)

    @cached_property
    def calendars(self) -> AsyncCalendars:
        """Days that jobs leave out."""
        from .calendars import AsyncCalendars

        return AsyncCalendars(self)

    @cached_property
    def namespaces(self) -> AsyncNamespaces:
        """Tenants, their quotas, and how long their history is kept."""
        from .namespaces import AsyncNamespaces

        return AsyncNamespaces(self)

    @cached_property
    def workers(self) -> AsyncWorkers:
        """The workers that the leader knows."""
        from .workers import AsyncWorkers

        return AsyncWorkers(self)

    @cached_property
    def events(self) -> AsyncEvents:
        """Follow what happens, or look at what has happened."""
        from .events import AsyncEvents

        return AsyncEvents(self)

    @cached_property
    def cluster(self) -> AsyncCluster:
        """Look at the cluster and change its members."""
        from .cluster import AsyncCluster

        return AsyncCluster(self)

    @cached_property
    def access(self) -> AsyncAccess:
        """Access tokens and the audit log."""
        from .access import AsyncAccess

        return AsyncAccess(self)

    @cached_property
    def identity(self) -> AsyncIdentityProviders:
        """Identity providers: issuers of JSON Web Tokens, and certificates of clients."""
        from .identity import AsyncIdentityProviders

        return AsyncIdentityProviders(self)

    @cached_property
    def secrets(self) -> AsyncSecrets:
        """Secrets for the targets of jobs, which name them as `secret://NAME`."""
        from .secrets import AsyncSecrets

        return AsyncSecrets(self)

    @cached_property
    def alerts(self) -> AsyncAlerts:
        """Conditions to be notified of."""
        from .alerts import AsyncAlerts

        return AsyncAlerts(self)
