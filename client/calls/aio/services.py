"""All services of a client, by the names users type. Each is loaded when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...sdk.async_client import AsyncClient
    from .cluster import AsyncAccess, AsyncAlerts, AsyncCluster, AsyncWorkers
    from .dead import AsyncDeadLetters, AsyncFlows
    from .events import AsyncEvents
    from .identity import AsyncIdentityProviders
    from .jobs import AsyncJobs
    from .runs import AsyncRuns
    from .secret import AsyncSecrets
    from .settings import AsyncCalendars, AsyncNamespaces, AsyncQueues


class AsyncServices:
    """What hangs on a client."""

    def _self(self) -> AsyncClient:
        raise NotImplementedError

    @cached_property
    def jobs(self) -> AsyncJobs:
        """Create jobs, look at them, change them, run them by hand."""
        from .jobs import AsyncJobs

        return AsyncJobs(self._self())

    @cached_property
    def runs(self) -> AsyncRuns:
        """Look at runs, and end them."""
        from .runs import AsyncRuns

        return AsyncRuns(self._self())

    @cached_property
    def queues(self) -> AsyncQueues:
        """Look at queues and bound what is leased from them."""
        from .settings import AsyncQueues

        return AsyncQueues(self._self())

    @cached_property
    def dead(self) -> AsyncDeadLetters:
        """Runs that used up their attempts, and wait for a person."""
        from .dead import AsyncDeadLetters

        return AsyncDeadLetters(self._self())

    @cached_property
    def flows(self) -> AsyncFlows:
        """Waves through jobs that depend on each other."""
        from .dead import AsyncFlows

        return AsyncFlows(self._self())

    @cached_property
    def calendars(self) -> AsyncCalendars:
        """Days that jobs leave out."""
        from .settings import AsyncCalendars

        return AsyncCalendars(self._self())

    @cached_property
    def namespaces(self) -> AsyncNamespaces:
        """Tenants, their quotas, and how long their history is kept."""
        from .settings import AsyncNamespaces

        return AsyncNamespaces(self._self())

    @cached_property
    def workers(self) -> AsyncWorkers:
        """The workers that the leader knows."""
        from .cluster import AsyncWorkers

        return AsyncWorkers(self._self())

    @cached_property
    def events(self) -> AsyncEvents:
        """Follow what happens, or look at what has happened."""
        from .events import AsyncEvents

        return AsyncEvents(self._self())

    @cached_property
    def cluster(self) -> AsyncCluster:
        """Look at the cluster and change its members."""
        from .cluster import AsyncCluster

        return AsyncCluster(self._self())

    @cached_property
    def access(self) -> AsyncAccess:
        """Access tokens and the audit log."""
        from .cluster import AsyncAccess

        return AsyncAccess(self._self())

    @cached_property
    def identity(self) -> AsyncIdentityProviders:
        """Who vouches for callers beside the access tokens."""
        from .identity import AsyncIdentityProviders

        return AsyncIdentityProviders(self._self())

    @cached_property
    def secrets(self) -> AsyncSecrets:
        """Secrets for the targets of jobs."""
        from .secret import AsyncSecrets

        return AsyncSecrets(self._self())

    @cached_property
    def alerts(self) -> AsyncAlerts:
        """Conditions to be told about."""
        from .cluster import AsyncAlerts

        return AsyncAlerts(self._self())
