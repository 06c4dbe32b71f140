"""The rules once more, small, slow and obviously right: plain lists, no tables, no counters.

It knows one namespace and one queue, jobs at a fixed rate, once or by hand, and what may happen to
their runs. test_against_model.py drives it and the real rules with the same requests and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from .missed_model import Time, fates

CANCEL_GRACE_MS = 30_000
BOOST_MS = {"HIGH": 0, "MEDIUM": 60_000, "LOW": 120_000}
LIVE = ("PENDING", "RUNNING", "RETRYING")
OUTCOMES = {"miss": "MISSED", "coalesce": "COALESCED", "expire": "SKIPPED_DEADLINE"}


@dataclass
class Spec:
    """What the user orders; the defaults are those of the contracts."""

    every_ms: int = 0
    once_ms: int = 0
    priority: str = "MEDIUM"
    overlap: str = "SKIP"
    overlap_limit: int = 0
    misfire: str = "LATEST"
    misfire_maximum: int = 100
    grace_ms: int = 60_000
    start_deadline_ms: int = 0
    max_runs: int = 0
    max_attempts: int = 4
    wait_ms: int = 5_000
    at_most_once: bool = False
    job_limit: int = 0
    key: str = ""
    key_limit: int = 0
    attempt_timeout_ms: int = 0
    queue_timeout_ms: int = 0
    run_timeout_ms: int = 0


@dataclass
class Run:
    """One occurrence of a job."""

    job: Job
    scheduled_ms: int
    serial: int
    due_ms: int
    outcome: str
    state: str = "PENDING"
    held: bool = False
    ready_ms: int = 0
    # Its turn, while it is ready to be leased.
    turn: int | None = None
    attempt: int = 0
    token: int = 0
    worker: str = ""
    started: bool = False
    deadline_ms: int = 0
    retry_ms: int = 0
    cancel_ms: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.job.uid, self.scheduled_ms, self.serial)


@dataclass
class Stretch:
    """Scheduled times that are still to run, one after the other."""

    times: list[int]
    # When the next one is released; 0: at the next end of a run.
    release_ms: int


@dataclass
class Job:
    """A standing order, with everything that came of it."""

    uid: int
    name: str
    spec: Spec
    created_ms: int
    paused: bool = False
    pause_until_ms: int = 0
    next_ms: int | None = None
    next_due_ms: int = 0
    fired: int = 0
    last_ms: int = 0
    serial: int = 0
    # Scheduled time to outcome.
    ledger: dict[int, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    # Stretches of scheduled times still to run, the first of them at work.
    backlog: list[Stretch] = field(default_factory=list)

    def live(self) -> list[Run]:
        return sorted((run for run in self.runs if run.state in LIVE), key=lambda run: run.place)

    def under_way(self) -> int:
        return sum(not run.held for run in self.live())

    def after(self, ms: int) -> int | None:
        """The scheduled time after an instant."""
        if self.spec.once_ms:
            return self.spec.once_ms if self.spec.once_ms > ms else None
        if self.spec.every_ms:
            steps = max(0, (ms - self.created_ms) // self.spec.every_ms) + 1
            return self.created_ms + steps * self.spec.every_ms
        return None

    def up_to(self, ms: int) -> Iterator[int]:
        """The scheduled times from the next one on, as far as they have come."""
        at = self.next_ms
        while at is not None and at <= ms:
            yield at
            at = self.after(at)

    def advance(self, ms: int) -> None:
        self.next_ms = self.after(ms)
        waiting = sum(len(part.times) for part in self.backlog)
        if self.spec.max_runs and self.fired + waiting >= self.spec.max_runs:
            self.next_ms = None
        self.next_due_ms = self.next_ms or 0

    @property
    def state(self) -> str:
        if self.paused:
            return "PAUSED"
        scheduled = self.spec.every_ms or self.spec.once_ms
        ahead = self.next_ms is not None or self.backlog
        return "FINISHED" if scheduled and not ahead else "ACTIVE"


class Model:
    """All jobs, and the clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.jobs: dict[str, Job] = {}
        self.uid = 0
        self.token = 0
        # When the next missed scheduled time may become a run.
        self.guard_ms = 0

    # What users do.

    def create(self, name: str, spec: Spec) -> None:
        self.uid += 1
        job = Job(self.uid, name, spec, self.now_ms)
        job.next_ms = spec.once_ms or job.after(self.now_ms)
        job.next_due_ms = max(job.next_ms or 0, self.now_ms) if job.next_ms else 0
        self.jobs[name] = job

    def delete(self, name: str) -> None:
        del self.jobs[name]

    def pause(self, name: str, until_ms: int = 0) -> None:
        job = self.jobs[name]
        job.paused, job.pause_until_ms = True, until_ms

    def resume(self, name: str) -> None:
        job = self.jobs[name]
        job.paused, job.pause_until_ms = False, 0

    def trigger(self, name: str, force: bool, refuse: bool = False) -> Run | str:
        """The new run, or why there is none."""
        job = self.jobs[name]
        if job.paused and not force:
            return "JOB_PAUSED"
        verdict = "go" if force else self._overlap(job)
        if refuse and verdict not in ("go", "replace"):
            return "OVERLAP_REFUSED"
        # What somebody asks for is not skipped: it waits.
        verdict = "hold" if verdict == "skip" else verdict
        job.serial += 1
        held = self._make_room(job, verdict)
        run = Run(job, self.now_ms, job.serial, self.now_ms, "TRIGGERED", held=held)
        self._begin(run)
        return run

    def cancel(self, run: Run, grace_ms: int = CANCEL_GRACE_MS) -> None:
        if run.state == "RUNNING":
            at_ms = self.now_ms + grace_ms
            run.cancel_ms = min(run.cancel_ms or at_ms, at_ms)
        else:
            self._end(run, "CANCELLED")

    def terminate(self, run: Run) -> None:
        self._end(run, "CANCELLED")

    # What workers do.

    def grant(self, worker: str, most: int) -> list[Run]:
        given: list[Run] = []
        ready = [run for job in self.jobs.values() for run in job.runs if run.turn is not None]
        for run in sorted(ready, key=lambda run: (run.turn or 0, *run.place)):
            if len(given) == most:
                break
            if self._has_slot(run):
                self._lease(run, worker)
                given.append(run)
        return given

    def _has_slot(self, run: Run) -> bool:
        spec = run.job.spec
        running = [r for job in self.jobs.values() for r in job.runs if r.state == "RUNNING"]
        if spec.job_limit and sum(r.job is run.job for r in running) >= spec.job_limit:
            return False
        return not spec.key or sum(r.job.spec.key == spec.key for r in running) < spec.key_limit

    def _lease(self, run: Run, worker: str) -> None:
        self.token += 1
        run.state, run.turn, run.worker, run.token = "RUNNING", None, worker, self.token
        run.attempt += 1
        run.started = True
        timeout_ms = run.job.spec.attempt_timeout_ms
        run.deadline_ms = self.now_ms + timeout_ms if timeout_ms else 0

    def succeed(self, run: Run) -> None:
        self._end(run, "SUCCEEDED")

    def fail(self, run: Run, fatal: bool) -> None:
        self._attempt_failed(run, fatal, run.job.spec.wait_ms)

    def release(self, run: Run) -> None:
        if run.cancel_ms:
            self._end(run, "CANCELLED")
            return
        if run.job.spec.at_most_once:
            self._end(run, "FAILED")
            return
        run.attempt -= 1
        self._unlease(run)
        run.turn = run.ready_ms + BOOST_MS[run.job.spec.priority]

    def lapse(self, worker: str) -> None:
        held = [r for job in self.jobs.values() for r in job.runs]
        for run in sorted((r for r in held if r.state == "RUNNING"), key=lambda run: run.token):
            if run.worker == worker:
                self._attempt_failed(run, False, 0)

    # What the clock does.

    def fire(self) -> bool:
        """Do what is due, in the order in which it became due; False if there was nothing."""
        due: list[tuple[int, str, tuple[int, ...], Callable[[], object], Callable[[], int]]] = []
        for job in self.jobs.values():
            due.append((self._job_wakes(job), "J", (job.uid,), partial(self._wake_job, job),
                        partial(self._job_wakes, job)))  # fmt: skip
            due += [
                (self._run_wakes(run), "R", run.place, partial(self._wake_run, run),
                 partial(self._run_wakes, run))
                for run in job.live()
            ]  # fmt: skip
        due = [item for item in due if 0 < item[0] <= self.now_ms]
        # Backlogs have a line of their own, behind all that is due.
        line = sorted(self._backlogs_due(), key=lambda job: (job.backlog[0].release_ms, job.uid))
        for at_ms, _, _, fire, wakes in sorted(due, key=lambda item: item[:3]):
            # Something that fired before may have moved it.
            if wakes() == at_ms:
                fire()
                line += [job for job in self._backlogs_due() if job not in line]
        for job in line:
            self._release(job)
        return bool(due or line)

    def _backlogs_due(self) -> list[Job]:
        return [
            job
            for job in self.jobs.values()
            if job.backlog and not job.paused and 0 < job.backlog[0].release_ms <= self.now_ms
        ]

    def _job_wakes(self, job: Job) -> int:
        if job.paused:
            return job.pause_until_ms
        return job.next_due_ms

    def _run_wakes(self, run: Run) -> int:
        if run.state not in LIVE:
            return 0
        if run.held:
            return self._start_deadline(run)
        spec = run.job.spec
        at_ms = run.retry_ms
        if spec.run_timeout_ms and run.ready_ms:
            at_ms = _first(at_ms, run.ready_ms + spec.run_timeout_ms)
        if run.state == "RUNNING":
            return _first(at_ms, run.deadline_ms, run.cancel_ms)
        if not run.started:
            if spec.queue_timeout_ms:
                at_ms = _first(at_ms, run.ready_ms + spec.queue_timeout_ms)
            at_ms = _first(at_ms, self._start_deadline(run))
        return at_ms

    def _start_deadline(self, run: Run) -> int:
        late_ms = run.job.spec.start_deadline_ms
        return run.due_ms + late_ms if late_ms else 0

    def _wake_job(self, job: Job) -> None:
        if job.paused:
            self.resume(job.name)
        if job.next_ms is not None and job.next_due_ms <= self.now_ms:
            self._end_overdue(job)
        while job.next_ms is not None and job.next_due_ms <= self.now_ms:
            self._decide(job)
            if job.next_ms is None or job.next_due_ms > self.now_ms:
                break
            scheduled_ms = job.next_ms
            self._fire(job, scheduled_ms, job.next_due_ms)
            job.advance(scheduled_ms)

    def _release(self, job: Job) -> None:
        while job.backlog and 0 < job.backlog[0].release_ms <= self.now_ms:
            part = job.backlog[0]
            if not self._fire(job, part.times[0], part.times[0], patient=True):
                part.release_ms = 0
                break
            del part.times[0]
            if part.times:
                part.release_ms = self._turn()
            else:
                del job.backlog[0]
                if job.backlog:
                    job.backlog[0].release_ms = self._turn()

    def _decide(self, job: Job) -> None:
        """What is due but does not run now: it waits, or something else becomes of it."""
        due = list(job.up_to(self.now_ms))
        if job.spec.max_runs:
            waiting = sum(len(part.times) for part in job.backlog)
            due = due[: max(1, job.spec.max_runs - job.fired - waiting)]
        rule, room = job.spec.misfire, self._room(job)
        # A single time in the past is due at once.
        at_ms = [max(ms, job.next_due_ms) for ms in due]
        times = [Time(when, ms, "open") for when, ms in zip(at_ms, due, strict=True)]
        found = fates(
            times, rule, job.spec.misfire_maximum, self.now_ms, job.spec.grace_ms, room,
            deadline_ms=job.spec.start_deadline_ms, is_behind=self._is_behind(job),
        )  # fmt: skip
        decided = [ms for ms in due if found[ms] != "run"]
        wait = [ms for ms in decided if found[ms] == "wait"]
        for ms in decided:
            if found[ms] != "wait":
                self._record(job, [ms], OUTCOMES[found[ms]])
        if wait:
            job.backlog.append(Stretch(wait, 0 if job.backlog else self._turn()))
        if decided:
            job.advance(decided[-1])

    def _room(self, job: Job) -> int | None:
        """How many runs may begin, or be held back."""
        limit, under_way = job.spec.overlap_limit or 1, job.under_way()
        match job.spec.overlap:
            case "REPLACE":
                return 1
            case "QUEUE_ONE":
                return 1 if under_way else 2
            case "QUEUE":
                held = len(job.live()) - under_way
                return max(0, limit - held) + (0 if under_way else 1)
            case "SKIP":
                return max(0, limit - under_way)
        return max(0, limit - under_way) if job.spec.overlap_limit else None

    def _is_behind(self, job: Job) -> bool:
        """Whether something older waits, and goes first."""
        if not job.backlog or job.spec.overlap not in ("REPLACE", "QUEUE_ONE", "QUEUE"):
            return False
        blocked = self._overlap(job) in ("skip", "hold newest", "replace")
        return job.backlog[0].release_ms <= self.now_ms and not blocked

    def _end_overdue(self, job: Job) -> None:
        """A run whose time is up stands in the way of nothing that is due."""
        spec = job.spec
        limits = (spec.start_deadline_ms, spec.attempt_timeout_ms, spec.queue_timeout_ms)
        if any(limits) or spec.run_timeout_ms:
            for run in job.live():
                if 0 < self._run_wakes(run) <= self.now_ms:
                    self._wake_run(run)

    def _turn(self) -> int:
        """The outage guard: one missed scheduled time a millisecond becomes a run, and what was not
        used of that in the last 100 ms is caught up with."""
        self.guard_ms = max(self.guard_ms, self.now_ms - 100) + 1
        return self.guard_ms - 1

    def _wake_run(self, run: Run) -> None:
        now_ms, spec = self.now_ms, run.job.spec
        if run.held:
            self._drop(run, "SKIPPED_DEADLINE")
        elif spec.run_timeout_ms and run.ready_ms and run.ready_ms + spec.run_timeout_ms <= now_ms:
            self._end(run, "FAILED")
        elif run.state == "RUNNING":
            if 0 < run.cancel_ms <= now_ms:
                self._end(run, "CANCELLED")
            else:
                self._attempt_failed(run, False, spec.wait_ms)
        elif (
            not run.started
            and spec.queue_timeout_ms
            and run.ready_ms + spec.queue_timeout_ms <= now_ms
        ):
            self._end(run, "FAILED")
        elif not run.started and 0 < self._start_deadline(run) <= now_ms:
            self._drop(run, "SKIPPED_DEADLINE")
        else:
            self._ready(run)

    # What happens inside.

    def _record(self, job: Job, scheduled_times: list[int], outcome: str) -> None:
        for ms in scheduled_times:
            job.ledger[ms] = outcome
            job.fired += 1
            job.last_ms = ms

    def _fire(self, job: Job, scheduled_ms: int, due_ms: int, *, patient: bool = False) -> bool:
        late_ms = self.now_ms - due_ms
        if job.spec.start_deadline_ms and late_ms >= job.spec.start_deadline_ms:
            self._record(job, [scheduled_ms], "SKIPPED_DEADLINE")
            return True
        verdict = self._overlap(job)
        if verdict == "skip" or (patient and verdict in ("hold newest", "replace")):
            if not patient:
                self._record(job, [scheduled_ms], "SKIPPED_OVERLAP")
            return not patient
        outcome = "LATE" if late_ms > job.spec.grace_ms else "RAN"
        held = self._make_room(job, verdict)
        self._record(job, [scheduled_ms], outcome)
        self._begin(Run(job, scheduled_ms, 0, due_ms, outcome, held=held))
        return True

    def _overlap(self, job: Job) -> str:
        under_way, held = job.under_way(), len(job.live()) - job.under_way()
        limit = job.spec.overlap_limit
        if not under_way:
            return "go"
        match job.spec.overlap:
            case "ALLOW":
                return "go" if not limit or under_way < limit else "skip"
            case "SKIP":
                return "go" if under_way < (limit or 1) else "skip"
            case "QUEUE_ONE":
                return "hold newest"
            case "QUEUE":
                return "hold" if held < (limit or 1) else "skip"
        return "replace"

    def _make_room(self, job: Job, verdict: str) -> bool:
        if verdict in ("hold newest", "replace"):
            for run in job.live():
                if run.serial and verdict == "hold newest":
                    continue
                if run.held:
                    self._drop(run, "REPLACED")
                elif verdict == "replace" and run.state in LIVE:
                    self.cancel(run)
        return verdict == "hold" or (verdict != "go" and job.under_way() > 0)

    def _is_room(self, job: Job) -> bool:
        under_way, limit = job.under_way(), job.spec.overlap_limit
        if job.spec.overlap == "ALLOW":
            return not limit or under_way < limit
        return under_way < ((limit or 1) if job.spec.overlap == "SKIP" else 1)

    def _begin(self, run: Run) -> None:
        run.job.runs.append(run)
        if not run.held:
            self._ready(run)

    def _ready(self, run: Run) -> None:
        run.state, run.held, run.retry_ms = "PENDING", False, 0
        run.ready_ms = run.ready_ms or self.now_ms
        run.turn = self.now_ms + BOOST_MS[run.job.spec.priority]

    def _unlease(self, run: Run) -> None:
        run.state, run.worker, run.deadline_ms = "PENDING", "", 0

    def _attempt_failed(self, run: Run, fatal: bool, wait_ms: int) -> None:
        if run.cancel_ms:
            self._end(run, "CANCELLED")
            return
        spec = run.job.spec
        if fatal or spec.at_most_once or run.attempt >= spec.max_attempts:
            self._end(run, "FAILED")
            return
        self._unlease(run)
        if wait_ms:
            run.state, run.retry_ms = "RETRYING", self.now_ms + wait_ms
        else:
            self._ready(run)

    def _drop(self, run: Run, outcome: str) -> None:
        if not run.serial:
            run.job.ledger[run.scheduled_ms] = outcome
        run.outcome = outcome
        self._end(run, "SKIPPED")

    def _end(self, run: Run, state: str) -> None:
        job = run.job
        run.state, run.held, run.turn = state, False, None
        run.retry_ms = run.cancel_ms = run.deadline_ms = 0
        waiting = [other for other in job.live() if other.held]
        if waiting and self._is_room(job):
            # Those that are too late are skipped when their timers fire.
            late = [0 < self._start_deadline(other) <= self.now_ms for other in waiting]
            if not all(late):
                self._ready(waiting[late.index(False)])
        if job.backlog and not job.backlog[0].release_ms:
            job.backlog[0].release_ms = self.now_ms


def _first(*instants_ms: int) -> int:
    return min((ms for ms in instants_ms if ms), default=0)
