"""`raftsched token`: access tokens, which say who calls and what they may do."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..input.spec import enum_number
from ..lazy import ExampleGroup
from ..names import TOKEN
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many
from ..times import Instant, Length, duration, timestamp

if TYPE_CHECKING:
    from ..messages import access_pb2

SECRET_FILE = "raftsched-data/bootstrap-secret"
OTHERS = "raftsched token create NAME --role admin -A, with --token-file of a token that is there"
NONE = "none"  # The secret of no token.
ASKED_S = 5.0
AS_FIRST = "--role admin --all-namespaces"
FIRST = (
    "this makes the first access token; from then on every call without a token is refused, and "
    "workers and clients without one are shut out."
)
GIVE = (
    "Give one to each worker and client: raftsched token create NAME --role worker --to FILE, then "
    "RAFTSCHED_TOKEN_FILE=FILE for commands, Worker(token=...) and Client(token=...) in programs."
)
ROLES = ("admin", "editor", "worker", "viewer")
OTHERS_MAY = 0o077
TO = click.option(
    "--to", "path", metavar="FILE", help="A new file for the secret, with mode 0600.  [stdout]"
)


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched token bootstrap --to root.token",
        "raftsched config add prod --endpoints a.example:7400 --token-file root.token",
    ),
)
def token() -> None:
    """Access tokens: who may do what, in one namespace or in all."""


@command(
    token, "create",
    "raftsched token create ci --role editor -n billing --to ci.token",
    "raftsched token create look --role viewer --all-namespaces --expires +90d",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the token may do.")
@click.option("--all-namespaces", "-A", is_flag=True, help="It opens all namespaces, not one.")
@click.option("--expires", type=Instant(), help="When it ends.  [never]")
@click.option("--see-payloads", is_flag=True, help="A viewer may read payloads and results.")
@click.option(
    "--calls-per-second",
    type=click.IntRange(min=0, max=100_000),
    default=0,
    help="The maximum of calls it may make.  [no limit]",
)
@TO
def create(
    session: Invocation, name: str, role: str, all_namespaces: bool, expires: int | None,
    see_payloads: bool, calls_per_second: int, path: str | None,
) -> None:  # fmt: skip
    """Create an access token. Its secret is printed on stdout, this once and never again.

    The first one must be an admin in all namespaces, as it closes the cluster to whoever has none.
    """
    if see_payloads and role != "viewer":
        raise wrong_use(f"--see-payloads with --role {role}", "it is for viewers", "leave it out")
    check_new(path, name, "create")
    wanted = m.access_pb2.AccessToken(
        name=name, namespace="" if all_namespaces else session.namespace, see_payloads=see_payloads,
        expire_time=timestamp(expires) if expires is not None else None,
        calls_per_second=calls_per_second,
    )  # fmt: skip
    wanted.role = enum_number(m.options_pb2.Role.DESCRIPTOR, role)  # type: ignore[assignment]
    request = session.write(m.access_pb2.CreateAccessTokenRequest(access_token=wanted))
    kind = m.access_pb2.CreateAccessTokenResponse
    first = role == "admin" and all_namespaces and is_first(session)
    if first:
        workers = connected(session)
        session.say(f"Note: {FIRST}{without(workers)}")
        if workers and sys.stdin is not None and sys.stdin.isatty():
            session.confirm("Make the first access token?")
    try:
        made = session.ask(request, kind, f"create access token {name}")
    except Trouble as trouble:
        faults = getattr(trouble.__cause__, "faults", ())
        if any(one.field == "access_token.role" for one in faults):
            trouble.then = f"raftsched token create root {AS_FIRST} --to root.token"
        raise
    secret = " This is its secret:" if made.secret and path is None else ""
    session.done(made, sentence(made.access_token) + secret)
    give(session, made.secret, path)
    if first and not session.dry_run:
        session.say(GIVE)


@command(
    token, "bootstrap",
    "raftsched token bootstrap --secret-file /var/lib/raftsched/bootstrap-secret --to root.token",
    writes=True,
)  # fmt: skip
@click.argument("name", default="root")
@click.option(
    "--secret-file", default=SECRET_FILE, show_default=True, metavar="FILE",
    help="What any node with `tokens = true` wrote into its folder; its log names it.",
)  # fmt: skip
@TO
def bootstrap(session: Invocation, name: str, secret_file: str, path: str | None) -> None:
    """Make the first access token: an admin of all namespaces. Its secret is printed on stdout.

    It takes the secret from the folder of one node, so it is typed on the machine of a node. Of
    several who do this at once one succeeds, and from then on the file is gone.
    """
    check_new(path, name, "bootstrap")
    session.shows(read_secret(session, secret_file))
    wanted = m.access_pb2.AccessToken(name=name, role=m.options_pb2.ROLE_ADMIN)
    request = session.write(m.access_pb2.CreateAccessTokenRequest(access_token=wanted))
    kind = m.access_pb2.CreateAccessTokenResponse
    session.say(f"Note: {FIRST}")
    try:
        made = session.ask(request, kind, f"make the first access token {name}")
    except Trouble as trouble:
        if getattr(trouble.__cause__, "reason", "") == "UNAUTHENTICATED":
            trouble.why, trouble.then = [*trouble.why, note_of(secret_file)], OTHERS
        raise
    secret = " This is its secret, shown this once:" if made.secret and path is None else ""
    session.done(made, sentence(made.access_token) + secret)
    give(session, made.secret, path)
    if session.out.is_table and made.secret:
        # A node without `tokens = true` may have let some in.
        session.use_secret(made.secret)
        session.say(f"{GIVE}{without(connected(session))}")


def give(session: Invocation, secret: str, path: str | None) -> None:
    """Put a secret where nobody else reads it: into a new file, or on stdout, which may be one."""
    if not secret:
        return
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(f"{secret}\n")
        session.say(f"It is in {path}, which you alone may read (0600).")
    elif session.out.is_table:
        echo(secret)
        if keep_to_owner():
            session.say("Its file is for you alone to read now (0600).")


def keep_to_owner() -> bool:
    """Where stdout is a file that others may read, let nobody but its owner; whether it was so."""
    try:
        number = sys.stdout.fileno()
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & OTHERS_MAY:
            return False
        os.fchmod(number, status.st_mode & 0o700)
    except (OSError, ValueError):  # No file of the operating system, or somebody else's.
        return False
    return True


def check_new(path: str | None, name: str, doing: str) -> None:
    """Refuse a file that cannot be written before there is a secret to write."""
    if path is None:
        return
    if os.path.exists(path):
        raise Trouble(
            f"{path} is there already", "a secret goes into a new file",
            f"raftsched token {doing} {name} --to OTHER", Exit.CONFLICT,
        )  # fmt: skip
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK):
        raise wrong_use(f"cannot write {path}", f"{folder} is no folder to write in", "--to FILE")


def is_first(session: Invocation) -> bool:
    """Whether the cluster has no token yet, and so takes everybody for an admin."""
    if session.has_token:
        return False
    request, kind = m.access_pb2.ListAccessTokensRequest(), m.access_pb2.ListAccessTokensResponse
    return not session.ask(request, kind, "list access tokens").access_tokens


def connected(session: Invocation) -> int:
    """How many workers there are; 0 if nobody says."""
    from ...sdk.errors import RaftschedError

    try:
        request = m.cluster_pb2.GetClusterStatusRequest()
        status = session.client.call(request, timeout=ASKED_S)
    except RaftschedError:
        return 0
    assert isinstance(status, m.cluster_pb2.ClusterStatus)
    return status.workers


def without(workers: int) -> str:
    if not workers:
        return ""
    verb = "is" if workers == 1 else "are"
    return f" {many(workers, 'worker')} {verb} connected without one."


def read_secret(session: Invocation, path: str) -> str:
    try:
        secret = Path(path).read_text().strip()
        if secret and secret.isascii() and secret.isprintable():
            return secret
        why: str = "it does not hold one line with a secret"
    except (OSError, ValueError) as wrong:  # What is no text, or no path.
        why = getattr(wrong, "strerror", None) or str(wrong)
    reason, then = why_none(session)
    raise Trouble(
        "cannot make the first access token",
        [f"{path} cannot be read: {why}", reason, note_of(path)], then, Exit.FORBIDDEN,
    )  # fmt: skip


def note_of(path: str) -> str:
    """What the node wrote in place of a secret that was used, if it is here."""
    try:
        text = Path(f"{path}.used").read_text().strip()
    except (OSError, ValueError):
        return ""
    return f"{path}.used says: {text}"


def why_none(session: Invocation) -> tuple[str, str]:
    """Why there is no secret, as far as the cluster says to somebody without a token; and what to
    do."""
    from ...sdk.errors import RaftschedError

    session.shows(NONE)
    reason, file = "", ""
    try:
        session.client.call(m.cluster_pb2.GetClusterStatusRequest(), timeout=ASKED_S)
    except RaftschedError as error:
        reason, file = error.reason, error.values.get("file", "")
    except Trouble:
        reason = ""  # Nobody is there to be asked.
    if reason == "UNAUTHENTICATED":
        return f"{session.endpoints} has its first access token, so no node has a secret", OTHERS
    if reason == "NOT_BOOTSTRAPPED":
        return f"the node that was asked has it in {file}", f"--secret-file {file}, on its machine"
    return (
        "the file is there on the machine of a node with `tokens = true`, for the user that runs "
        "it, until there is a token",
        "--secret-file FOLDER/bootstrap-secret, with the `folder` of the node",
    )


def sentence(made: access_pb2.AccessToken) -> str:
    from ..render.formats import enum_word

    where = f"namespace {made.namespace}" if made.namespace else "all namespaces"
    return f"Access token {made.name}: {enum_word(made, 'role')} in {where}."


@command(token, "list", "raftsched token list", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List access tokens, without their secrets."""
    kind = m.access_pb2.ListAccessTokensResponse
    request = m.access_pb2.ListAccessTokensRequest()
    session.show_list(request, kind, "access_tokens", "list access tokens")


@command(
    token, "rotate",
    "raftsched token rotate ci --to new.token",
    "raftsched token rotate ci --overlap 7d --to new.token",
    writes=True,
)  # fmt: skip
@click.argument("name", type=TOKEN)
@click.option("--overlap", type=Length(), help="How long the former secret opens, too.  [1h]")
@TO
def rotate(session: Invocation, name: str, overlap: int | None, path: str | None) -> None:
    """Give an access token another secret. It is printed on stdout, this once and never again.

    Whoever has the former secret can be given the new one until the overlap is over.
    """
    check_new(path, name, "rotate")
    request = session.write(m.access_pb2.RotateAccessTokenRequest(access_token=name))
    if overlap is not None:
        request.overlap.CopyFrom(duration(overlap))
    kind = m.access_pb2.RotateAccessTokenResponse
    made = session.ask(request, kind, f"rotate access token {name}")
    until = session.out.formats.time(made.access_token.former_secret_expire_time)
    secret = " This is its secret:" if made.secret and path is None else ""
    session.done(made, f"Access token {name}: the former secret opens until {until}.{secret}")
    give(session, made.secret, path)


@command(
    token, "revoke", "raftsched token revoke ci --yes", writes=True, destroys=True
)  # fmt: skip
@click.argument("name", type=TOKEN)
def revoke(session: Invocation, name: str) -> None:
    """Make an access token invalid, at once and for ever."""
    session.confirm(f"Revoke access token {name}? Whoever uses it is shut out.")
    request = session.write(m.access_pb2.RevokeAccessTokenRequest(access_token=name))
    kind = m.access_pb2.RevokeAccessTokenResponse
    answer = session.ask(request, kind, f"revoke access token {name}")
    session.done(answer, f"Access token {name} revoked.")
