"""What a run carries for others: its place in a trace, labels, a warning, what its failure came
to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from ...proto.v1 import run_pb2
from ..core import limits
from ..core.rejection import Fault
from . import keys, validate
from .entities import Run
from .record import CarriedRecord, FailureRecord, LabelRecord, RunRecord
from .view import View

INVALID: Final = validate.INVALID
# W3C Trace Context, level 1: later versions may say more behind the flags.
PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
LATER = re.compile(r"-[!-~]+")
MEMBER = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
MEMBERS = 32


def of(view: View, run: Run) -> CarriedRecord | None:
    """What a run carries. An event of the past may be shown when that is gone."""
    if not run.record.exempt & RunRecord.CARRIES:
        return None
    return view.get(keys.carried(run.jid, run.occurrence), CarriedRecord)


def put(
    view: View, run: Run, trace: run_pb2.TraceContext | None, labels: Mapping[str, str],
    warning: str = "",
) -> None:  # fmt: skip
    """Have a run carry this; a new run nothing else, an older one its labels under these."""
    if trace is None and not labels and not warning:
        return
    before = of(view, run) or CarriedRecord()
    named = labels_with(view, run, labels)
    record = replace(
        before,
        trace=trace or before.trace,
        labels=tuple(LabelRecord(name=name, value=named[name]) for name in sorted(named)),
        warning=warning,
    )
    view.change_run(run).exempt |= RunRecord.CARRIES
    view.put(keys.carried(run.jid, run.occurrence), record)


def put_failures(view: View, run: Run, trace: run_pb2.TraceContext | None, failures: int) -> None:
    """Have a new run carry of how many failures, one behind the other, it comes."""
    view.change_run(run).exempt |= RunRecord.CARRIES
    record = CarriedRecord(trace=trace, failures=failures)
    view.put(keys.carried(run.jid, run.occurrence), record)


def note_failure(view: View, run: Run, failure: FailureRecord) -> None:
    """What came of the failure of a run that has ended; its record says already that it carries
    something."""
    assert run.record.exempt & RunRecord.CARRIES, "its end was to say so"
    before = of(view, run) or CarriedRecord()
    view.put(keys.carried(run.jid, run.occurrence), replace(before, failure=failure))


def failures_of(view: View, run: Run) -> int:
    """Of how many failures one behind the other a run comes, or the flow that it is part of."""
    record = run.record
    place = (run.jid, run.occurrence)
    if record.flow_jid:
        place = (record.flow_jid, record.flow_occurrence)
    found = view.get(keys.carried(*place), CarriedRecord)
    return found.failures if found is not None else 0


def labels_with(view: View, run: Run, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a run with others over them."""
    before = of(view, run)
    named = {label.name: label.value for label in before.labels} if before is not None else {}
    return named | dict(labels)


def warning_of(view: View, run: Run) -> str:
    """What a run that succeeded warns of; empty: nothing."""
    record = of(view, run)
    return record.warning if record is not None else ""


def trace_of(view: View, jid: int, occurrence: int) -> run_pb2.TraceContext | None:
    """Where another run, perhaps one that has ended, belongs in a trace."""
    record = view.get(keys.carried(jid, occurrence), CarriedRecord)
    return record.trace if record is not None else None


def remove_all(view: View, jid: int) -> int:
    """Take away some of what an older version left when it purged runs of a job; how many."""
    prefix = keys.of_job(keys.CARRIED, jid)
    found = list(islice(view.scan_stored(prefix, keys.after(prefix)), limits.STEP))
    for key in found:
        view.delete(key)
    return len(found)


def faults(trace: run_pb2.TraceContext | None, labels: Mapping[str, str]) -> list[Fault]:
    found = validate.labels("labels", labels, limits.LABELS) if labels else []
    if trace is None:
        return found
    size = len(trace.traceparent) + len(trace.tracestate)
    if size > limits.TRACE_CONTEXT_BYTES:
        message = f"it has {size} bytes with traceparent; the most is {limits.TRACE_CONTEXT_BYTES}"
        found.append(Fault("trace_context.tracestate", validate.LIMIT, message))
    elif not _is_parent(trace.traceparent):
        message = (
            f"{trace.traceparent[:80]!r} is none; write version-trace-parent-flags in small "
            "hexadecimal digits, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        )
        found.append(Fault("trace_context.traceparent", INVALID, message))
    elif trace.tracestate and not _is_state(trace.tracestate):
        message = (
            f"{trace.tracestate[:80]!r} is none; write at most {MEMBERS} times vendor=value, with "
            "commas between"
        )
        found.append(Fault("trace_context.tracestate", INVALID, message))
    return found


def _is_parent(text: str) -> bool:
    found = PARENT.match(text)
    if found is None:
        return False
    behind = text[found.end() :]
    return not behind or (
        not text.startswith("00") and re.fullmatch(r"-[!-~]+", behind) is not None
    )


def _is_state(text: str) -> bool:
    members = [part.strip(" \t") for part in text.split(",")]
    return len(members) <= MEMBERS and all(
        not member or MEMBER.fullmatch(member) for member in members
    )
