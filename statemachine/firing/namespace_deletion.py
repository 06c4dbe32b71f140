"""A namespace goes. Its name is free at once, and its access tokens open nothing any more; its
queues, lanes, calendars, alerts and secrets may be many, so they go in steps. They lie under a
number that no other namespace will have, so nothing meets them meanwhile."""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import namespace_pb2
from ..core import limits
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.record import NamespaceDeletionRecord
from ..model.view import View
from ..tenants import access, audit_log, namespaces, providers

TABLES = (keys.QUEUE, keys.LANE_OF, keys.CALENDAR, keys.ALERT, keys.TARGET_SECRET)


def delete(
    view: View, request: namespace_pb2.DeleteNamespaceRequest, actor: str
) -> namespace_pb2.DeleteNamespaceResponse:
    record = namespaces.need(view, request.namespace)
    name, number = record.settings.name, record.number
    namespaces.check_etag(request.etag, record.version)
    prefix = keys.job(keys.jid_of(number, 0))[:4]
    used = "jobs" if any(True for _ in view.scan(prefix, keys.after(prefix))) else ""
    if name == namespaces.DEFAULT or used:
        why = "it is always there" if name == namespaces.DEFAULT else "it has jobs; delete them"
        raise Refused.because(
            Reason.ERROR_REASON_IN_USE,
            f"the namespace '{name}' cannot be deleted: {why}",
            kind="namespace", name=name, used_by=used or "everybody",
        )  # fmt: skip
    view.delete(keys.namespace(name))
    view.namespaces[name] = None
    access.revoke_all(view, name)
    providers.unbind(view, name)
    _delete_some(view, number)
    audit_log.add(view, actor, "DeleteNamespace", name, f"namespace/{name}", request)
    return namespace_pb2.DeleteNamespaceResponse()


def wake(view: View, number: int) -> None:
    """Drop some of what is left; at last the note that something is."""
    left = limits.STEP
    for table in TABLES:
        prefix = keys.in_namespace(table, number)
        for key in list(islice(view.scan_stored(prefix, keys.after(prefix)), left)):
            value = view.get_raw(key) if table == keys.LANE_OF else None
            if value is not None:
                view.delete(keys.lane(int.from_bytes(value, "big")))
            view.delete(key)
            left -= 1
    if left < limits.STEP:
        _delete_some(view, number)
        return
    view.delete(keys.usage(number))
    view.delete(keys.namespace_deletion(number))


def _delete_some(view: View, number: int) -> None:
    at_ms = keys.LATER | view.now_ms
    view.put(keys.namespace_deletion(number), NamespaceDeletionRecord(timer_at_ms=at_ms))
    view.put_later(keys.namespace_deletion_timer(at_ms, number))
