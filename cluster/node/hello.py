"""What a worker says of itself, checked."""

from __future__ import annotations

import re

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Fault, Reason, Refused
from ...statemachine.model import keys, validate

WORKER = re.compile(r"[A-Za-z0-9._-]{1,128}")
# What one hello may name. A grant looks at queues with ready runs, so many names cost little.
PLACES_MAX = 32  # Namespaces, and queues in each of them.
LABELS_MAX = 32
HANDLERS_MAX = 1_000
HELD_MAX = 10_000
NEAR_AMONG = (
    1_000  # Namespaces that are looked through for a near name, as this is done on the loop.
)
SLOTS_MAX = 10_000


def check(hello: worker_pb2.WorkerHello) -> None:
    """Refuse a hello that breaks the contract, naming all its faults."""
    faults = _worker(hello.worker)
    for field, names in (("namespaces", hello.namespaces), ("queues", hello.queues)):
        faults += validate.count(f"hello.{field}", len(names), PLACES_MAX)
        for place, name in enumerate(names):
            faults += validate.name(f"hello.{field}[{place}]", name)
    faults += validate.labels("hello.labels", hello.labels, LABELS_MAX)
    faults += validate.count("hello.handlers", len(hello.handlers), HANDLERS_MAX)
    for place, name in enumerate(hello.handlers):
        faults += validate.text(f"hello.handlers[{place}]", name, 128)
    faults += validate.between("hello.slots", hello.slots or 1, 1, SLOTS_MAX)
    faults += validate.text("hello.program", hello.program, 128)
    faults += validate.count("hello.held", len(hello.held), HELD_MAX)
    if faults:
        raise Refused.of(faults)


def take_held(hello: worker_pb2.WorkerHello) -> tuple[worker_pb2.WorkerHello, dict[int, str]]:
    """A hello without the leases that it lists, and these: runs by their tokens. Kept in it they
    would take thirty times their bytes as long as the session stands."""
    held = {each.token: each.run for each in hello.held}
    if (longest := max(map(len, held.values()), default=0)) > keys.RUN_ID_CHARS:
        message = f"a run in it has {longest} characters; an id has {keys.RUN_ID_CHARS} at most"
        raise Refused.of([Fault("hello.held", Reason.ERROR_REASON_FIELD_INVALID, message)])
    if not held:
        return hello, held
    hello.ClearField("held")
    # A copy, since the fields that were cleared go with their message.
    short = worker_pb2.WorkerHello()
    short.CopyFrom(hello)
    return short, held


def _worker(worker: str) -> list[Fault]:
    field = "hello.worker"
    if not worker:
        message = "is empty; choose an id that no other process uses, such as host, pid and chance"
        return [Fault(field, Reason.ERROR_REASON_FIELD_REQUIRED, message)]
    if not WORKER.fullmatch(worker):
        message = f"'{worker[:140]}' is no worker id: 1 to 128 characters of A-Z, a-z, 0-9, -_."
        return [Fault(field, Reason.ERROR_REASON_FIELD_INVALID, message)]
    return []
