"""A real node with a hand on its disk, its clock and, for tests of the checkers, one of its rules.

    python -m raftsched.chaos.real.node CONTROL node --name n1 ...

CONTROL is a file that the harness writes and this process reads again when it has changed. The
node itself is the one that is shipped: what is below it is replaced, by subclasses and names, so no
line of it exists for tests.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ...cluster import main
from ...cluster.local.nodes import ProgramOf
from ...cluster.node import damage_watch, node_spec
from ...cluster.node import node as nodes
from ...cluster.node.applier import Replica
from ...cluster.raft import driver
from ...cluster.raft.disk import RealDisk
from ...cluster.raft.message import Message
from ...cluster.raft.transport import PeerLinks
from ...statemachine.model.entities import Job
from ...statemachine.model.view import View
from ...statemachine.occurrences import next_time
from ...statemachine.schedule.plan import Plan
from .broken import break_rule

HITS = ".hits"
# How soon it obeys. It is asked thousands of times a second, and each look at a file
# lends the interpreter to whoever else waits for it: the node would be slower than the one shipped.
LOOK_S = 0.01
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


class Failpoint(msgspec.Struct, frozen=True):
    """What happens at a named place: kill, sleep or error, with a chance."""

    action: str
    chance: float = 1.0
    seconds: float = 0.0
    error: str = ""


class Control(msgspec.Struct, frozen=True):
    """What the harness wants of this node."""

    # append, sync, rename, remove, send, apply, checkpoint; each with before- or after-.
    failpoints: dict[str, Failpoint] = {}
    # Added to the wall clock, in milliseconds.
    clock_ms: float = 0.0
    # How much faster the wall clock goes, in parts of a million, since `drift_from`.
    drift_ppm: float = 0.0
    drift_from: float = 0.0
    # In turns of so many milliseconds the clock is set by `clock_ms` and right again; 0: it stays.
    strobe_ms: float = 0.0
    broken_rule: str = ""
    # Jobs with this in their names have schedules that cannot be worked out any more.
    poison: str = ""


def controlled(folder: Path) -> ProgramOf:
    """The node with a hand on it, which obeys a file in this folder."""

    def program(name: str) -> list[str]:
        control = str(folder / f"{name}.control")
        return [sys.executable, "-m", "raftsched.chaos.real.node", control, "node"]

    return program


class NodeControl:
    """Reads the control file and does what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed_at = -1
        self.look_at = 0.0
        self.control = Control()
        self.clock_noted = False
        self.dice = random.Random(os.getpid())

    def look(self) -> Control:
        now = time.monotonic()
        if now < self.look_at:
            return self.control
        self.look_at = now + LOOK_S
        at = os.stat(self.path).st_mtime_ns
        if at != self.changed_at:
            self.control = msgspec.json.decode(self.path.read_bytes(), type=Control)
            self.changed_at = at
            self.clock_noted = False
        return self.control

    def hit(self, place: str) -> None:
        """Leave a sign, so that the harness knows that a fault was one."""
        with self.path.with_suffix(HITS).open("a") as hits:
            hits.write(f"{place}\n")

    def at(self, place: str) -> None:
        point = self.look().failpoints.get(place)
        if point is None or self.dice.random() >= point.chance:
            return
        self.hit(place)
        if point.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif point.action == "sleep":
            time.sleep(point.seconds)
        elif point.action == "error":
            number = ERRORS[point.error]
            raise OSError(number, os.strerror(number))

    def around(self, name: str, what: Callable[[], Any]) -> Any:  # noqa: ANN401
        self.at(f"before-{name}")
        result = what()
        self.at(f"after-{name}")
        return result

    def time_ns(self) -> int:
        control = self.look()
        if (control.clock_ms or control.drift_ppm) and not self.clock_noted:
            self.clock_noted = True
            self.hit("clock")
        turn = control.strobe_ms and time.monotonic() * 1000 // control.strobe_ms % 2
        set_by = 0.0 if turn else control.clock_ms
        drift = (time.time() - control.drift_from) * control.drift_ppm * 1000
        return time.time_ns() + int(set_by * 1e6) + int(drift)


class NodeClock:
    """Stands where a module has `time`: the wall clock is the harness's."""

    def __init__(self, hand: NodeControl) -> None:
        self.time_ns = hand.time_ns
        self.monotonic = time.monotonic

    def time(self) -> float:
        return self.time_ns() / 1e9


def take_over(hand: NodeControl) -> None:
    """Put the hand between the node and the world."""

    class FaultyDisk(RealDisk):
        def write(self, path: str, offset: int, data: bytes) -> None:
            hand.around("append", lambda: super(FaultyDisk, self).write(path, offset, data))

        def sync(self, path: str) -> None:
            hand.around("sync", lambda: super(FaultyDisk, self).sync(path))

        def rename(self, old: str, new: str) -> None:
            hand.around("rename", lambda: super(FaultyDisk, self).rename(old, new))

        def remove(self, path: str) -> None:
            hand.around("remove", lambda: super(FaultyDisk, self).remove(path))

    class Peers(PeerLinks):
        def send(self, messages: list[tuple[str, int, Message]]) -> None:
            hand.around("send", lambda: super(Peers, self).send(messages))

    class State(Replica):
        def apply(self, index: int, data: bytes) -> None:
            hand.around("apply", lambda: super(State, self).apply(index, data))

        def checkpoint(self) -> Callable[[str], int]:
            work = super().checkpoint()
            return lambda folder: int(hand.around("checkpoint", lambda: work(folder)))

    for module, name, thing in (
        (nodes, "RealDisk", FaultyDisk),
        (damage_watch, "Replica", State),
        (node_spec, "time", NodeClock(hand)),
        (driver, "PeerLinks", Peers),
    ):
        setattr(module, name, thing)
    poison(hand)
    if hand.look().broken_rule:
        break_rule(hand.control.broken_rule)


def poison(hand: NodeControl) -> None:
    """Let the rules fail on some jobs, as they do where a zone is not there any more."""
    honest = next_time.plan_of

    def plan_of(view: View, job: Job) -> Plan:
        poisoned, name = hand.look().poison, job.definition.name
        if poisoned and poisoned in name:
            hand.hit("poison")
            raise AssertionError(f"{name} cannot be worked out: planted by the harness")
        return honest(view, job)

    next_time.plan_of = plan_of


if __name__ == "__main__":
    take_over(NodeControl(Path(sys.argv.pop(1))))
    main.main(prog_name="raftsched")
