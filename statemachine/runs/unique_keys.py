"""Business keys: which run of a job holds one."""

from __future__ import annotations

from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.entities import Run
from ..model.record import UniqueRecord
from ..model.view import View


def holder(view: View, jid: int, name: str) -> int | None:
    """The run that holds a business key, or held it last and keeps it for a while, if any."""
    taken = view.get(keys.unique(jid, name), UniqueRecord)
    if taken is None or 0 < taken.until_ms <= view.now_ms:
        return None
    return taken.occurrence


def taken(jid: int, job: str, occurrence: int, name: str) -> Refused:
    run = keys.run_id(job, jid, occurrence)
    return Refused.because(
        Reason.ERROR_REASON_UNIQUE_KEY_TAKEN,
        f"the run {run} holds the key '{name}'; wait for its end, or take another key",
        unique_key=name, run=run,
    )  # fmt: skip


def take(view: View, run: Run, name: str) -> None:
    """Give a business key to a run; the time for which another one held it is over."""
    key = keys.unique(run.jid, name)
    before = view.get(key, UniqueRecord)
    if before is not None and before.until_ms:
        view.delete(keys.unique_timer(before.until_ms, run.jid, name))
    view.put(key, UniqueRecord(occurrence=run.occurrence))
