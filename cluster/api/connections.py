"""The connections of callers, which gRPC keeps to itself: found among the open descriptors."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Set

DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
# For Linux, to connect to no address is to drop a connection, with all that waits in it.
UNSPECIFIED = bytes(16)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
Visit = Callable[[socket.socket, str], None]


def each_connection(visit: Visit) -> float:
    """Visit each of this process with the address of the other end, as gRPC writes it. Seconds of
    the processor that it took. Not for the loop: there may be thousands."""
    began = time.thread_time()
    for name in os.listdir(DESCRIPTORS):
        _visit(int(name), visit)
    return time.thread_time() - began


async def break_off(peers: Set[str]) -> None:
    """End the connections from these addresses."""

    def visit(one: socket.socket, peer: str) -> None:
        if peer in peers:
            one.shutdown(socket.SHUT_RDWR)

    await asyncio.to_thread(each_connection, visit)


def cut(one: socket.socket) -> None:
    """End a connection so that what came on it and was not read yet is dropped."""
    if _LIBC is None or _LIBC.connect(one.fileno(), UNSPECIFIED, len(UNSPECIFIED)):
        one.shutdown(socket.SHUT_RDWR)


def _visit(number: int, visit: Visit) -> None:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return
        # A descriptor of its own, so that it is the same socket to the end; addresses of both
        # families fit into one of the longer.
        with socket.fromfd(number, socket.AF_INET6, socket.SOCK_STREAM) as one:
            if peer := _written(one.getpeername()):
                visit(one, peer)
    except OSError:
        # It listens, or it was closed meanwhile.
        return


def _written(address: object) -> str:
    """As `ServicerContext.peer` says it; empty for what is no address of the network."""
    if not isinstance(address, tuple):
        return ""
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
