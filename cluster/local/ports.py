"""Ports of this machine that are free."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
# Below those that the system gives to whoever asks for any: one of these could take the port of a
# node while it is down.
PORTS = range(15_000, 32_000)
TRIED = 1_000


class NoPorts(OSError):
    """Too few ports are free; the text says what to do."""


def free_ports(count: int) -> list[int]:
    """So many ports that nobody uses at this moment, none twice."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, TRIED):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise NoPorts(
            f"{len(found)} of {TRIED} ports from {PORTS.start} to {PORTS.stop - 1} are free and "
            f"{count} are needed; end programs that listen there"
        )
    return found


def is_free(port: int) -> bool:
    """Nobody listens on this port of the loopback address."""
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
