"""Histories that a person can read: scenarios/*.txt.

A scenario is text: a command, four dashes, what came of it. A `#` begins a remark. To write what
comes of it anew, and then look at the difference and understand it:

    RAFTSCHED_SCENARIOS=write ./dev test tests/statemachine/test_scenarios.py

The commands:

    at 2026-01-01T09:00           wait 5m              fire
    create NAME cron="…" every=5m once=T after=A,B after_end=1m zone=Z queue=Q priority=HIGH
           overlap=QUEUE:2 misfire=ALL:3 grace=1m retry=3:5s limit=1 key=K:2 max=3
    pause NAME   resume NAME   delete NAME   trigger NAME [force]
    grant WORKER N   succeed JOB   fail JOB [KIND]   release JOB   lapse WORKER
    show NAME
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2, worker_pb2
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore

from ..rows import each
from .driver import Machine, job_of

SCENARIOS = Path(__file__).parent / "scenarios"
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DASHES = "----"


def span_ms(text: str) -> int:
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    assert "".join(map("".join, parts)) == text, f"no duration: {text}"
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)


def clock(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    rest = f":{moment:%S}" if ms % 60_000 else ""
    return f"{moment:%m-%d %H:%M}{rest}" + (f".{ms % 1000:03}" if ms % 1000 else "")


class Scene:
    """A machine that is told what to do in words."""

    def __init__(self) -> None:
        self.machine = Machine(MemoryStore())
        self.leases: dict[str, list[worker_pb2.Lease]] = {}

    def run(self, line: str) -> str:
        word, *rest = shlex.split(line)
        command: Callable[..., str] = getattr(self, f"do_{word}")
        return command(*rest)

    def told(self, request: object) -> str:
        [reply] = self.machine.do_all(request)
        if isinstance(reply, Rejection):
            return f"{reply.word}: {reply.message}"
        return self.run_line(reply) if isinstance(reply, run_pb2.Run) else "ok"

    def do_at(self, when: str) -> str:
        self.machine.at(when)
        return f"it is {clock(self.machine.now_ms)}"

    def do_wait(self, text: str) -> str:
        self.machine.advance(span_ms(text))
        return f"it is {clock(self.machine.now_ms)}"

    def do_ring(self) -> str:
        return f"{self.machine.fire()} timers"

    def do_create(self, name: str, *options: str) -> str:
        job = job_of(name, **self.schedules(options))  # type: ignore[arg-type]
        for key, _, value in (option.partition("=") for option in options):
            if key not in SCHEDULES:
                OPTIONS[key](job.spec, *value.split(":"))
        return self.told(job_pb2.CreateJobRequest(job=job))

    def schedules(self, options: tuple[str, ...]) -> dict[str, object]:
        given = dict(option.split("=", 1) for option in options)
        return {name: read(given[key]) for key, (name, read) in SCHEDULES.items() if key in given}

    def do_pause(self, name: str) -> str:
        return self.told(job_pb2.PauseJobRequest(job=name))

    def do_resume(self, name: str) -> str:
        return self.told(job_pb2.ResumeJobRequest(job=name))

    def do_delete(self, name: str) -> str:
        return self.told(job_pb2.DeleteJobRequest(job=name))

    def do_trigger(self, name: str, force: str = "") -> str:
        return self.told(job_pb2.TriggerJobRequest(job=name, force=bool(force)))

    def do_grant(self, worker: str, most: str) -> str:
        leases = self.machine.grant(worker, int(most))
        for lease in leases:
            self.leases.setdefault(lease.job, []).append(lease)
        shown = [f"{x.run} attempt {x.attempt} token {x.token}" for x in leases]
        return "\n".join(shown) or "nothing"

    def do_succeed(self, job: str) -> str:
        return self.ended(self.machine.succeed(self.leases[job].pop(0)))

    def do_fail(self, job: str, kind: str = "Error") -> str:
        return self.ended(self.machine.fail(self.leases[job].pop(0), kind))

    def do_release(self, job: str) -> str:
        return self.ended(self.machine.release(self.leases[job].pop(0)))

    def do_lapse(self, worker: str) -> str:
        self.machine.lapse(worker)
        return "ok"

    @staticmethod
    def ended(ack: worker_pb2.ResultAck) -> str:
        return f"{ack.reason}: {ack.message}" if ack.reason else "ok"

    def do_show(self, name: str) -> str:
        status = self.machine.job(name).status
        state = job_pb2.JobStatus.State.Name(status.state).removeprefix("STATE_")
        lines = [f"{state}, fired {status.fired}, skipped {status.skipped}"]
        if status.HasField("next_scheduled_time"):
            lines[0] += f", next {clock(status.next_scheduled_time.ToMilliseconds())}"
        lines += [self.run_line(run) for run in self.machine.live(name)]
        lines += [self.run_line(run) for run in reversed(self.machine.ended(name))]
        for ms, entry in sorted(self.machine.ledger(name).items()):
            word = run_pb2.Outcome.Name(entry.outcome).removeprefix("OUTCOME_")
            until = f" to {clock(entry.last_at_ms)} ({entry.count})" if entry.count else ""
            lines.append(f"ledger {clock(ms)}{until} {word}")
        return "\n".join(lines)

    @staticmethod
    def run_line(run: run_pb2.Run) -> str:
        state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")
        line = f"run {clock(run.scheduled_time.ToMilliseconds())} {state}"
        line += " held" if run.held else ""
        line += f" attempt {run.attempt}" if run.attempt else ""
        line += (
            f" retry {clock(run.retry_time.ToMilliseconds())}" if run.HasField("retry_time") else ""
        )
        return line + (f" ({run.error.kind})" if run.HasField("error") else "")


SCHEDULES: dict[str, tuple[str, Callable[[str], object]]] = {
    "cron": ("cron", str),
    "every": ("every_ms", span_ms),
    "once": ("once", str),
    "after": ("after", lambda text: text.split(",")),
    "after_end": ("after_end_ms", span_ms),
}


def _overlap(spec: job_pb2.JobSpec, rule: str, limit: str = "0") -> None:
    spec.overlap.rule = job_pb2.OverlapPolicy.Rule.Value(f"RULE_{rule}")
    spec.overlap.limit = int(limit)


def _misfire(spec: job_pb2.JobSpec, rule: str, most: str = "0") -> None:
    spec.misfire.rule = job_pb2.MisfirePolicy.Rule.Value(f"RULE_{rule}")
    spec.misfire.maximum = int(most)


def _retry(spec: job_pb2.JobSpec, most: str, wait: str = "5s") -> None:
    spec.retry.max_attempts = int(most)
    spec.retry.first.CopyFrom(duration(span_ms(wait)))
    spec.retry.jitter_percent = 0


def _key(spec: job_pb2.JobSpec, key: str, limit: str) -> None:
    spec.concurrency.key, spec.concurrency.key_limit = key, int(limit)


def _set(path: str, read: Callable[[str], object]) -> Callable[..., None]:
    def option(spec: job_pb2.JobSpec, *words: str) -> None:
        target: object = spec
        *parents, last = path.split(".")
        for name in parents:
            target = getattr(target, name)
        setattr(target, last, read(":".join(words)))

    return option


OPTIONS: dict[str, Callable[..., None]] = {
    "overlap": _overlap,
    "misfire": _misfire,
    "retry": _retry,
    "key": _key,
    "grace": lambda spec, text: spec.misfire.grace.CopyFrom(duration(span_ms(text))),
    "limit": _set("concurrency.job", int),
    "max": _set("timing.max_runs", int),
    "zone": _set("timing.zone", str),
    "queue": _set("queue", str),
    "priority": _set("priority", lambda text: common_pb2.Priority.Value(f"PRIORITY_{text}")),
}


def played(text: str) -> str:
    """The scenario again, with what comes of it now."""
    scene = Scene()
    blocks = []
    for block in text.strip().split("\n\n"):
        asked = block.split(f"\n{DASHES}")[0]
        answers = [scene.run(line) for line in asked.split("\n") if line and line[0] != "#"]
        blocks.append(f"{asked}\n{DASHES}\n{answers[-1]}" if answers else asked)
    scene.machine.check()
    return "\n\n".join(blocks) + "\n"


@each("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_comes_out_as_it_is_written(path: Path) -> None:
    now = played(path.read_text())
    if os.environ.get("RAFTSCHED_SCENARIOS") == "write":
        path.write_text(now)

    assert path.read_text() == now
