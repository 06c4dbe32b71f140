"""`raftsched cluster rolling-restart` and `upgrade`: one node after the other, the leader last.

Each is drained, restarted by a command of the operator's, and looked at until it is as it was
before; then comes the next. Whatever is not well ends it, with the nodes that are left as they are.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..options import command
from ..session import Invocation, many
from ..times import Length

if TYPE_CHECKING:
    from ..messages import cluster_pb2

LOOK_S = 0.25
# A node's last words may take so long; one look at all of them.
LOOK_MOST_S = 5.0
SETTLE_LEAST_MS = 2_000
# Entries. A node that follows is a few behind, but what another knows of it is up to two seconds
# old, in which a busy cluster writes thousands.
BEHIND_MOST = 10_000
OUTPUT_SHOWN = 2_000  # Of what the command wrote, where it failed.
# A node says itself where it is, so that must not be read as an option.
BY_UNIT = 'ssh -- "$NODE_HOST" sudo systemctl restart {unit}'


@dataclass(frozen=True, slots=True)
class Restarting:
    """How each node is restarted, and how long that may take."""

    hook: str
    wait_s: float
    settle_s: float
    # What it must run afterwards: a version or a build. Empty: anything.
    wanted: str = ""


def how(body: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands."""
    for option in (
        click.option(
            "--node", "only", multiple=True, metavar="NAME",
            help="Only this node; can be repeated.",
        ),
        click.option(
            "--settle", type=Length(), default="5s", show_default=True, metavar="DURATION",
            help="How long all must be well before the next one.",
        ),
        click.option(
            "--wait", type=Length(), default="5m", show_default=True, metavar="DURATION",
            help="What a node may take to come back.",
        ),
        click.option(
            "--unit", metavar="NAME",
            help="The unit of systemd that is restarted over ssh, in place of --hook.",
        ),
        click.option(
            "--hook", metavar="COMMAND",
            help="What restarts a node, run by sh here; it finds NODE, NODE_HOST and "
            "NODE_ADDRESS in its environment.",
        ),
    ):  # fmt: skip
        body = option(body)
    return body


@command(
    None, "rolling-restart",
    "raftsched cluster rolling-restart --unit raftsched-node --yes",
    "raftsched cluster rolling-restart --hook 'kubectl delete pod \"$NODE\"' --yes",
    writes=True, destroys=True,
)  # fmt: skip
@how
def rolling_restart(
    session: Invocation, hook: str | None, unit: str | None, wait: int, settle: int,
    only: tuple[str, ...],
) -> None:  # fmt: skip
    """Restart the nodes one after the other, the leader last, while the cluster works.

    Each is drained, restarted and looked at until it serves again and has caught up. It stops
    where something is not well; typed again, it begins anew.
    """
    roll(session, restarting(hook, unit, wait, settle, ""), only)


@command(
    None, "upgrade",
    "raftsched cluster upgrade --to 0.2.0 --hook './install-and-restart.sh' --yes",
    "raftsched cluster upgrade --to 0.1.0 --hook './install-and-restart.sh' --yes",
    writes=True, destroys=True,
)  # fmt: skip
@click.option(
    "--to", required=True, metavar="VERSION",
    help="The version, or build, that each must run then. The one before goes back.",
)  # fmt: skip
@how
def upgrade(
    session: Invocation, to: str, hook: str | None, unit: str | None, wait: int, settle: int,
    only: tuple[str, ...],
) -> None:  # fmt: skip
    """Bring all nodes to a version, one after the other, the leader last.

    As rolling-restart, with a command that also installs the version. Nodes that run it already
    are passed over, so what was stopped is gone on with by the same command. To take it back, name
    the version before: it works until all nodes run the new one, and one version back after that.
    """
    roll(session, restarting(hook, unit, wait, settle, to), only)


def restarting(
    hook: str | None, unit: str | None, wait: int, settle: int, wanted: str
) -> Restarting:
    if bool(hook) == bool(unit):
        raise wrong_use(
            "it takes one command that restarts a node",
            "both --hook and --unit were given" if hook else "neither --hook nor --unit was given",
            "--unit raftsched-node\n--hook 'ssh \"$NODE_HOST\" ...'",
        )
    if settle < SETTLE_LEAST_MS:
        raise wrong_use(
            f"cannot look for {settle / 1000:g} s only",
            "what nodes know of each other is up to two seconds old", "--settle 2s",
        )  # fmt: skip
    return Restarting(hook or BY_UNIT.format(unit=unit), wait / 1000, settle / 1000, wanted)


def roll(session: Invocation, task: Restarting, only: tuple[str, ...]) -> None:
    seen = status(session)
    if faults := not_well(seen):
        raise Trouble(
            "the cluster is not well, so no node is stopped", faults, "raftsched doctor",
            Exit.CONFLICT,
        )  # fmt: skip
    names = in_order(seen, task, only)
    if not names:
        session.say(f"All nodes run {task.wanted} already." if task.wanted else "No node to do.")
        return
    session.confirm(f"Restart {', '.join(names)}, in this order, by: {task.hook}?")
    if session.dry_run:
        session.say(f"It would restart {', '.join(names)}, in this order.")
        return
    began = time.monotonic()
    for number, name in enumerate(names, 1):
        one_node(session, task, name, f"{number} of {len(names)}", names[number:])
    took = time.monotonic() - began
    session.say(f"{many(len(names), 'node')} done in {took:.0f} s; all is well.")


def in_order(seen: cluster_pb2.ClusterStatus, task: Restarting, only: tuple[str, ...]) -> list[str]:
    """Whom to restart: followers by name, the leader last."""
    known = {node.name for node in seen.nodes}
    if unknown := [name for name in only if name not in known]:
        raise Trouble(
            f"there is no node {unknown[0]}", f"the cluster has {', '.join(sorted(known))}",
            "raftsched cluster status", Exit.NOT_FOUND,
        )  # fmt: skip
    names = [
        node.name for node in seen.nodes
        if (not only or node.name in only) and not (task.wanted and runs(node, task.wanted))
    ]  # fmt: skip
    return sorted(names, key=lambda name: (name == seen.leader, name))


def one_node(session: Invocation, task: Restarting, name: str, place: str, left: list[str]) -> None:
    """Drain it, restart it, see that all is as well as before."""
    before = status(session)
    began = time.monotonic()
    request = session.write(m.cluster_pb2.DrainNodeRequest(node=name))
    after = session.ask(request, m.cluster_pb2.ClusterStatus, f"drain node {name}")
    session.say(f"{name} ({place}) drains; {after.leader or 'nobody'} leads.")
    try:
        why = restarted_by(task, next(node for node in before.nodes if node.name == name))
    except KeyboardInterrupt:
        session.say(
            f"{name} drains still if it was not restarted; raftsched cluster drain {name} --resume "
            "lets it serve again."
        )
        raise
    if why:
        state = "it serves again"
        try:
            resume(session, name)
        except Trouble as trouble:
            state = f"it may drain still: {trouble.format_message()}"
        raise stopped(name, left, [f"the command that restarts it failed, and {state}", why])
    came = until_well(session, task, name)
    if came:
        raise stopped(name, left, came)
    took = time.monotonic() - began
    session.say(f"{name} ({place}) is back after {took:.1f} s and has caught up.")


def restarted_by(task: Restarting, node: cluster_pb2.Node) -> str:
    """Run the command; why it failed, or nothing."""
    host = node.client_address.rpartition(":")[0].strip("[]")
    given = {"NODE": node.name, "NODE_HOST": host, "NODE_ADDRESS": node.client_address}
    # Not a pipe: a node that it starts in the background would hold that for as long as it lives.
    with tempfile.TemporaryFile() as written:
        try:
            done = subprocess.run(
                ["sh", "-c", task.hook], env=os.environ | given, timeout=task.wait_s, check=False,
                stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"it did not end within {task.wait_s:.0f} s: {task.hook}"
        if done.returncode == 0:
            return ""
        written.seek(-min(OUTPUT_SHOWN, written.seek(0, os.SEEK_END)), os.SEEK_END)
        wrote = written.read(OUTPUT_SHOWN).decode(errors="replace").strip()
    return f"it ended with {done.returncode}: {task.hook}" + (f"\n{wrote}" if wrote else "")


def until_well(session: Invocation, task: Restarting, name: str) -> list[str]:
    """Wait until all nodes are well for a while, this one among them; what is not, if it takes too
    long. A node that drains still was never restarted: a start forgets it."""
    give_up = time.monotonic() + task.wait_s
    well_since: float | None = None
    while True:
        now = time.monotonic()
        faults = faults_now(session, task, name)
        if faults:
            well_since = None
        elif well_since is None:
            well_since = now
        if well_since is not None and now - well_since >= task.settle_s:
            return []
        if now > give_up:
            return [f"after {task.wait_s:.0f} s:", *faults]
        time.sleep(LOOK_S)


def faults_now(session: Invocation, task: Restarting, name: str) -> list[str]:
    from ...sdk.errors import RaftschedError

    request = m.cluster_pb2.GetClusterStatusRequest()
    try:
        seen = session.client.call(request, timeout=LOOK_MOST_S)
        faults = not_well(seen)
        node = next((one for one in seen.nodes if one.name == name), None)
        if node is None:
            return [*faults, f"{name} is no member any more"]
        # What others know of it is a second old.
        itself = session.client.call(
            request, endpoint=node.client_address, retry=False, timeout=LOOK_MOST_S
        )
    except RaftschedError as error:
        return [error.message]
    node = next(one for one in itself.nodes if one.name == name)
    if not node.serving:
        faults.append(f"{name} says that it does not serve; was it restarted at all?")
    if not itself.leader:
        faults.append(f"{name} knows no leader")
    if task.wanted and node.version and not runs(node, task.wanted):
        faults.append(f"{name} runs {node.version}, build {node.build}, and not {task.wanted}")
    return faults


def not_well(seen: cluster_pb2.ClusterStatus) -> list[str]:
    """Why no node may be stopped now."""
    faults = []
    voters = sum(node.role != m.cluster_pb2.Node.ROLE_LEARNER for node in seen.nodes)
    if not seen.leader:
        faults.append("nobody leads")
    if not seen.quorum:
        faults.append(f"{seen.node} sees no quorum")
    if voters > 2 and not seen.margin:
        faults.append("no node may be lost now")
    for node in seen.nodes:
        if not node.reachable and node.name != seen.node:
            faults.append(f"{node.name} is not reachable from {seen.node}")
        elif not node.serving:
            faults.append(f"{node.name} does not serve: it starts, drains, or its state differs")
        elif node.applied_index and seen.commit_index - node.applied_index > BEHIND_MOST:
            faults.append(f"{node.name} is {seen.commit_index - node.applied_index} entries behind")
    return faults


def runs(node: cluster_pb2.Node, wanted: str) -> bool:
    return wanted in (node.version, node.build)


def status(session: Invocation) -> cluster_pb2.ClusterStatus:
    request = m.cluster_pb2.GetClusterStatusRequest()
    return session.ask(request, m.cluster_pb2.ClusterStatus, "get the cluster's status")


def resume(session: Invocation, name: str) -> None:
    request = session.write(m.cluster_pb2.DrainNodeRequest(node=name, resume=True))
    session.ask(request, m.cluster_pb2.ClusterStatus, f"let node {name} serve again")


def stopped(name: str, left: list[str], why: list[str]) -> Trouble:
    rest = f"not touched: {', '.join(left)}" if left else "it was the last one"
    return Trouble(
        f"stopped at {name}", [*why, rest],
        f"raftsched cluster status\nthe log of {name}, then the same command again", Exit.FAILED,
    )  # fmt: skip
