"""`raftsched identity`: who vouches for callers beside the access tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import wrong_use
from ..lazy import ExampleGroup
from ..names import PROVIDER
from ..options import command
from ..session import Invocation, many

if TYPE_CHECKING:
    from ..messages import identity_pb2

NAME = click.argument("name", type=PROVIDER)
FILE_MAX = 1 << 20
HELP = "raftsched identity put --help"
EXAMPLE = "raftsched identity put -f corp.yaml"


@click.group(cls=ExampleGroup, examples=(EXAMPLE, "raftsched identity list"))
def identity() -> None:
    """Identity providers: issuers of JSON Web Tokens (OIDC), and certificates of clients.

    Their rules say which caller may do what: the first one that fits counts.
    """


@command(identity, "put", EXAMPLE, "raftsched identity put -f corp.yaml --dry-run", writes=True)
@click.option(
    "--file", "-f", "path", required=True, metavar="FILE", help="The provider as YAML; - is stdin."
)
@click.option("--etag", default="", help="It is done only to this version of the provider.")
def put(session: Invocation, path: str, etag: str) -> None:
    """Create an identity provider, or replace it as a whole. The file is as here:

    \b
      name: corp
      jwt:
        issuer: https://login.example.org
        audiences: [raftsched]
      rules:
      - claims: [{claim: [groups], values: [ops]}]
        role: admin
      - claims: [{claim: [groups], values: ["team-*"]}]
        role: editor
        namespace: team

    Callers then send what the issuer gives them as `authorization: Bearer TOKEN`. With
    `certificates: {}` in place of `jwt` the claims are cn, dns, uri, email and ip.
    """
    wanted = provider_in(read(path), path)
    wanted.etag = etag or wanted.etag
    request = session.write(m.identity_pb2.PutIdentityProviderRequest(identity_provider=wanted))
    kind = m.identity_pb2.IdentityProvider
    made = session.ask(request, kind, f"put identity provider {wanted.name}")
    text = f"Identity provider {made.name} has {many(len(made.rules), 'rule')}."
    session.done(made, text, then=f"raftsched identity get {made.name}")


def read(path: str) -> str:
    if path == "-":
        return sys.stdin.read(FILE_MAX)
    try:
        with Path(path).open() as opened:
            return opened.read(FILE_MAX)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise wrong_use(f"{path} cannot be read: {why}", "", EXAMPLE) from error


def provider_in(text: str, path: str) -> identity_pb2.IdentityProvider:
    """What a file says, in the API's JSON; roles may be written as words."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise wrong_use(f"{path} is no YAML: {error}", "", HELP) from error
    if not isinstance(found, dict):
        raise wrong_use(f"{path} holds no fields", "", HELP)
    rules = found.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, dict) and isinstance(rule.get("role"), str):
            rule["role"] = role_of(rule["role"])
    made = m.identity_pb2.IdentityProvider()
    try:
        m.json_format.ParseDict(found, made)
    except m.json_format.ParseError as error:
        raise wrong_use(f"{path}: {error}", "", HELP) from error
    return made


def role_of(word: str) -> str:
    return word if word.startswith("ROLE_") else f"ROLE_{word.upper()}"


@command(identity, "list", "raftsched identity list", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List identity providers."""
    request = m.identity_pb2.ListIdentityProvidersRequest()
    kind = m.identity_pb2.ListIdentityProvidersResponse
    none = "No identity providers: access tokens alone say who calls."
    session.show_list(request, kind, "identity_providers", "list identity providers", empty=none)


@command(identity, "get", "raftsched identity get corp -o yaml", reads=True)
@NAME
def get(session: Invocation, name: str) -> None:
    """Show an identity provider and its rules."""
    request = m.identity_pb2.GetIdentityProviderRequest(identity_provider=name)
    kind = m.identity_pb2.IdentityProvider
    session.out.one(session.ask(request, kind, f"get identity provider {name}"))


@command(identity, "delete", "raftsched identity delete corp --yes", writes=True, destroys=True)
@NAME
@click.option("--etag", default="", help="It is done only to this version of the provider.")
def delete(session: Invocation, name: str, etag: str) -> None:
    """Delete an identity provider: whoever it vouched for is shut out."""
    session.confirm(f"Delete identity provider {name}? Whoever it vouches for is shut out.")
    request = session.write(
        m.identity_pb2.DeleteIdentityProviderRequest(identity_provider=name, etag=etag)
    )
    kind = m.identity_pb2.DeleteIdentityProviderResponse
    answer = session.ask(request, kind, f"delete identity provider {name}")
    session.done(answer, f"Identity provider {name} deleted.")
