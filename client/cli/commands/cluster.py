"""`raftsched cluster`: nodes, leadership, snapshots, health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble
from ..lazy import ExampleGroup
from ..names import NODE
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many
from .rolling import rolling_restart, upgrade
from .strain import steps, strains

if TYPE_CHECKING:
    from ..messages import cluster_pb2

INDENT = 10  # Behind the labels of a summary.
ELECTIONS_SHOWN = 20
# By Election.Reason: why another one leads.
WHY = {
    1: ", as {before} handed over", 2: ", as the connection to {before} was lost",
    3: ", as {before} was silent",
}  # fmt: skip
VERIFY_WAIT_MS = 1_000  # Between two words of how far a check is.


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched cluster status",
        "raftsched cluster transfer node-2",
        "raftsched cluster add node-4 --peer 10.0.0.4:7500 --client 10.0.0.4:7400",
    ),
)
def cluster() -> None:
    """The cluster: its nodes, who leads, whether all is well."""


@command(
    cluster, "status",
    "raftsched cluster status",
    "raftsched cluster status --endpoints node-3:7400 -o json",
)  # fmt: skip
def status(session: Invocation) -> None:
    """Show the cluster as one node sees it. Ends with 4 when there is no quorum."""
    seen = ask_status(session, "get the cluster's status")
    if session.out.is_table:
        for line in summary(session, seen) if session.out.for_person else ():
            echo(session.out.folded(line, INDENT))
        session.out.items(seen.nodes, seen)
        notes = [] if session.out.for_person else strains(seen, session.out.formats)
        print_notes(session, (f"Note: {note}" for note in notes))
        print_problems(session, seen)
    elif session.out.format in ("jsonl", "name"):
        session.out.items(seen.nodes, seen)
    else:
        session.out.one(seen)
    if not seen.quorum:
        raise Trouble(
            f"node {seen.node} sees no quorum", "it reaches less than half of the voters",
            "start the nodes that are down; ask another node with --endpoints", Exit.UNREACHABLE,
        )  # fmt: skip


def print_problems(session: Invocation, seen: cluster_pb2.ClusterStatus) -> None:
    print_notes(session, map("Problem: {}".format, seen.problems))


def print_notes(session: Invocation, lines: Iterable[str]) -> None:
    for line in lines:
        session.out.paint(session.out.folded(line, 2), "yellow", err=True)


def ask_status(session: Invocation, doing: str) -> cluster_pb2.ClusterStatus:
    request = m.cluster_pb2.GetClusterStatusRequest()
    return session.ask(request, m.cluster_pb2.ClusterStatus, doing)


def _strain(session: Invocation, seen: cluster_pb2.ClusterStatus) -> Iterator[str]:
    formats = session.out.formats
    for strain in strains(seen, formats):
        yield f"{strain.label:<{INDENT}}{strain}"
        if strain.label == "Loop" and session.out.format == "wide":
            yield from (f"{'':{INDENT}}{step}" for step in steps(seen, formats))


def _elections(session: Invocation, seen: cluster_pb2.ClusterStatus) -> Iterator[str]:
    """Who came to lead within the last day: the last of them; more by -o wide."""
    found = seen.elections[: ELECTIONS_SHOWN if session.out.format == "wide" else 1]
    for place, one in enumerate(found):
        count = f"{many(len(seen.elections), 'election')} within a day; " if not place else ""
        why = WHY.get(one.reason, "").format(before=one.before or "the leader before")
        at = session.out.formats.time(one.time)
        label = "" if place else "Elections"
        yield f"{label:<{INDENT}}{count}{at} {one.leader} in term {one.term}{why}"


def summary(session: Invocation, seen: cluster_pb2.ClusterStatus) -> list[str]:
    formats = session.out.formats
    since = f" since {formats.time(seen.leader_since)}" if seen.HasField("leader_since") else ""
    snapshot = formats.time(seen.snapshot_time) if seen.HasField("snapshot_time") else "none yet"
    may_fail = f"can lose {many(seen.margin, 'node')}" if seen.margin else "can lose no node"
    return [
        f"Cluster   {seen.cluster_id}, as node {seen.node} sees it",
        f"Leader    {seen.leader or 'none'}{since}, term {seen.term}",
        f"Quorum    {'yes' if seen.quorum else 'NO'}; {may_fail}",
        *_elections(session, seen),
        *_strain(session, seen),
        f"Load      {many(seen.jobs, 'job')}, {many(seen.live_runs, 'run')} under way, "
        f"{many(seen.workers, 'worker')}" + (f", backlog {seen.backlog:,}" if seen.backlog else ""),
        f"History   revision {seen.revision}, watchable since {seen.oldest_revision}, "
        f"snapshot {snapshot}",
        "",
    ]


@command(
    cluster, "add",
    "raftsched cluster add node-4 --peer 10.0.0.4:7500 --client 10.0.0.4:7400",
    writes=True,
)  # fmt: skip
@click.argument("node")
@click.option(
    "--peer", required=True, metavar="HOST:PORT", help="The address at which other nodes reach it."
)
@click.option(
    "--client", required=True, metavar="HOST:PORT", help="The address at which clients reach it."
)
def add(session: Invocation, node: str, peer: str, client: str) -> None:
    """Add a node. It learns first, and votes once it has caught up.

    Start it before, with an empty folder and a configuration that lists the members of the cluster
    and itself: it says who it is, and waits to be added.
    """
    request = session.write(
        m.cluster_pb2.AddNodeRequest(name=node, peer_address=peer, client_address=client)
    )
    after = session.ask(request, m.cluster_pb2.ClusterStatus, f"add node {node}")
    session.done(after, f"Node {node} added; it learns now.", then="raftsched cluster status")


@command(
    cluster, "remove", "raftsched cluster remove node-4 --yes", writes=True, destroys=True
)  # fmt: skip
@click.argument("node", type=NODE)
def remove(session: Invocation, node: str) -> None:
    """Remove a node; it is notified and stops."""
    session.confirm(f"Remove node {node} from the cluster?")
    request = session.write(m.cluster_pb2.RemoveNodeRequest(node=node))
    after = session.ask(request, m.cluster_pb2.ClusterStatus, f"remove node {node}")
    left = sum(one.name != node for one in after.nodes)  # A dry run has it still.
    session.done(after, f"Node {node} removed; {many(left, 'node')} left.")
    print_problems(session, after)


@command(
    cluster, "move", "raftsched cluster move node-2 --peer 10.0.0.9:7500", writes=True
)  # fmt: skip
@click.argument("node", type=NODE)
@click.option(
    "--peer", default="", metavar="HOST:PORT", help="The address at which other nodes reach it."
)
@click.option(
    "--client", default="", metavar="HOST:PORT", help="The address at which clients reach it."
)
def move(session: Invocation, node: str, peer: str, client: str) -> None:
    """Say that a node has other addresses; its name and state stay."""
    if not (peer or client):
        raise click.UsageError("Say --peer or --client or both.")
    request = session.write(
        m.cluster_pb2.MoveNodeRequest(node=node, peer_address=peer, client_address=client)
    )
    after = session.ask(request, m.cluster_pb2.ClusterStatus, f"move node {node}")
    session.done(after, f"Node {node} moved.", then="raftsched cluster status")


@command(cluster, "drain", "raftsched cluster drain node-2", writes=True)
@click.argument("node", type=NODE)
@click.option("--resume", is_flag=True, help="It serves again.")
def drain(session: Invocation, node: str, resume: bool) -> None:
    """Free a node of its duties before it is stopped. It still votes and keeps its copy."""
    request = session.write(m.cluster_pb2.DrainNodeRequest(node=node, resume=resume))
    after = session.ask(request, m.cluster_pb2.ClusterStatus, f"drain node {node}")
    text = f"Node {node} serves again." if resume else f"Node {node} drains; {after.leader} leads."
    session.done(after, text, then="" if resume else f"raftsched cluster drain {node} --resume")


@command(
    cluster, "transfer", "raftsched cluster transfer", "raftsched cluster transfer node-2",
    writes=True,
)  # fmt: skip
@click.argument("node", type=NODE, default="", metavar="[NODE]")
def transfer(session: Invocation, node: str) -> None:
    """Hand the leadership over, to a node or to the follower that is furthest."""
    request = session.write(m.cluster_pb2.TransferLeadershipRequest(node=node))
    after = session.ask(request, m.cluster_pb2.ClusterStatus, "hand the leadership over")
    session.done(after, f"{after.leader or 'The new leader'} leads now, term {after.term}.")


@command(
    cluster, "snapshot", "raftsched cluster snapshot --endpoints node-3:7400", writes=True
)  # fmt: skip
def snapshot(session: Invocation) -> None:
    """Make a snapshot on the node that is asked, now."""
    request = session.write(m.cluster_pb2.TakeSnapshotRequest())
    made = session.ask(request, m.cluster_pb2.TakeSnapshotResponse, "take a snapshot")
    session.done(made, f"Snapshot of revision {made.revision}, {made.size / 1e6:,.1f} MB.")


@command(
    cluster, "set-time", "raftsched cluster set-time --dry-run", "raftsched cluster set-time --yes",
    writes=True, destroys=True,
)  # fmt: skip
def set_time(session: Invocation) -> None:
    """Set the state's time back to what the clocks say, after clocks that were ahead moved it.

    Until then nothing scheduled fires. What was decided ahead of its time will not come again;
    --dry-run says how much that is. Jobs that decided so stand still until then, or until they
    are resumed.
    """
    session.confirm("Set the state's time back? What was decided meanwhile does not come again.")
    request = session.write(m.cluster_pb2.SetStateTimeRequest())
    kind = m.cluster_pb2.SetStateTimeResponse
    made = session.ask(request, kind, "set the state's time back")
    formats = session.out.formats
    goes, moves = ("would go", "would move") if session.dry_run else ("went", "move")
    session.done(
        made,
        f"The state's time {goes} from {formats.time(made.from_time)} back to "
        f"{formats.time(made.to_time)}.\n"
        f"{many(made.scheduled_times, 'scheduled time')} of {many(made.jobs, 'job')} in between, "
        "decided already, will not fire again.\n"
        "Such a job stands still until its last such time; 'raftsched job explain NAME' says\n"
        "until when, 'raftsched job resume NAME' brings it back.\n"
        f"Timers of {many(made.runs, 'run')} that were set by the later time {moves} back with it.",
        then="raftsched cluster set-time" if session.dry_run else "raftsched cluster status",
    )


@command(
    cluster, "backup",
    "raftsched cluster backup nightly.tar",
    "raftsched cluster backup nightly.tar --force --endpoints node-3:7400",
)  # fmt: skip
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="FILE is replaced if it is there.")
def backup(session: Invocation, file: Path, force: bool) -> None:
    """Write the state of the node that is asked to FILE, while it runs.

    FILE is there only once all of it has been written, synced and compared with its checksums. It
    holds payloads and hashes of secrets, so it can be read by its owner only. To put it back:
    raftsched cluster restore --help, or raftsched node restore --help if the cluster is lost.
    """
    from .backup import save

    saved = save(session, file, force=force)
    session.say(
        f"Backup of {saved.cluster} at revision {saved.revision}, as {saved.node} has it: "
        f"{many(saved.files, 'file')}, {saved.size / 1e6:,.1f} MB, verified."
    )
    if not session.out.is_table:
        echo(saved.text())


@command(
    cluster, "restore",
    "raftsched cluster restore nightly.tar",
    "raftsched cluster restore nightly.tar --yes",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--other-cluster", is_flag=True, help="FILE is of a cluster with another name.")
def restore(session: Invocation, file: Path, *, other_cluster: bool) -> None:
    """Put the backup in FILE in the place of the state, while the cluster runs.

    No node is stopped; members and their addresses stay. All else is as it was when the backup was
    made, access tokens too. Runs that were under way then are done again; times that were missed
    since are treated by each job's misfire policy.
    """
    from .backup import AHEAD_MS, ahead_ms, put_back, verify

    kept = verify(file, str(file))
    holds = (
        f"{many(kept.jobs, 'job')}, {many(kept.live_runs or 0, 'run')} under way"
        if kept.jobs is not None else "jobs and runs not counted"
    )  # fmt: skip
    session.say(
        f"{file}: cluster {kept.cluster} at revision {kept.revision}, as {kept.node} had it at "
        f"{kept.time}: {holds}, {kept.size / 1e6:,.1f} MB, verified."
    )
    if (ahead_ms(kept.time) or 0) > AHEAD_MS:
        session.out.paint(
            f"Its time, {kept.time}, is ahead of this machine's clock: one of the two is wrong. "
            f"Go by the revision, {kept.revision}.",
            "yellow", err=True,
        )  # fmt: skip
    session.confirm(
        f"Put it in the place of the state? What came after revision {kept.revision} "
        f"({kept.time}) is lost."
    )
    if session.dry_run:
        if not session.out.is_table:
            echo(kept.text())
        return
    made = put_back(session, file, kept, other_cluster=other_cluster)
    session.done(
        made,
        f"The cluster goes on from the backup, at revision {made.revision}: "
        f"{many(made.jobs, 'job')}, {many(made.live_runs, 'run')} that were under way. Revision "
        f"{made.former_revision} was replaced on all nodes.",
        then="raftsched cluster verify",
    )


@command(
    cluster, "verify", "raftsched cluster verify", "raftsched cluster verify --repair",
    writes=True,
)  # fmt: skip
@click.option(
    "--repair", is_flag=True, help="What is derived and wrong is mended; on the leader only."
)
def verify(session: Invocation, repair: bool) -> None:
    """Compute every derived table anew and compare; compare the nodes' fingerprints.

    It takes as long as the state is large. A check that goes on already is joined, and Ctrl-C ends
    one for which nobody else waits. Ends with 1 when something differs.
    """
    found = verified(session, repair=repair)
    result = "sound" if found.sound else f"NOT SOUND: {many(found.difference_count, 'difference')}"
    session.done(found, f"{found.records:,} records at revision {found.revision}: {result}.")
    if session.out.is_table:
        for difference in found.differences:
            echo(difference)
        prints = found.fingerprints
        same = len(set(prints.values())) == 1
        for node in sorted(prints):
            echo(f"{node}\t{prints[node]}")
        if prints and not same:
            session.out.paint("The nodes differ.", "red", err=True)
        members = session.ask(
            m.cluster_pb2.GetClusterStatusRequest(), m.cluster_pb2.ClusterStatus, "list the nodes"
        ).nodes
        silent = ", ".join(sorted(one.name for one in members if one.name not in prints))
        if silent:
            session.out.paint(
                f"Not compared, since they do not answer: {silent}.", "yellow", err=True
            )
        if found.repaired:
            session.say(f"{found.repaired} repaired.")
    if not found.sound:
        raise Trouble(
            "the state is not sound", many(found.difference_count, 'difference'),
            "raftsched cluster verify --repair --endpoints LEADER" if not repair else "",
        )  # fmt: skip


def verified(session: Invocation, *, repair: bool) -> cluster_pb2.VerifyStateResponse:
    """What a check of one node's state comes to, however long it takes."""
    from ..refused import refusals
    from ..render.progress import bar

    request = session.write(m.cluster_pb2.VerifyStateRequest(repair=repair))
    request.wait.FromMilliseconds(VERIFY_WAIT_MS)
    looked, endpoint, doing = 0, "", "verify the state"
    with refusals(session, doing), bar("Verify, places looked at", None) as advance:
        while True:
            answer = session.client.ask(request, timeout=session.timeout_s, endpoint=endpoint)
            found = answer.message
            assert isinstance(found, m.cluster_pb2.VerifyStateResponse), found
            if not found.running:
                return found
            if not endpoint:
                by = f", for {found.caller}" if found.caller else ""
                since = found.begin_time.ToJsonString()
                session.say(f"{answer.endpoint} checks its state since {since}{by}.")
            # Another node would begin another check.
            endpoint = answer.endpoint
            advance(found.looked - looked)
            looked = found.looked


cluster.add_command(rolling_restart)
cluster.add_command(upgrade)
