"""Calendars: shared lists of days to leave out."""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import calendar_pb2
from ..core import instants, limits, masks
from ..core.rejection import Fault, Reason, Refused
from ..model import keys, validate
from ..model.record import CalendarRecord, JobRecord
from ..model.view import View
from ..schedule.calendar_days import CalendarDays, compile_calendar
from . import audit_log, namespaces

Calendar = calendar_pb2.Calendar
NAMED = 3  # Jobs that a refusal names, found among so many:
LOOKED_AT = 1_000
CHANGEABLE = frozenset({"description", "rules", "zone"})


def _find(view: View, namespace: str, name: str) -> tuple[int, CalendarRecord]:
    number = namespaces.need(view, namespace).number
    record = view.get(keys.calendar(number, name), CalendarRecord)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_CALENDAR_NOT_FOUND,
            f"there is no calendar '{name}' in the namespace '{namespace or namespaces.DEFAULT}'",
            namespace=namespace or namespaces.DEFAULT, calendar=name,
        )  # fmt: skip
    return number, record


def _check(wanted: Calendar) -> None:
    faults = validate.name("calendar.name", wanted.name)
    faults += validate.text("calendar.description", wanted.description, limits.DESCRIPTION_CHARS)
    days = compile_calendar(wanted)
    if not isinstance(days, CalendarDays):
        faults += [Fault(fault.path, fault.reason, fault.message) for fault in days]
    if faults:
        raise Refused.of(faults)


def get(view: View, request: calendar_pb2.GetCalendarRequest, actor: str) -> Calendar:
    return answer(_find(view, request.namespace, request.calendar)[1])


def create(view: View, request: calendar_pb2.CreateCalendarRequest, actor: str) -> Calendar:
    wanted = request.calendar
    _check(wanted)
    namespace = namespaces.need(view, wanted.namespace)
    key = keys.calendar(namespace.number, wanted.name)
    if view.get(key, CalendarRecord) is not None:
        raise Refused.because(
            Reason.ERROR_REASON_NAME_EXISTS,
            f"there is a calendar '{wanted.name}' already; update it, or take another name",
            kind="calendar", name=wanted.name,
        )  # fmt: skip
    prefix = keys.in_namespace(keys.CALENDAR, namespace.number)
    if sum(1 for _ in view.scan(prefix, keys.after(prefix))) >= limits.CALENDARS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {limits.CALENDARS} calendars in the namespace, which is the most",
            limit="calendars", maximum=limits.CALENDARS, actual=limits.CALENDARS + 1,
        )  # fmt: skip
    record = CalendarRecord(version=1, updated_at_ms=view.now_ms)
    record.settings.CopyFrom(_settings(wanted, namespace.settings.name))
    view.put(key, record)
    audit_log.add(
        view, actor, "CreateCalendar", namespace.settings.name, f"calendar/{wanted.name}", request
    )
    return answer(record)


def update(view: View, request: calendar_pb2.UpdateCalendarRequest, actor: str) -> Calendar:
    wanted = request.calendar
    number, record = _find(view, wanted.namespace, wanted.name)
    namespaces.check_etag(wanted.etag, record.version)
    merged = Calendar()
    merged.CopyFrom(record.settings)
    masks.merge(wanted, merged, request.update_mask, CHANGEABLE)
    _check(merged)
    detail = audit_log.difference(record.settings, merged)
    record.settings.CopyFrom(merged)
    record.version += 1
    record.updated_at_ms = view.now_ms
    view.put(keys.calendar(number, wanted.name), record)
    audit_log.add(
        view, actor, "UpdateCalendar", record.settings.namespace, f"calendar/{wanted.name}",
        request, detail,
    )  # fmt: skip
    return answer(record)


def delete(
    view: View, request: calendar_pb2.DeleteCalendarRequest, actor: str
) -> calendar_pb2.DeleteCalendarResponse:
    number, record = _find(view, request.namespace, request.calendar)
    namespaces.check_etag(request.etag, record.version)
    if record.jobs:
        users = _users(view, number, request.calendar)
        raise Refused.because(
            Reason.ERROR_REASON_IN_USE,
            f"{_named(users, record.jobs)} the calendar '{request.calendar}'; take it out first",
            kind="calendar", name=request.calendar, used_by=",".join(users),
        )  # fmt: skip
    view.delete(keys.calendar(number, request.calendar))
    audit_log.add(
        view, actor, "DeleteCalendar", record.settings.namespace, f"calendar/{request.calendar}",
        request,
    )  # fmt: skip
    return calendar_pb2.DeleteCalendarResponse()


def _users(view: View, number: int, calendar: str) -> list[str]:
    """Some jobs that name a calendar, among the first of its namespace."""
    prefix = keys.in_namespace(keys.NAME, number)
    found: list[str] = []
    for _, value in islice(view.stored.scan(prefix, keys.after(prefix)), LOOKED_AT):
        job = view.get(keys.job(int.from_bytes(value, "big")), JobRecord)
        if job is not None and calendar in job.template.calendars:
            found.append(job.name)
            if len(found) == NAMED:
                break
    return found


def _named(users: list[str], count: int) -> str:
    """ "the jobs a, b, c and 2 more name"."""
    if count == 1:
        return f"the job {users[0]} names" if users else "1 job names"
    if not users:
        return f"{count} jobs name"
    more = count - len(users)
    if more:
        return f"the jobs {', '.join(users)} and {more} more name"
    return f"the jobs {', '.join(users[:-1])} and {users[-1]} name"


def _settings(wanted: Calendar, namespace: str) -> Calendar:
    kept = Calendar()
    kept.CopyFrom(wanted)
    kept.namespace = namespace
    for name in ("jobs", "etag", "update_time"):
        kept.ClearField(name)
    return kept


def answer(record: CalendarRecord) -> Calendar:
    shown = Calendar()
    shown.CopyFrom(record.settings)
    shown.jobs = record.jobs
    shown.etag = f"v{record.version}"
    instants.set_ms(shown.update_time, record.updated_at_ms)
    return shown
