"""What filters see of jobs and runs: the one table of their fields, for lists and bulk calls."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message

from ...proto.v1 import common_pb2, dead_letter_pb2, job_pb2, run_pb2
from ..core import filters, limits
from ..core.filters import INSTANT, NUMBER, TEXT, Field, Fields, Filter, Value, ValueOf, words
from ..model import answers, carried, keys
from ..model.entities import Job, Run
from ..model.phases import LEASED
from ..model.record import LaneRecord, StateRecord
from ..model.view import View
from ..runs import lanes

LABELS = "labels."
RUN_STATE = words(run_pb2.RunState.keys(), "RUN_STATE_")
LIVE_STATES = frozenset({"PENDING", "RUNNING", "RETRYING"})
# What a viewer without `see_payloads` may not search: the answers would show what is hidden.
HIDDEN_FIELDS = frozenset({"error", "warning"})
OF_RUNS = (
    run_pb2.ListRunsRequest,
    job_pb2.ListJobHistoryRequest,
    dead_letter_pb2.ListDeadLettersRequest,
)


class _SeenJob:
    """A job as a filter looks at it; what takes time is made once it is asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._spec: job_pb2.JobSpec | None = None

    @property
    def spec(self) -> job_pb2.JobSpec:
        if self._spec is None:
            self._spec = self.job.definition.full_spec()
        return self._spec


JobField = tuple[Field, Callable[[_SeenJob], Value]]
JOBS: dict[str, JobField] = {
    "name": (TEXT, lambda seen: seen.job.definition.name),
    "state": (
        words(job_pb2.JobStatus.State.keys(), "STATE_"),
        lambda seen: STATE_FIELDS["state"](seen.job.state),
    ),
    "queue": (TEXT, lambda seen: seen.spec.queue or "default"),
    "owner": (TEXT, lambda seen: seen.spec.owner),
    "description": (TEXT, lambda seen: seen.spec.description),
    "creator": (TEXT, lambda seen: seen.job.definition.creator),
    "zone": (TEXT, lambda seen: seen.spec.timing.zone or "UTC"),
    "handler": (TEXT, lambda seen: lanes.handler_of(seen.job.definition.template.spec.action)),
    "calendar": (TEXT, lambda seen: tuple(seen.job.definition.template.calendars)),
    "on_failure": (TEXT, lambda seen: seen.job.definition.template.on_failure),
    "last_state": (RUN_STATE, lambda seen: STATE_FIELDS["last_state"](seen.job.state)),
    "create_time": (INSTANT, lambda seen: seen.job.definition.created_at_ms or ""),
    "update_time": (INSTANT, lambda seen: seen.job.definition.updated_at_ms or ""),
    "next_time": (INSTANT, lambda seen: STATE_FIELDS["next_time"](seen.job.state)),
}
# Those of them that say where a job stands.
STATE_FIELDS: dict[str, Callable[[StateRecord], Value]] = {
    "state": lambda state: _word(job_pb2.JobStatus.State.Name(state.state), "STATE_"),
    "last_state": lambda state: _state(state.last_state) if state.last_state else "",
    "next_time": lambda state: state.next_due_at_ms or "",
}


class _SeenRun:
    """A run as a filter looks at it."""

    def __init__(self, view: View, run: Run) -> None:
        self.view, self.run, self.record = view, run, run.record
        self.of_job = _SeenJob(run.job)

    def label(self, name: str) -> str:
        record = carried.of(self.view, self.run)
        for own in record.labels if record is not None else ():
            if own.name == name:
                return own.value
        return self.of_job.spec.labels.get(name, "")

    @property
    def lane(self) -> LaneRecord:
        return self.view.need(keys.lane(self.record.lane), LaneRecord)

    @property
    def worker(self) -> str:
        return keys.worker_id(self.record.worker) if self.record.worker else ""


RunField = tuple[Field, Callable[[_SeenRun], Value]]
RUNS: dict[str, RunField] = {
    "job": (TEXT, lambda seen: seen.run.job.definition.name),
    "state": (RUN_STATE, lambda seen: _state(seen.record.state)),
    "outcome": (
        words(run_pb2.Outcome.keys(), "OUTCOME_"),
        lambda seen: _word(run_pb2.Outcome.Name(seen.record.outcome), "OUTCOME_"),
    ),
    "cause": (
        words(run_pb2.Cause.keys(), "CAUSE_"),
        lambda seen: _word(run_pb2.Cause.Name(seen.record.cause), "CAUSE_"),
    ),
    "priority": (
        words(common_pb2.Priority.keys(), "PRIORITY_"),
        lambda seen: _word(
            common_pb2.Priority.Name(seen.record.priority or common_pb2.PRIORITY_MEDIUM),
            "PRIORITY_",
        ),
    ),
    "queue": (TEXT, lambda seen: seen.lane.queue),
    "handler": (TEXT, lambda seen: seen.lane.handler),
    "worker": (TEXT, lambda seen: seen.worker if seen.record.phase == LEASED else ""),
    "last_worker": (TEXT, lambda seen: seen.worker),
    "flow": (
        TEXT,
        lambda seen: answers.flow_id(seen.view, seen.record) if seen.record.flow_jid else "",
    ),
    "unique_key": (TEXT, lambda seen: seen.record.unique_key),
    "concurrency_key": (TEXT, lambda seen: seen.record.limit_key),
    "kind": (TEXT, lambda seen: seen.record.error.kind if seen.record.error else ""),
    "error": (TEXT, lambda seen: seen.record.error.message if seen.record.error else ""),
    "warning": (TEXT, lambda seen: carried.warning_of(seen.view, seen.run)),
    "attempt": (NUMBER, lambda seen: seen.record.attempt),
    "scheduled_time": (INSTANT, lambda seen: keys.scheduled_of(seen.run.occurrence)),
    "due_time": (INSTANT, lambda seen: seen.record.due_at_ms or ""),
    "start_time": (INSTANT, lambda seen: seen.record.started_at_ms or ""),
    "end_time": (INSTANT, lambda seen: seen.record.ended_at_ms or ""),
}
JOB_FIELDS: Fields = {LABELS: TEXT, **{name: field for name, (field, _) in JOBS.items()}}
# The labels of a run are its own, and those of its job that it has not itself.
RUN_FIELDS: Fields = {LABELS: TEXT, **{name: field for name, (field, _) in RUNS.items()}}


def hidden_field(request: Message) -> str:
    """What a request searches that a viewer without `see_payloads` may not see; empty: nothing."""
    if not isinstance(request, OF_RUNS):
        return ""
    names = filters.parse(request.filter, RUN_FIELDS).names
    return min(names & HIDDEN_FIELDS, default="")


def of_job(job: Job) -> ValueOf:
    """What a filter sees of a job."""
    seen = _SeenJob(job)

    def value_of(field: str) -> Value:
        if field.startswith(LABELS):
            return seen.spec.labels.get(field.removeprefix(LABELS), "")
        return JOBS[field][1](seen)

    return value_of


def fitting_job(view: View, wanted: Filter, jid: int, name: str | None = None) -> Job | None:
    """A job if it fits. Most do not, and that shows by the name, where it is at hand, or by where
    the job stands: what it does takes many times as long to read."""
    if name is not None and "name" in wanted.names and wanted.judge({"name": name}.get) is False:
        return None
    if named := wanted.names & STATE_FIELDS.keys():
        state = view.need(keys.state(jid), StateRecord)
        known = {field: STATE_FIELDS[field](state) for field in named}
        if wanted.judge(known.get) is False:
            return None
    job = view.job(jid)
    return job if wanted.fits(of_job(job)) else None


def of_run(view: View, run: Run) -> ValueOf:
    """What a filter sees of a run."""
    seen = _SeenRun(view, run)

    def value_of(field: str) -> Value:
        if field.startswith(LABELS):
            return seen.label(field.removeprefix(LABELS))
        return RUNS[field][1](seen)

    return value_of


def name_range(wanted: Filter, number: int) -> tuple[bytes, bytes]:
    """The names to look at, in a namespace: a filter by name needs no look at the others."""
    beginning = ""
    for term in wanted.needed():
        if term.field == "name" and term.sign == "=":
            beginning = max(beginning, str(term.value).removesuffix("*"), key=len)
    prefix = keys.job_name(number, beginning)
    return prefix, keys.after(prefix)


def states(wanted: Filter) -> frozenset[str]:
    """The states that runs may have that fit; of a filter that names none those under way."""
    if "state" not in wanted.names:
        return LIVE_STATES
    return wanted.possible("state", RUN_STATE.words)


def job_named(wanted: Filter) -> str | None:
    """The one job whose runs fit, if the filter says so."""
    for term in wanted.needed():
        if term.field == "job" and term.sign == "=" and not str(term.value).endswith("*"):
            return str(term.value)
    return None


def occurrences(wanted: Filter) -> tuple[int, int]:
    """The occurrences to look at: a filter by scheduled time needs no look at the others."""
    last_ms = keys.scheduled_of(keys.OCCURRENCE_MAX)
    low_ms, high_ms = wanted.span("scheduled_time", 0, last_ms)
    if high_ms < low_ms or low_ms > last_ms:
        return 0, 0
    end = keys.OCCURRENCE_MAX if high_ms == last_ms else keys.occurrence_of(high_ms + 1)
    return keys.occurrence_of(low_ms), end


def dead_range(wanted: Filter, number: int) -> tuple[bytes, bytes]:
    """The dead letters to look at: a filter by the time of their end needs no look at others."""
    whole = keys.in_namespace(keys.DEAD, number)
    low_ms, high_ms = wanted.span("end_time", 0, limits.INSTANT_MAX_MS)
    if high_ms < low_ms:
        return whole, whole
    first = keys.dead(number, high_ms, 0, 0) if high_ms < limits.INSTANT_MAX_MS else whole
    end = keys.dead(number, low_ms - 1, 0, 0) if low_ms else keys.after(whole)
    return first, end


def _state(number: run_pb2.RunState.ValueType) -> str:
    return _word(run_pb2.RunState.Name(number), "RUN_STATE_")


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)
