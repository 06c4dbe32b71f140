"""The settings of a node.

The Structs below are the only list of keys: defaults, comments, the names of flags and variables,
the written file and `config show` all come from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from ..node.bootstrap_token import BOOTSTRAP
from ..node.limits import HEARTBEAT_MS, CallerLimits, Section

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
PREFIX = "RAFTSCHED_NODE_"
MEMBERS_MAX = 9
FILE_MAX = 1 << 20


class MemberSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the member list."""

    peer: str
    client: str


class LogSection(Section, frozen=True, kw_only=True):
    format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="json, console, or auto: console on a terminal, json elsewhere."),
    ] = "auto"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="debug also shows every step of every run; not for a busy cluster."),
    ] = "info"


class GatewaySection(Section, frozen=True, kw_only=True):
    """HTTP and JSON, by a process that the node starts beside itself."""

    listen: Annotated[
        str, Meta(description="Where HTTP is served for callers. Empty: no gateway here.")
    ] = "127.0.0.1:7480"
    hosts: Annotated[
        str,
        Meta(
            description="Names by which callers know the gateway, with commas. Empty: its address, "
            "or, where it listens beyond this machine, any name."
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        Meta(description="Pages of these origins may call, with commas, as https://ops.example."),
    ] = ""
    path_prefix: Annotated[
        str, Meta(description="What stands before all paths of the gateway, as /raftsched.")
    ] = ""
    trusted_proxies: Annotated[
        str,
        Meta(
            description="Addresses and networks, with commas, that are believed who they ask for "
            "(Forwarded, X-Forwarded-For)."
        ),
    ] = ""
    oidc_issuer: Annotated[
        str,
        Meta(
            description="People sign in on the web page by this identity provider, which the "
            "cluster must know."
        ),
    ] = ""
    oidc_client_id: Annotated[
        str,
        Meta(description="As whom the gateway is known there: the audience of its tokens."),
    ] = ""
    oidc_secret_file: Annotated[
        str, Meta(description="The client's secret. Empty: a public client (PKCE).")
    ] = ""
    oidc_scopes: Annotated[
        str, Meta(description="What is asked for, with commas. Empty: openid, profile, email.")
    ] = ""


class SecretsSection(Section, frozen=True, kw_only=True):
    """Keys under which secrets for targets of jobs are encrypted; the same on all nodes."""

    key_file: Annotated[
        str,
        Meta(
            description="A key a line, each 32 random bytes in base64: the first one encrypts, "
            "the others open what was encrypted before. Read again when it changes."
        ),
    ] = ""
    key_command: Annotated[
        str,
        Meta(
            description="A command that prints such lines, in place of a file; it is run at the "
            "start and has 10 s."
        ),
    ] = ""


class WebhooksSection(Section, frozen=True, kw_only=True):
    """Where the webhooks of alerts may go, and how whoever is called knows who calls."""

    allow: Annotated[
        str,
        Meta(
            description="Networks and addresses, with commas, that may be called although they are "
            "loopback, link-local or metadata; such a word allows all of these."
        ),
    ] = ""
    deny: Annotated[
        str,
        Meta(description="Others that may not, as private or 10.0.0.0/8. The most exact one wins."),
    ] = ""
    secret_file: Annotated[
        str,
        Meta(
            description="A secret a line, the new one and perhaps the old one, as whsec_BASE64: "
            "calls are signed with each. Read at the start."
        ),
    ] = ""


class Files(Section, frozen=True, kw_only=True):
    certificate_file: Annotated[str, Meta(description="PEM, with its chain.")] = ""
    key_file: Annotated[str, Meta(description="PEM, without a password.")] = ""
    ca_file: Annotated[
        str, Meta(description="PEM: who signs the certificates of the other side.")
    ] = ""


class PeerFiles(Files, frozen=True, kw_only=True):
    """TLS between nodes, both ways. The certificate names the node: DNS:<name>."""


class ServerFiles(Files, frozen=True, kw_only=True):
    """TLS for clients and for HTTP. With ca_file, gRPC clients must show a certificate."""


class TlsSection(Section, frozen=True, kw_only=True):
    peer: PeerFiles = PeerFiles()
    server: ServerFiles = ServerFiles()


class Config(Section, frozen=True, kw_only=True):
    name: Annotated[
        str, Meta(description="Which of the members this node is. Stable for ever.")
    ] = ""
    cluster: Annotated[
        str, Meta(description="The cluster's name; nodes of another one are turned away.")
    ] = "raftsched"
    folder: Annotated[
        str, Meta(description="Where journal and state are kept; for this node alone.")
    ] = "raftsched-data"
    listen: Annotated[
        str,
        Meta(description="Listen here for clients. Empty: at the member's address for clients."),
    ] = ""
    listen_peer: Annotated[
        str,
        Meta(description="Listen here for nodes. Empty: at the member's address for nodes."),
    ] = ""
    http: Annotated[
        str, Meta(description="/metrics, /healthz, /readyz, /version. Empty: no such port.")
    ] = "127.0.0.1:7420"
    insecure_clients: Annotated[
        bool,
        Meta(
            description="Listen for clients beyond this machine without TLS: whoever reaches it "
            "may do all, or, with tokens, may take those that pass."
        ),
    ] = False
    insecure_peers: Annotated[
        bool,
        Meta(
            description="Listen for nodes beyond this machine without TLS: whoever reaches it may "
            "pose as a node and change all."
        ),
    ] = False
    insecure_http: Annotated[
        bool,
        Meta(description="Serve probes and metrics beyond this machine without TLS."),
    ] = False
    insecure: Annotated[
        bool,
        Meta(
            description="The former word for insecure_clients, insecure_peers and insecure_http "
            "at once; say which of them you mean."
        ),
    ] = False
    tokens: Annotated[
        bool,
        Meta(
            description="Access tokens say who calls, so tls.server needs no ca_file. Until the "
            "first one is made every call is refused: `raftsched token bootstrap` makes it, with "
            f"the secret that a node writes into its folder ({BOOTSTRAP})."
        ),
    ] = False
    reflection: Annotated[
        Literal["auto", "on", "off"],
        Meta(description="gRPC shows the contracts to whoever asks. auto: where tokens is off."),
    ] = "auto"
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How often a worker says that it is alive. Silent for three of these, its "
            "leases go to others.",
        ),
    ] = HEARTBEAT_MS
    cache_mb: Annotated[
        int, Meta(ge=8, le=65_536, description="Memory for blocks of the state, in MiB.")
    ] = 256
    segment_mb: Annotated[
        int,
        Meta(
            ge=8,
            le=1024,
            description="The journal is cut by such pieces, in MiB; a fresh one takes four.",
        ),
    ] = 64
    scrub_mb_per_second: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="How fast all files are read again in the background to find damage, in "
            "MiB a second; one pass an hour.",
        ),
    ] = 8
    limits: CallerLimits = CallerLimits()
    gateway: GatewaySection = GatewaySection()
    secrets: SecretsSection = SecretsSection()
    webhooks: WebhooksSection = WebhooksSection()
    log: LogSection = LogSection()
    tls: TlsSection = TlsSection()
    members: Annotated[
        dict[str, MemberSection],
        Meta(
            description="The first nodes with the addresses for nodes and for clients, "
            "the same list on every node. As a flag: n1=PEER/CLIENT,n2=PEER/CLIENT."
        ),
    ] = msgspec.field(default_factory=dict)


class ConfigWrong(Exception):
    """The node cannot start with this; each fault is one line."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def members_of(text: str) -> dict[str, dict[str, str]]:
    """The member list as flags and variables write it."""
    members: dict[str, dict[str, str]] = {}
    for part in text.replace(",", " ").split():
        name, equals, addresses = part.partition("=")
        peer, slash, client = addresses.partition("/")
        if not equals or not slash:
            raise ValueError(f"{part!r} is no member; write n1=PEER_HOST:PORT/CLIENT_HOST:PORT")
        if name in members:
            raise ValueError(f"{name} is named twice")
        members[name] = {"peer": peer, "client": client}
    return members


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: `tls.peer.key_file` in the file."""

    path: str
    type: Any
    default: Any
    comment: str

    @property
    def flag(self) -> str:
        return "--" + self.path.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.path.replace(".", "_").upper()

    def read(self, text: str) -> object:
        """The value of a flag or a variable; ValueError with the reason."""
        value: Any = members_of(text) if self.path == "members" else text
        if value == "" and self.type is not str and str not in get_args(self.type):
            raise ValueError("a value is missing")
        return msgspec.convert(value, self.type, strict=False)


def keys(struct: type[msgspec.Struct] = Config, above: str = "") -> Iterator[Key]:
    """All settings, in the order of the file."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        kind, path = hints[field.name], above + field.name
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from keys(kind, path + ".")
            continue
        [meta] = [each for each in kind.__metadata__ if each.description]
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        yield Key(path, kind, default, meta.description)


KEYS = {key.path: key for key in keys()}
