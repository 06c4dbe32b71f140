"""Who only looks: reads of every kind, which must not fail, and a watcher of events, who hears once
that a run has begun and that it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from google.protobuf.message import Message

from ...proto.v1 import event_pb2
from ...statemachine.core.rejection import Rejection
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.view import View
from ...statemachine.reads.events import ENDS, events
from ...statemachine.reads.reads import READS, read
from . import orders
from .lives import Lives
from .moves import People
from .world import SimViolation

KINDS = sorted(READS, key=lambda kind: kind.__name__)
FILTERS = ("", "", "NOT name=j0", "state=ACTIVE", "state=FAILED", "job=j0", "nonsense")
ENDED = frozenset(ENDS.values())
RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def look(who: People, store: Reading) -> Message:
    """Ask something; the next page as well, if there is one."""
    body: Message = who.dice.choice(KINDS)()
    _fill(who, body)
    for _ in range(2):
        try:
            answer = read(View(store, who.now_ms()), body)
        except RAISED as error:
            raise SimViolation(f"S10 {body!r} raises {type(error).__name__}: {error}") from error
        more = getattr(answer, "next_page_token", "")
        if isinstance(answer, Rejection) or not more:
            break
        body.page_token = more  # type: ignore[attr-defined]  # Only lists have it.
    return body


def _fill(who: People, body: Message) -> None:
    dice: Random = who.dice
    drawn: dict[str, Callable[[], object]] = {
        "job": who.job, "run": who.run, "flow": who.run, "calendar": lambda: orders.CALENDARS[0],
        "queue": lambda: dice.choice(orders.QUEUES), "name": who.job,
        "filter": lambda: dice.choice(FILTERS), "page_size": lambda: dice.choice((0, 1, 3)),
    }  # fmt: skip
    for field in body.DESCRIPTOR.fields:
        if field.name in drawn and not field.message_type and who.jobs:
            setattr(body, field.name, drawn[field.name]())
        elif field.name == "jobs" and not field.message_type:
            getattr(body, "jobs").extend(sorted(who.jobs))  # noqa: B009  # Only some have it.


class SimWatcher:
    """Hears the events of each change, from the state after it."""

    def __init__(self) -> None:
        self.fired: Counter[tuple[int, int] | None] = Counter()
        self.ended: Counter[tuple[int, int] | None] = Counter()

    def hear(self, change: bytes, revision: int, store: Reading) -> None:
        for event in events(change, revision, store):
            if event.kind == event_pb2.EVENT_KIND_RUN_FIRED:
                self.fired[keys.run_key(event.run.id)] += 1
            elif event.kind in ENDED:
                self.ended[keys.run_key(event.run.id)] += 1

    def check(self, lives: Lives) -> None:
        """What began in the place of one that was skipped is heard of once more."""
        for place in sorted(lives.fired):
            again = lives.refilled[place]
            if not 1 <= self.fired[place] <= 1 + again:
                heard = self.fired[place]
                raise SimViolation(f"L11 {lives.say(place)} began, as was heard {heard} times")
            ends = lives.ends[place]
            if self.ended[place] != ends:
                heard = self.ended[place]
                raise SimViolation(
                    f"L11 {lives.say(place)} ended {ends} times, as was heard {heard} times"
                )
