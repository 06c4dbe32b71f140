"""What the simulator demands of waves at the end, on states that are written by hand."""

from __future__ import annotations

import pytest

from raftsched.chaos.sim.waves import check_waves
from raftsched.chaos.sim.world import SimViolation
from raftsched.proto.v1 import flow_pb2
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import FlowRecord, Record, RunRecord, StepRecord, encode

from ...rows import each

NOW_MS = 1_767_225_600_000
OCCURRENCE = keys.occurrence_of(NOW_MS)
ROOT, NEAR, FAR = 1, 2, 3
FIRED = StepRecord(state=flow_pb2.FlowStep.STATE_FIRED)
LOST = StepRecord(state=flow_pb2.FlowStep.STATE_CANNOT_RUN)
WAITS = StepRecord(state=flow_pb2.FlowStep.STATE_WAITING)


def state(flow: FlowRecord, steps: dict[int, StepRecord], runs: int = 0) -> MemoryStore:
    """A chain of three, and where its wave stands."""
    items: dict[bytes, Record] = {keys.flow(ROOT, OCCURRENCE): flow}
    for jid, step in steps.items():
        items[keys.step(ROOT, OCCURRENCE, jid)] = step
    for jid in range(runs):
        run = RunRecord(flow_jid=ROOT, flow_occurrence=OCCURRENCE)
        items[keys.run(jid + 1, OCCURRENCE)] = run
    stored = {key: encode(record) for key, record in items.items()}
    return MemoryStore(stored | {keys.edge(ROOT, NEAR): b"", keys.edge(NEAR, FAR): b""})


@pytest.mark.parametrize(
    "store",
    [
        state(FlowRecord(live=1), {}, 1),
        state(FlowRecord(live=1), {NEAR: FIRED}, 1),
        state(FlowRecord(notices=1, timer_at_ms=NOW_MS), {NEAR: LOST}),
        state(FlowRecord(ended_at_ms=NOW_MS), {NEAR: LOST, FAR: LOST}),
    ],
)
def test_a_wave_that_goes_on_or_has_notified_everybody_is_sound(store: MemoryStore) -> None:
    assert check_waves(store, NOW_MS) == 1


@each(
    ("store", "why"),
    [
        (state(FlowRecord(live=2), {}, 1), "counts 2 runs, 1 are there"),
        (state(FlowRecord(notices=1), {NEAR: LOST}), "nothing moves it"),
        (state(FlowRecord(notices=1, timer_at_ms=NOW_MS - 1), {}), "nothing moves it"),
        (state(FlowRecord(), {NEAR: LOST, FAR: LOST}), "has not ended"),
        (state(FlowRecord(ended_at_ms=NOW_MS), {NEAR: LOST}), "notified 1 jobs"),
        (state(FlowRecord(live=1, waiting=1), {NEAR: WAITS}, 1), "was notified, and waits"),
    ],
)
def test_a_wave_that_stands_still_is_seen(store: MemoryStore, why: str) -> None:
    with pytest.raises(SimViolation, match=why):
        check_waves(store, NOW_MS)
