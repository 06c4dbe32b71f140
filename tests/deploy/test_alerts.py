"""Alerts fire when what they speak of happens to a real cluster; their runbooks can be followed.

| cause | alerts |
|---|---|
| a node is killed, then a second one | NodeDown, NoMargin; NoLeader |
| the leadership is handed round, a node is left draining | LeaderChanges, Draining |
| no worker, then one that is slow, on clocks that went ahead | NoWorkers, RunsWait, Late |
| one clock is off, all three are, all were an hour ahead | ClockSkew, ClockStopsFiring, TimeAhead |
| disks that are slow, one that is full | SyncSlow, CommitSlow; DiskFull |
| a run that fails, a rule that fails | DeadLetters; BrokenJobs, SetAside |
| a state that takes long to write | LoopBlocked |
| a member that stands still under load | MemberBehind |
| other versions and zone data on one node | VersionsDiffer, ZoneDataDiffers |
| few files, limits that are hit, a small disk | FewDescriptors, Refuses, DiskLow |
| certificates that end soon, or have ended | CertificateExpires, CertificateInvalid |
| a damaged table | Damage |
| files that are not read again | NotVerified |

| a certificate that the others do not trust | NodeStale |

By the figures alone (rules_test.yaml): EntriesMissing, LogLinesLost, StateDiverged.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from raftsched.chaos.real.node import Control, Failpoint, controlled
from raftsched.client import AsyncClient, RaftschedError, Retry, cron
from raftsched.client.cli.commands.authority import CERTIFICATE, KEY, TRUST, Authority
from raftsched.cluster.local.nodes import NodeProcesses, free_addresses
from raftsched.cluster.local.process import HOME, PROGRAM_OF_CLIENT, environment
from raftsched.proto.v1.cluster_pb2 import GetClusterStatusRequest

from ..e2e.handlers import working
from ..e2e.processes import SMALL, Cluster, cluster, stop, until
from ..e2e.test_damage import damage
from ..e2e.test_full_disk import MOUNT, small_disks_work
from .film import Film
from .tools import ROOT, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def promtool() -> str:
    return tool("promtool")


class Hand:
    """On the clocks, disks and rules of the nodes of a cluster."""

    def __init__(self, folder: Path, running: Cluster) -> None:
        self.folder, self.running = folder, running
        self.controls: dict[str, Control] = {}

    def set(self, name: str, control: Control) -> None:
        new = self.folder / f"{name}.control.new"
        new.write_bytes(msgspec.json.encode(control))
        new.replace(self.folder / f"{name}.control")

    def set_all(self, control: Control) -> None:
        for name in self.running.nodes:
            self.set(name, control)


@asynccontextmanager
async def handled(folder: Path, *flags: str) -> AsyncIterator[tuple[Cluster, Hand]]:
    """A cluster with a hand on it."""
    nodes = NodeProcesses(
        folder, free_addresses(3), settings=(*SMALL, *flags), program=controlled(folder)
    )
    made = Cluster(nodes)
    hand = Hand(folder, made)
    hand.set_all(Control())
    try:
        made.start()
        await made.ready()
        yield made, hand
    finally:
        made.end()


def followed(
    name: str, running: Cluster, folder: Path, more: Mapping[str, str] | None = None
) -> None:
    """The commands under "Look" of a runbook, as they stand there."""
    page = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
    alive = next(node for node in running.nodes.values() if node.alive)
    stands_for = {
        "HOST:PORT": alive.client, "FOLDER": str(folder), "NAMESPACE": "default", **(more or {}),
    }  # fmt: skip
    for line in re.findall(r"^\$ raftsched (.+)$", page, re.MULTILINE):
        words = [stands_for.get(word, word) for word in shlex.split(line)]
        ended = subprocess.run(
            [*PROGRAM_OF_CLIENT, *words], capture_output=True, text=True, check=False, timeout=120,
            env=environment() | {
                "RAFTSCHED_ENDPOINTS": running.endpoints, "RAFTSCHED_CONFIG": str(folder / "none"),
                "RAFTSCHED_TIMEOUT": "5s",
            },
        )  # fmt: skip
        # That something is wrong is what they are to say; 2 is that they were not understood,
        # and of `node` that its configuration is wrong.
        assert ended.returncode != 2 or words[0] == "node", (line, ended.stderr)
        assert "Usage:" not in ended.stderr
        assert "Traceback" not in ended.stderr


def assert_fired(
    film: Film, folder: Path, promtool: str, wanted: set[str], *, silent: set[str] | None = None,
    hold: float = 0,
) -> None:  # fmt: skip
    """These fired, with the mark of ours in front; before it began those did not."""
    fired = film.fired(folder, promtool, hold)
    assert {f"Raftsched{name}" for name in wanted} <= fired, fired
    assert not {f"Raftsched{name}" for name in silent or ()} & fired, fired


async def test_members_that_are_lost(tmp_path: Path, promtool: str) -> None:
    async with cluster(tmp_path) as running:
        film = Film(running)
        await film.minutes(1)
        assert film.fired(tmp_path, promtool) == set()
        leader = await running.leader()
        first, second = [name for name in running.nodes if name != leader]

        running.nodes[first].kill()
        await film.minutes(1)
        assert_fired(
            film, tmp_path, promtool, {"NodeDown", "NoMargin"}, silent={"NoLeader"}, hold=2
        )
        followed("RaftschedNodeDown", running, tmp_path)
        followed("RaftschedNoMargin", running, tmp_path)

        running.nodes[second].kill()

        async def nobody_leads() -> bool:
            return not await running.leader()

        await until(nobody_leads, 10)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"NoLeader"}, hold=1)
        followed("RaftschedNoLeader", running, tmp_path)

        # What the runbook says.
        running.start()
        await running.ready()


async def test_leaders_that_change_and_a_node_that_is_left_draining(
    tmp_path: Path, promtool: str
) -> None:
    async with (
        cluster(tmp_path) as running,
        AsyncClient(running.endpoints, timeout=10) as client,
    ):  # fmt: skip
        film = Film(running)
        await film.minutes(1)
        for _ in range(6):
            before = await running.leader()
            await until(lambda: client.cluster.transfer(), 10)

            async def another(before: str = before) -> bool:
                return await running.leader() not in ("", before)

            await until(another, 10)
        name = next(name for name in running.nodes if name != before)
        await client.cluster.drain(name)
        await film.minutes(1)

        assert_fired(film, tmp_path, promtool, {"LeaderChanges"}, silent={"Draining"})
        assert_fired(film, tmp_path, promtool, {"Draining"}, hold=31)
        followed("RaftschedLeaderChanges", running, tmp_path)
        followed("RaftschedDraining", running, tmp_path)


async def test_work_that_waits(tmp_path: Path, promtool: str) -> None:
    async with (
        handled(tmp_path) as (running, hand),
        AsyncClient(running.endpoints, timeout=10) as client,
    ):  # fmt: skip
        film = Film(running)
        await client.jobs.create("slow", handler="note", overlap="allow")
        for _ in range(100):
            await client.jobs.trigger("slow")
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"NoWorkers"}, silent={"RunsWait", "Late"}, hold=3)
        followed("RaftschedNoWorkers", running, tmp_path)

        # Ten minutes pass for the nodes.
        hand.set_all(Control(clock_ms=600_000))
        await film.shows("raftsched_oldest_ready_seconds", lambda value: value > 300)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"RunsWait"}, hold=6)
        followed("RaftschedRunsWait", running, tmp_path)

        async with working(running.endpoints, seconds=1.5):
            await film.minutes(11)
        assert_fired(film, tmp_path, promtool, {"Late"})
        followed("RaftschedLate", running, tmp_path)


async def test_clocks_that_are_off(tmp_path: Path, promtool: str) -> None:
    async with handled(tmp_path) as (running, hand):
        film = Film(running)
        leader = await running.leader()
        first, second = [name for name in running.nodes if name != leader]
        await film.minutes(1)

        hand.set(first, Control(clock_ms=700))
        await film.shows("raftsched_member_clock_skew_seconds", lambda value: value > 0.5)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"ClockSkew"}, silent={"ClockStopsFiring"}, hold=3)
        followed("RaftschedClockSkew", running, tmp_path)

        hand.set(first, Control(clock_ms=5_000))
        hand.set(second, Control(clock_ms=-5_000))
        await film.shows("raftsched_clock_skew_too_large", bool)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"ClockStopsFiring"}, silent={"TimeAhead"}, hold=1)
        followed("RaftschedClockStopsFiring", running, tmp_path)

        hand.set_all(Control(clock_ms=3_600_000))
        async with AsyncClient(running.endpoints, timeout=5) as client:
            # A change that goes by those clocks takes the state's time along.
            await until(lambda: written_at(client), 30)
        hand.set_all(Control())
        await film.shows("raftsched_state_time_ahead_seconds", lambda value: value > 5)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"TimeAhead"}, hold=1)
        followed("RaftschedTimeAhead", running, tmp_path)


async def written_at(client: AsyncClient) -> bool:
    """Whether a change was made at an instant that is far ahead."""
    name = f"job-{uuid.uuid4()}"
    made = await client.jobs.create(name, handler="nobody")
    return made.create_time.seconds > time.time() + 3_000


async def test_disks_that_are_slow_or_full(tmp_path: Path, promtool: str) -> None:
    async with (
        handled(tmp_path) as (running, hand),
        AsyncClient(running.endpoints, timeout=10) as client,
    ):  # fmt: skip
        film = Film(running)
        await client.jobs.create("a", handler="nobody", schedule=cron("* * * * * *"))
        await film.minutes(1)

        slow = Failpoint("sleep", seconds=0.35)
        hand.set_all(Control(failpoints={"before-sync": slow}))
        await film.minutes(12)
        assert_fired(film, tmp_path, promtool, {"SyncSlow", "CommitSlow"}, silent={"DiskFull"})
        followed("RaftschedSyncSlow", running, tmp_path)
        followed("RaftschedCommitSlow", running, tmp_path)

        hand.set_all(Control())
        leader = await running.leader()
        full = next(name for name in running.nodes if name != leader)
        hand.set(full, Control(failpoints={"before-append": Failpoint("error", error="ENOSPC")}))
        await film.shows("raftsched_disk_full", bool)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"DiskFull"})
        followed("RaftschedDiskFull", running, tmp_path)


async def test_work_that_fails(tmp_path: Path, promtool: str) -> None:
    async with (
        handled(tmp_path) as (running, hand),
        AsyncClient(running.endpoints, timeout=10) as client, working(running.endpoints),
    ):  # fmt: skip
        film = Film(running)
        await client.jobs.create("fails", handler="fail", retry=Retry(attempts=1))
        await client.jobs.create("poisoned", handler="note", schedule=cron("* * * * * *"))
        await film.minutes(1)
        silent = {"DeadLetters", "BrokenJobs", "SetAside", "LoopBlocked"}
        assert_fired(film, tmp_path, promtool, set(), silent=silent)

        await client.jobs.trigger("fails")
        await film.shows("raftsched_dead_letters_total", bool)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"DeadLetters"}, silent={"BrokenJobs"})
        followed("RaftschedDeadLetters", running, tmp_path)

        hand.set_all(Control(poison="poisoned"))

        async def is_broken() -> bool:
            return (await client.cluster.status()).broken_jobs == 1

        await until(is_broken, 20)
        await film.shows("raftsched_broken_jobs", bool)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"BrokenJobs", "SetAside"}, silent={"LoopBlocked"})
        followed("RaftschedBrokenJobs", running, tmp_path)
        followed("RaftschedSetAside", running, tmp_path)

        hand.set_all(Control(failpoints={"before-apply": Failpoint("sleep", seconds=0.15)}))
        # Some of it on each node: a step that is too long may cost the leadership.
        for number in range(8):
            await client.jobs.create(f"more-{number}", handler="nobody")
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"LoopBlocked"})
        followed("RaftschedLoopBlocked", running, tmp_path)


async def test_a_member_that_stands_still_under_load(tmp_path: Path, promtool: str) -> None:
    async with (
        cluster(tmp_path) as running,
        AsyncClient(running.endpoints, timeout=10) as client,
    ):  # fmt: skip
        film = Film(running)
        leader = await running.leader()
        still = next(name for name in running.nodes if name != leader)
        running.nodes[still].pause()
        # One after the other, so that each is a change of its own.
        for number in range(1_200):
            await client.jobs.create(f"job-{number}", handler="nobody")
        await film.shows("raftsched_member_behind_entries", lambda value: value > 1_000)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"MemberBehind"}, hold=3)
        running.nodes[still].resume()
        followed("RaftschedMemberBehind", running, tmp_path)


# In front of the genuine package on one node: it says that it is of another version.
OTHER = """
from raftsched.cluster.ops import figures, make_node
from raftsched.cluster.node import peer_info
make_node.VERSION = "0.0.9"
peer_info.ZONE_EDITION = figures.ZONE_EDITION = "2020a"
"""


async def test_nodes_that_differ(tmp_path: Path, promtool: str) -> None:
    patched = tmp_path / "patched"
    patched.mkdir()
    (patched / "sitecustomize.py").write_text(OTHER)
    async with cluster(tmp_path) as running:
        leader = await running.leader()
        other = next(node for name, node in running.nodes.items() if name != leader)
        other.kill()
        other.environment |= {"PYTHONPATH": f"{patched}:{HOME}"}
        other.start()
        await running.serves(other.name)
        film = Film(running)
        await film.minutes(1)

        silent = {"VersionsDiffer", "ZoneDataDiffers"}
        assert_fired(film, tmp_path, promtool, set(), silent=silent)
        assert_fired(film, tmp_path, promtool, {"ZoneDataDiffers"}, hold=16)
        assert_fired(film, tmp_path, promtool, {"VersionsDiffer"}, hold=61)
        followed("RaftschedVersionsDiffer", running, tmp_path)
        followed("RaftschedZoneDataDiffers", running, tmp_path)
        # A node reads all its files again each hour, and nobody has seen an end of that.
        assert_fired(film, tmp_path, promtool, {"NotVerified"}, hold=6 * 60 + 5)
        followed("RaftschedNotVerified", running, tmp_path)


LITTLE = 'ulimit -n 50; exec "$@"'


async def test_a_node_with_little_of_everything(tmp_path: Path, promtool: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not small_disks_work(disk):
        pytest.skip("this system does not let us mount a small disk")
    nodes = NodeProcesses(
        disk, free_addresses(1), settings=(*SMALL, "--tokens", "--limits-failures", "5000")
    )
    [node] = nodes
    node.log = tmp_path / "n1.log"
    node.wrap = (
        "unshare", "-rm", "sh", "-c", MOUNT % "300m", "sh", str(disk), "sh", "-c", LITTLE, "sh"
    )  # fmt: skip
    running = Cluster(nodes)
    try:
        running.start()
        await running.ready()
        film = Film(running)
        async with AsyncClient(node.client, timeout=5) as client:

            async def call() -> None:
                while True:
                    # Nobody has made a token yet.
                    with suppress(RaftschedError):
                        await client.call(GetClusterStatusRequest(), retry=False)

            caller = asyncio.create_task(call())
            await film.minutes(12)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        assert_fired(film, tmp_path, promtool, {"DiskLow", "Refuses", "FewDescriptors"})
        followed("RaftschedDiskLow", running, tmp_path)
        followed("RaftschedRefuses", running, tmp_path)
        followed("RaftschedFewDescriptors", running, tmp_path)
    finally:
        running.end()


async def test_certificates_that_end(tmp_path: Path, promtool: str) -> None:
    authority = Authority.make(tmp_path / "tls", "test", 100)
    authority.issue("n1", ["n1", "127.0.0.1"], 10)
    files = {name: tmp_path / "tls" / "n1" / name for name in (CERTIFICATE, KEY, TRUST)}
    flags = (
        "--tls-peer-certificate-file", str(files[CERTIFICATE]),
        "--tls-peer-key-file", str(files[KEY]), "--tls-peer-ca-file", str(files[TRUST]),
    )  # fmt: skip
    nodes = NodeProcesses(tmp_path, free_addresses(1), settings=(*SMALL, *flags))
    running = Cluster(nodes)
    try:
        running.start()
        await running.ready()
        film = Film(running)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, set(), silent={"CertificateInvalid"})
        assert_fired(film, tmp_path, promtool, {"CertificateExpires"}, hold=61)
        followed("RaftschedCertificateExpires", running, tmp_path)

        running.end()
        authority.issue("n1", ["n1", "127.0.0.1"], 0)
        running.start()
        await running.ready()
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, {"CertificateInvalid"}, hold=2)
        more = {"FILE": str(written(tmp_path, nodes))}
        followed("RaftschedCertificateInvalid", running, tmp_path, more)
    finally:
        running.end()


def written(folder: Path, nodes: NodeProcesses) -> Path:
    """The configuration of its node as a file."""
    [node] = nodes
    shown = subprocess.run(
        [*PROGRAM_OF_CLIENT, "node", "config", "show", *node.arguments], capture_output=True,
        text=True, check=True, env=environment(), timeout=60,
    )  # fmt: skip
    file = folder / "node.toml"
    file.write_text(shown.stdout)
    return file


async def test_a_damaged_table(tmp_path: Path, promtool: str) -> None:
    async with cluster(tmp_path) as running:
        film = Film(running)
        leader = await running.leader()
        victim = next(node for name, node in running.nodes.items() if name != leader)
        await film.minutes(1)
        assert_fired(film, tmp_path, promtool, set(), silent={"Damage"})
        assert (await stop(victim))[0] == 0
        damage(tmp_path / victim.name, "CURRENT", 3)
        victim.start()
        await running.serves(victim.name)
        await film.minutes(1)

        assert_fired(film, tmp_path, promtool, {"Damage"})
        followed("RaftschedDamage", running, tmp_path)


async def test_a_node_that_the_others_do_not_trust(tmp_path: Path, promtool: str) -> None:
    Authority.make(tmp_path / "tls", "test", 100).issue("n1", ["n1", "n2", "n3"], 10)
    files = {name: str(tmp_path / "tls" / "n1" / name) for name in (CERTIFICATE, KEY, TRUST)}
    async with cluster(tmp_path) as running:
        film = Film(running)
        leader = await running.leader()
        apart = next(node for name, node in running.nodes.items() if name != leader)
        await film.minutes(1)
        apart.kill()
        apart.environment |= {
            "RAFTSCHED_NODE_TLS_PEER_CERTIFICATE_FILE": files[CERTIFICATE],
            "RAFTSCHED_NODE_TLS_PEER_KEY_FILE": files[KEY],
            "RAFTSCHED_NODE_TLS_PEER_CA_FILE": files[TRUST],
        }
        apart.start()
        await film.shows("raftsched_staleness_seconds", lambda value: value > 10)
        await film.minutes(1)

        assert_fired(film, tmp_path, promtool, {"NodeStale"}, silent={"NoLeader"}, hold=1)
        followed("RaftschedNodeStale", running, tmp_path, {"HOST:PORT": apart.client})
