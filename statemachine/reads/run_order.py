"""In which order runs are listed: by what there is an index for, and by nothing else."""

from __future__ import annotations

from typing import NamedTuple

from ..calls import filtered
from ..core import limits
from ..core.filters import Filter
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.record import UsageRecord
from ..model.view import View

FIELDS = ("scheduled_time", "end_time")


class RunOrder(NamedTuple):
    """By which field, and whether backwards. Without a name: as the list has it."""

    name: str
    by_end: bool = False
    is_descending: bool = False


def read(view: View, number: int, wanted: Filter, text: str) -> RunOrder:
    """What `order_by` asks for, of runs that fit a filter."""
    if not text.strip():
        return RunOrder("")
    field, _, direction = text.strip().partition(" ")
    if field not in FIELDS or direction.strip() not in ("", "asc", "desc"):
        offered = ", ".join(f"{name}, {name} desc" for name in FIELDS)
        raise _wrong(text, f"there are {offered}")
    states, is_descending = filtered.states(wanted), direction.strip() == "desc"
    name = f"{field} desc" if is_descending else field
    if field == "end_time":
        if states != {"FAILED"}:
            why = "only dead letters lie in that order; add state=FAILED to the filter"
            raise _wrong(text, why)
        return RunOrder(name, True, is_descending)
    if filtered.job_named(wanted) is None:
        if not states <= filtered.LIVE_STATES:
            why = (
                "runs that have ended lie by job; add job=NAME to the filter, or list those under "
                "way alone"
            )
            raise _wrong(text, why)
        _check_few(view, number)
    return RunOrder(name, False, is_descending)


def _check_few(view: View, number: int) -> None:
    """Runs under way lie by job as well, and are put in order where they are few."""
    usage = view.get(keys.usage(number), UsageRecord)
    if usage is not None and usage.live > limits.SORTED_RUNS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"the namespace has {usage.live} runs under way, and at most {limits.SORTED_RUNS} are "
            "put in order; add job=NAME to the filter, or leave order_by out",
            limit="sorted_runs", maximum=limits.SORTED_RUNS, actual=usage.live,
        )  # fmt: skip


def _wrong(text: str, why: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_FIELD_INVALID,
        f"order_by is '{text[:80]}': {why}",
        field="order_by",
    )
