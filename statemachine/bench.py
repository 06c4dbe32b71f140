"""What the rules cost: `python -m raftsched.statemachine.bench --json`.

One process, the store on disk, changes as a leader makes them: up to 1,000 results, 1,000 due
timers and 1,000 leases in one. A run is fired, leased and completed; all of it is decided, sealed
and applied. The figures are processor time of one thread, per run or per job.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..proto.v1 import job_pb2, worker_pb2
from . import bench_worst
from .core.instants import timestamp
from .core.rocks_store import RocksStore
from .machine import Request, apply, decide, read_meta
from .model.request import FireTimers, Grant, Offer, Report
from .model.view import Recall, View

NOW_MS = 1_800_000_000_000
DUE_MS = NOW_MS + 3_600_000
BATCH = 1_000
PAYLOAD = b'{"to": "somebody@example.com", "subject": "Hello"}'


@dataclass(slots=True)
class Cost:
    """Seconds of processor time and bytes of log."""

    decide: float = 0.0
    apply: float = 0.0
    bytes: int = 0


@dataclass(slots=True)
class Bench:
    """A state machine with a meter on each half."""

    store: RocksStore
    index: int = 0
    recall: Recall = field(default_factory=Recall)
    costs: dict[str, Cost] = field(default_factory=dict)

    def do(self, step: str, now_ms: int, body: object) -> object:
        return self.do_all(step, now_ms, [body])[0]

    def do_all(self, step: str, now_ms: int, bodies: Sequence[object]) -> list[object]:
        cost = self.costs.setdefault(step, Cost())
        began = time.thread_time()
        view = View(self.store, now_ms, self.recall)
        decision = decide(view, [Request(body) for body in bodies])
        decided = time.thread_time()
        if decision.change:
            self.index += 1
            apply(self.store, self.index, decision.change)
        self.recall.keep(view)
        cost.decide += decided - began
        cost.apply += time.thread_time() - decided
        cost.bytes += len(decision.change)
        return decision.replies

    def per(self, step: str, count: int) -> Cost:
        cost = self.costs.get(step, Cost())
        each = 1e6 / max(1, count)
        return Cost(cost.decide * each, cost.apply * each, cost.bytes // max(1, count))


def jobs(count: int, recurring: bool) -> Iterator[job_pb2.ImportJobsRequest]:
    for start in range(0, count, BATCH):
        request = job_pb2.ImportJobsRequest()
        for number in range(start, min(start + BATCH, count)):
            job = request.jobs.add(name=f"job-{number:08d}")
            job.spec.action.handler = "send-email"
            job.spec.payload.data = PAYLOAD
            schedule = job.spec.schedules.add()
            if recurring:
                schedule.cron.expression = "0 * * * *"
            else:
                schedule.once.time.CopyFrom(timestamp(DUE_MS))
        yield request


def drain(bench: Bench, count: int) -> None:
    """Fire, lease and complete as the leader's loop does: what came in while the last change was
    under way, what is due, and what can be leased, all in one change."""
    now_ms = DUE_MS + 5
    done = 0
    offers = tuple(Offer(f"worker-{number}", BATCH // 2) for number in range(2))
    reports: list[Report] = []
    while done < count:
        now_ms += 1
        *_, granted = bench.do_all(
            "run", now_ms, [*reports, FireTimers(BATCH), Grant(offers, BATCH)]
        )
        assert isinstance(granted, list)
        reports = [
            Report(offer.worker, tuple(map(success, leases)))
            for offer, leases in zip(offers, granted, strict=True)
        ]
        done += sum(len(report.results) for report in reports)
    bench.do_all("run", now_ms + 1, reports)


def success(lease: worker_pb2.Lease) -> worker_pb2.Result:
    return worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())


def drain_in_steps(bench: Bench, count: int) -> None:
    """The same with a change for each step, which shows what each costs alone."""
    now_ms = DUE_MS + 5
    fired = done = 0
    offers = tuple(Offer(f"worker-{number}", BATCH // 2) for number in range(2))
    while done < count:
        now_ms += 1
        if fired < count:
            fired += bench.do("fire", now_ms, FireTimers(BATCH)).done  # type: ignore[attr-defined]
        granted = bench.do("lease", now_ms, Grant(offers, BATCH))
        assert isinstance(granted, list)
        for offer, leases in zip(offers, granted, strict=True):
            bench.do("complete", now_ms, Report(offer.worker, tuple(map(success, leases))))
            done += len(leases)


def measure(path: Path, options: argparse.Namespace) -> dict[str, float | int]:
    count = options.jobs or 100_000
    bench = Bench(RocksStore(path))
    for request in jobs(count, options.recurring):
        bench.do("create", NOW_MS, request)
    # What a long-lived process would not have: the creation's garbage in the collector's way.
    gc.collect()
    gc.freeze()
    (drain_in_steps if options.steps else drain)(bench, count)
    steps = ("fire", "lease", "complete") if options.steps else ("run",)
    costs = [bench.per(step, count) for step in steps]
    create = bench.per("create", count)
    figures: dict[str, float | int] = {
        "run_decide_us": round(sum(cost.decide for cost in costs), 2),
        "run_apply_us": round(sum(cost.apply for cost in costs), 2),
        "create_decide_us": round(create.decide, 2),
        "create_apply_us": round(create.apply, 2),
        "log_bytes_per_run": sum(cost.bytes for cost in costs),
        "log_bytes_per_create": create.bytes,
    }
    if options.steps:
        for step, cost in zip(steps, costs, strict=True):
            figures[f"{step}_decide_us"] = round(cost.decide, 2)
            figures[f"{step}_apply_us"] = round(cost.apply, 2)
    bench.store.close()
    return figures | (reopen(path) if options.jobs else {})


def reopen(path: Path) -> dict[str, float | int]:
    """How long a node with this state needs until it can decide."""
    began = time.perf_counter()
    store = RocksStore(path)
    meta = read_meta(store)
    decide(View(store, meta.now_ms + 1), [Request(FireTimers(1))])
    opened = time.perf_counter() - began
    store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"open_ms": round(opened * 1000, 1), "rss_mb": peak // 1024}


def worst_of(names: list[str]) -> int:
    worlds = bench_worst.measure(names)
    for name, row in worlds.items():
        line = "  ".join(f"{key} {value}" for key, value in row.items())
        sys.stderr.write(f"{name:>20}  {line}\n")
    sys.stdout.write(json.dumps(worlds) + "\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m raftsched.statemachine.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            "The last line of standard output is one JSON object; microseconds are per run "
            "(fire + lease + complete) or per job created. rss_mb and open_ms come with --jobs: "
            "the process's peak, and opening the store until the first decision."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--jobs", type=int, default=0, help="jobs to create (default: 100000)")
    parser.add_argument("--recurring", action="store_true", help="hourly cron jobs, not one-off")
    parser.add_argument("--steps", action="store_true", help="a change for each step of a run")
    parser.add_argument("--dir", type=Path, help="where the store is made (default: temporary)")
    parser.add_argument(
        "--worst", nargs="*", metavar="WORLD",
        help="play worlds that are hard on one decision, all or these, with a leader's budget",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.worst is not None:
        return worst_of(options.worst)
    if 0 < options.jobs < BATCH or options.jobs < 0:
        parser.error(f"--jobs {options.jobs} is too few to measure; take {BATCH} or more")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        figures = measure(Path(folder) / "state", options)
    if not options.json:
        for name, value in figures.items():
            sys.stderr.write(f"{name:>22}  {value}\n")
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
