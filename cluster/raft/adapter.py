"""The adapter to PySyncObj: term, vote and role of a node, held in a SyncObj that is shut.

Of PySyncObj run `SyncObj.__init__`, `__setState` and `__setCurrentTerm`: its constructor and some
eight lines. Log, messages, elections, snapshots and membership are our own, in the files beside
this one: its handlers depend on each other's mistakes (its truncation is what makes its commit
rule safe), so a patched one could not be read without the original beside it.

PySyncObj looks its private methods up through the instance, so a subclass shuts one by giving it
the mangled name. Nothing outside this file has that instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pysyncobj.syncobj as audited
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from .faults import Broken, CallRefused

# The file that was read line by line. Another one may look the same and behave differently.
AUDITED_SHA256 = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"

FOLLOWER = audited._RAFT_STATE.FOLLOWER
CANDIDATE = audited._RAFT_STATE.CANDIDATE
LEADER = audited._RAFT_STATE.LEADER
ROLES = {FOLLOWER: "follower", CANDIDATE: "candidate", LEADER: "leader"}


def check_audited() -> None:
    """Refuse to start on a PySyncObj that nobody has read."""
    path = Path(audited.__file__)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != AUDITED_SHA256:
        raise CallRefused(
            f"{path} is not the file of pysyncobj 0.3.17 that this release was proven with: its "
            f"SHA-256 is {found}, expected {AUDITED_SHA256}. Install pysyncobj==0.3.17 unchanged."
        )


class VoteStore(Protocol):
    """Where term and vote are written down."""

    term: int
    vote: str | None

    def set_term(self, term: int, vote: str | None) -> None: ...


class _Silent(Transport):  # type: ignore[misc]  # PySyncObj has no types.
    """A transport that says nothing: messages leave through the outbox."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    @property
    def ready(self) -> bool:
        return True


class _LogView:
    """The journal under the names PySyncObj's remaining code knows."""

    def __init__(self, journal: VoteStore) -> None:
        self._journal = journal

    def setCurrentTerm(self, term: int, vote: str | None) -> None:
        self._journal.set_term(term, vote)


def _shut(name: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise Broken(f"{name} of PySyncObj was called; only the port leads into consensus")

    return refuse


class _Shut(SyncObj):  # type: ignore[misc]  # PySyncObj has no types.
    """A SyncObj that only keeps term, vote and role."""

    def __init__(self, me: str, journal: VoteStore) -> None:
        conf = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=False,
            pollerType="select",
            appendEntriesUseBatch=True,
        )
        super().__init__(Node(me), [], conf, transport=_Silent())
        self._SyncObj__raftLog = _LogView(journal)
        self._SyncObj__raftCurrentTerm = journal.term
        self._SyncObj__votedForNodeId = journal.vote

    # Called by PySyncObj's constructor; the deadline of an election is ours.
    def _SyncObj__generateRaftTimeout(self) -> float:
        return 0.0


class Upstream:
    """Term, vote and role, as PySyncObj keeps them."""

    def __init__(self, me: str, journal: VoteStore) -> None:
        self._held = _Shut(me, journal)

    @property
    def term(self) -> int:
        number: int = self._held._SyncObj__raftCurrentTerm
        return number

    @property
    def vote(self) -> str | None:
        name: str | None = self._held._SyncObj__votedForNodeId
        return name

    @property
    def role(self) -> int:
        state: int = self._held._SyncObj__raftState
        return state

    def set_term(self, term: int, vote: str | None) -> None:
        """Keep term and vote, in the journal too."""
        self._held._SyncObj__setCurrentTerm(term, vote)

    def set_role(self, role: int) -> None:
        self._held._SyncObj__setState(role)


# Commands from elsewhere, pickled configurations, code versions, its clock and its poller: none
# of them may be reached by mistake.
for _name in (
    "_applyCommand",
    "_checkCommandsToApply",
    "_onTick",
    "addNodeToCluster",
    "removeNodeFromCluster",
    "setCodeVersion",
    "transferLeadership",
    "forceLogCompaction",
    "_SyncObj__onMessageReceived",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__onReadonlyNodeConnected",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__sendNextNodeIdx",
    "_SyncObj__applyLogEntries",
    "_SyncObj__doApplyCommand",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__loadDumpFile",
    "_SyncObj__tryLogCompaction",
    "_SyncObj__changeCluster",
    "_SyncObj__doChangeCluster",
):
    if not hasattr(SyncObj, _name):
        raise Broken(f"pysyncobj has no {_name}; see AUDITED_SHA256")
    setattr(_Shut, _name, _shut(_name))
