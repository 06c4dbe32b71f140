"""What the end of a run brings about for others.

The end of a run is noted in the view, and whoever ended it knows no more of it. When that piece of
work is done, the effects are carried out, in this order for each end: its job is paused if too many
have failed; the job that its failure triggers is; a run of the job that is held goes on if there is
room; the job's own times go on that count from an end, or its backlog; and its flow is informed.
Each is a bounded step that asks whether the change is full, and leaves the rest to a timer. What
ends thereby stands behind, so nothing calls itself.
"""

from __future__ import annotations

from ..flows import waves
from ..model.entities import Job
from ..model.phases import FAILED
from ..model.view import View
from ..occurrences import next_time
from ..runs import runs
from . import on_failure, pause


def carry_out(view: View) -> None:
    """Carry out all that is noted in the view."""
    while view.ended is not None:
        ended, view.ended = view.ended, None
        for run in ended:
            if run.job.definition.template.pause_on_failure:
                pause.run_ended(view, run)
            if run.record.phase == FAILED and run.job.definition.template.on_failure:
                on_failure.run_failed(view, run)
            _go_on(view, run.job)
            if run.record.flow_jid:
                waves.run_ended(view, run)


def _go_on(view: View, job: Job) -> None:
    """What waited in the job for an end of a run goes on, unless the job goes."""
    if job.state.state != next_time.DELETING:
        runs.let_held_go(view, job)
        next_time.run_ended(view, job)
