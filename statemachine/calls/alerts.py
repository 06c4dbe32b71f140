"""Alerts: conditions that somebody wants to hear of.

The leader has them looked at from time to time, in steps, and adds what only it sees. Nothing is
written as long as nothing changes. Since when a condition holds is stored, so that a new leader
does not begin to count anew.

That an alert was raised or cleared is an event like others; calling its webhook is the server's
matter. Without a quorum nothing can be written, so each node reports `no_quorum` by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urlsplit

from ...proto.v1 import alert_pb2, event_pb2
from ..core import instants, limits
from ..core.instants import ms_or
from ..core.rejection import Fault, Reason, Refused
from ..model import hiding, keys, validate
from ..model.record import AlertRecord, LaneRecord, UsageRecord, parse
from ..model.request import Called, Observe, Observed
from ..model.view import View
from ..runs import lanes, set_aside
from ..tenants import audit_log, namespaces

Alert = alert_pb2.Alert
INVALID = Reason.ERROR_REASON_FIELD_INVALID
OF_CLUSTER = frozenset(
    {
        "no_margin", "clock_skew_above", "no_quorum", "long_step_above", "leader_changes_above",
        "members_differ", "set_aside_above",
    }
)  # fmt: skip
COUNTS = frozenset(
    {"dead_letters_above", "broken_jobs_above", "leader_changes_above", "set_aside_above"}
)


def number_of(view: View, namespace: str) -> int:
    """Whose alerts those are in keys; without a namespace they are the cluster's."""
    return namespaces.need(view, namespace).number if namespace else keys.CLUSTER


def put(view: View, request: alert_pb2.PutAlertRequest, actor: str) -> Alert:
    wanted = request.alert
    faults = _faults(wanted)
    if faults:
        raise Refused.of(faults)
    number = number_of(view, wanted.namespace)
    key = keys.alert(number, wanted.name)
    record = view.get(key, AlertRecord)
    namespaces.check_etag(wanted.etag, record.version if record is not None else 0)
    if record is None:
        _check_count(view, number)
        record = AlertRecord()
    old, new = record.settings, _settings(wanted)
    detail = audit_log.difference(old, new)
    if (old.condition, old.hold) != (new.condition, new.hold):
        _holds(view, record, 0, now=False)
    if old.webhook != new.webhook:
        # What happened before is none of its business.
        record.called_in = record.changed_in
    record.settings = new
    record.version += 1
    view.put(key, record)
    audit_log.add(
        view, actor, "PutAlert", wanted.namespace, f"alert/{wanted.name}", request, detail
    )
    return answer(record)


def _check_count(view: View, number: int) -> None:
    prefix = keys.in_namespace(keys.ALERT, number)
    if sum(1 for _ in view.scan(prefix, keys.after(prefix))) >= limits.ALERTS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {limits.ALERTS} alerts, which is the most; delete one first",
            limit="alerts", maximum=limits.ALERTS, actual=limits.ALERTS + 1,
        )  # fmt: skip


def _faults(wanted: Alert) -> list[Fault]:
    faults = validate.name("alert.name", wanted.name)
    faults += validate.span("alert.hold", wanted, "hold", 0, limits.DAY_MS)
    faults += validate.text("alert.webhook", wanted.webhook, limits.URL_CHARS)
    faults += hiding.faults("alert", wanted)
    if wanted.webhook and not _is_address(wanted.webhook):
        message = f"'{wanted.webhook[:80]}' is no address; write https://host/path"
        faults.append(Fault("alert.webhook", INVALID, message))
    return faults + _condition_faults(wanted)


def _is_address(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        place = urlsplit(url)
        return place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        return False


def _condition_faults(wanted: Alert) -> list[Fault]:
    place, condition = "alert.condition", wanted.condition
    kind = condition.WhichOneof("kind")
    if kind is None:
        message = "say when to raise it, such as dead_letters_above"
        return [Fault(place, Reason.ERROR_REASON_FIELD_REQUIRED, message)]
    place = f"{place}.{kind}"
    if kind in OF_CLUSTER and wanted.namespace:
        return [Fault(place, INVALID, "it is for the cluster; leave the namespace empty")]
    if kind in COUNTS:
        return validate.between(place, getattr(condition, kind), 0, (1 << 53) - 1)
    if kind == "workers_below":
        below = condition.workers_below
        return validate.name(f"{place}.queue", below.queue) + validate.between(
            f"{place}.minimum", below.minimum, 1, limits.ALERT_WORKERS
        )
    if kind in ("lateness_above", "clock_skew_above", "long_step_above"):
        return validate.span(place, condition, kind, 1)
    if not getattr(condition, kind):
        return [Fault(place, INVALID, "it is false; set it to true, or choose another kind")]
    return []


def delete(
    view: View, request: alert_pb2.DeleteAlertRequest, actor: str
) -> alert_pb2.DeleteAlertResponse:
    key = keys.alert(number_of(view, request.namespace), request.alert)
    record = view.get(key, AlertRecord)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_ALERT_NOT_FOUND,
            f"there is no alert '{request.alert}'; list what there is",
            namespace=request.namespace, alert=request.alert,
        )  # fmt: skip
    namespaces.check_etag(request.etag, record.version)
    view.delete(key)
    audit_log.add(view, actor, "DeleteAlert", request.namespace, f"alert/{request.alert}", request)
    return alert_pb2.DeleteAlertResponse()


@dataclass(slots=True)
class AlertInputs:
    """What alerts are compared with; what several of them ask is found out once."""

    view: View
    asked: Observe
    dead: dict[int, int] = field(default_factory=dict)
    oldest_ms: dict[int, int] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)
    lanes: int = 0


def observe(view: View, request: Observe, actor: str) -> Observed:
    """Look at some alerts, and raise or clear those whose condition has changed."""
    lanes.index_some(view)
    inputs = AlertInputs(view, request)
    first = request.after + b"\0" if request.after else keys.ALERT
    found = list(islice(view.scan_stored(first, keys.after(keys.ALERT)), request.most + 1))
    for key in found[: request.most]:
        if key in request.but:
            continue
        view.subject = key
        record = view.need(key, AlertRecord)
        number = int.from_bytes(key[1:5], "big")
        hold_ms = ms_or(record.settings, "hold", 0)
        if _holds(view, record, hold_ms, now=_is_true(inputs, number, record.settings)):
            view.put(key, record)
    after = found[request.most - 1] if len(found) > request.most else b""
    return Observed(after, inputs.lanes)


def _holds(view: View, record: AlertRecord, hold_ms: int, *, now: bool) -> bool:
    """Note whether a condition holds; True when that changed the record. The caller puts it."""
    before = (record.true_since_ms, record.raised_at_ms)
    if not now:
        record.true_since_ms = record.raised_at_ms = 0
    elif not record.true_since_ms:
        record.true_since_ms = view.now_ms
    if now and not record.raised_at_ms and view.now_ms - record.true_since_ms >= hold_ms:
        record.raised_at_ms = view.now_ms
    if bool(record.raised_at_ms) != bool(before[1]):
        record.changed_in, record.changed_at_ms = view.base + 1, view.now_ms
    return before != (record.true_since_ms, record.raised_at_ms)


def waits_for_webhook(record: AlertRecord) -> bool:
    """It was raised or cleared, and its webhook has not heard of it."""
    return bool(record.settings.webhook) and record.called_in < record.changed_in


def called(view: View, request: Called, actor: str) -> None:
    """Note that a webhook was called. If more happened since, it will be called again."""
    record = view.get(request.key, AlertRecord)
    if record is not None and record.called_in < request.changed_in <= record.changed_in:
        record.called_in = request.changed_in
        view.put(request.key, record)


def event_of(record: AlertRecord) -> event_pb2.Event:
    """What became of an alert last."""
    raised = bool(record.raised_at_ms)
    kind = event_pb2.EVENT_KIND_ALERT_RAISED if raised else event_pb2.EVENT_KIND_ALERT_CLEARED
    settings = record.settings
    return event_pb2.Event(kind=kind, namespace=settings.namespace, alert=settings.name)


def _is_true(inputs: AlertInputs, number: int, settings: Alert) -> bool:
    condition = settings.condition
    match condition.WhichOneof("kind"):
        case "dead_letters_above":
            return _dead(inputs, number) > condition.dead_letters_above
        case "lateness_above":
            late_ms = inputs.view.now_ms - _oldest_ready(inputs, number)
            return late_ms > instants.to_ms(condition.lateness_above)
        case "workers_below":
            below = condition.workers_below
            return inputs.asked.workers.of(settings.namespace, below.queue) < below.minimum
        case "no_margin":
            return not inputs.asked.margin
        case "clock_skew_above":
            return inputs.asked.skew_ms > instants.to_ms(condition.clock_skew_above)
        case "broken_jobs_above":
            return _broken(inputs, number) > condition.broken_jobs_above
        case "long_step_above":
            return inputs.asked.step_ms > instants.to_ms(condition.long_step_above)
        case "leader_changes_above":
            return inputs.asked.leader_changes > condition.leader_changes_above
        case "members_differ":
            return inputs.asked.differ
        case "set_aside_above":
            return inputs.asked.set_aside > condition.set_aside_above
    # no_quorum: without one nothing can be written, so each node reports it by itself.
    return False


def _dead(inputs: AlertInputs, number: int) -> int:
    if number not in inputs.dead:
        view = inputs.view
        if number == keys.CLUSTER:
            usages = view.stored.scan(keys.USAGE, keys.after(keys.USAGE))
            inputs.dead[number] = sum(parse(*entry, UsageRecord).dead for entry in usages)
        else:
            usage = view.get(keys.usage(number), UsageRecord)
            inputs.dead[number] = usage.dead if usage is not None else 0
    return inputs.dead[number]


def _broken(inputs: AlertInputs, number: int) -> int:
    if number not in inputs.broken:
        whose = None if number == keys.CLUSTER else number
        inputs.broken[number] = set_aside.count(inputs.view.stored, whose)
    return inputs.broken[number]


def _oldest_ready(inputs: AlertInputs, number: int) -> int:
    """Since when the run has been ready that waits longest; now, when none waits."""
    if number not in inputs.oldest_ms:
        view, oldest_ms = inputs.view, inputs.view.now_ms
        whose = b"" if number == keys.CLUSTER else number.to_bytes(4, "big")
        prefix = keys.BUSY + whose
        busy = view.stored.scan(prefix, keys.after(prefix))
        for key, _ in islice(busy, limits.LOOKED_AT):
            inputs.lanes += 1
            lane_number = keys.lane_in(key)
            lane = view.need(keys.lane(lane_number), LaneRecord)
            ready = keys.ready_in(lane_number)
            entries = view.stored.scan(ready + lane.ready_from, keys.after(ready))
            first = next(entries, None) if lane.ready else None
            if first is not None:
                since_ms = keys.rank_of(first[0]) - lanes.BOOSTS[lane.priority]
                oldest_ms = min(oldest_ms, since_ms)
        inputs.oldest_ms[number] = oldest_ms
    return inputs.oldest_ms[number]


def _settings(wanted: Alert) -> Alert:
    kept = Alert()
    kept.CopyFrom(wanted)
    for name in ("raised_time", "etag"):
        kept.ClearField(name)
    return kept


def answer(record: AlertRecord) -> Alert:
    shown = Alert()
    shown.CopyFrom(record.settings)
    shown.etag = f"v{record.version}"
    if record.raised_at_ms:
        instants.set_ms(shown.raised_time, record.raised_at_ms)
    return shown
