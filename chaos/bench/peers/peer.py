"""The systems we compare ourselves with: where they come from, how they are set, how they run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ....cluster.local.process import Process, ProcessFailed
from . import patroni, postgres, redis
from .servers import PeerServers, Serving, program

INSTALL_S = 600.0
Number = float | int


@dataclass(frozen=True, kw_only=True)
class PeerSystem:
    """One system; `program` lies beside this file and says how it takes jobs and runs them."""

    name: str
    packages: tuple[str, ...]
    program: str
    server: Literal["postgres", "redis"] = "postgres"
    herd: Mapping[str, Number]
    # Its settings for a steady load.
    steady: Mapping[str, Number]
    # Jobs that go through before anything is counted.
    warm_up: int = 2_000
    # Runs a second that it manages at least; decides when a turn is given up.
    least_rate: int = 1_000
    # Of its own making: two would both run every job.
    one_worker: bool = False

    @property
    def on_node_js(self) -> bool:
        return self.program.endswith(".js")


# Each with the settings that were its best in measurements on two cores, and the versions they were
# measured with.
PEERS = {
    "pgqueuer": PeerSystem(
        name="pgqueuer",
        packages=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        program="pgqueuer.py",
        herd={"batch_size": 500, "poll_s": 0.2},
        # Its loop looks again after 100 ms at the soonest, so a shorter poll would change nothing.
        steady={"batch_size": 200, "poll_s": 0.1},
    ),
    "graphile": PeerSystem(
        name="graphile",
        packages=("graphile-worker@0.17.3",),
        program="graphile.js",
        # Jobs are fetched by the 500 and handed out within the process.
        herd={"local_queue": 500, "concurrency": 24, "connections": 26, "poll_ms": 200},
        steady={"local_queue": 500, "concurrency": 24, "connections": 26, "poll_ms": 100},
    ),
    "pgboss": PeerSystem(
        name="pgboss",
        # The newest that runs with Node.js 20.
        packages=("pg-boss@10.4.2",),
        program="pgboss.js",
        # Half a second is the shortest that it takes.
        herd={"batch_size": 1_000, "pollers": 2, "poll_s": 0.5, "connections": 10},
        steady={"batch_size": 1_000, "pollers": 2, "poll_s": 0.5, "connections": 10},
    ),
    "bullmq": PeerSystem(
        name="bullmq",
        packages=("bullmq@6.7.0", "ioredis@5.8.2"),
        program="bullmq.js",
        server="redis",
        herd={"concurrency": 100},
        steady={"concurrency": 100},
    ),
    "procrastinate": PeerSystem(
        name="procrastinate",
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        program="procrastinate.py",
        herd={"concurrency": 20, "connections": 24, "poll_s": 0.2},
        steady={"concurrency": 20, "connections": 24, "poll_s": 0.1},
        warm_up=200,
        least_rate=100,
    ),
    "celery": PeerSystem(
        name="celery",
        packages=("celery[redis]==5.7.0",),
        program="celery.py",
        server="redis",
        # As many ahead as its pages advise for short tasks.
        herd={"prefetch": 128},
        steady={"prefetch": 128},
        warm_up=200,
        least_rate=100,
    ),
    "apscheduler": PeerSystem(
        name="apscheduler",
        packages=("APScheduler==3.11.3", "SQLAlchemy==2.1.9", "psycopg[binary]==3.3.9"),
        program="apscheduler.py",
        herd={"threads": 20, "poll_s": 0.1},
        steady={"threads": 20, "poll_s": 0.1},
        warm_up=200,
        least_rate=20,
        one_worker=True,
    ),
}


def missing(peer: PeerSystem, *, failover: bool = False) -> str:
    """What this machine lacks for it; nothing when empty."""
    if peer.on_node_js and not (shutil.which("node") and shutil.which("npm")):
        return (
            "it needs Node.js (node and npm), which are not on the path; on Debian and Ubuntu: "
            "apt-get install nodejs npm"
        )
    try:
        if peer.server == "redis":
            program("redis-server", "redis-server")
            program("redis-cli", "redis-tools")
            return ""
        postgres.programs()
        if failover:
            program("etcd", "etcd-server")
            program("haproxy", "haproxy")
    except ProcessFailed as error:
        return str(error)
    return ""


def serving(peer: PeerSystem, *, failover: bool) -> Serving:
    """What it keeps its jobs in, with the usual tool that replaces a primary where one is lost."""
    if peer.server == "redis":
        return redis.redis_with_sentinels if failover else redis.redis
    return patroni.patroni if failover else postgres.postgres


def cache() -> Path:
    """Where what is downloaded for peers is kept, apart from all else."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "raftsched" / "peers"


def kit_name(peer: PeerSystem) -> str:
    """A folder's name that says all that decides what is in it."""
    runtime = "node" if peer.on_node_js else f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return re.sub(r"==|[@\[\],]+", "-", "-".join([*peer.packages, runtime]))


def installed(peer: PeerSystem, logs: Path) -> Path:
    """Its folder, made at the first time: a virtual environment, or one with node_modules."""
    kit = cache() / kit_name(peer)
    if ready(peer, kit):
        return kit
    kit.parent.mkdir(parents=True, exist_ok=True)
    # Made aside, so that a folder by that name is a whole one.
    made = Path(tempfile.mkdtemp(prefix=f"{peer.name}-", dir=kit.parent))
    try:
        for step in steps(peer, made, logs):
            step.finish(INSTALL_S)
        shutil.rmtree(kit, ignore_errors=True)
        made.rename(kit)
    except ProcessFailed as error:
        raise ProcessFailed(
            f"{' and '.join(peer.packages)} could not be installed; is there a network? {error}"
        ) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return kit


def ready(peer: PeerSystem, kit: Path) -> bool:
    return (kit / ("node_modules" if peer.on_node_js else "bin/python")).exists()


def steps(peer: PeerSystem, kit: Path, logs: Path) -> list[Process]:
    log = logs / f"install-{peer.name}.log"
    if peer.on_node_js:
        npm = shutil.which("npm") or "npm"
        words = ["install", "--no-audit", "--no-fund", "--prefix", str(kit), *peer.packages]
        return [Process(f"npm install for {peer.name}", words, log, program=(npm,))]
    pip = (str(kit / "bin/python"), "-I", "-m", "pip")
    return [
        Process(f"venv for {peer.name}", ["venv", str(kit)], log),
        Process(
            f"pip install for {peer.name}",
            ["install", "--disable-pip-version-check", *peer.packages],
            log,
            program=pip,
        ),
    ]


def load_process(
    peer: PeerSystem, kit: Path, servers: PeerServers, asked: Mapping[str, object]
) -> Process:
    """The program that puts the load on it, not yet started."""
    here = Path(__file__).parent
    wanted = {
        "port": servers.port, "sentinels": list(servers.sentinels),
        "system": str(here / peer.program), **asked,
    }  # fmt: skip
    driver = here / ("load.js" if peer.on_node_js else "load.py")
    # Isolated (-I): a script's own folder is not searched for modules, nor are ours.
    python = (str(kit / "bin/python"), "-I")
    return Process(
        f"the load on {peer.name}",
        [str(driver), json.dumps(wanted)],
        servers.folder.parent / f"{peer.name}.log",
        program=(shutil.which("node") or "node",) if peer.on_node_js else python,
        environment={
            "C_FORCE_ROOT": "1",
            **({"NODE_PATH": str(kit / "node_modules")} if peer.on_node_js else {}),
        },
    )


def end_group(process: Process) -> None:
    """End a process and all that it started and that stayed in its group."""
    if process.popen is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def figures_of(output: str, name: str) -> dict[str, Number]:
    """The last line of what a program printed, which must be figures."""
    line = output.rstrip().rpartition("\n")[2]
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or "done" not in found:
        raise ProcessFailed(f"the load on {name} ended without figures; its last line: {line!r}")
    return found
