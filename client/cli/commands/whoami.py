"""`raftsched whoami`: who somebody is to the cluster, and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..options import command
from ..render.clean import echo
from ..session import Invocation

if TYPE_CHECKING:
    from ..messages import access_pb2


# By the number of Caller.Kind.
SHOWN = {2: "an access token", 3: "a token of an identity provider", 4: "a certificate"}


@command(None, "whoami", "raftsched whoami", "raftsched whoami --calls", "raftsched whoami -o json")
@click.option("--calls", is_flag=True, help="Each call that is open to you is named.")
def whoami(session: Invocation, calls: bool) -> None:
    """Show who you are to the cluster, and what you may do in which namespace."""
    caller = session.ask(m.access_pb2.WhoAmIRequest(), m.access_pb2.Caller, "ask who calls")
    if not session.out.is_table:
        session.out.one(caller)
        return
    for line in described(session, caller, calls=calls):
        echo(line)


def described(session: Invocation, caller: access_pb2.Caller, *, calls: bool) -> list[str]:
    from ..render.formats import enum_word

    if caller.kind == m.access_pb2.Caller.KIND_ANONYMOUS:
        lines = ["You have no name here: the cluster has no access tokens, so all are admins."]
    else:
        lines = [f"You are {caller.name}, by {SHOWN.get(caller.kind, 'what is not known here')}."]
    for grant in caller.grants:
        where = f"in namespace {grant.namespace}" if grant.namespace else "in all namespaces"
        lines.append(f"You are {enum_word(grant, 'role')} {where}: {len(grant.calls)} calls.")
        lines += [f"  {name}" for name in grant.calls if calls]
    if not caller.see_payloads:
        lines.append("Payloads and what else may hold secrets are hidden from you.")
    if caller.HasField("expire_time"):
        lines.append(f"This ends {session.out.formats.time(caller.expire_time)}.")
    return lines
