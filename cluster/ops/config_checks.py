"""What is wrong with settings, and what is allowed and hardly meant."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterator
from pathlib import Path

from ...proto.addresses import AddressRules
from ...proto.signatures import keys_of
from ..node.bootstrap_token import BOOTSTRAP
from .config import KEYS, MEMBERS_MAX, NAME, Config, Files, WebhooksSection

SECRET_FILE_MAX = 4_096


def wrong(config: Config) -> Iterator[str]:
    yield from _wrong_members(config)
    doors = (
        ("listen", config.listen), ("listen_peer", config.listen_peer), ("http", config.http),
        ("gateway.listen", config.gateway.listen),
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
    if config.secrets.key_file and config.secrets.key_command:
        yield "secrets.key_file and secrets.key_command are both given; take one of them out"
    try:
        webhook_settings(config.webhooks)
    except (ValueError, OSError) as error:
        yield f"webhooks: {error}"
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
    named_files = {name: getattr(files, name) for name in files.__struct_fields__}
    needed = [name for name in named_files if needs_ca or name != "ca_file"]
    if not any(named_files.values()):
        return
    for name in needed:
        if not named_files[name]:
            given = next(other for other, file in named_files.items() if file)
            yield f"{path}.{name} is empty, but {given} is given; TLS needs {' and '.join(needed)}"
    for name, file in named_files.items():
        try:
            if file:
                Path(file).read_bytes()
        except OSError as error:
            yield f"{path}.{name} = {file!r} cannot be read: {error.strerror}"


def _open_doors(config: Config) -> Iterator[str]:
    """Listeners beyond this machine have TLS, unless their key allows plain text."""
    me, tls = config.members[config.name], config.tls
    known = tls.server.certificate_file if config.tokens else tls.server.ca_file
    doors = (
        ("listen_peer" if config.listen_peer else f"members.{config.name}.peer",
         config.listen_peer or me.peer, tls.peer.ca_file, "tls.peer", "insecure_peers"),
        ("listen" if config.listen else f"members.{config.name}.client",
         config.listen or me.client, known, "tls.server with a ca_file or with tokens = true",
         "insecure_clients"),
        ("http", config.http, tls.server.certificate_file, "tls.server", "insecure_http"),
        ("gateway.listen", config.gateway.listen, tls.server.certificate_file, "tls.server",
         "insecure_http"),
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
    if config.secrets.key_file and is_open(Path(config.secrets.key_file)):
        file = config.secrets.key_file
        yield f"secrets.key_file = {file!r} can be read by others on this machine: chmod 600 {file}"
    if config.webhooks.secret_file and is_open(Path(config.webhooks.secret_file)):
        file = config.webhooks.secret_file
        yield f"webhooks.secret_file = {file!r} can be read by others here: chmod 600 {file}"
    limits = config.limits
    for name in limits.__struct_fields__:
        share = f"{name}_by_caller"
        most, own = getattr(limits, name), getattr(limits, share, 0)
        if own > most:
            yield (
                f"limits.{share} = {own} is more than limits.{name} = {most}, which holds for all "
                f"callers, so one of them may take everything; lower the first or raise the second"
            )


def webhook_settings(settings: WebhooksSection) -> tuple[AddressRules, list[str]]:
    """Where webhooks may go, and the secrets they are signed with. ValueError for what is neither,
    OSError for a file that cannot be read."""
    given = settings.allow, settings.deny
    allow, deny = (tuple(text.replace(",", " ").split()) for text in given)
    lines: list[str] = []
    if settings.secret_file:
        with Path(settings.secret_file).open() as file:
            lines = file.read(SECRET_FILE_MAX).split()
        if not keys_of(lines):
            raise ValueError(f"secret_file = {settings.secret_file!r} holds no secret")
    return AddressRules(allow, deny), lines


def is_open(file: Path) -> bool:
    """Whether others than its owner and group may read a file."""
    try:
        return bool(file.stat().st_mode & 0o004)
    except OSError:
        return False  # It cannot be read at all, which is a fault of its own.


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
