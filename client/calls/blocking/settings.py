# Made from aio/settings.py by generate.py; write there.
"""Queues, calendars and namespaces: what bounds the jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, Unpack

from ....proto.v1 import calendar_pb2, namespace_pb2, queue_pb2
from ...sdk import fields
from ...sdk.days import Days, rules
from ...sdk.fields import Fields, same
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import put
from ...sdk.values import Length, duration
from .service import Service


class Queues(Service):
    """Look at queues and bound what is leased from them."""

    def get(self, queue: str, **options: Unpack[ReadOptions]) -> queue_pb2.Queue:
        """Show a queue.

        print(client.queues.get("mail").ready)
        """
        return self._send(queue_pb2.GetQueueRequest(queue=queue), queue_pb2.Queue, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[queue_pb2.Queue]:
        """The queues by name.

        for queue in client.queues.list():
            print(queue.name, queue.ready, queue.leased)
        """
        return self._items(queue_pb2.ListQueuesRequest(), "queues", limit, options)

    def update(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        burst: int | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> queue_pb2.Queue:
        """Change limits; None leaves one as it is, 0 takes it away.

        client.queues.update("mail", concurrency=10, rate=100)
        """
        limits = {"concurrency": concurrency, "rate": rate, "burst": burst}
        wanted = queue_pb2.Queue(namespace=self._namespace(options), name=queue, etag=etag)
        request = queue_pb2.UpdateQueueRequest(queue=wanted)
        for name, value in limits.items():
            if value is not None:
                put(request.queue, name, value)
                request.update_mask.paths.append(name)
        if not request.update_mask.paths:
            raise ValueError(f"no limit of the queue {queue!r} is given")
        return self._send(request, queue_pb2.Queue, options)

    def pause(self, queue: str, reason: str = "", **options: Unpack[Writing]) -> queue_pb2.Queue:
        """Grant no leases from it; runs that are leased go on.

        client.queues.pause("mail", "the relay is down")
        """
        request = queue_pb2.PauseQueueRequest(queue=queue, reason=reason)
        return self._send(request, queue_pb2.Queue, options)

    def resume(self, queue: str, **options: Unpack[Writing]) -> queue_pb2.Queue:
        """Grant leases again.

        client.queues.resume("mail")
        """
        return self._send(queue_pb2.ResumeQueueRequest(queue=queue), queue_pb2.Queue, options)


class Calendars(Service):
    """Days that jobs leave out."""

    def create(
        self,
        name: str,
        days: Sequence[Days],
        *,
        description: str = "",
        zone: str = "",
        **options: Unpack[Writing],
    ) -> calendar_pb2.Calendar:
        """Create a calendar.

        client.calendars.create("holidays", ["12-25", "12-26", date(2027, 3, 26), "sunday"])
        """
        calendar = calendar_pb2.Calendar(
            namespace=self._namespace(options), name=name, rules=rules(days),
            description=description, zone=zone,
        )  # fmt: skip
        request = calendar_pb2.CreateCalendarRequest(calendar=calendar)
        return self._send(request, calendar_pb2.Calendar, options)

    def get(self, calendar: str, **options: Unpack[ReadOptions]) -> calendar_pb2.Calendar:
        """Show a calendar.

        print(client.calendars.get("holidays").jobs)
        """
        request = calendar_pb2.GetCalendarRequest(calendar=calendar)
        return self._send(request, calendar_pb2.Calendar, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[calendar_pb2.Calendar]:
        """The calendars by name.

        for calendar in client.calendars.list():
            print(calendar.name)
        """
        return self._items(calendar_pb2.ListCalendarsRequest(), "calendars", limit, options)

    def update(
        self,
        calendar: str,
        *,
        days: Sequence[Days] | None = None,
        description: str | None = None,
        zone: str | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> calendar_pb2.Calendar:
        """Change what is given; `days` replaces all of them.

        client.calendars.update("holidays", days=["12-25"])
        """
        wanted = {"days": days, "description": description, "zone": zone}
        given = {word: value for word, value in wanted.items() if value is not None}
        if not given:
            raise ValueError(f"no field is named to change of {calendar!r}")
        changed = calendar_pb2.Calendar(
            namespace=self._namespace(options), name=calendar, etag=etag
        )
        paths = fields.write(changed, given, _CALENDAR)
        request = calendar_pb2.UpdateCalendarRequest(calendar=changed)
        request.update_mask.paths.extend(paths)
        return self._send(request, calendar_pb2.Calendar, options)

    def delete(self, calendar: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete a calendar that no job names.

        client.calendars.delete("holidays")
        """
        request = calendar_pb2.DeleteCalendarRequest(calendar=calendar, etag=etag)
        self._send(request, calendar_pb2.DeleteCalendarResponse, options)


class NamespaceOptions(TypedDict, total=False):
    """What may be said about a namespace; namespace.proto has the defaults."""

    description: str
    # How long things are kept.
    keep_succeeded: Length | None
    keep_failed: Length | None
    keep_ledger: Length | None
    keep_audit: Length | None
    # Its share of the leases where namespaces compete.
    weight: int
    # Missed scheduled times that become runs in a second, after an outage.
    backlog_rate: int
    # Quotas; 0: no limit.
    jobs: int
    live_runs: int
    leases: int
    calls_per_second: int
    payload_bytes: int


class NamespaceWriting(NamespaceOptions, Writing, total=False):
    """What may be said where a namespace is written."""


class Namespaces(Service):
    """Tenants, their quotas, and how long their history is kept."""

    def create(self, name: str, **options: Unpack[NamespaceWriting]) -> namespace_pb2.Namespace:
        """Create a namespace.

        client.namespaces.create("shop", jobs=10_000, keep_failed=timedelta(days=90))
        """
        about, writing = parted(options)
        made = namespace_pb2.Namespace(name=name)
        fields.write(made, about, _NAMESPACE)
        request = namespace_pb2.CreateNamespaceRequest(namespace=made)
        return self._send(request, namespace_pb2.Namespace, writing)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> namespace_pb2.Namespace:
        """Show a namespace and what it uses.

        print(client.namespaces.get("shop").usage.jobs)
        """
        request = namespace_pb2.GetNamespaceRequest(namespace=name)
        return self._send(request, namespace_pb2.Namespace, options)

    def list(
        self, *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[namespace_pb2.Namespace]:
        """The namespaces by name.

        for namespace in client.namespaces.list():
            print(namespace.name)
        """
        request: Any = namespace_pb2.ListNamespacesRequest()
        return self._items(request, "namespaces", limit, options)

    def update(
        self, name: str, *, etag: str = "", **options: Unpack[NamespaceWriting]
    ) -> namespace_pb2.Namespace:
        """Change what the options speak of; None takes a thing away.

        client.namespaces.update("shop", jobs=20_000)
        """
        about, writing = parted(options)
        changed = namespace_pb2.Namespace(name=name, etag=etag)
        paths = fields.write(changed, about, _NAMESPACE)
        if not paths:
            raise ValueError(f"no field is named to change of {name!r}")
        request = namespace_pb2.UpdateNamespaceRequest(namespace=changed)
        request.update_mask.paths.extend(paths)
        return self._send(request, namespace_pb2.Namespace, writing)

    def delete(self, name: str, *, etag: str = "", **options: Unpack[Writing]) -> None:
        """Delete a namespace that has no jobs.

        client.namespaces.delete("shop")
        """
        request = namespace_pb2.DeleteNamespaceRequest(namespace=name, etag=etag)
        self._send(request, namespace_pb2.DeleteNamespaceResponse, options)


_CALENDAR: Fields = {
    "days": ("rules", rules),
    "description": ("description", same),
    "zone": ("zone", same),
}
_NAMESPACE: Fields = {
    "description": ("description", same),
    "keep_succeeded": ("keep_succeeded", duration),
    "keep_failed": ("keep_failed", duration),
    "keep_ledger": ("keep_ledger", duration),
    "keep_audit": ("keep_audit", duration),
    "weight": ("weight", same),
    "backlog_rate": ("backlog_rate", same),
    "jobs": ("quota.jobs", same),
    "live_runs": ("quota.live_runs", same),
    "leases": ("quota.leases", same),
    "calls_per_second": ("quota.calls_per_second", same),
    "payload_bytes": ("quota.payload_bytes", same),
}
