"""Namespaces, queues, calendars and the audit log, for readers."""

from __future__ import annotations

from collections.abc import Iterator

from ...proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    common_pb2,
    identity_pb2,
    namespace_pb2,
    queue_pb2,
    secret_pb2,
)
from ..calls import alerts
from ..core import filters, pages
from ..core.instants import timestamp
from ..model import keys
from ..model.record import (
    AccessTokenRecord,
    AlertRecord,
    AuditEntryRecord,
    CalendarRecord,
    IdentityProviderRecord,
    NamespaceRecord,
    QueueRecord,
    SecretRecord,
    parse,
)
from ..model.view import View
from ..model.workers import Workers, pulling
from ..tenants import access, audit_log, calendars, namespaces, providers, queues, target_secrets

AUDIT_FIELDS = {
    "actor": filters.TEXT, "method": filters.TEXT, "subject": filters.TEXT, "time": filters.INSTANT,
}  # fmt: skip


def get_queue(view: View, request: queue_pb2.GetQueueRequest, workers: Workers) -> queue_pb2.Queue:
    answer = queues.get(view, request, "")
    answer.workers = len(pulling(workers, answer.namespace, answer.name))
    return answer


def list_queues(
    view: View, request: queue_pb2.ListQueuesRequest, workers: Workers
) -> queue_pb2.ListQueuesResponse:
    namespace = namespaces.need(view, request.namespace)
    name = namespace.settings.name
    paging = pages.read("queues", namespace.number, "", request.page_size, request.page_token)
    prefix = keys.in_namespace(keys.QUEUE, namespace.number)
    end = keys.after(prefix)

    def show(entry: tuple[bytes, bytes]) -> queue_pb2.Queue:
        key, value = entry
        record = parse(key, value, QueueRecord)
        answer = queues.answer(view, name, namespace.number, key[5:].decode(), record)
        answer.workers = len(pulling(workers, name, answer.name))
        return answer

    found = view.stored.scan(pages.first_behind(paging, prefix, end), end)
    page = pages.fill(paging, found, pages.key_of, show)
    return queue_pb2.ListQueuesResponse(queues=page.items, next_page_token=page.next_token)


def get_namespace(
    view: View, request: namespace_pb2.GetNamespaceRequest, workers: Workers
) -> namespace_pb2.Namespace:
    return namespaces.answer(view, namespaces.need(view, request.namespace))


def list_namespaces(
    view: View, request: namespace_pb2.ListNamespacesRequest, workers: Workers
) -> namespace_pb2.ListNamespacesResponse:
    paging = pages.read("namespaces", 0, "", request.page_size, request.page_token)
    first = pages.first_behind(paging, keys.NAMESPACE, keys.after(keys.NAMESPACE))
    page = pages.fill(
        paging, _namespaces(view, first), _key, lambda found: namespaces.answer(view, found)
    )
    return namespace_pb2.ListNamespacesResponse(
        namespaces=page.items, next_page_token=page.next_token
    )


def _namespaces(view: View, first: bytes) -> Iterator[NamespaceRecord]:
    """All namespaces by name; "default" is there even before it is stored."""
    default = namespaces.need(view, namespaces.DEFAULT)
    waiting = keys.namespace(namespaces.DEFAULT) >= first
    for key, value in view.stored.scan(first, keys.after(keys.NAMESPACE)):
        if waiting and key >= keys.namespace(namespaces.DEFAULT):
            waiting = False
            yield default
        if key != keys.namespace(namespaces.DEFAULT):
            yield parse(key, value, NamespaceRecord)
    if waiting:
        yield default


def _key(record: NamespaceRecord) -> bytes:
    return keys.namespace(record.settings.name)


def get_calendar(
    view: View, request: calendar_pb2.GetCalendarRequest, workers: Workers
) -> calendar_pb2.Calendar:
    return calendars.get(view, request, "")


def list_calendars(
    view: View, request: calendar_pb2.ListCalendarsRequest, workers: Workers
) -> calendar_pb2.ListCalendarsResponse:
    number = namespaces.need(view, request.namespace).number
    paging = pages.read("calendars", number, "", request.page_size, request.page_token)
    prefix = keys.in_namespace(keys.CALENDAR, number)
    end = keys.after(prefix)
    found = view.stored.scan(pages.first_behind(paging, prefix, end), end)
    page = pages.fill(
        paging, found, pages.key_of, lambda entry: calendars.answer(parse(*entry, CalendarRecord))
    )
    return calendar_pb2.ListCalendarsResponse(calendars=page.items, next_page_token=page.next_token)


def list_access_tokens(
    view: View, request: access_pb2.ListAccessTokensRequest, workers: Workers
) -> access_pb2.ListAccessTokensResponse:
    """All access tokens by name, those that are not valid any more among them."""
    paging = pages.read("tokens", 0, "", request.page_size, request.page_token)
    end = keys.after(keys.ACCESS)
    found = view.stored.scan(pages.first_behind(paging, keys.ACCESS, end), end)

    def show(entry: tuple[bytes, bytes]) -> access_pb2.AccessToken:
        return _access_token(view, parse(*entry, AccessTokenRecord))

    page = pages.fill(paging, found, pages.key_of, show)
    return access_pb2.ListAccessTokensResponse(
        access_tokens=page.items, next_page_token=page.next_token
    )


def _access_token(view: View, record: AccessTokenRecord) -> access_pb2.AccessToken:
    name = record.settings.name
    until_ms = access.former(view.stored, name)[1]
    last_use_ms = access.last_use_ms(view.stored, name)
    return access.answer(record, until_ms if until_ms > view.now_ms else 0, last_use_ms)


def get_identity_provider(
    view: View, request: identity_pb2.GetIdentityProviderRequest, workers: Workers
) -> identity_pb2.IdentityProvider:
    return providers.answer(providers.find(view, request.identity_provider))


def list_identity_providers(
    view: View, request: identity_pb2.ListIdentityProvidersRequest, workers: Workers
) -> identity_pb2.ListIdentityProvidersResponse:
    paging = pages.read("identity_providers", 0, "", request.page_size, request.page_token)
    end = keys.after(keys.PROVIDER)
    found = view.stored.scan(pages.first_behind(paging, keys.PROVIDER, end), end)
    page = pages.fill(
        paging, found, pages.key_of,
        lambda entry: providers.answer(parse(*entry, IdentityProviderRecord)),
    )  # fmt: skip
    return identity_pb2.ListIdentityProvidersResponse(
        identity_providers=page.items, next_page_token=page.next_token
    )


def get_secret(
    view: View, request: secret_pb2.GetSecretRequest, workers: Workers
) -> secret_pb2.Secret:
    return target_secrets.answer(target_secrets.find(view, request.namespace, request.secret)[1])


def list_secrets(
    view: View, request: secret_pb2.ListSecretsRequest, workers: Workers
) -> secret_pb2.ListSecretsResponse:
    number = namespaces.need(view, request.namespace).number
    paging = pages.read("secrets", number, "", request.page_size, request.page_token)
    prefix = keys.in_namespace(keys.TARGET_SECRET, number)
    end = keys.after(prefix)
    found = view.stored.scan(pages.first_behind(paging, prefix, end), end)
    page = pages.fill(
        paging, found, pages.key_of,
        lambda entry: target_secrets.answer(parse(*entry, SecretRecord)),
    )  # fmt: skip
    return secret_pb2.ListSecretsResponse(secrets=page.items, next_page_token=page.next_token)


def list_alerts(
    view: View, request: alert_pb2.ListAlertsRequest, workers: Workers
) -> alert_pb2.ListAlertsResponse:
    number = alerts.number_of(view, request.namespace)
    paging = pages.read("alerts", number, "", request.page_size, request.page_token)
    prefix = keys.in_namespace(keys.ALERT, number)
    end = keys.after(prefix)
    found = view.stored.scan(pages.first_behind(paging, prefix, end), end)
    page = pages.fill(
        paging, found, pages.key_of, lambda entry: alerts.answer(parse(*entry, AlertRecord))
    )
    return alert_pb2.ListAlertsResponse(alerts=page.items, next_page_token=page.next_token)


def list_audit_records(
    view: View, request: access_pb2.ListAuditRecordsRequest, workers: Workers
) -> access_pb2.ListAuditRecordsResponse:
    """Who changed what, newest first; of all namespaces when none is named."""
    wanted = filters.parse(request.filter, AUDIT_FIELDS)
    scope = f"{request.namespace}\0{request.filter}"
    paging = pages.read("audit", 0, scope, request.page_size, request.page_token)
    end = keys.after(keys.AUDIT)

    def show(entry: tuple[bytes, bytes]) -> access_pb2.AuditRecord | None:
        record = parse(*entry, AuditEntryRecord)
        is_of_all = record.method in audit_log.OF_ALL_NAMESPACES
        if request.namespace and record.namespace != request.namespace and not is_of_all:
            return None
        fields: dict[str, filters.Value] = {
            "actor": record.actor, "method": record.method, "subject": record.subject,
            "time": record.at_ms,
        }  # fmt: skip
        return _audit_answer(record) if wanted.fits(fields.__getitem__) else None

    # Places are inverted, so nothing newer than the newest lies before it.
    newest = keys.audit(max(0, view.meta.audit_next - 1))
    found = view.stored.scan(pages.first_behind(paging, newest, end), end)
    page = pages.fill(paging, found, pages.key_of, show, terms=wanted.terms)
    return access_pb2.ListAuditRecordsResponse(records=page.items, next_page_token=page.next_token)


def _audit_answer(record: AuditEntryRecord) -> access_pb2.AuditRecord:
    return access_pb2.AuditRecord(
        revision=common_pb2.Revision(change=record.revision), time=timestamp(record.at_ms),
        actor=record.actor, method=record.method, namespace=record.namespace,
        subject=record.subject, change=record.change, request_id=record.request_id,
    )  # fmt: skip
