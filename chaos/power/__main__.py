"""The command line of power cuts: `python -m raftsched.chaos.power --help`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from .history import NODES, PowerResult, run_power
from .mount import Mount
from .mutants import MUTANTS, hunt_power

INSIDE: Final = "RAFTSCHED_POWER_INSIDE"  # Set in the environment of who may mount.
TRY_S: Final = 10.0
CANNOT: Final = 2
HELP = """\
Cut the power of nodes that write real files, and see what they keep of what they promised.

  --cuts N      histories from the seed --first on, until there were so many cuts
  --seed N      one history
  --mutants     switch one sync of the node off at a time; fails if one is not found

With --json one JSON object is the last line of stdout, everything else goes to stderr. It needs
Linux with /dev/fuse, and root or user namespaces: it mounts in a namespace of its own, so nothing
is left behind. The exit status is 0 if nothing was lost, 1 if something was, 2 if it cannot be
tried here.
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m raftsched.chaos.power",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cuts", type=int, help="how many")
    what.add_argument("--seed", type=int, help="one history")
    what.add_argument("--mutants", action="store_true", help="look for each sync that is missing")
    parser.add_argument("--first", type=int, default=1, help="the first seed of --cuts")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(argv)
    if INSIDE not in os.environ:
        why = missing()
        if why:
            say(f"no file system can be mounted here: {why}")
            return CANNOT
        begin_again()
    begun = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="raftsched-power-"))
    mount = Mount(place, NODES)
    try:
        result = mutants(mount) if options.mutants else histories(options, mount)
    finally:
        mount.close()
        place.rmdir()
    result["wall_s"] = round(time.monotonic() - begun, 1)
    if options.json:
        print(json.dumps(result))  # noqa: T201  # This is the program's output.
    return 0 if not result["failed"] else 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # As above.


def histories(options: argparse.Namespace, mount: Mount) -> dict[str, object]:
    counts: Counter[str] = Counter()
    failed = []
    seed = options.first if options.seed is None else options.seed
    while not counts["histories"] or (options.cuts is not None and counts["cuts"] < options.cuts):
        outcome = run_power(seed, mount)
        add(counts, outcome)
        if outcome.violation:
            failed.append(seed)
            say(f"seed {seed}: VIOLATION: {outcome.violation}")
        elif options.cuts is None or seed % 10 == 0:
            say(f"seed {seed}: all held; {counts['cuts']} cuts so far")
        seed += 1
    return {"failed": failed, "last": seed - 1, **counts}


def add(counts: Counter[str], outcome: PowerResult) -> None:
    counts["histories"] += 1
    for name in ("cuts", "kills", "acks", "checkpoints", "restores"):
        counts[name] += getattr(outcome, name)


def mutants(mount: Mount) -> dict[str, object]:
    rows = []
    for mutant in MUTANTS:
        rows.append(row := hunt_power(mutant, mount))
        say(f"{row['mutant']}: {row['seeds'] or 'SURVIVED'} seeds: {row['found']}")
    return {"mutants": rows, "failed": [row["mutant"] for row in rows if row["seeds"] is None]}


# Where it may mount.


def unshare() -> list[str]:
    """Who is not root is root in there, which is all that is needed."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--"]


def missing() -> str:
    """Why it cannot be tried here, or nothing."""
    if sys.platform != "linux":
        return "it needs Linux"
    if shutil.which("unshare") is None:
        return "unshare is not there; on Debian: apt-get install util-linux"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there, or not to be opened"
    with tempfile.TemporaryDirectory() as folder:
        probe = "import sys; from raftsched.chaos.power import fuse; from pathlib import Path; "
        tried = subprocess.run(
            [*unshare(), sys.executable, "-c", f"{probe}fuse.mount(Path(sys.argv[1]))", folder],
            capture_output=True, text=True, check=False, timeout=TRY_S,
        )  # fmt: skip
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


def begin_again() -> None:
    """Begin this very program again in a mount namespace of its own."""
    command = [*unshare(), sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    # Nodes whose power goes have much to say.
    logging.disable(logging.CRITICAL)
    sys.exit(main())
