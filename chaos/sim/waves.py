"""What must hold of waves at the end of a history: each goes on, or has notified everybody."""

from __future__ import annotations

from collections import Counter

from ...proto.v1 import flow_pb2
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.record import FlowRecord, RunRecord, StepRecord, parse
from .world import SimViolation

OVER = (flow_pb2.FlowStep.STATE_FIRED, flow_pb2.FlowStep.STATE_CANNOT_RUN)
RunKey = tuple[int, int]  # Of the run that a wave began with.


def check_waves(store: Reading, late_before_ms: int) -> int:
    """Check each wave; return how many there are.

    Every job here waits for one other, so no step waits for more once it was notified of an end.
    """
    live = live_runs(store)
    count = 0
    for key, value in store.scan(keys.FLOW, keys.after(keys.FLOW)):
        place, flow = keys.run_of(key), parse(key, value, FlowRecord)
        count += 1
        if flow.going:
            continue
        if flow.live != live[place]:
            raise SimViolation(f"A2 wave {place} counts {flow.live} runs, {live[place]} are there")
        if flow.notices and not 0 < keys.instant(flow.timer_at_ms) >= late_before_ms:
            raise SimViolation(f"A2 wave {place} has {flow.notices} to send, and nothing moves it")
        if not (flow.live or flow.notices or flow.ended_at_ms):
            raise SimViolation(f"A2 wave {place} has nothing under way, and has not ended")
        notified = steps_of(store, place, flow)
        if flow.ended_at_ms and notified != downstream(store, place[0]):
            raise SimViolation(f"A2 wave {place} has ended, and notified {len(notified)} jobs")
    return count


def live_runs(store: Reading) -> Counter[RunKey]:
    """How many runs of each wave are under way."""
    found: Counter[RunKey] = Counter()
    for key, value in store.scan(keys.RUN, keys.after(keys.RUN)):
        run = parse(key, value, RunRecord)
        found[run.flow_jid, run.flow_occurrence] += 1
    return found


def steps_of(store: Reading, place: RunKey, flow: FlowRecord) -> set[int]:
    """The jobs that a wave has come to."""
    prefix = keys.steps_of(*place)
    found = set()
    for key, value in store.scan(prefix, keys.after(prefix)):
        step = parse(key, value, StepRecord)
        if step.round != flow.round:
            continue
        if step.state not in OVER:
            raise SimViolation(f"A1 a step of wave {place} was notified, and waits")
        found.add(int.from_bytes(key[-8:], "big"))
    return found


def downstream(store: Reading, root: int) -> set[int]:
    """All jobs that wait for a job, or for one that does."""
    found: set[int] = set()
    left = [root]
    while left:
        prefix = keys.of_job(keys.EDGE, left.pop())
        near = {keys.run_of(key)[1] for key, _ in store.scan(prefix, keys.after(prefix))}
        left += near - found
        found |= near
    return found
