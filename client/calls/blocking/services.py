# Made from aio/services.py by generate.py; write there.
"""All services of a client, by the names users type. Each is loaded when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...sdk.sync_client import Client
    from .cluster import Access, Alerts, Cluster, Workers
    from .dead import DeadLetters, Flows
    from .events import Events
    from .identity import IdentityProviders
    from .jobs import Jobs
    from .runs import Runs
    from .secret import Secrets
    from .settings import Calendars, Namespaces, Queues


class Services:
    """What hangs on a client."""

    def _self(self) -> Client:
        raise NotImplementedError

    @cached_property
    def jobs(self) -> Jobs:
        """Create jobs, look at them, change them, run them by hand."""
        from .jobs import Jobs

        return Jobs(self._self())

    @cached_property
    def runs(self) -> Runs:
        """Look at runs, and end them."""
        from .runs import Runs

        return Runs(self._self())

    @cached_property
    def queues(self) -> Queues:
        """Look at queues and bound what is leased from them."""
        from .settings import Queues

        return Queues(self._self())

    @cached_property
    def dead(self) -> DeadLetters:
        """Runs that used up their attempts, and wait for a person."""
        from .dead import DeadLetters

        return DeadLetters(self._self())

    @cached_property
    def flows(self) -> Flows:
        """Waves through jobs that depend on each other."""
        from .dead import Flows

        return Flows(self._self())

    @cached_property
    def calendars(self) -> Calendars:
        """Days that jobs leave out."""
        from .settings import Calendars

        return Calendars(self._self())

    @cached_property
    def namespaces(self) -> Namespaces:
        """Tenants, their quotas, and how long their history is kept."""
        from .settings import Namespaces

        return Namespaces(self._self())

    @cached_property
    def workers(self) -> Workers:
        """The workers that the leader knows."""
        from .cluster import Workers

        return Workers(self._self())

    @cached_property
    def events(self) -> Events:
        """Follow what happens, or look at what has happened."""
        from .events import Events

        return Events(self._self())

    @cached_property
    def cluster(self) -> Cluster:
        """Look at the cluster and change its members."""
        from .cluster import Cluster

        return Cluster(self._self())

    @cached_property
    def access(self) -> Access:
        """Access tokens and the audit log."""
        from .cluster import Access

        return Access(self._self())

    @cached_property
    def identity(self) -> IdentityProviders:
        """Who vouches for callers beside the access tokens."""
        from .identity import IdentityProviders

        return IdentityProviders(self._self())

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets for the targets of jobs."""
        from .secret import Secrets

        return Secrets(self._self())

    @cached_property
    def alerts(self) -> Alerts:
        """Conditions to be told about."""
        from .cluster import Alerts

        return Alerts(self._self())
