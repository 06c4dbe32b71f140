"""What a node is told: a TOML file, the environment, flags; and what is wrong with it.

The Structs below are the only list of keys: defaults, comments, the names of flags and variables,
the written file and `config show` all come from them.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ..node.bootstrap_token import BOOTSTRAP
from ..node.limits import Limits, Section

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
PREFIX = "RAFTSCHED_NODE_"
MEMBERS_MAX = 9
FILE_MAX = 1 << 20


class Member(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the member list."""

    peer: str
    client: str


class Log(Section, frozen=True, kw_only=True):
    format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="json, console, or auto: console on a terminal, json elsewhere."),
    ] = "auto"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="debug also tells every step of every run; not for a busy cluster."),
    ] = "info"


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


class Tls(Section, frozen=True, kw_only=True):
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
        Meta(description="gRPC tells the contracts to whoever asks. auto: where tokens is off."),
    ] = "auto"
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How often a worker says that it is alive. Silent for three of these, its "
            "leases go to others.",
        ),
    ] = 10_000
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
    limits: Limits = Limits()
    log: Log = Log()
    tls: Tls = Tls()
    members: Annotated[
        dict[str, Member],
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


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each value came from."""

    config: Config
    origins: dict[str, str]


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> Loaded:
    """Flags over environment over file over defaults; `flags` goes by path. Raises ConfigWrong."""
    values: dict[str, Any] = {path: key.default for path, key in KEYS.items()}
    origins = dict.fromkeys(KEYS, "default")
    faults: list[str] = []
    if file is not None:
        for path, value in _flat(_read(file), faults, str(file)):
            values[path], origins[path] = value, f"file {file}"
    said = {p: (environment[k.variable], k.variable) for p, k in KEYS.items()
            if k.variable in environment}  # fmt: skip
    said |= {path: (text, KEYS[path].flag) for path, text in flags.items()}
    for path, (text, source) in said.items():
        try:
            values[path], origins[path] = KEYS[path].read(text), source
        except ValueError as error:
            faults.append(f"{source}={text!r}: {_plain(error)}{_remedy(KEYS[path])}")
    config = _convert(values, origins, faults)
    if config is None or faults:
        raise ConfigWrong(faults)
    wrong = list(_wrong(config))
    if wrong:
        raise ConfigWrong(wrong)
    return Loaded(config, origins)


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > FILE_MAX:
            raise ConfigWrong([f"{file} is larger than {FILE_MAX} bytes, so it is not a config"])
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigWrong(
            [f"{file} cannot be read: {reason}; `raftsched node config init` writes one"]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigWrong([f"{file} is not TOML: {error}"]) from error


def _flat(
    table: Mapping[str, Any], faults: list[str], file: str, above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each key of a file; what is unknown becomes a fault."""
    sections = {path.rpartition(".")[0] for path in KEYS} | {"tls"}
    for name, value in table.items():
        path = above + name
        if path in KEYS:
            yield path, value
        elif path in sections and isinstance(value, dict):
            yield from _flat(value, faults, file, path + ".")
        elif path in sections:
            faults.append(f"{file}: {path} is a section; write [{path}] and its keys below")
        else:
            faults.append(f"{file}: there is no key `{path}`{_near(path)}")


def _near(path: str) -> str:
    """A suggestion: a key spelled like this one, or one of this name in another section."""
    last = path.rpartition(".")[2]
    near = [known for known in KEYS if known.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(path, KEYS, 1, 0.6)
    return f"; did you mean `{near[0]}`?" if near else "; `raftsched node config init` lists them"


def _convert(values: dict[str, Any], origins: dict[str, str], faults: list[str]) -> Config | None:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        try:
            checked = msgspec.convert(msgspec.to_builtins(value), KEYS[path].type)
        except msgspec.ValidationError as error:
            why = _plain(error) + _remedy(KEYS[path])
            faults.append(f"{origins[path]}: {path} = {_short(value)}: {why}")
            continue
        place = tree
        *sections, last = path.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = msgspec.to_builtins(checked)
    return None if faults else msgspec.convert(tree, Config)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(error: Exception) -> str:
    """The library's words; of its path only what is below the key."""
    return str(error).replace(" - at `$`", "").replace("`$[...]", "`members.*").replace("`$.", "`")


def _remedy(key: Key) -> str:
    """What to write where the library only says what it is not."""
    if key.path == "members":
        return "; write [members.n1] and below it peer and client, each as 'HOST:PORT'"
    kind = get_args(key.type)[0]
    if get_origin(kind) is Literal:
        return f"; there are {', '.join(get_args(kind))}"
    return ""


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


def _wrong(config: Config) -> Iterator[str]:
    yield from _wrong_members(config)
    doors = (
        ("listen", config.listen), ("listen_peer", config.listen_peer), ("http", config.http),
    )  # fmt: skip
    for path, address in doors:
        if address and (why := wrong_address(address)):
            yield f"{path} = {address!r} {why}"
    if not NAME.fullmatch(config.cluster):
        yield f"cluster = {config.cluster!r} {NAME_RULE}"
    if not config.folder:
        yield "folder is empty; name the folder this node keeps its journal and state in"
    yield from _wrong_tls("tls.peer", config.tls.peer, needs_ca=True)
    yield from _wrong_tls("tls.server", config.tls.server, needs_ca=False)
    if config.name in config.members:
        yield from _open_doors(config)


NAME_RULE = "is no name; names are 1 to 128 of a-z, 0-9, - and _, beginning with a letter or digit"


def _wrong_members(config: Config) -> Iterator[str]:
    if not config.members:
        yield (
            "members is empty; list all nodes, the same on each of them: [members.n1] in the file, "
            "or --members n1=127.0.0.1:7410/127.0.0.1:7400"
        )
    elif not config.name:
        yield f"name is empty; say which of the members this is: {', '.join(config.members)}"
    elif config.name not in config.members:
        near = difflib.get_close_matches(config.name, config.members, 1)
        yield (
            f"name = {config.name!r} is none of the members ({', '.join(config.members)})"
            + (f"; did you mean {near[0]!r}?" if near else "; add it, on every node")
        )
    if len(config.members) > MEMBERS_MAX:
        yield f"members has {len(config.members)} nodes; {MEMBERS_MAX} are the most, 3 or 5 usual"
    seen: dict[str, str] = {}
    for name, member in config.members.items():
        if not NAME.fullmatch(name):
            yield f"members.{name} {NAME_RULE}"
        for key, address in (("peer", member.peer), ("client", member.client)):
            path = f"members.{name}.{key}"
            if why := wrong_address(address):
                yield f"{path} = {address!r} {why}"
            elif address in seen:
                yield f"{path} = {address!r} is {seen[address]} already; each needs its own"
            seen[address] = path


def wrong_address(address: str) -> str:
    """What is wrong with host:port; empty if nothing."""
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        return "is no address; write it as host:port"
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        return f"has the port {port!r}; ports are 1 to 65535"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return "is ambiguous; write IPv6 addresses in brackets, as [::1]:7400"
    return ""


def _wrong_tls(path: str, files: Files, *, needs_ca: bool) -> Iterator[str]:
    said = {name: getattr(files, name) for name in files.__struct_fields__}
    needed = [name for name in said if needs_ca or name != "ca_file"]
    if not any(said.values()):
        return
    for name in needed:
        if not said[name]:
            given = next(other for other, file in said.items() if file)
            yield f"{path}.{name} is empty, but {given} is given; TLS needs {' and '.join(needed)}"
    for name, file in said.items():
        try:
            if file:
                Path(file).read_bytes()
        except OSError as error:
            yield f"{path}.{name} = {file!r} cannot be read: {error.strerror}"


def _open_doors(config: Config) -> Iterator[str]:
    """Doors beyond this machine have locks, unless the word of that door is said."""
    me, tls = config.members[config.name], config.tls
    known = tls.server.certificate_file if config.tokens else tls.server.ca_file
    doors = (
        ("listen_peer" if config.listen_peer else f"members.{config.name}.peer",
         config.listen_peer or me.peer, tls.peer.ca_file, "tls.peer", "insecure_peers"),
        ("listen" if config.listen else f"members.{config.name}.client",
         config.listen or me.client, known, "tls.server with a ca_file or with tokens = true",
         "insecure_clients"),
        ("http", config.http, tls.server.certificate_file, "tls.server", "insecure_http"),
    )  # fmt: skip
    for path, address, lock, needs, key in doors:
        if config.insecure or getattr(config, key):
            continue
        if address and not wrong_address(address) and not is_loopback(address) and not lock:
            yield (
                f"{path} = {address!r} is open beyond this machine without a lock; set {needs}, "
                f"or say {key} = true ({KEYS[key].flag})"
            )


def warnings(config: Config) -> Iterator[str]:
    """What is allowed, and should be known."""
    yield from doubts(config)
    if config.tokens:
        yield (
            "tokens = true: until the first access token is made every call is refused; make it "
            f"with: raftsched token bootstrap --secret-file {Path(config.folder) / BOOTSTRAP}"
        )


def doubts(config: Config) -> Iterator[str]:
    """What is allowed, and hardly meant."""
    if config.insecure:
        yield (
            "insecure = true opens the doors for clients, for nodes and for HTTP at once; say "
            "insecure_clients, insecure_peers or insecure_http = true for those you mean"
        )
    limits = config.limits
    for name in limits.__struct_fields__:
        share = f"{name}_by_caller"
        most, own = getattr(limits, name), getattr(limits, share, 0)
        if own > most:
            yield (
                f"limits.{share} = {own} is more than limits.{name} = {most}, which holds for all "
                f"callers, so one of them may take everything; lower the first or raise the second"
            )


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def text_of(config: Config, origins: Mapping[str, str] | None = None) -> str:
    """The file that says this; with `origins`, where each value came from, else its comment."""
    lines: list[str] = []
    section = ""
    for path, key in KEYS.items():
        above, _, name = path.rpartition(".")
        if above not in ("", section):
            section = above
            doc = _section_comment(section) if origins is None else ""
            lines += ["", *([f"# {doc}"] if doc else []), f"[{section}]"]
        note = origins[path] if origins is not None else ""
        if origins is None:
            lines += ["", *(f"# {line}" for line in textwrap.wrap(key.comment, 94))]
        if path == "members":
            lines += [*(["", f"# {note}"] if note else []), *_member_lines(config)]
        else:
            line = f"{name} = {_toml(_value(config, path))}"
            lines.append(f"{line}  # {note}" if note else line)
    return "\n".join(lines).lstrip("\n") + "\n"


def _member_lines(config: Config) -> Iterator[str]:
    for index, (name, member) in enumerate(config.members.items()):
        if index:
            yield ""
        yield f"[members.{name}]"
        yield f"peer = {_toml(member.peer)}"
        yield f"client = {_toml(member.client)}"


def _section_comment(section: str) -> str:
    kind: Any = Config
    for name in section.split("."):
        kind = get_type_hints(kind)[name]
    return (kind.__doc__ or "").strip() if issubclass(kind, Files | Limits) else ""


def _value(config: Config, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


EXAMPLE = Config(
    name="n1",
    members={
        f"n{i}": Member(peer=f"127.0.0.1:741{i - 1}", client=f"127.0.0.1:740{i - 1}")
        for i in (1, 2, 3)
    },
)
