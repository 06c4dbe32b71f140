"""PySyncObj behind a wall: its state under plain names, its doors to the world shut.

PySyncObj looks its private methods up through the instance, so a subclass replaces one by giving
it the mangled name. What is kept of it is the state of a Raft node, `__setState` and
`__setCurrentTerm`. Its handlers are replaced whole in the files beside this one: they depend on
each other's mistakes (its truncation is what makes its commit rule safe), so that a patched
handler could not be read without the original beside it. DESIGN.md tells what became of each.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pysyncobj.syncobj as audited
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from .faults import Broken, Refused
from .journal import Journal

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
        raise Refused(
            f"{path} is not the file of pysyncobj 0.3.17 that this release was proven with: its "
            f"SHA-256 is {found}, expected {AUDITED_SHA256}. Install pysyncobj==0.3.17 unchanged."
        )


class _Silent(Transport):  # type: ignore[misc]  # PySyncObj has no types.
    """A transport that says nothing: messages leave through the outbox."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    @property
    def ready(self) -> bool:
        return True


class _LogView:
    """The journal under the names PySyncObj's remaining code knows."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def setCurrentTerm(self, term: int, vote: str | None) -> None:
        self._journal.set_term(term, vote)


def _shut(name: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise Broken(f"{name} of PySyncObj was called; only the port leads into consensus")

    return refuse


class Walled(SyncObj):  # type: ignore[misc]  # PySyncObj has no types.
    """The state of a Raft node, as PySyncObj keeps it."""

    def __init__(self, me: str, journal: Journal, dice: random.Random) -> None:
        self.me = me
        self.journal = journal
        self.dice = dice
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
        if journal.last_term > journal.term:
            self.set_term(journal.last_term, None)
        # Never read from a disk: a commit index beyond the journal's end would be believed.
        self._SyncObj__raftCommitIndex = journal.base_index

    @property
    def term(self) -> int:
        number: int = self._SyncObj__raftCurrentTerm
        return number

    @property
    def vote(self) -> str | None:
        name: str | None = self._SyncObj__votedForNodeId
        return name

    @property
    def role(self) -> int:
        state: int = self._SyncObj__raftState
        return state

    def set_term(self, term: int, vote: str | None) -> None:
        self._SyncObj__setCurrentTerm(term, vote)

    def set_role(self, role: int) -> None:
        self._SyncObj__setState(role)

    @property
    def leader(self) -> str | None:
        """Who leads as far as this node knows."""
        name: str | None = self._SyncObj__raftLeader
        return name

    @leader.setter
    def leader(self, name: str | None) -> None:
        self._SyncObj__raftLeader = name

    @property
    def commit(self) -> int:
        index: int = self._SyncObj__raftCommitIndex
        return index

    @commit.setter
    def commit(self, index: int) -> None:
        self._SyncObj__raftCommitIndex = index

    @property
    def last_applied(self) -> int:
        index: int = self._SyncObj__raftLastApplied
        return index

    @last_applied.setter
    def last_applied(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    @property
    def deadline(self) -> float:
        """When to stand for election unless a leader is heard."""
        at: float = self._SyncObj__raftElectionDeadline
        return at

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._SyncObj__raftElectionDeadline = at

    # Called by PySyncObj's constructor, where there is no deadline of ours yet.
    def _SyncObj__generateRaftTimeout(self) -> float:
        return 0.0


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
    setattr(Walled, _name, _shut(_name))
