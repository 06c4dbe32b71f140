"""What a worker says of itself, checked."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice

from ..proto.v1 import worker_pb2
from ..statemachine import keys, namespaces, validate
from ..statemachine.rejection import Fault, Reason, Refused
from ..statemachine.store import Reading
from . import refusals

WORKER = re.compile(r"[A-Za-z0-9._-]{1,128}")
HELD_MAX = 10_000
NEAR_AMONG = (
    1_000  # Namespaces that are looked through for a near name, as this is done on the loop.
)
SLOTS_MAX = 10_000


def check(hello: worker_pb2.WorkerHello) -> None:
    """Refuse a hello that breaks the contract, naming all its faults."""
    faults = _worker(hello.worker)
    for field, names in (("namespaces", hello.namespaces), ("queues", hello.queues)):
        faults += validate.count(f"hello.{field}", len(names), 32)
        for place, name in enumerate(names):
            faults += validate.name(f"hello.{field}[{place}]", name)
    faults += validate.labels("hello.labels", hello.labels, 32)
    faults += validate.count("hello.handlers", len(hello.handlers), 1_000)
    for place, name in enumerate(hello.handlers):
        faults += validate.text(f"hello.handlers[{place}]", name, 128)
    faults += validate.between("hello.slots", hello.slots or 1, 1, SLOTS_MAX)
    faults += validate.text("hello.program", hello.program, 128)
    faults += validate.count("hello.held", len(hello.held), HELD_MAX)
    if faults:
        raise Refused.of(faults)


def stranger(hello: worker_pb2.WorkerHello, state: Reading) -> str:
    """A namespace that a worker names and that is not there; empty when all are.

    Whoever was welcome before knows how to spell them: what is gone was deleted.
    """
    if hello.welcomed:
        return ""
    there = (name for name in hello.namespaces if name not in ("", namespaces.DEFAULT))
    return next((name for name in there if state.get(keys.namespace(name)) is None), "")


def no_namespace(name: str, state: Reading) -> Refused:
    found = state.scan(keys.NAMESPACE, keys.after(keys.NAMESPACE))
    names = {namespaces.DEFAULT, *(key[1:].decode() for key, _ in islice(found, NEAR_AMONG))}
    near = " or ".join(get_close_matches(name, sorted(names)))
    hint = f"did you mean {near}?" if near else "'raftsched namespace list' shows all."
    return refusals.refused(
        Reason.ERROR_REASON_NAMESPACE_NOT_FOUND,
        f"there is no namespace '{name}', so this worker would wait in it for ever; {hint} If it "
        f"is to be made: raftsched namespace create {name}",
        namespace=name,
    )


def _worker(worker: str) -> list[Fault]:
    field = "hello.worker"
    if not worker:
        message = "is empty; choose an id that no other process uses, such as host, pid and chance"
        return [Fault(field, Reason.ERROR_REASON_FIELD_REQUIRED, message)]
    if not WORKER.fullmatch(worker):
        message = f"'{worker[:140]}' is no worker id: 1 to 128 characters of A-Z, a-z, 0-9, -_."
        return [Fault(field, Reason.ERROR_REASON_FIELD_INVALID, message)]
    return []
