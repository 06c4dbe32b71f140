"""What the services ask of a node. `cluster.node.Node` keeps to it, and so do the tests' nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from google.protobuf.message import Message

from ...proto.v1 import common_pb2
from ...statemachine.core.rejection import Refused
from ..node.event_feed import AppliedState, EntryLog
from ..node.leader_loop import Leader
from ..node.secret_keys import SecretKeys
from ..node.worker_sessions import WorkerSessions


class StateAnswer(Protocol):
    """The answer to a read, and what it is true at."""

    @property
    def message(self) -> Message: ...

    @property
    def revision(self) -> int: ...

    @property
    def age_ms(self) -> int:
        """How old it may be, if it is a stale one."""


class NodePort(Protocol):
    """One node, as those see it who pass calls to it."""

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str:
        """The cluster's id."""

    @property
    def replica(self) -> AppliedState: ...

    @property
    def journal(self) -> EntryLog: ...

    @property
    def draining(self) -> bool:
        """New calls are refused."""

    def drain(self) -> None:
        """Take no more calls, and give leadership away as soon as it is here."""

    def staleness(self) -> float:
        """How old the applied state is at most, in seconds."""

    def on_leader_change(self, listener: Callable[[], None]) -> None:
        """Have a listener called on the loop whenever another node may lead, or be found
        elsewhere."""

    @property
    def serves(self) -> bool:
        """It takes calls: it neither drains nor doubts its state."""

    @property
    def leads(self) -> bool:
        """It leads, and has applied all that was committed before."""

    def introduce(self) -> None:
        """Introduce this node to the others, as it is now."""

    def knows(self, level: int) -> bool:
        """No member is known to be of a version before that feature level."""

    @property
    def secret_keys(self) -> SecretKeys:
        """The keys for secrets that it has."""

    @property
    def lacks_key(self) -> Callable[[str], str]:
        """The name of a node that was heard lately and lacks the key of an id; empty if none."""

    @property
    def needs_token(self) -> bool:
        """Nobody may call without an access token, not even before there is one."""

    @property
    def bootstraps(self) -> frozenset[bytes]:
        """Hashes of the secrets that make the first access token."""

    @property
    def bootstrap_file(self) -> str:
        """Where such a secret is found."""

    def recovering(self, digest: bytes) -> tuple[int, int]:
        """How many of the voters have a secret with this hash in their folders, by which an admin
        is let in again; and how many voters there are."""

    @property
    def forward_keys(self) -> Mapping[str, bytes]:
        """By node: under which key it shows a leader who has called it by a certificate."""

    @property
    def leader_address(self) -> str:
        """Where clients reach the leader; empty when none is known."""

    @property
    def leader_name(self) -> str: ...

    def nobody_leads(self) -> Refused:
        """Why a call finds no leader."""

    def too_late(self, seconds: float) -> Refused:
        """Why a read was not answered within its time."""

    @property
    def term(self) -> int: ...

    @property
    def revision(self) -> int: ...

    def fail(self, error: BaseException) -> None:
        """Something broke that must not: the node ends."""

    @property
    def leader(self) -> Leader: ...

    @property
    def sessions(self) -> WorkerSessions: ...

    def barrier(self, timeout: float) -> Awaitable[None]:
        """Return when all that was acknowledged before is applied here; on the leader only."""

    def write(
        self, body: Message, actor: str, timeout: float, tenant: str = ""
    ) -> Awaitable[Message]:
        """`tenant`: the namespace that the caller's access token is for."""

    def ask(self, body: object, actor: str, timeout: float, tenant: str = "") -> Awaitable[object]:
        """As `write`, for a request of any kind that the rules know."""

    def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float,
        caller: str = "", finish: Callable[[Message], None] = ...,
    ) -> Awaitable[StateAnswer]:  # fmt: skip
        """Answer a read. Reads that look at much take turns between callers; `finish` is done to
        the answer where it is made, which may be on a thread."""


Metadata = Mapping[str, str | bytes]
