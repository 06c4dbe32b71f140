# Made from aio/client.py by calls/generate.py; write there.
"""The blocking client with its typed calls, each kind loaded when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ...sdk.core import ClientCore

if TYPE_CHECKING:
    from .access import Access
    from .alerts import Alerts
    from .calendars import Calendars
    from .cluster import Cluster
    from .dead import DeadLetters
    from .events import Events
    from .flows import Flows
    from .identity import IdentityProviders
    from .jobs import Jobs
    from .namespaces import Namespaces
    from .queues import Queues
    from .runs import Runs
    from .secrets import Secrets
    from .workers import Workers


class Client(ClientCore):
    """Talks to a cluster, blocking the calling thread. Safe to share between threads.

    with Client("node-1:7400,node-2:7400", namespace="shop") as client:
        client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
        run = client.jobs.trigger("report")
        print(run.result(timeout=60))

    Nothing is connected before the first call. Each call has a
    deadline, goes to the leader where that is known, and is tried again at another node, with the
    same request_id, as long as that can help and the deadline allows.
    """

    @cached_property
    def jobs(self) -> Jobs:
        """Create jobs, look at them, change them, run them manually."""
        from .jobs import Jobs

        return Jobs(self)

    @cached_property
    def runs(self) -> Runs:
        """Look at runs, and end them."""
        from .runs import Runs

        return Runs(self)

    @cached_property
    def queues(self) -> Queues:
        """Look at queues and bound what is leased from them."""
        from .queues import Queues

        return Queues(self)

    @cached_property
    def dead(self) -> DeadLetters:
        """Runs that used up their attempts, and wait for a person."""
        from .dead import DeadLetters

        return DeadLetters(self)

    @cached_property
    def flows(self) -> Flows:
        """Flow runs: passes through jobs that depend on each other."""
        from .flows import Flows

        return Flows(self)

    @cached_property
    def calendars(self) -> Calendars:
        """Days that jobs leave out."""
        from .calendars import Calendars

        return Calendars(self)

    @cached_property
    def namespaces(self) -> Namespaces:
        """Tenants, their quotas, and how long their history is kept."""
        from .namespaces import Namespaces

        return Namespaces(self)

    @cached_property
    def workers(self) -> Workers:
        """The workers that the leader knows."""
        from .workers import Workers

        return Workers(self)

    @cached_property
    def events(self) -> Events:
        """Follow what happens, or look at what has happened."""
        from .events import Events

        return Events(self)

    @cached_property
    def cluster(self) -> Cluster:
        """Look at the cluster and change its members."""
        from .cluster import Cluster

        return Cluster(self)

    @cached_property
    def access(self) -> Access:
        """Access tokens and the audit log."""
        from .access import Access

        return Access(self)

    @cached_property
    def identity(self) -> IdentityProviders:
        """Identity providers: issuers of JSON Web Tokens, and certificates of clients."""
        from .identity import IdentityProviders

        return IdentityProviders(self)

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets for the targets of jobs, which name them as `secret://NAME`."""
        from .secrets import Secrets

        return Secrets(self)

    @cached_property
    def alerts(self) -> Alerts:
        """Conditions to be notified of."""
        from .alerts import Alerts

        return Alerts(self)
