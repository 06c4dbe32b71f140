"""Flows, small, slow and obviously right: which jobs of a flow run, wait, or can never run; and the
model of the rules with these among the runs.

It knows nothing of tables, counters or steps in time: it looks at all jobs of a flow until nothing
changes. Written from the contract (job.proto's Upstream and Dependency, flow.proto).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .model import Job, Model, Run, Spec

Place = tuple[int, int, int]
MET = {
    "SUCCESS": {"SUCCEEDED"},
    "FAILURE": {"FAILED"},
    "ANY_END": {"SUCCEEDED", "FAILED", "CANCELLED"},
}


@dataclass
class Order:
    """A job: what it waits for, and whether one of these is enough."""

    upstream: dict[str, str] = field(default_factory=dict)
    is_any: bool = False


@dataclass
class Flow:
    """The runs of one flow by job: PENDING, or how they ended."""

    orders: dict[str, Order]
    root: str
    runs: dict[str, str] = field(default_factory=dict)
    # How they ended last: one that was requeued counts as before until it ends anew.
    ends: dict[str, str] = field(default_factory=dict)
    cannot: set[str] = field(default_factory=set)
    # Those of whose upstream one was over at some time: before, nobody has looked at them.
    told: set[str] = field(default_factory=set)

    def reached(self) -> set[str]:
        """The jobs that the root's run leads to, itself included."""
        found = {self.root}
        for name, order in self.orders.items():  # Upstream stands before downstream.
            if found & set(order.upstream):
                found.add(name)
        return found

    def settle(self) -> None:
        """Begin what may begin, and note what can no longer, until nothing changes."""
        before = -1
        while before != len(self.runs) + len(self.cannot):
            before = len(self.runs) + len(self.cannot)
            for name in sorted(self.reached() - {self.root} - set(self.runs) - self.cannot):
                self._look_at(name)
            over = self.cannot | set(self.ends)
            self.told |= {name for name in self.reached() if over & set(self.orders[name].upstream)}

    def _look_at(self, name: str) -> None:
        verdict = self._verdict(name)
        if verdict:
            self.runs[name] = "PENDING"
        elif verdict is False:
            self.cannot.add(name)

    def _verdict(self, name: str) -> bool | None:
        """Whether a job's condition is met; None: nobody knows yet."""
        order = self.orders[name]
        waits_for = order.upstream
        if self.orders[self.root].upstream:
            # It began in the middle, so what lies beside it is not waited for.
            inside = self.reached()
            waits_for = {job: how for job, how in waits_for.items() if job in inside}
        seen = [self._condition(*item) for item in waits_for.items()]
        if (any if order.is_any else all)(one is True for one in seen):
            return True
        is_lost = (all if order.is_any else any)(one is False for one in seen)
        return False if is_lost else None

    def _condition(self, upstream: str, wanted: str) -> bool | None:
        """Whether an upstream's end is as wanted; None while nobody knows."""
        if upstream in self.ends:
            return self.ends[upstream] in MET[wanted]
        # Of a job that is not in this flow no run will come, but nothing says so.
        return False if upstream in self.cannot else None

    def ended(self, name: str, state: str) -> list[str]:
        """The jobs that begin by that."""
        before = set(self.runs)
        if name in self.ends:
            # What could not run, and did not, is decided anew.
            self.cannot -= Flow(self.orders, name).reached()
        self.runs[name] = self.ends[name] = state
        self.settle()
        return [job for job in self.orders if job in self.runs and job not in before]

    def requeued(self, name: str) -> None:
        self.runs[name] = "PENDING"

    def shown(self) -> dict[str, str]:
        found = dict.fromkeys(self.told, "WAITING")
        return found | dict.fromkeys(self.still_lost(), "CANNOT_RUN") | self.runs

    def still_lost(self) -> set[str]:
        """The jobs that can never run, also if those that run again end as they should."""
        ends = {name: end for name, end in self.ends.items() if self.runs[name] != "PENDING"}
        seen = Flow(self.orders, self.root, self.runs, ends)
        for name in self.orders:
            if name in self.cannot and seen._verdict(name) is False:
                seen.cannot.add(name)
        return seen.cannot


class FlowModel(Model):
    """The rules with jobs that wait for others; the jobs are there from the beginning on."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: dict[str, Order] = {}
        # By where the run stands that it began with.
        self.flows: dict[Place, Flow] = {}
        # The flow of each run, and its runs by job.
        self.flow_of: dict[Place, Place] = {}
        self.members: dict[Place, dict[str, Run]] = {}
        # Jobs that were resumed, or may let more runs go, and since when; see `_line`.
        self.resumes: dict[str, int] = {}
        self.looks: dict[str, int] = {}
        # Runs of which somebody has said that they run anyway, and those that were requeued.
        self.forced: set[Place] = set()
        self.requeued: dict[Place, int] = {}

    def add(self, name: str, spec: Spec, order: Order) -> None:
        self.orders[name] = order
        self.create(name, spec)

    def has_downstream(self, job: Job) -> bool:
        return any(job.name in order.upstream for order in self.orders.values())

    # What begins and ends.

    def trigger(self, name: str, force: bool, refuse: bool = False) -> Run | str:
        run = super().trigger(name, force, refuse)
        if force and isinstance(run, Run):
            self.forced.add(run.place)
        return run

    def _begin(self, run: Run) -> None:
        # A backfill may run anew what was skipped, and with it what waits for it.
        is_step = run.serial > 0 and run.place in self.flow_of
        if not is_step and self.has_downstream(run.job):
            name = run.job.name
            self.flows[run.place] = Flow(self.orders, name, {name: "PENDING"})
            self.flow_of[run.place] = run.place
            self.members[run.place] = {name: run}
        super()._begin(run)

    def _notify(self, run: Run) -> None:
        root = self.flow_of.get(run.place)
        if root is not None:
            for name in self.flows[root].ended(run.job.name, run.state):
                self._begin_step(root, self.jobs[name])

    def _begin_step(self, root: Place, job: Job) -> None:
        job.serial += 1
        run = Run(job, root[1], job.serial, self.now_ms, "RAN")
        self.flow_of[run.place] = root
        self.members[root][job.name] = run
        if job.paused:
            run.held = run.halted = True
        else:
            verdict = self._overlap(job)
            run.held = self._make_room(job, "hold" if verdict == "skip" else verdict)
        if not run.held:
            run.held = self._awaits_quota(job)
        self._begin(run)

    def _awaits_quota(self, job: Job) -> bool:
        """Whether one that nobody may skip has to wait, as others do."""
        is_taken = self._is_full() or bool(self.quota_waits)
        if is_taken:
            self._wait_for_quota(job)
        return is_taken

    def _gives_way(self, run: Run) -> bool:
        return not (run.held and run.place in self.requeued) and super()._gives_way(run)

    # Dead letters.

    def requeue(self, run: Run) -> None:
        """A run that failed begins again, however late it is."""
        job = run.job
        may_begin = run.place in self.forced or (
            not job.paused and self._is_room(job) and not self._awaits_quota(job)
        )
        self.requeued[run.place] = run.attempt
        run.state, run.worker, run.ready_ms, run.started = "PENDING", "", 0, False
        run.held, run.halted = not may_begin, not may_begin and job.paused
        root = self.flow_of.get(run.place)
        if root is not None:
            self.flows[root].requeued(job.name)
        if may_begin:
            self._ready(run)

    def _attempts(self, run: Run) -> int:
        return run.attempt - self.requeued.get(run.place, 0)

    def _start_deadline(self, run: Run) -> int:
        return 0 if run.place in self.requeued else super()._start_deadline(run)

    # Pauses.

    def pause(self, name: str, until_ms: int = 0) -> None:
        super().pause(name, until_ms)
        self.resumes.pop(name, None)

    def resume(self, name: str) -> None:
        job = self.jobs[name]
        if job.paused:
            self.resumes.pop(name, None)
            if any(run.held for run in job.live()):
                self.resumes[name] = self.now_ms
        super().resume(name)

    def _line(self) -> list[tuple[int, str, int]]:
        found = super()._line()
        for kind, waiting in (("V", self.resumes), ("H", self.looks)):
            found += [(at_ms, kind, self.jobs[name].uid) for name, at_ms in waiting.items()]
        return sorted(found)

    def _serve(self, kind: str, job: Job | None) -> None:
        super()._serve(kind, job)
        if kind == "V" and job is not None and self.resumes.pop(job.name, 0):
            self._let_halted_go(job)
        elif kind == "H" and job is not None and self.looks.pop(job.name, 0):
            while self._is_room(job) and any(self._may_go(run) for run in job.live()):
                if self._awaits_quota(job) or not self._let_held_go(job):
                    break

    def _let_halted_go(self, job: Job) -> None:
        """Steps are like scheduled times that were missed; what somebody asked for goes on."""
        rule, most = job.spec.misfire, {"ALL": job.spec.misfire_maximum, "SKIP": 0}
        chosen = 0
        halted = [run for run in job.live() if run.halted]
        for run in halted if rule == "EARLIEST" else halted[::-1]:
            if run.place in self.flow_of.keys() - self.flows.keys() - self.requeued.keys():
                is_late = run.due_ms + job.spec.grace_ms < job.resumed_ms
                if is_late and chosen >= most.get(rule, 1):
                    chose_one = rule in ("LATEST", "EARLIEST")
                    self._drop(run, "COALESCED" if chose_one else "MISSED")
                    continue
                chosen += is_late or rule == "LATEST"
                run.outcome = "LATE" if is_late else run.outcome
            run.halted = False
        self.looks.setdefault(job.name, self.now_ms)
