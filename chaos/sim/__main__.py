"""The command line of the simulator: `python -m raftsched.chaos.sim --help`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter

from . import cells_run, days_run
from .run import SimResult, hunt_all, hunt_upstream, run_seed, run_seeds

HELP = """\
Run the consensus core in a simulated world: links, disks, clocks, processes, all from a seed.

  --seed N      one history; prints its options, its story and its violation if there is one
  --seeds N     histories FIRST .. FIRST+N-1
  --mutants     switch each known defect on and look for it; fails if one survives its budget
  --rules       with --seed or --seeds: the scheduler on top of the core, with users, workers and
                wall clocks, in place of a small register
  --days        with --seed, --seeds or --mutants: the rules without consensus: days in which
                people edit, pause and limit, nobody leads, and clocks change
  --cells       with --seed, --seeds or --mutants: namespaces that move between many clusters
                (docs/scale.md); "cells" in the object counts what they did

With --json one JSON object is the last line of stdout, everything else goes to stderr:
  --seed        {"seed","violation","options","simulated_s","fault_events","acks","reads","rules",
                 "wall_s"}
  --seeds       {"seeds","violations","failed","simulated_hours","fault_events","acks","reads",
                 "rules","wall_s"}; "rules" counts what the scheduler did
  --mutants     {"mutants":[{"mutant","seeds","budget","found"}],"survivors","wall_s"}
The exit status is 0 only if no violation was found, or, with --mutants, every one was.
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m raftsched.chaos.sim",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="replay one history")
    what.add_argument("--seeds", type=int, help="how many histories")
    what.add_argument("--mutants", action="store_true", help="look for each known defect")
    parser.add_argument("--rules", action="store_true", help="the scheduler, not a register")
    parser.add_argument("--cells", action="store_true", help="many clusters, not one")
    parser.add_argument("--days", action="store_true", help="the rules alone, through days")
    parser.add_argument("--first", type=int, default=1, help="the first seed of --seeds")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--story", type=int, default=40, help="lines shown of a --seed")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    if options.cells or options.days:
        result, good = others(options)
    elif options.mutants:
        result, good = all_mutants(options.jobs)
    elif options.seed is not None:
        result, good = one_seed(options.seed, options.story, rules=options.rules)
    else:
        seeds = range(options.first, options.first + options.seeds)
        result, good = many_seeds(seeds, options.jobs, rules=options.rules)
    result["wall_s"] = round(time.monotonic() - begun, 1)
    if options.json:
        print(json.dumps(result))  # noqa: T201  # This is the program's output.
    return 0 if good else 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # As above.


def one_seed(seed: int, lines: int, *, rules: bool) -> tuple[dict[str, object], bool]:
    outcome = run_seed(seed, rules=rules, story=lines)
    for line in outcome.story:
        say(line)
    show(outcome, rules=rules)
    result = {
        "seed": seed,
        "violation": outcome.violation,
        "options": outcome.options,
        "simulated_s": round(outcome.simulated_s, 3),
        "fault_events": outcome.fault_events,
        "acks": outcome.acks,
        "reads": outcome.reads,
        "rules": outcome.counts,
    }
    return result, not outcome.violation


def show(outcome: SimResult, *, rules: bool) -> None:
    say(outcome.options)
    if outcome.violation:
        say(f"seed {outcome.seed}: VIOLATION: {outcome.violation}")
        more = " --rules" if rules else ""
        say(f"replay: python -m raftsched.chaos.sim --seed {outcome.seed}{more}")
    else:
        say(f"seed {outcome.seed}: all held; {outcome.acks} writes acknowledged")


def many_seeds(seeds: range, jobs: int, *, rules: bool) -> tuple[dict[str, object], bool]:
    failed, done = [], 0
    counts: Counter[str] = Counter()
    simulated, faults, acks, reads = 0.0, 0, 0, 0
    for outcome in run_seeds(seeds, jobs, rules=rules):
        counts.update(outcome.counts)
        done += 1
        simulated += outcome.simulated_s
        faults += outcome.fault_events
        acks += outcome.acks
        reads += outcome.reads
        if outcome.violation:
            failed.append(outcome.seed)
            show(outcome, rules=rules)
        if done % 100 == 0:
            say(f"{done} of {len(seeds)} seeds, {len(failed)} violations")
    result: dict[str, object] = {
        "seeds": done,
        "violations": len(failed),
        "failed": failed[:100],
        "simulated_hours": round(simulated / 3600, 2),
        "fault_events": faults,
        "acks": acks,
        "reads": reads,
        "rules": dict(counts),
    }
    return result, not failed


def others(options: argparse.Namespace) -> tuple[dict[str, object], bool]:
    """What `--cells` and `--days` ask for."""
    name = "cells" if options.cells else "days"
    if options.mutants:
        rows = []
        found = map(cells_run.hunt, cells_run.MUTANTS) if options.cells else days_run.hunt_all()
        for row in found:
            rows.append(row)
            say(f"{row['mutant']}: {row['seeds'] or 'SURVIVED'} seeds: {row['found']}")
        survivors = [row["mutant"] for row in rows if row["seeds"] is None]
        return {"mutants": rows, "survivors": survivors}, not survivors
    one = options.seed is not None
    seeds = [options.seed] if one else range(options.first, options.first + options.seeds)
    run = cells_run.run_cells if options.cells else days_run.run_days
    run_many = cells_run.run_many if options.cells else days_run.run_many
    outcomes = [run(options.seed, story=options.story)] if one else run_many(seeds, options.jobs)
    counts: Counter[str] = Counter()
    failed, done, simulated, faults = [], 0, 0.0, 0
    for outcome in outcomes:
        counts.update(outcome.counts)
        done += 1
        simulated += outcome.simulated_s
        faults += outcome.fault_events
        for line in (*outcome.story, outcome.options) if one or outcome.violation else ():
            say(line)
        if outcome.violation:
            failed.append(outcome.seed)
            say(f"seed {outcome.seed}: VIOLATION: {outcome.violation}")
            say(f"replay: python -m raftsched.chaos.sim --{name} --seed {outcome.seed}")
        if done % 1_000 == 0:
            say(f"{done} of {len(seeds)} seeds, {len(failed)} violations")
    result: dict[str, object] = {
        "seeds": done,
        "violations": len(failed),
        "failed": failed[:100],
        "simulated_hours": round(simulated / 3600, 2),
        "fault_events": faults,
        name: dict(sorted(counts.items())),
    }
    return result, not failed


def all_mutants(jobs: int) -> tuple[dict[str, object], bool]:
    rows = [hunt_upstream()]
    say(f"{rows[0]['mutant']}: {rows[0]['seeds']} seeds: {rows[0]['found']}")
    for row in hunt_all(jobs):
        rows.append(row)
        say(f"{row['mutant']}: {row['seeds'] or 'SURVIVED'} seeds: {row['found']}")
    survivors = [row["mutant"] for row in rows if row["seeds"] is None]
    return {"mutants": rows, "survivors": survivors}, not survivors


if __name__ == "__main__":
    # Nodes that are broken on purpose have much to say.
    logging.disable(logging.CRITICAL)
    sys.exit(main())
