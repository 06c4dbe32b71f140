"""From an error of the SDK to exit code, cause and what to type next."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from ..sdk import errors
from .exits import NO_LEADER, Exit, Trouble
from .messages import access_pb2, calendar_pb2, job_pb2, namespace_pb2, queue_pb2
from .render.clean import echo

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from .. import Client
    from .settings import Value

# The first that fits counts.
EXITS: tuple[tuple[type[errors.RaftschedError], Exit], ...] = (
    (errors.InvalidArgument, Exit.USAGE),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.AlreadyExists, Exit.CONFLICT),
    (errors.Conflict, Exit.CONFLICT),
    (errors.QuotaExceeded, Exit.CONFLICT),
    (errors.RevisionGone, Exit.CONFLICT),
    (errors.Unauthenticated, Exit.FORBIDDEN),
    (errors.Forbidden, Exit.FORBIDDEN),
    (errors.OutcomeUnknown, Exit.OUTCOME_UNKNOWN),
    (errors.RunNotEnded, Exit.OUTCOME_UNKNOWN),
    (errors.Unavailable, Exit.UNREACHABLE),
)
TOO_LARGE = 'a payload that says where the data is, such as --payload \'{{"url": "..."}}\''
# What to type next, by reason; filled in with the refusal's values.
THEN: Mapping[str, str] = {
    "NAMESPACE_NOT_FOUND": "raftsched namespace list\nraftsched namespace create {namespace}",
    "JOB_NOT_FOUND": "raftsched job list",
    "RUN_NOT_FOUND": "raftsched run list\nraftsched job history JOB",
    "QUEUE_NOT_FOUND": "raftsched queue list",
    "CALENDAR_NOT_FOUND": "raftsched calendar list",
    "WORKER_NOT_FOUND": "raftsched worker list",
    "FLOW_NOT_FOUND": "raftsched flow list",
    "DEAD_LETTER_NOT_FOUND": "raftsched dead list",
    "ALERT_NOT_FOUND": "raftsched alert list\nraftsched alert list --cluster",
    "ACCESS_TOKEN_NOT_FOUND": "raftsched token list",
    "NODE_NOT_FOUND": "raftsched cluster status",
    "SECRET_NOT_FOUND": "raftsched secret list\nraftsched secret put {secret}",
    "SECRET_KEY_MISSING": "raftsched node config check on {node}\nraftsched cluster status -o wide",
    "JOB_EXISTS": "raftsched job get {job}\nraftsched job update {job} ...",
    "UNIQUE_KEY_TAKEN": "raftsched run get {run}",
    "REQUEST_ID_REUSED": "the same without --request-id, or with a fresh one",
    "ETAG_MISMATCH": "read it again, decide, then use the new etag",
    "JOB_BROKEN": "raftsched job explain {job}\nraftsched job repair {job}",
    "MEMBER_LACKS": "raftsched cluster status",
    "RULE_FAILED": "raftsched cluster status, and the log of the leader",
    "JOB_PAUSED": "raftsched job resume {job}\nthe same with --force",
    "OVERLAP_REFUSED": "raftsched run list --job {job}\nthe same with --force",
    "RUN_ENDED": "raftsched run get {run}",
    "HAS_DEPENDENTS": "raftsched flow graph {job}",
    "IN_USE": "raftsched job list",
    "MEMBERSHIP_REFUSED": "raftsched cluster status",
    "TRANSFER_REFUSED": "raftsched cluster status",
    "NOT_RETRYING": "raftsched run explain {run}",
    "QUOTA_EXCEEDED": "raftsched namespace get {namespace}",
    "ZONE_UNKNOWN": "an IANA name such as Europe/Berlin",
    "CRON_INVALID": "raftsched job next 'EXPRESSION'",
    "NO_QUORUM": "raftsched cluster status --endpoints NODE",
    "DEADLINE_PASSED": "the same with a longer --timeout, such as --timeout 30s",
    "REVISION_GONE": "list what is there, then watch without --since",
    "PAYLOAD_TOO_LARGE": TOO_LARGE,
    # The message names the command already.
    "NOT_BOOTSTRAPPED": "",
    "UNAUTHENTICATED": "--token-file FILE, or token_file in the context (raftsched config)",
    "FORBIDDEN": "an access token with the role that is needed",
}
# What gRPC adds of its own inside, in words that help nobody.
GRPC_INSIDE = re.compile(r" \(failed to connect to all addresses.*\)(?=\. It|$)")
# How to find near names, by reason: the value that holds the name that was not found.
NEAR = {
    "JOB_NOT_FOUND": "job", "QUEUE_NOT_FOUND": "queue", "CALENDAR_NOT_FOUND": "calendar",
    "NAMESPACE_NOT_FOUND": "namespace",
}  # fmt: skip
NEAR_PAGE = 1_000  # Names that are looked at.
NEAR_TIMEOUT_S = 0.5
# The same for a connection that did not come about, by words of what was reported of it.
NO_TRUST = (
    ("was not signed by", "--ca-file FILE, with the authority that signed it"),
    ("has expired", "raftsched node config check on that node"),
    ("another name", "--endpoints HOST:PORT with a name that is in the certificate"),
    ("do not belong together", "--cert-file and --key-file of one pair"),
    (
        "not a node's port for clients",
        "--endpoints HOST:PORT with the first address that `raftsched node` logs, 7400 by default",
    ),
    ("listens without TLS", "the same without --ca-file, --cert-file and --key-file"),
    (
        "Socket closed",
        "--ca-file FILE if the nodes want TLS, with --cert-file and --key-file if they ask for "
        "certificates of clients; else raftsched doctor",
    ),
)
NO_SERVER = "raftsched doctor\nraftsched dev"


class RefusedCommand(Protocol):
    """The command that was refused, as far as it matters here."""

    values: Mapping[str, Value]
    debug: bool
    namespace: str
    base_id: str
    stale: bool
    may_be_stale: bool

    @property
    def endpoints(self) -> str: ...

    @property
    def client(self) -> Client: ...


@contextmanager
def refusals(session: RefusedCommand, doing: str) -> Iterator[None]:
    """Turn what the SDK raises into the end of the command."""
    try:
        yield
    except errors.RaftschedError as error:
        if session.debug:
            echo(traceback.format_exc(), err=True)
            echo(f"{error.code} {error.reason} {error.values}", err=True)
        raise trouble(session, error, doing) from error


def trouble(session: RefusedCommand, error: errors.RaftschedError, doing: str) -> Trouble:
    code = next((exit for kind, exit in EXITS if isinstance(error, kind)), Exit.FAILED)
    what = f"cannot {doing}"
    if isinstance(error, errors.OutcomeUnknown):
        what = f"it is not known whether this was done: {doing}"
    if error.code == "UNIMPLEMENTED":
        return Trouble(
            what, ["the node does not know this call; it may run an older version", error.message],
            "raftsched cluster status", code,
        )  # fmt: skip
    if NO_LEADER in error.message and not isinstance(error, errors.OutcomeUnknown):
        return leaderless(session, what, code)
    why = [f"{fault.field}: {fault.message}" for fault in error.faults] or [error.message]
    if error.reason in NEAR and (near := _near(session, error)):
        why.append(f"did you mean {near}?")
    if error.reason == "FORBIDDEN" and (own := _own_namespace(session)):
        why.append(f"no namespace was named, so it was {session.namespace}; yours is {own}")
        return Trouble(what, why, f"the same with -n {own}", code)
    why = [GRPC_INSIDE.sub("", line) for line in why]
    return Trouble(what, why, _then(session, error), code)


def leaderless(session: RefusedCommand, what: str, code: Exit) -> Trouble:
    """Nothing was done, as no node knows whom to ask."""
    wants_fresh = session.may_be_stale and not session.stale
    stale = "the same with --stale, which reads what a node has\n" if wants_fresh else ""
    return Trouble(
        f"{what}: the cluster has no leader",
        f"no node of {session.endpoints} knows one that a majority follows; nothing was done",
        f"raftsched cluster status\n{stale}the same with --timeout 60s, which waits so long", code,
    )  # fmt: skip


def _then(session: RefusedCommand, error: errors.RaftschedError) -> str:
    if isinstance(error, errors.OutcomeUnknown) and session.base_id:
        return f"the same command with --request-id {session.base_id}, which does it once"
    if error.reason == "IN_USE" and error.values.get("kind") == "namespace":
        name, used_by = error.values.get("name", ""), error.values.get("used_by")
        return f"raftsched job list -n {name}" if used_by == "jobs" else ""
    if error.reason == "LIMIT_EXCEEDED" and error.values.get("limit") in ("message", "request"):
        return TOO_LARGE.format()
    if error.reason == "IN_USE" and error.values.get("kind") == "calendar":
        return f"raftsched job list --calendar {error.values['name']}"
    if template := THEN.get(error.reason):
        return template.format_map(_Known({"namespace": session.namespace} | error.values))
    if isinstance(error, errors.Unavailable) and not error.reason:
        return next((then for word, then in NO_TRUST if word in error.message), NO_SERVER)
    if error.retry_after is not None:
        return f"the same in {error.retry_after:g} s"
    return ""


def _own_namespace(session: RefusedCommand) -> str:
    """The one namespace that the caller has, where the command named none; else nothing."""
    if session.values["namespace"].origin != "default":
        return ""
    try:
        caller = session.client.call(access_pb2.WhoAmIRequest(), timeout=NEAR_TIMEOUT_S)
    except errors.RaftschedError:
        return ""
    assert isinstance(caller, access_pb2.Caller), caller
    places = {grant.namespace for grant in caller.grants}
    return places.pop() if len(places) == 1 and session.namespace not in places else ""


class _Known(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key.upper()


def _near(session: RefusedCommand, error: errors.RaftschedError) -> str:
    """A name like the one that was not found; nothing when the cluster does not say in time."""
    kind = NEAR[error.reason]
    wrong = error.values.get(kind, "")
    try:
        answer = session.client.call(_list_of(session, kind, wrong), timeout=NEAR_TIMEOUT_S)
    except errors.RaftschedError:
        return ""
    names = [
        one.name for _, value in answer.ListFields() if not isinstance(value, str) for one in value
    ]
    return next(iter(get_close_matches(wrong, names, n=1)), "")


def _list_of(session: RefusedCommand, kind: str, wrong: str) -> Message:
    namespace, size = session.namespace, NEAR_PAGE
    match kind:
        case "job":
            text = f"name={wrong[:1]}*"
            return job_pb2.ListJobsRequest(namespace=namespace, filter=text, page_size=size)
        case "queue":
            return queue_pb2.ListQueuesRequest(namespace=namespace, page_size=size)
        case "calendar":
            return calendar_pb2.ListCalendarsRequest(namespace=namespace, page_size=size)
    return namespace_pb2.ListNamespacesRequest(page_size=size)
