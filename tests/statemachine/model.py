"""The rules once more, small, slow and obviously right: plain lists, no tables, no counters.

It knows one namespace with a quota of runs and one queue, jobs at a fixed rate, once or by hand,
what people change of single times, backfills, and what may happen to runs.
test_against_model.py drives it and the real rules with the same requests and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, takewhile

from .missed_model import Time, fates

CANCEL_GRACE_MS = 30_000
BOOST_MS = {"HIGH": 0, "MEDIUM": 60_000, "LOW": 120_000}
LIVE = ("PENDING", "RUNNING", "RETRYING")
OUTCOMES = {"miss": "MISSED", "coalesce": "COALESCED", "expire": "SKIPPED_DEADLINE",
            "skipped": "SKIPPED_MANUALLY"}  # fmt: skip
# What waits for its turn waits on then.
NO_ROOM = ("skip", "hold newest", "replace")
# After which a backfill may run a time.
WITHOUT_RUN = {"MISSED", "COALESCED", "SKIPPED_DEADLINE", "SKIPPED_OVERLAP", "SKIPPED_QUOTA"}


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
    is_backfilled: bool = False
    state: str = "PENDING"
    held: bool = False
    # Held for the resume of its job.
    halted: bool = False
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
    # When the next one is released; 0: at the next end of a run, or when the quota has room.
    release_ms: int
    # When it is due, if somebody moved or added it.
    due_ms: int = 0
    # Of a backfill: from one time to the next.
    pace_ms: int = 0

    @property
    def place(self) -> tuple[bool, int, int]:
        return self.pace_ms > 0, self.due_ms or self.times[0], self.times[0]


@dataclass
class Edit:
    """What somebody changed of one scheduled time."""

    kind: str
    # When it is due; 0 for one that is skipped.
    due_ms: int


@dataclass
class Job:
    """A standing order, with everything that came of it."""

    uid: int
    name: str
    spec: Spec
    created_ms: int
    paused: bool = False
    pause_until_ms: int = 0
    resumed_ms: int = 0
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
    # When its backlog is looked at; 0: it stands in no line.
    catch_up_ms: int = 0
    edits: dict[int, Edit] = field(default_factory=dict)
    # Runs that were skipped before they began, and in whose place a backfill put others.
    again: list[Run] = field(default_factory=list)

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

    def names(self, ms: int) -> bool:
        """Whether the schedule names an instant."""
        return self.after(ms - 1) == ms

    def knows(self, ms: int) -> bool:
        """Whether a time has its outcome, or waits since it was moved to before."""
        return ms in self.ledger or any(part.due_ms and ms in part.times for part in self.backlog)

    def first_edit(self, now_ms: int) -> int | None:
        """Of what was moved or added and is due the first."""
        due = [(edit.due_ms, at) for at, edit in self.edits.items() if 0 < edit.due_ms <= now_ms]
        return min(due)[1] if due else None

    def missed(self) -> list[Stretch]:
        """What waits, less what a backfill is to run."""
        return [part for part in self.backlog if not part.pace_ms]

    def from_on(self, ms: int) -> Iterator[int]:
        """The scheduled times from an instant on."""
        at = self.after(ms - 1)
        while at is not None:
            yield at
            at = self.after(at)

    def up_to(self, ms: int) -> Iterator[int]:
        """The scheduled times from the next one on, as far as they have come."""
        if self.next_ms is not None:
            yield from takewhile(lambda at: at <= ms, self.from_on(self.next_ms))

    def advance(self, ms: int) -> None:
        self.next_ms = self.after(ms)
        waiting = sum(len(part.times) for part in self.missed())
        if self.spec.max_runs and self.fired + waiting >= self.spec.max_runs:
            self.next_ms = None
        self.next_due_ms = self.next_ms or 0

    @property
    def state(self) -> str:
        if self.paused:
            return "PAUSED"
        scheduled = self.spec.every_ms or self.spec.once_ms
        edited = any(edit.due_ms for edit in self.edits.values())
        ahead = self.next_ms is not None or self.backlog or edited
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
        # How many runs may be under way; 0: any number. Jobs that wait for it, and since when.
        self.quota = 0
        self.quota_waits: dict[str, int] = {}
        # When those are served; 0: when a run ends.
        self.serve_ms = 0
        # Runs under way of jobs that were deleted.
        self.leaving = 0
        # Runs that have ended, as others have not heard yet.
        self.ends: list[Run] = []

    # What users do.

    def create(self, name: str, spec: Spec) -> None:
        self.uid += 1
        job = Job(self.uid, name, spec, self.now_ms)
        job.next_ms = spec.once_ms or job.after(self.now_ms)
        job.next_due_ms = max(job.next_ms or 0, self.now_ms) if job.next_ms else 0
        self.jobs[name] = job

    def delete(self, name: str) -> None:
        """Its runs end behind what is due."""
        self.leaving += self.jobs[name].under_way()
        self.quota_waits.pop(name, None)
        del self.jobs[name]

    def limit(self, quota: int) -> None:
        self.quota = quota
        self._wake_quota()

    def edit(self, name: str, kind: str, at_ms: int, due_ms: int) -> bool:
        """Skip, move or add a time ahead; False if that is refused."""
        job = self.jobs[name]
        is_past = at_ms <= self.now_ms or (kind == "MOVE" and due_ms <= self.now_ms)
        if is_past or at_ms in job.ledger or job.names(at_ms) != (kind != "ADD"):
            return False
        job.edits[at_ms] = Edit(kind, {"SKIP": 0, "MOVE": due_ms, "ADD": at_ms}[kind])
        return True

    def revert(self, name: str, at_ms: int) -> None:
        """One that was moved, and whose own time has passed meanwhile, is missed."""
        job = self.jobs[name]
        edit = job.edits.pop(at_ms)
        is_open = job.next_ms is not None and job.next_ms <= at_ms
        if edit.kind != "MOVE" or at_ms > self.now_ms or is_open or at_ms in job.ledger:
            return
        parts = job.missed()
        if parts and parts[0].times[0] <= at_ms <= parts[-1].times[-1]:
            self._wait(job, Stretch([at_ms], self.now_ms))
        else:
            self._record(job, [at_ms], "MISSED")

    def backfill(self, name: str, from_ms: int, to_ms: int, a_minute: int) -> int:
        """Run past times that had no run; how many."""
        job = self.jobs[name]
        times = list(takewhile(lambda at: at < to_ms, job.from_on(from_ms)))
        for part in job.backlog:
            times = [at for at in times if not part.times[0] <= at <= part.times[-1]]
        times = [at for at in times if self._may_backfill(job, at)]
        others = sorted(part.times[0] for part in job.backlog)
        for _, group in groupby(times, key=lambda at: sum(other <= at for other in others)):
            self._wait(job, Stretch(list(group), self.now_ms, pace_ms=60_000 // a_minute))
        return len(times)

    @staticmethod
    def _may_backfill(job: Job, at_ms: int) -> bool:
        """It had no run, and nobody skipped it or moved it to another instant."""
        return at_ms not in job.edits and job.ledger.get(at_ms, "MISSED") in WITHOUT_RUN

    def pause(self, name: str, until_ms: int = 0) -> None:
        job = self.jobs[name]
        job.paused, job.pause_until_ms = True, until_ms

    def resume(self, name: str) -> None:
        job = self.jobs[name]
        # What was due meanwhile is behind all else that is.
        is_over = 0 < job.pause_until_ms <= self.now_ms
        job.resumed_ms = job.pause_until_ms if is_over else self.now_ms
        job.paused, job.pause_until_ms = False, 0

    def trigger(self, name: str, force: bool, refuse: bool = False) -> Run | str:
        """The new run, or why there is none."""
        job = self.jobs[name]
        if job.paused and not force:
            return "JOB_PAUSED"
        if self._is_full():
            return "QUOTA_EXCEEDED"
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
                self.carry_out()

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
        # What can wait has a line of its own, behind all that is due; what comes into it meanwhile
        # goes behind.
        line = self._line()
        # Of what is due at one instant runs go first.
        for at_ms, _, _, fire, wakes in sorted(
            due, key=lambda one: (one[0], one[1] != "R", one[2])
        ):
            # Something that fired before may have moved it.
            if wakes() == at_ms:
                fire()
                begun = self.settle()
                line += begun if line else []
        if self.leaving:
            self.leaving = 0
            self._wake_quota()
        for _, kind, uid in line or self._line():
            jobs = [job for job in self.jobs.values() if job.uid == uid]
            self._serve(kind, jobs[0] if jobs else None)
            self.settle()
        return bool(due or line or self._line())

    def _serve(self, kind: str, job: Job | None) -> None:
        """The turn of one has come that can wait."""
        if kind == "Q":
            self._serve_quota()
        elif kind == "K" and job is not None:
            job.catch_up_ms = 0
            if not job.paused:
                self._release(job)

    def settle(self) -> list[tuple[int, str, int]]:
        """What ends bring about; then the backlogs that come into the line of what can wait: those
        of them that are due."""
        self.carry_out()
        begun = []
        for job in self.jobs.values():
            if job.paused or not job.backlog or not job.backlog[0].release_ms:
                continue
            at_ms = max(job.backlog[0].release_ms, self.now_ms)
            if not 0 < job.catch_up_ms <= at_ms:
                job.catch_up_ms = at_ms
                begun += [(at_ms, "K", job.uid)] * (at_ms <= self.now_ms)
        return begun

    def _line(self) -> list[tuple[int, str, int]]:
        """What can wait and is due: backlogs, and those that wait for the quota."""
        found = [(job.catch_up_ms, "K", job.uid) for job in self.jobs.values()]
        found.append((self.serve_ms, "Q", 0))
        return sorted(item for item in found if 0 < item[0] <= self.now_ms)

    def _job_wakes(self, job: Job) -> int:
        if job.paused:
            return job.pause_until_ms
        edited = (edit.due_ms for edit in job.edits.values())
        first_ms = _first(job.next_due_ms, *edited)
        return max(first_ms, job.resumed_ms) if first_ms else 0

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
        return run.due_ms + late_ms if late_ms and not run.is_backfilled else 0

    def _wake_job(self, job: Job) -> None:
        if job.paused:
            self.resume(job.name)
        self._end_overdue(job)
        while True:
            edited = job.first_edit(self.now_ms)
            is_due = job.next_ms is not None and job.next_due_ms <= self.now_ms
            if edited is None and not is_due:
                break
            if self._decide(job):
                continue
            if edited is not None:
                due_ms = job.edits[edited].due_ms
                if not is_due or (due_ms, edited) < (job.next_due_ms, job.next_ms or 0):
                    del job.edits[edited]
                    self._fire(job, edited, due_ms)
                    continue
            assert job.next_ms is not None
            scheduled_ms = job.next_ms
            if not self._is_left_out(job, scheduled_ms):
                self._fire(job, scheduled_ms, job.next_due_ms)
            job.advance(scheduled_ms)

    def _end_overdue(self, job: Job) -> None:
        """A run whose time is up stands in the way of nothing that comes now."""
        spec = job.spec
        timeouts_ms = (spec.attempt_timeout_ms, spec.queue_timeout_ms, spec.run_timeout_ms)
        if spec.start_deadline_ms or any(timeouts_ms):
            for run in job.live():
                if 0 < self._run_wakes(run) <= self.now_ms:
                    self._wake_run(run)
            self.carry_out()

    def _is_left_out(self, job: Job, at_ms: int) -> bool:
        """Whether it has its outcome, or gets it at another instant."""
        edit = job.edits.get(at_ms)
        if edit is not None and edit.kind == "SKIP":
            del job.edits[at_ms]
            self._record(job, [at_ms], "SKIPPED_MANUALLY")
        return edit is not None or job.knows(at_ms)

    def _release(self, job: Job) -> None:
        while job.backlog and 0 < job.backlog[0].release_ms <= self.now_ms:
            part = job.backlog[0]
            at_ms = part.times[0]
            may_run = self._may_backfill(job, at_ms) if part.pace_ms else at_ms not in job.ledger
            if may_run:
                if not self._fire(job, at_ms, part.due_ms or at_ms, part):
                    part.release_ms = 0
                    break
                if part.pace_ms:
                    part.release_ms = max(part.release_ms, self.now_ms - 1_000) + part.pace_ms
                elif len(part.times) > 1:
                    part.release_ms = self._turn()
            del part.times[0]
            if not part.times:
                del job.backlog[0]
                if not job.backlog:
                    break
                behind = job.backlog[0]
                if not behind.pace_ms:
                    behind.release_ms = self._turn()
                elif part.pace_ms:
                    behind.release_ms = max(behind.release_ms, part.release_ms)

    def _decide(self, job: Job) -> bool:
        """What is due but does not run now: it waits, or something else becomes of it. Whether
        there was any."""
        due = []
        if job.next_ms is not None and job.next_due_ms <= self.now_ms:
            due = list(job.up_to(self.now_ms))
        if job.spec.max_runs:
            waiting = sum(len(part.times) for part in job.missed())
            due = due[: max(1, job.spec.max_runs - job.fired - waiting)]
        # A single time in the past is due at once.
        times = [
            Time(max(at, job.next_due_ms), at, "skipped" if at in job.edits else "open")
            for at in due
            if not job.knows(at) and (at not in job.edits or job.edits[at].kind == "SKIP")
        ]
        edited = {at: edit for at, edit in job.edits.items() if 0 < edit.due_ms <= self.now_ms}
        times += [Time(edit.due_ms, at, "open") for at, edit in edited.items()]
        found = fates(
            times, job.spec.misfire, job.spec.misfire_maximum, self.now_ms, job.spec.grace_ms,
            self._room(job), is_full=self._is_full(), is_behind=self._comes_behind(job),
            deadline_ms=job.spec.start_deadline_ms,
        )  # fmt: skip
        running = [at for at in due if found.get(at) == "run" and at not in edited]
        passed = [at for at in due if not running or at < running[0]]
        alone = [at for at in edited if found[at] != "run"]
        parts: list[Stretch] = []
        is_next = False
        for time in sorted(times):
            at, fate = time.scheduled_ms, found[time.scheduled_ms]
            if at not in (alone if at in edited else passed):
                continue
            if fate != "wait":
                self._record(job, [at], OUTCOMES[fate])
            before = parts[-1].times[-1] if is_next and not parts[-1].due_ms else None
            between = [at for at in job.edits if before is not None and before < at < time.due_ms]
            if fate == "wait" and (at in alone or before is None or between):
                parts.append(Stretch([at], 0, time.due_ms if at in alone else 0))
            elif fate == "wait":
                parts[-1].times.append(at)
            is_next = fate == "wait"
        for part in parts:
            part.release_ms = self.now_ms if job.missed() else self._turn()
            self._wait(job, part)
        for at in {*passed, *alone} & set(job.edits):
            if at in alone or job.edits[at].kind == "SKIP":
                del job.edits[at]
        was = job.next_ms
        if passed:
            job.advance(passed[-1])
        if running and passed:
            job.next_ms = job.next_due_ms = running[0]
        return job.next_ms != was or bool(alone)

    def _wait(self, job: Job, part: Stretch) -> None:
        """Backfills behind what was missed, and that in the order in which it is due."""
        job.backlog = sorted([*job.backlog, part], key=lambda part: part.place)
        for behind in job.backlog[1:]:
            behind.release_ms = behind.release_ms or self.now_ms

    def _room(self, job: Job) -> int | None:
        """How many runs may begin, or be held back; None: any number."""
        under_way, limit = job.under_way(), job.spec.overlap_limit
        held = len(job.live()) - under_way
        match job.spec.overlap:
            case "REPLACE":
                return 1
            case "QUEUE_ONE":
                return 1 if under_way else 2
            case "QUEUE":
                return max(0, (limit or 1) - held) + (not under_way)
            case "SKIP":
                return max(0, (limit or 1) - under_way)
        return max(0, limit - under_way) if limit else None

    def _comes_behind(self, job: Job) -> bool:
        """Whether what was missed may run now, and what is due now would take its place."""
        if not job.backlog or job.spec.overlap in ("SKIP", "ALLOW") or self._is_full():
            return False
        first = job.backlog[0]
        is_now = not first.pace_ms and first.release_ms <= self.now_ms
        return is_now and self._overlap(job) not in NO_ROOM

    def _turn(self) -> int:
        """The outage guard: one missed scheduled time a millisecond becomes a run, and what was not
        used of that in the last 100 ms is caught up with."""
        self.guard_ms = max(self.guard_ms, self.now_ms - 100) + 1
        return self.guard_ms - 1

    def _is_full(self) -> bool:
        """Whether the quota of runs is used up."""
        under_way = self.leaving + sum(job.under_way() for job in self.jobs.values())
        return bool(self.quota) and under_way >= self.quota

    def _wait_for_quota(self, job: Job) -> None:
        self.quota_waits.setdefault(job.name, self.now_ms)

    def _wake_quota(self) -> None:
        if self.quota_waits and not self.serve_ms:
            self.serve_ms = self.now_ms

    def _serve_quota(self) -> None:
        """Each of those that wait for the quota has a run, as long as there is room."""
        self.serve_ms = 0
        waiting = sorted((since, self.jobs[name].uid, name) for name, since in
                         self.quota_waits.items())  # fmt: skip
        for _, _, name in waiting:
            if self._is_full():
                return
            del self.quota_waits[name]
            self._serve_one(self.jobs[name])
        self._wake_quota()

    def _serve_one(self, job: Job) -> None:
        if self._let_held_go(job):
            held = any(self._may_go(run) for run in job.live())
            if job.backlog or (held and self._is_room(job)):
                self._wait_for_quota(job)
        elif job.backlog and not job.backlog[0].release_ms:
            job.backlog[0].release_ms = self.now_ms

    def _let_held_go(self, job: Job) -> bool:
        """The first run that is held begins, if there is room; those that are too late are skipped
        when their timers fire."""
        if not self._is_room(job):
            return False
        for run in job.live():
            if self._may_go(run) and not 0 < self._start_deadline(run) <= self.now_ms:
                self._ready(run)
                return True
        return False

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

    def _fire(
        self, job: Job, scheduled_ms: int, due_ms: int, waited: Stretch | None = None
    ) -> bool:
        """A time gets its run, or its outcome without one; False: it has waited, and waits on."""
        late_ms = self.now_ms - due_ms
        is_backfill = waited is not None and waited.pace_ms > 0
        deadline_ms = 0 if is_backfill else job.spec.start_deadline_ms
        if deadline_ms and late_ms >= deadline_ms:
            self._record(job, [scheduled_ms], "SKIPPED_DEADLINE")
            return True
        if self._is_full():
            if waited is None:
                self._record(job, [scheduled_ms], "SKIPPED_QUOTA")
            else:
                self._wait_for_quota(job)
            return waited is None
        verdict = self._overlap(job)
        if verdict == "skip" or (waited and verdict in NO_ROOM):
            if waited is None:
                self._record(job, [scheduled_ms], "SKIPPED_OVERLAP")
            return waited is None
        outcome = "LATE" if late_ms > job.spec.grace_ms else "RAN"
        held = self._make_room(job, verdict)
        if not is_backfill or (scheduled_ms not in job.ledger and self._awaits(job, scheduled_ms)):
            self._record(job, [scheduled_ms], outcome)
        job.ledger[scheduled_ms] = outcome
        # What a policy skipped before it began gives its place to the backfill.
        skipped = [run for run in job.runs if run.place == (job.uid, scheduled_ms, 0)]
        job.runs = [run for run in job.runs if run.place != (job.uid, scheduled_ms, 0)]
        job.again += skipped
        self._begin(Run(job, scheduled_ms, 0, due_ms, outcome, is_backfill, held=held))
        return True

    @staticmethod
    def _awaits(job: Job, at_ms: int) -> bool:
        """Whether the job is still to decide on a past time."""
        waits = any(at_ms in part.times for part in job.missed())
        return waits or at_ms in job.edits or (job.next_ms is not None and job.next_ms <= at_ms)

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
                is_wanted = run.serial > 0 and verdict == "hold newest"
                if is_wanted or not self._gives_way(run):
                    continue
                if run.held:
                    self._drop(run, "REPLACED")
                elif verdict == "replace" and run.state in LIVE:
                    self.cancel(run)
        return verdict == "hold" or (verdict != "go" and job.under_way() > 0)

    def _gives_way(self, run: Run) -> bool:
        """Whether a newer one may take its place."""
        return not run.is_backfilled

    @staticmethod
    def _may_go(run: Run) -> bool:
        """Whether it is held for what an end brings."""
        return run.held and not run.halted

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
        if fatal or spec.at_most_once or self._attempts(run) >= spec.max_attempts:
            self._end(run, "FAILED")
            return
        self._unlease(run)
        if wait_ms:
            run.state, run.retry_ms = "RETRYING", self.now_ms + wait_ms
        else:
            self._ready(run)

    def _attempts(self, run: Run) -> int:
        """How many have been made."""
        return run.attempt

    def _drop(self, run: Run, outcome: str) -> None:
        if not run.serial:
            run.job.ledger[run.scheduled_ms] = outcome
        run.outcome = outcome
        self._end(run, "SKIPPED")

    def _end(self, run: Run, state: str) -> None:
        run.state, run.held, run.halted, run.turn = state, False, False, None
        run.retry_ms = run.cancel_ms = run.deadline_ms = 0
        self._wake_quota()
        self.ends.append(run)

    def carry_out(self) -> None:
        """What waited for ends goes on; what ends thereby stands behind."""
        while self.ends:
            ends, self.ends = self.ends, []
            for run in ends:
                self._go_on(run.job)
                self._notify(run)

    def _go_on(self, job: Job) -> None:
        waiting = any(self._may_go(other) for other in job.live())
        if waiting and self._is_room(job):
            if self._is_full() or self.quota_waits:
                self._wait_for_quota(job)
                # As who waited before: those are served now.
            else:
                self._let_held_go(job)
        if job.backlog and not job.backlog[0].release_ms:
            job.backlog[0].release_ms = self.now_ms

    def _notify(self, run: Run) -> None:
        """Nobody waits for this one."""


def _first(*instants_ms: int) -> int:
    return min((ms for ms in instants_ms if ms), default=0)
