"""Safety rules that can be switched off, to see that the checkers notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...cluster.node.leader_loop import Leader
from ...proto.v1 import worker_pb2
from ...statemachine.firing import scheduled_time
from ...statemachine.model import keys
from ...statemachine.model.phases import LEASED
from ...statemachine.model.record import RunRecord
from ...statemachine.runs import reports


def accept_old_tokens() -> None:
    """A report counts whatever its token is."""
    honest = reports.take

    def take(view: Any, result: worker_pb2.Result) -> Any:  # noqa: ANN401
        place = keys.run_key(result.run)
        run = view.get(keys.run(*place), RunRecord) if place is not None else None
        if run is not None and run.phase == LEASED:
            result.token = run.token
        return honest(view, result)

    replace(reports, "take", take)


def forget_every_tenth_firing() -> None:
    """A scheduled time is passed over, and nothing is written down about it."""
    honest = scheduled_time.left_out
    count = 0

    def left_out(*arguments: Any, **more: Any) -> bool:  # noqa: ANN401
        nonlocal count
        count += 1
        return not count % 10 or honest(*arguments, **more)

    replace(scheduled_time, "left_out", left_out)


def acknowledge_before_commit() -> None:
    """Calls are answered when they are decided, not when they are on a majority of disks."""
    honest = Leader.__dict__["_replicate"]

    def replicate(self: Any, parts: Any, view: Any, decision: Any, at: float) -> None:  # noqa: ANN401
        for part, reply in zip(parts, decision.replies, strict=True):
            if part.asked:
                part.answer(reply)
                part.answer = part.unknown = lambda *_: None
        honest(self, parts, view, decision, at)

    replace(Leader, "_replicate", replicate)


def replace(owner: object, name: str, thing: object) -> None:
    """Put something else in the place of what is there; a wrong name must not go unnoticed."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, thing)


RULES: dict[str, Callable[[], None]] = {
    "tokens": accept_old_tokens,
    "firing": forget_every_tenth_firing,
    "commit": acknowledge_before_commit,
}


def break_rule(name: str) -> None:
    RULES[name]()
