"""The systems we compare ourselves with: where they come from, how they are set, how they run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....cluster.local.process import Process, ProcessFailed
from .postgres import Postgres

INSTALL_S = 600.0
Number = float | int


@dataclass(frozen=True, kw_only=True)
class PeerSystem:
    """One system; `program` lies beside this file and puts the load on it."""

    name: str
    packages: tuple[str, ...]
    program: str
    herd: Mapping[str, Number]
    # Its settings for a steady load; empty when its program has none.
    steady: Mapping[str, Number]

    @property
    def on_node_js(self) -> bool:
        return self.program.endswith(".js")


# Each with the settings that were its best in measurements on two cores (design.md, section 7), and
# the versions they were measured with.
PEERS = {
    "pgqueuer": PeerSystem(
        name="pgqueuer",
        packages=("pgqueuer==1.6.0", "asyncpg==0.32.0"),
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
        steady={},
    ),
}


def missing(peer: PeerSystem) -> str:
    """What this machine lacks for it; nothing when empty."""
    if peer.on_node_js and not (shutil.which("node") and shutil.which("npm")):
        return "it needs Node.js (node and npm), which are not on the path"
    return ""


def cache() -> Path:
    """Where what is downloaded for peers is kept, apart from all else."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "raftsched" / "peers"


def kit_name(peer: PeerSystem) -> str:
    """A folder's name that says all that decides what is in it."""
    runtime = "node" if peer.on_node_js else f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return "-".join([*peer.packages, runtime]).replace("==", "-").replace("@", "-")


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


def put_load(
    peer: PeerSystem, kit: Path, servers: Postgres, asked: Mapping[str, object], seconds: float
) -> dict[str, Number]:
    """Put the load on it; what its program found."""
    here = str(Path(__file__).parent / peer.program)
    python = str(kit / "bin/python")
    process = Process(
        f"the load on {peer.name}",
        [here, json.dumps({"port": servers.port, **asked})],
        servers.folder / f"{peer.name}.log",
        # Isolated (-I): a script's own folder is not searched for modules, nor are ours.
        program=(shutil.which("node") or "node",) if peer.on_node_js else (python, "-I"),
        environment={"NODE_PATH": str(kit / "node_modules")} if peer.on_node_js else {},
    )
    process.finish(seconds)
    return figures_of(process.log.read_text(errors="replace"), peer.name)


def figures_of(output: str, name: str) -> dict[str, Number]:
    """The last line of what a program printed, which must be figures."""
    line = output.rstrip().rpartition("\n")[2]
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or "seconds" not in found:
        raise ProcessFailed(f"the load on {name} ended without figures; its last line: {line!r}")
    return found
