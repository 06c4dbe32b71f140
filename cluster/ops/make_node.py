"""Makes the node that the settings speak of, or says why there can be none."""

from __future__ import annotations

import time
from importlib import metadata
from pathlib import Path

import structlog

from ...statemachine.core.rocks_store import StoreLocked
from ...statemachine.core.store import Corrupt
from ...statemachine.model.record import UnknownFormat
from ..node import damage
from ..node.node import Node
from ..node.node_spec import MemberAddresses, NodeSpec
from ..node.secret_keys import KeysWrong, SecretKeys
from ..node.virtual_clock import NoClock, VirtualClock
from ..raft import faults
from ..raft.journal import JournalLimits
from . import listen, probe, tls
from .config import Config, ConfigWrong
from .config_checks import is_loopback
from .data_dir import explained
from .exits import NodeCannotStart, NodeExit

# How often a node whose journal is damaged looks whether the others lead, and how soon again: after
# an outage of all they need a moment.
RENEW_TRIES = 6
RENEW_SECONDS = 1.0
# Log or state hold what only a newer version understands.
NEWER = (faults.Unsupported, UnknownFormat)
VERSION = metadata.version("raftsched")

logs = structlog.get_logger("raftsched.cluster.ops.make_node")


def virtual_clock(config: Config, file: Path) -> VirtualClock:
    """The clock of a test, if this node can be that of a test."""
    faults = [
        f"--virtual-clock is for tests on one machine, and {key} = {address!r} is open beyond it; "
        "leave the flag out, or listen on 127.0.0.1"
        for key, address in listen.of(config).items()
        if not is_loopback(address)
    ]
    if faults:
        raise ConfigWrong(faults)
    try:
        return VirtualClock(file)
    except NoClock as error:
        raise ConfigWrong(
            [f"--virtual-clock {file} is no clock ({error}); leave the flag out: "
             "LocalCluster(virtual_clock=True) of raftsched.client.testing sets it by itself"]
        ) from error  # fmt: skip


def renew_disk(spec: NodeSpec, damaged: faults.Damaged) -> None:
    """Set a disk aside whose journal is damaged, if the others are a majority and one of them
    leads; else raise what was found. It may have forgotten a vote or an entry that it acknowledged,
    so it may not speak again: an empty one learns all, and has no vote before."""
    addresses = {name: member.peer for name, member in spec.members.items()}
    for attempt in range(RENEW_TRIES):
        if attempt:
            time.sleep(RENEW_SECONDS)
        if leader := probe.leader_of_majority(spec.name, addresses, spec.contexts):
            damage.set_aside(spec.folder, damage.OF_THE_DISK, str(damaged))
            logs.critical("begins with an empty disk, since its journal is damaged", leader=leader)
            return
    raise damaged


def make_node(config: Config, contexts: tls.Contexts, virtual: VirtualClock | None) -> Node:
    members = {
        name: MemberAddresses(peer=member.peer, client=member.client)
        for name, member in config.members.items()
    }
    try:
        secret_keys = SecretKeys(config.secrets.key_file, config.secrets.key_command)
    except KeysWrong as error:
        raise ConfigWrong([str(error)]) from error
    spec = NodeSpec(
        name=config.name,
        cluster=config.cluster,
        folder=Path(config.folder),
        members=members,
        listen_peer=config.listen_peer,
        tokens=config.tokens,
        version=VERSION,
        heartbeat_ms=config.heartbeat_ms,
        cache_bytes=config.cache_mb << 20,
        journal=JournalLimits(segment=config.segment_mb << 20),
        scrub_rate=config.scrub_mb_per_second << 20,
        contexts=contexts,
        virtual=virtual,
        secret_keys=secret_keys,
    )
    try:
        with explained(spec.folder):
            try:
                return Node(spec)
            except faults.Damaged as error:
                renew_disk(spec, error)
                return Node(spec)
    except faults.Damaged as error:
        raise NodeCannotStart(NodeExit.DAMAGED, str(error)) from error
    except faults.FileLimit as error:
        raise NodeCannotStart(NodeExit.FILE_LIMIT, str(error)) from error
    except NEWER as error:
        raise NodeCannotStart(NodeExit.NEWER_FORMAT, str(error)) from error
    except faults.CallRefused as error:
        raise NodeCannotStart(NodeExit.FOLDER_LOCKED, str(error)) from error
    except StoreLocked as error:
        raise NodeCannotStart(NodeExit.FOLDER_LOCKED, str(error)) from error
    except Corrupt as error:
        story = f"{error}; empty the folder, and the node fetches all anew from the others"
        raise NodeCannotStart(NodeExit.DAMAGED, story) from error
