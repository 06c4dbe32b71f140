"""Namespaces: the tenants, with their settings. "default" is there without being made."""

from __future__ import annotations

from collections.abc import Iterable

from ...proto.v1 import namespace_pb2
from ..core import instants, limits, masks
from ..core.instants import ms_or
from ..core.rejection import Fault, Reason, Refused
from ..model import keys, validate
from ..model.record import CalendarRecord, JobRecord, NamespaceRecord, UsageRecord
from ..model.view import View
from . import audit_log

Namespace = namespace_pb2.Namespace
DEFAULT = "default"


def find(view: View, name: str) -> NamespaceRecord | None:
    name = name or DEFAULT
    if name in view.namespaces:
        return view.namespaces[name]
    record = view.get(keys.namespace(name), NamespaceRecord)
    if record is None and name == DEFAULT:
        record = NamespaceRecord(number=0, settings=Namespace(name=DEFAULT))
    view.namespaces[name] = record
    return record


def need(view: View, name: str) -> NamespaceRecord:
    record = view.namespaces.get(name or DEFAULT) or find(view, name)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_NAMESPACE_NOT_FOUND,
            f"there is no namespace '{name}'; create it first, or leave the field empty for "
            f"'{DEFAULT}'",
            namespace=name,
        )
    return record


def quota(view: View, name: str) -> namespace_pb2.Quota:
    record = find(view, name)
    assert record is not None, f"a job lives in the namespace {name}, which is not there"
    return record.settings.quota


def live_runs(view: View, name: str) -> int:
    """How many runs may be under way at once, by quota; 0 for any number."""
    most = view.live_runs.get(name)
    if most is None:
        most = view.live_runs[name] = quota(view, name).live_runs
    return most


def usage_of(view: View, jid: int) -> UsageRecord:
    """The usage of a job's namespace, to be changed: it is put already."""
    namespace = jid >> keys.SERIAL_BITS
    usage = view.usages.get(namespace)
    if usage is None:
        key = keys.usage(namespace)
        usage = view.get(key, UsageRecord) or UsageRecord()
        view.put(key, usage)
        view.usages[namespace] = usage
    return usage


def wake_quota(view: View, number: int, usage: UsageRecord) -> None:
    """There may be room for more runs: let those that wait for the quota have it, as soon as what
    is due has been done."""
    if usage.quota_waits and not usage.quota_timer_ms:
        usage.quota_timer_ms = keys.LATER | view.now_ms
        view.put(keys.usage(number), usage)
        view.put_later(keys.quota_timer(usage.quota_timer_ms, number))


def keep_ledger_ms(view: View, name: str) -> int:
    record = find(view, name)
    assert record is not None, f"a job lives in the namespace {name}, which is not there"
    return ms_or(record.settings, "keep_ledger", limits.KEEP_LEDGER_MS)


def backlog_rate(view: View, name: str) -> int:
    """How many missed scheduled times a second become runs after an outage."""
    record = find(view, name)
    assert record is not None, f"a job lives in the namespace {name}, which is not there"
    return record.settings.backlog_rate or limits.BACKLOG_RATE


def keep_times(view: View, jid: int) -> tuple[int, int]:
    """How long the namespace of a job keeps runs that ended well, and failed ones."""
    number = jid >> keys.SERIAL_BITS
    found = view.keeps.get(number)
    if found is None:
        record = find(view, view.need(keys.job(jid), JobRecord).namespace)
        assert record is not None, f"the job {jid} lives in a namespace that is not there"
        settings = record.settings
        found = view.keeps[number] = (
            ms_or(settings, "keep_succeeded", limits.KEEP_SUCCEEDED_MS),
            ms_or(settings, "keep_failed", limits.KEEP_FAILED_MS),
        )
    return found


def create(view: View, request: namespace_pb2.CreateNamespaceRequest, actor: str) -> Namespace:
    wanted = request.namespace
    faults = validate.name("namespace.name", wanted.name) + _faults(wanted)
    if faults:
        raise Refused.of(faults)
    if find(view, wanted.name) is not None:
        raise Refused.because(
            Reason.ERROR_REASON_NAME_EXISTS,
            f"there is a namespace '{wanted.name}' already; update it, or take another name",
            kind="namespace", name=wanted.name,
        )  # fmt: skip
    if view.meta.namespace_serial >= (1 << 24) - 1 or _count(view) >= limits.NAMESPACES:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {limits.NAMESPACES} namespaces, which is the most; delete one first",
            limit="namespaces", maximum=limits.NAMESPACES, actual=limits.NAMESPACES + 1,
        )  # fmt: skip
    view.meta.namespace_serial += 1
    record = NamespaceRecord(
        number=view.meta.namespace_serial, version=1, created_at_ms=view.now_ms,
        settings=_settings(wanted),
    )  # fmt: skip
    view.put(keys.namespace(wanted.name), record)
    view.namespaces[wanted.name] = record
    audit_log.add(view, actor, "CreateNamespace", wanted.name, f"namespace/{wanted.name}", request)
    return answer(view, record)


def update(view: View, request: namespace_pb2.UpdateNamespaceRequest, actor: str) -> Namespace:
    wanted = request.namespace
    record = need(view, wanted.name)
    check_etag(wanted.etag, record.version)
    merged = _settings(record.settings)
    masks.merge(wanted, merged, request.update_mask, CHANGEABLE)
    faults = _faults(merged)
    if faults:
        raise Refused.of(faults)
    name = record.settings.name
    changed = audit_log.difference(record.settings, merged)
    record.settings.CopyFrom(merged)
    view.live_runs.pop(name, None)
    usage = view.get(keys.usage(record.number), UsageRecord)
    if usage is not None:
        wake_quota(view, record.number, usage)
    view.keeps.pop(record.number, None)
    record.version += 1
    view.put(keys.namespace(name), record)
    audit_log.add(view, actor, "UpdateNamespace", name, f"namespace/{name}", request, changed)
    return answer(view, record)


CHANGEABLE = frozenset(
    {
        "description",
        "quota",
        "keep_succeeded",
        "keep_failed",
        "keep_ledger",
        "keep_audit",
        "weight",
        "backlog_rate",
    }
)


def answer(view: View, record: NamespaceRecord) -> Namespace:
    shown = Namespace()
    shown.CopyFrom(record.settings)
    shown.etag = f"v{record.version}"
    if record.created_at_ms:
        instants.set_ms(shown.create_time, record.created_at_ms)
    usage = view.get(keys.usage(record.number), UsageRecord)
    if usage is not None:
        shown.usage.jobs = usage.jobs
        shown.usage.live_runs = usage.live - usage.held
        shown.usage.leases = usage.leased
        shown.usage.dead_letters = usage.dead
        shown.usage.payload_bytes = usage.payload_bytes
        shown.usage.backlog = usage.backlog
    return shown


def check_etag(sent: str, version: int) -> None:
    current = f"v{version}"
    if sent and sent != current:
        raise Refused.because(
            Reason.ERROR_REASON_ETAG_MISMATCH,
            f"the etag is '{sent}', but the present one is '{current}': somebody changed it in "
            "between. Read it again, then decide",
            etag=sent, current=current,
        )  # fmt: skip


def use_calendars(view: View, namespace: int, names: Iterable[str], by: int) -> None:
    """Count which calendars jobs name, so that none of those is deleted."""
    for name in names:
        key = keys.calendar(namespace, name)
        view.edit(key, CalendarRecord).jobs += by


def _settings(wanted: Namespace) -> Namespace:
    kept = Namespace()
    kept.CopyFrom(wanted)
    for name in ("usage", "etag", "create_time"):
        kept.ClearField(name)
    return kept


def _count(view: View) -> int:
    return sum(1 for _ in view.scan(keys.NAMESPACE, keys.after(keys.NAMESPACE)))


def _faults(wanted: Namespace) -> list[Fault]:
    faults = validate.text("namespace.description", wanted.description, limits.DESCRIPTION_CHARS)
    for name in ("keep_succeeded", "keep_failed", "keep_ledger", "keep_audit"):
        faults += validate.span(f"namespace.{name}", wanted, name, limits.SECOND_MS)
    faults += validate.between("namespace.weight", wanted.weight, 0, 1000)
    faults += validate.between(
        "namespace.backlog_rate", wanted.backlog_rate, 0, limits.BACKLOG_RATE_MAX
    )
    for name in ("jobs", "live_runs", "leases", "calls_per_second", "payload_bytes"):
        faults += validate.between(
            f"namespace.quota.{name}", getattr(wanted.quota, name), 0, (1 << 53) - 1
        )
    return faults
