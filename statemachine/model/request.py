"""What the leader's loop asks of the rules beside the messages of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ...proto.v1 import (
    access_pb2,
    cluster_pb2,
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    run_pb2,
    secret_pb2,
    worker_pb2,
)
from ..core.budget import Share
from .difference import Difference

if TYPE_CHECKING:
    from .layer import Layer
    from .workers import WorkerCounts


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks of the rules: a message of the API, or one of those below."""

    body: object
    # Who asks, as authentication knows them.
    actor: str = ""
    # The time it has, with the requests beside it that have the same; None: that of the decision.
    share: Share | None = None


# In place of a reply: there was no room or time for the request; it is to be asked again.
LEFT: Final = object()


@dataclass(frozen=True, slots=True)
class FireTimers:
    """Do what is due, at most so many timers. The reply is a WorkDone."""

    most: int
    # What can wait, which a leader asks for behind the calls; or all else.
    later: bool = False
    # Where timers begin that need not wait for those before them; b"": what fell due since the last
    # change.
    fresh_from: bytes = b""


@dataclass(frozen=True, slots=True)
class FireTimer:
    """Do what one timer is for. The reply is None."""

    timer: bytes


@dataclass(frozen=True, slots=True)
class SetAside:
    """Work on a job failed: it is BROKEN from now on. The reply says whether it was not before."""

    jid: int
    reason: str


@dataclass(frozen=True, slots=True)
class DropEntry:
    """Forget a timer or a ready entry that cannot be worked on, even though its job was set aside;
    `verify` shows that it is missing. The reply is None."""

    key: bytes


@dataclass(frozen=True, slots=True)
class MakeAlerts:
    """Give a cluster the alerts it has of its own, once. The reply is None."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What came of a FireTimers."""

    done: int
    # More is due than was done.
    more: bool
    # See FireTimers, for the next one.
    fresh_from: bytes = b""


@dataclass(frozen=True, slots=True)
class Offer:
    """A worker that would take some leases."""

    worker: str
    credits: int
    namespaces: tuple[str, ...] = ("default",)
    queues: tuple[str, ...] = ("default",)
    handlers: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    # The unary call that the offer comes from: what was taken under its request_id comes again.
    request: worker_pb2.LeaseRequest | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Give ready runs to workers, at most so many. The reply is a list of Leases by worker."""

    offers: tuple[Offer, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Again:
    """Whether leases were taken under a request_id. The reply is a list of those that still stand,
    or None when none were taken; then the call may wait for some."""

    request: worker_pb2.LeaseRequest


@dataclass(frozen=True, slots=True)
class Report:
    """How attempts ended, as one worker says. The reply is a list of ResultAcks, for as many of
    the results as fit into the change; the rest is asked again in the next one."""

    worker: str
    results: tuple[worker_pb2.Result, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """How far attempts are, as one worker says. The reply is a list of ResultAcks, for as many of
    the reports as fit into the change; the rest is asked again in the next one."""

    worker: str
    reports: tuple[worker_pb2.ProgressReport, ...]


@dataclass(frozen=True, slots=True)
class Lapse:
    """A worker was silent for too long: its leases end, at most so many. The reply is a
    WorkDone."""

    worker: str
    most: int
    # Leases that cannot be ended, and are left alone.
    but: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Resume:
    """A worker sent a hello on a stream, with the leases it holds: those that do not stand are to
    stop, and the others of its session end. At most so many are looked at. It gets no lease until
    all were. The reply is a Resumed."""

    worker: str
    # Runs by their tokens.
    held: Mapping[int, str]
    most: int
    # Leases that cannot be ended, and are left alone.
    but: frozenset[bytes] = frozenset()
    # Where to go on: so many of those that it holds were looked at, and of those of its session all
    # with tokens below this one.
    looked: int = 0
    token_from: int = 0
    # The number of the only namespace of whose runs it may hear. None: of all.
    only: int | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What came of a Resume."""

    # Leases that it may not keep, or is to give up.
    stops: tuple[worker_pb2.Stop, ...]
    # What is left to look at: ask that. None: it is done.
    rest: Resume | None


@dataclass(frozen=True, slots=True)
class ImportSome:
    """What is left of an import, in as many changes as it takes. The reply is an Imported."""

    request: job_pb2.ImportJobsRequest
    # Hash of the request, if it has an id.
    digest: bytes
    # The places of its jobs in the order in which they are taken, and how many were.
    order: Sequence[int]
    first: int = 0
    # On trial: what those that were taken would have written.
    trial: Layer | None = None

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an ImportSome."""

    # Results in the order in which jobs were taken; of a whole import in that of the request.
    answer: job_pb2.ImportJobsResponse
    # How many jobs were taken by now.
    next: int
    # See ImportSome.
    trial: Layer | None = None


@dataclass(frozen=True, slots=True)
class TriggerSome:
    """What is left of many triggers, in as many changes as it takes. The reply is a Triggered."""

    request: job_pb2.TriggerJobsRequest
    # Hash of the request, if it has an id.
    digest: bytes
    # How many were taken.
    first: int = 0
    # On trial: what those that were taken would have written.
    trial: Layer | None = None

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class Triggered:
    """What came of a TriggerSome."""

    answer: job_pb2.TriggerJobsResponse
    # How many were taken by now.
    next: int
    # See TriggerSome.
    trial: Layer | None = None


@dataclass(frozen=True, slots=True)
class Letters:
    """A call about all dead letters that fit a filter. The reply is its answer, or what is left to
    look at, to be asked again: nothing that was looked at fits."""

    request: dead_letter_pb2.RequeueDeadLettersRequest | dead_letter_pb2.PurgeDeadLettersRequest
    # Where to look on, and how many were looked at before.
    begin: bytes = b""
    looked: int = 0
    # How many of these fit and stay where they are.
    left_out: int = 0

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class Bulk:
    """A change of all that fits a filter. The reply is its answer, or where to go on, to be asked
    again."""

    request: job_pb2.ChangeJobsRequest | run_pb2.ChangeRunsRequest
    # Behind which place to look on, and how many were looked at before.
    after: bytes = b""
    looked: int = 0
    # What is known of the answer, where some was changed, or would be.
    so_far: common_pb2.BulkChange | None = None

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class CreateToken:
    """An access token, with the hash of the secret that the caller has made for it: the rules throw
    no dice, and a secret is never stored. The reply is a TokenCreated."""

    request: access_pb2.CreateAccessTokenRequest
    # SHA-256 of the secret.
    digest: bytes
    # The caller has no token, as there is none yet: refused if that is so no more.
    first: bool = False

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class RotateToken:
    """Another secret for an access token, by its hash. The reply is a TokenCreated."""

    request: access_pb2.RotateAccessTokenRequest
    # SHA-256 of the secret.
    digest: bytes

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class NoteUses:
    """Access tokens were used, at most `USES_NOTED`. The reply is None."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenCreated:
    """What came of a CreateToken or RotateToken."""

    # Without the secret.
    answer: access_pb2.CreateAccessTokenResponse | access_pb2.RotateAccessTokenResponse
    # The secret is to be shown. Otherwise the call came before, and its secret was shown then.
    new: bool


class SealedPlace(NamedTuple):
    """What a value is encrypted for: it opens nowhere else."""

    # The namespace's number and name.
    number: int
    namespace: str
    name: str
    # Of the value.
    version: int


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """The value of a secret, encrypted by a node."""

    place: SealedPlace
    key_id: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoreSecret:
    """Put a secret. The reply is the Secret, or a SecretChanged: encrypt it again and ask."""

    # Without the value.
    request: secret_pb2.PutSecretRequest
    # Fingerprints of the whole request under the keys of the node, its first key first.
    digests: tuple[bytes, ...]
    # None: the value stays.
    sealed: SealedSecret | None = None

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class SecretChanged:
    """Another value came in between."""


@dataclass(frozen=True, slots=True)
class ResealSecrets:
    """Some secrets, encrypted under another key; with each what it was that the node decrypted. The
    reply is a RekeySecretsResponse."""

    request: secret_pb2.RekeySecretsRequest
    secrets: tuple[tuple[bytes, SealedSecret], ...] = field(repr=False)
    # What the node knows of the answer.
    answer: secret_pb2.RekeySecretsResponse

    @property
    def validate_only(self) -> bool:
        return self.request.validate_only


@dataclass(frozen=True, slots=True)
class ResolveSecrets:
    """The secrets of a lease, for the worker that holds it. The reply is a list of
    SealedSecrets."""

    request: worker_pb2.ResolveSecretsRequest
    # The audit log is to note it.
    noted: bool = True


@dataclass(frozen=True, slots=True)
class SetTime:
    """Set the state's time back to what the clocks say, and then move, some at a time, what was
    planned by the wrong time. The reply is a TimeSet."""

    request: cluster_pb2.SetStateTimeRequest
    from_ms: int
    to_ms: int
    # Behind this place, as the last TimeSet gave it; empty: the time itself is to be set.
    after: bytes = b""


@dataclass(frozen=True, slots=True)
class TimeSet:
    """What came of a SetTime."""

    # Where to go on; empty when all is moved.
    after: bytes


@dataclass(frozen=True, slots=True)
class Observe:
    """Raise and clear alerts, by what is stored and by what only the leader sees. At most so many
    are looked at. The reply is an Observed."""

    workers: WorkerCounts
    # A node of the cluster can be lost.
    margin: bool
    # By how much the clock of a node is off at most.
    skew_ms: int
    most: int
    # Behind this place, as the last Observed gave it.
    after: bytes = b""
    # Alerts that cannot be looked at, and are left out.
    but: frozenset[bytes] = frozenset()
    # What this node has seen of late: the longest step of its loop, changes of leader, other work
    # that was set aside; and whether members differ.
    step_ms: int = 0
    leader_changes: int = 0
    set_aside: int = 0
    differ: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of an Observe."""

    # Where to go on; empty when all were looked at.
    after: bytes
    # Lanes of ready runs that it took to find the one that waits longest.
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Called:
    """An alert's webhook has heard what became of it in a revision, or never will. The reply is
    None."""

    # The alert's place.
    key: bytes
    changed_in: int


@dataclass(frozen=True, slots=True)
class Repair:
    """Mend what a check has found, once. The reply: Repaired."""

    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What came of a Repair."""

    # How many were looked at; the others are asked for again.
    done: int
    # Of those, how many the present state had still.
    mended: int


@dataclass(frozen=True, slots=True)
class StagePiece:
    """The next bytes of a backup that is to be put back. The reply is how many are there."""

    id: str
    size: int
    offset: int
    data: bytes
    # The request id of the call, for the note of who did it. Pieces need none to be taken once.
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class SealStage:
    """All of the backup is there, and whoever sent it waits; to be asked again while it is made
    ready. The reply is the StagedRecord."""

    id: str
    origin: str
    other_cluster: bool = False


@dataclass(frozen=True, slots=True)
class DropStage:
    """Throw a stage away: by its number, or whatever was not heard of since. The reply is whether
    there is more to remove."""

    serial: int = 0
    silent_since_ms: int = 0
