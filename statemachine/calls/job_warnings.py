"""Warnings about a job: what may not mean what it seems to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from ..core import limits
from ..firing import on_failure
from ..flows import graph
from ..model import concurrency_key, keys
from ..model.entities import Job
from ..model.record import JobRecord
from ..model.view import View
from ..occurrences import next_time, upcoming
from ..tenants import target_secrets
from . import templates

MANY_DUE = 1_000  # So many jobs due in one second are worth a warning.
COUNTED = 1_000  # More are "over 1,000": each is a step of a scan while somebody waits.


def warnings(view: View, job: Job) -> list[str]:
    try:
        warned = next_time.plan_of(view, job).warnings
    except next_time.UnreadableSchedule as unreadable:
        warned = (str(unreadable),)
    else:
        warned = (*warned, *_nothing_ahead(view, job))
    known = templates.check(job.definition.template)
    found = [*warned, *known.at_odds]
    found += _key_of_schedules(job.definition)
    spec, failing = job.definition.template.spec, job.definition.template.on_failure
    if on_failure.is_missing(view, job):
        found.append(
            f"on_failure names the job '{failing}', which is not there: as long as that is so, a "
            "failure triggers nothing"
        )
    look = limits.ON_FAILURE_LOOK
    if failing and graph.comes_before(view, keys.namespace_of(job.jid), failing, spec, look):
        found.append(
            f"on_failure names the job '{failing}', for which it waits, so a failure begins the "
            "flow anew: once for all failures of a flow, and at most "
            f"{limits.ON_FAILURE_DEPTH} times one behind the other"
        )
    found += target_secrets.warnings(view, job.jid, known.secrets)
    # Taken away above it since it was made: one that is made so is refused.
    if lost := graph.apart(view, keys.namespace_of(job.jid), job.definition.template.spec.upstream):
        found.append(lost)
    if job.state.next_due_at_ms and not job.definition.template.spec.timing.HasField("jitter"):
        found += _many_due(view, job.state.next_due_at_ms)
    return found


def _nothing_ahead(view: View, job: Job) -> Iterator[str]:
    """Calendars may leave out all that the schedules name."""
    if not job.state.next_scheduled_at_ms or not job.definition.template.calendars:
        return
    ahead = upcoming.upcoming(view, job)
    if not ahead.scheduled_ms and ahead.left_out:
        yield f"its calendars leave out what lies ahead: {ahead.left_out}; it may never run"


def _key_of_schedules(job: JobRecord) -> list[str]:
    """A word where runs that no trigger makes have no key of their own."""
    spec = job.template.spec
    path = spec.concurrency.key
    if not concurrency_key.is_path(path) or not (job.schedules or spec.upstream.jobs):
        return []
    try:
        concurrency_key.read(path, *concurrency_key.of_job(job.payload))
    except concurrency_key.UnreadableKey as why:
        return [
            f"the concurrency key {path!r} cannot be read from the job's payload ({why}), so its "
            "scheduled runs and those after other jobs all share one key; set the field, or write "
            "a key without 'payload.'"
        ]
    return []


def _many_due(view: View, due_ms: int) -> list[str]:
    second = due_ms // limits.SECOND_MS
    view.due_counts = view.due_counts or {}
    jobs = view.due_counts.get(second)
    if jobs is None:
        jobs = view.due_counts[second] = _count(view, second)
    if jobs < MANY_DUE:
        return []
    count = f"over {COUNTED:,}" if jobs > COUNTED else f"{jobs:,}"
    clock = f"{datetime.fromtimestamp(second, UTC):%H:%M:%S}"
    return [f"{count} jobs are due in the same second at {clock} UTC; give it a jitter"]


def _count(view: View, second: int) -> int:
    """How many jobs were due in a second before this decision."""
    first = keys.timers_from(second * limits.SECOND_MS)
    end = keys.timers_from((second + 1) * limits.SECOND_MS)
    timers = islice(view.stored.scan(first, end), COUNTED + 1)
    return sum(key[9:10] == keys.WAKE_JOB for key, _ in timers)
