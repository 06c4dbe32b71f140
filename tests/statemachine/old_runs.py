"""Runs as format 1 kept them: five fields together told where one stands."""

from __future__ import annotations

import msgspec

from raftsched.proto.v1 import run_pb2
from raftsched.statemachine.model import phases
from raftsched.statemachine.model.record import RunRecord, encode

HELD = {phases.LATER: 2, phases.HELD: 3, phases.HALTED: 4}


def as_format_1(run: RunRecord, *, held: bool | None = None) -> bytes:
    """`held`: by the oldest of that format, which said no more."""
    fields = msgspec.msgpack.decode(encode(run))
    place = {name: at for at, name in enumerate(RunRecord.__struct_fields__)}
    # A run that was given back for a while was PENDING to users.
    given_back = run.attempts and run.attempts[-1].end == run_pb2.Attempt.END_RELEASED
    fields[0] = 1
    fields[place["phase"]] = run_pb2.RUN_STATE_PENDING if given_back else run.state
    fields[place["uncounted"]] = HELD.get(run.phase, False) if held is None else held
    if run.phase == phases.ASIDE:
        fields[place["parking"]] = 3
    return msgspec.msgpack.encode(fields)
