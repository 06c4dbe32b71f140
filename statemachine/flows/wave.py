"""A wave, as the rules hand it on."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import keys
from ..model.record import FlowRecord, JobRecord, StepRecord
from ..model.view import View


@dataclass(slots=True)
class Wave:
    """A wave, by the run it began with."""

    jid: int
    occurrence: int
    flow: FlowRecord

    def step(self, view: View, jid: int) -> StepRecord | None:
        """Where a job stands in it."""
        step = view.get(keys.step(self.jid, self.occurrence, jid), StepRecord)
        return step if step is not None and step.round == self.flow.round else None

    def is_middle(self, view: View) -> bool:
        """Whether it began with a job that others come before: what those alone lead to is not in
        it, and nothing in it waits for that."""
        root = view.get(keys.job(self.jid), JobRecord)
        return root is not None and bool(root.template.spec.upstream.jobs)


def find_wave(view: View, jid: int, occurrence: int) -> Wave | None:
    flow = view.get(keys.flow(jid, occurrence), FlowRecord)
    return None if flow is None or flow.going else Wave(jid, occurrence, flow)
