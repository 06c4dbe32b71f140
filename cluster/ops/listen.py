"""The addresses a node listens on: free, or the reason why not before anything is started."""

from __future__ import annotations

import errno
import os
import socket

from ..raft.transport import split
from .config import KEYS, Config
from .exits import NodeCannotStart, NodeExit


def of(config: Config) -> dict[str, str]:
    """Key of the configuration and address, for each port this node opens."""
    me = config.members[config.name]
    key = "listen_peer" if config.listen_peer else f"members.{config.name}.peer"
    found = {key: config.listen_peer or me.peer}
    found["listen" if config.listen else f"members.{config.name}.client"] = client(config)
    found |= {"http": config.http} if config.http else {}
    return found | ({"gateway.listen": config.gateway.listen} if has_gateway(config) else {})


def has_gateway(config: Config) -> bool:
    """Whether a gateway is started beside. It could not pass on the certificates that callers show
    where these say who calls."""
    return bool(config.gateway.listen) and not config.tls.server.ca_file


def client(config: Config) -> str:
    """Where this node listens for clients."""
    return config.listen or config.members[config.name].client


def check(config: Config) -> None:
    """Raise CannotStart naming the first address that cannot be listened on."""
    for key, address in of(config).items():
        try:
            _try(address)
        except OSError as error:
            raise NodeCannotStart(NodeExit.ADDRESS_TAKEN, refusal(key, address, error)) from error


def refusal(key: str, address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        known = KEYS.get(key)
        how = f" with {known.flag} HOST:PORT" if known is not None else ""
        how += " or --no-gateway" if key == "gateway.listen" else ""
        return (
            f"{key}: {address} is in use by another program; stop it, or choose another port{how}"
        )
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"{key}: cannot listen on {address}: {reason}; name an address of this machine"


def _try(address: str) -> None:
    host, port = split(address)
    for family, kind, _, _, place in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        with socket.socket(family, kind) as trying:
            # As the real ones will: what is left of a closed connection is no hindrance.
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind(place)
            trying.listen(1)
