"""`raftsched doctor`: what is wrong with this machine, the way to the cluster, or the cluster."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many
from ..times import rough_text
from .strain import strains

if TYPE_CHECKING:
    from ... import Client
    from ..messages import cluster_pb2

PACKAGES = ("raftsched", "grpcio", "protobuf", "rocksdict", "pysyncobj", "croniter", "tzdata")
FILES_WANTED = 4_096
FILES_LEAST = 1_024  # With fewer a node turns connections away.
SYNCS = 50
# A commit waits for this on two disks; beyond it lateness suffers.
SYNC_GOOD_MS = 10.0
SYNC_BAD_MS = 100.0
FREE_WANTED = 1 << 30
FREE_LEAST = 64 << 20  # Less than one piece of the journal.
SKEW_GOOD_MS = 500
CONNECT_S = 2.0
INDENT = 29  # Where the text of a finding begins.
STYLES = {"ok": "green", "warning": "yellow", "wrong": "red"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check came to."""

    check: str
    verdict: str
    text: str
    # What to do about it.
    then: str = ""


@command(
    None, "doctor",
    "raftsched doctor",
    "raftsched doctor --folder /var/lib/raftsched --listen 0.0.0.0:7400",
)  # fmt: skip
@click.option(
    "--folder",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="A folder for a node's data, whose disk is measured too.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="An address at which a node is to listen, which is tried; can be repeated.",
)
def doctor(session: Invocation, folder: str | None, listen: tuple[str, ...]) -> None:
    """Check this machine, the way to each node, and the cluster. Ends with 1 if anything is wrong.

    Nothing is changed. Without a cluster only this machine is judged.
    """
    findings: list[CheckResult] = []
    for finding in examine(session, folder, listen):
        findings.append(finding)
        if session.out.is_table:
            show(session, finding)
    if not session.out.is_table:
        session.out.records([asdict(finding) for finding in findings])
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    if wrong:
        raise Trouble(
            f"{len(wrong)} of {len(findings)} checks found something wrong", "", wrong[0].then,
            Exit.FAILED,
        )  # fmt: skip
    doubtful = sum(finding.verdict == "warning" for finding in findings)
    warned = f", {many(doubtful, 'warning')}" if doubtful else ""
    session.say(f"Nothing is wrong: {len(findings)} checks{warned}.")


def show(session: Invocation, finding: CheckResult) -> None:
    if session.out.for_person:
        mark = {"ok": "ok  ", "warning": "warn", "wrong": "FAIL"}[finding.verdict]
        line = session.out.folded(f"{mark}  {finding.check:<22} {finding.text}", INDENT)
        session.out.paint(mark, STYLES[finding.verdict], nl=False)
        echo(line[len(mark) :])
        if finding.then and finding.verdict != "ok":
            echo(session.out.folded(f"{'':{INDENT}}Try: {finding.then}", INDENT + 5))
    else:
        echo("\t".join((finding.verdict, finding.check, finding.text, finding.then)))


def examine(
    session: Invocation, folder: str | None, listen: tuple[str, ...]
) -> Iterator[CheckResult]:
    yield versions()
    yield open_files()
    for address in listen:
        yield port(address)
    if folder is not None:
        yield space(Path(folder))
        yield sync(Path(folder))
    yield from cluster(session)


# This machine.


def versions() -> CheckResult:
    found = [f"python {platform.python_version()}"]
    missing = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    if missing:
        return CheckResult("versions", "warning", f"not installed: {', '.join(missing)}",
                       "pip install raftsched")  # fmt: skip
    return CheckResult("versions", "ok", ", ".join(found))


def open_files() -> CheckResult:
    """A node raises the soft limit by itself, as far as the hard one goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} files and connections at once, {hard} where a node asks for more"
    if hard == resource.RLIM_INFINITY or hard >= FILES_WANTED:
        return CheckResult("open files", "ok", text)
    verdict = "wrong" if hard < FILES_LEAST else "warning"
    return CheckResult("open files", verdict, f"{text}; it wants {FILES_WANTED}",
                       "ulimit -Hn 65536 as root, LimitNOFILE=65536 in the unit")  # fmt: skip


def port(address: str) -> CheckResult:
    host, _, number = address.rpartition(":")
    try:
        kind, _, _, _, place = socket.getaddrinfo(
            host.strip("[]") or "0.0.0.0", int(number), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except (OSError, ValueError) as wrong:
        return CheckResult(f"port {address}", "wrong", f"cannot listen: {wrong}",
                       "stop what has the port, or choose another")  # fmt: skip
    return CheckResult(f"port {address}", "ok", "free")


def space(folder: Path) -> CheckResult:
    try:
        free, total = (disk := shutil.disk_usage(folder)).free, disk.total
    except OSError as wrong:
        return CheckResult("disk space", "wrong", str(wrong), f"mkdir -p {folder}")
    text = f"{free / 1e9:,.1f} of {total / 1e9:,.1f} GB free in {folder}"
    if free < FREE_LEAST:
        return CheckResult("disk space", "wrong", text, "make room: a full disk stops all writes")
    if free < FREE_WANTED:
        return CheckResult("disk space", "warning", text, "make room: a full disk stops all writes")
    return CheckResult("disk space", "ok", text)


def sync(folder: Path) -> CheckResult:
    """How long a small append takes until it is on the disk: each commit waits for that."""
    times = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".raftsched-doctor-") as file:
            for _ in range(SYNCS):
                began = perf_counter()
                file.write(b"x" * 4096)
                file.flush()
                os.fdatasync(file.fileno())
                times.append((perf_counter() - began) * 1000)
    except OSError as wrong:
        return CheckResult(
            "disk sync", "wrong", str(wrong), f"a folder that can be written, not {folder}"
        )
    times.sort()
    median, worst = times[len(times) // 2], times[-1]
    text = f"{median:.2f} ms median, {worst:.2f} ms worst of {SYNCS}"
    if median > SYNC_BAD_MS:
        return CheckResult("disk sync", "wrong", text, "a local SSD for the node's data")
    if median > SYNC_GOOD_MS:
        return CheckResult("disk sync", "warning", text, "a local SSD for the node's data")
    return CheckResult("disk sync", "ok", text)


# The cluster.


def cluster(session: Invocation) -> Iterator[CheckResult]:
    from ...sdk.endpoints import parse
    from .locks import certificates, strangers

    seen: list[cluster_pb2.ClusterStatus] = []
    with session.make_client() as client:
        for address in parse(session.endpoints):
            finding, status = reach(client, address)
            yield finding
            if status is not None:
                seen.append(status)
        yield from certificates(session, parse(session.endpoints))
        if seen:
            yield from strangers(session, parse(session.endpoints))
            yield from agreement(seen)
            for status in seen:
                for strain in strains(status, session.out.formats):
                    verdict = "warning" if strain.matters else "ok"
                    check = f"{strain.label.lower()} of {status.node}"
                    yield CheckResult(check, verdict, strain.text, strain.then)
            yield clock(client)


def reach(client: Client, address: str) -> tuple[CheckResult, cluster_pb2.ClusterStatus | None]:
    from ...sdk.errors import RaftschedError
    from ..refused import THEN

    name = f"node {address}"
    host, _, number = address.rpartition(":")
    began = perf_counter()
    try:
        socket.create_connection((host.strip("[]"), int(number)), CONNECT_S).close()
    except OSError as wrong:
        then = f"raftsched dev, or start the node that should listen on {address}"
        return CheckResult(name, "wrong", f"cannot connect: {wrong}", then), None
    try:
        status = client.call(
            m.cluster_pb2.GetClusterStatusRequest(), endpoint=address, retry=False,
            timeout=CONNECT_S * 2,
        )  # fmt: skip
    except RaftschedError as wrong:
        if wrong.reason:
            then = THEN.get(wrong.reason, "raftsched cluster status")
            return CheckResult(name, "wrong", f"refuses: {wrong.message}", then), None
        then = "is it a node of raftsched, and does it want TLS (--ca-file)?"
        return CheckResult(
            name, "wrong", f"listens, but does not answer: {wrong.message}", then
        ), None
    took = (perf_counter() - began) * 1000
    role = "leads" if status.leader == status.node else f"follows {status.leader or 'nobody'}"
    text = f"{status.node} {role}, term {status.term}, answered in {took:.0f} ms"
    if status.quorum:
        return CheckResult(name, "ok", text), status
    return CheckResult(
        name, "wrong", f"{text}; it sees no quorum", "start the nodes that are down"
    ), status


def agreement(seen: list[cluster_pb2.ClusterStatus]) -> Iterator[CheckResult]:
    """What the nodes say about each other and themselves."""
    first = seen[0]
    ids = {status.cluster_id for status in seen}
    if len(ids) > 1:
        yield CheckResult("one cluster", "wrong", f"the endpoints belong to {len(ids)} clusters: "
                      + ", ".join(sorted(ids)), "endpoints of one cluster only")  # fmt: skip
    voters = sum(node.role != m.cluster_pb2.Node.ROLE_LEARNER for node in first.nodes)
    text = f"can lose {first.margin} of {voters} nodes"
    if first.margin or voters == 1:
        yield CheckResult("margin", "ok" if first.margin else "warning", text,
                      "" if first.margin else "three nodes, which can lose one")  # fmt: skip
    else:
        yield CheckResult("margin", "warning", text, "start the nodes that are down")
    for name, values in (
        ("versions of nodes", {node.version for node in first.nodes if node.version}),
        ("builds of nodes", {node.build for node in first.nodes if node.build}),
        ("time zone data", {node.zone_edition for node in first.nodes if node.zone_edition}),
    ):
        verdict = "ok" if len(values) <= 1 else "warning"
        yield CheckResult(name, verdict, ", ".join(sorted(values)) or "not known",
                      "upgrade the older ones")  # fmt: skip
    yield keys_of(first)
    skews = [abs(node.clock_skew.ToMilliseconds()) for node in first.nodes]
    worst = max(skews, default=0)
    yield CheckResult("clocks of nodes", "ok" if worst <= SKEW_GOOD_MS else "wrong",
                  f"at most {rough_text(worst)} apart", "let NTP set their clocks")  # fmt: skip
    for problem in dict.fromkeys(problem for status in seen for problem in status.problems):
        yield CheckResult("problem", "wrong", problem, "raftsched cluster status")


def keys_of(status: cluster_pb2.ClusterStatus) -> CheckResult:
    """Whether whoever leads next could open the secrets too; keys are compared by their ids."""
    found = {node.name: tuple(node.key_ids) for node in status.nodes if node.version}
    if not any(found.values()):
        return CheckResult("keys for secrets", "ok", "none; nodes keep no secrets for targets")
    if len(set(found.values())) <= 1:
        return CheckResult("keys for secrets", "ok", ", ".join(next(iter(found.values()))))
    text = "; ".join(f"{name}: {', '.join(ids) or 'none'}" for name, ids in sorted(found.items()))
    then = "the same [secrets] key_file on all nodes, the same key first"
    return CheckResult("keys for secrets", "warning", f"they differ: {text}", then)


def clock(client: Client) -> CheckResult:
    """Compare with the leader's clock: an interval without an anchor counts from its present."""
    from ...sdk.errors import RaftschedError

    request = m.job_pb2.PreviewScheduleRequest(namespace="default", job="doctor", count=1)
    request.schedules.add().interval.every.FromSeconds(1)
    before = time()
    try:
        answer = client.call(request, timeout=CONNECT_S * 2)
    except RaftschedError as wrong:
        return CheckResult("this clock", "warning", f"not compared: {wrong.message}",
                       "raftsched cluster status")  # fmt: skip
    middle = (before + time()) / 2 * 1000
    skew = round(answer.occurrences[0].scheduled_time.ToMilliseconds() - 1000 - middle)
    text = f"{rough_text(skew)} {'behind' if skew > 0 else 'ahead of'} the cluster"
    verdict = "ok" if abs(skew) <= SKEW_GOOD_MS else "warning"
    return CheckResult("this clock", verdict, text, "let NTP set this machine's clock")
