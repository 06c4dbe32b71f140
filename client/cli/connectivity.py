"""Whether anybody listens at all, before a call waits its whole timeout for a cluster to appear."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

REST_S = 0.1
ROUND_S = 1.0


def unreachable(endpoints: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Why each endpoint cannot be connected to; empty as soon as one of them can."""
    end = time.monotonic() + timeout_s
    while True:
        reasons = _round(endpoints, min(ROUND_S, max(end - time.monotonic(), REST_S)))
        if not reasons or time.monotonic() + REST_S >= end:
            return reasons
        time.sleep(REST_S)


def _round(endpoints: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Connect to all at once, so that one that swallows packets does not hold up the others."""
    reasons: dict[str, str] = {}
    waiting: dict[int, tuple[socket.socket, str]] = {}
    poll = select.poll()
    with ExitStack() as stack:
        for endpoint in endpoints:
            try:
                connection = stack.enter_context(_connect(endpoint))
            except OSError as wrong:
                reasons[endpoint] = wrong.strerror or str(wrong)
                continue
            poll.register(connection, select.POLLOUT)
            waiting[connection.fileno()] = connection, endpoint
            reasons[endpoint] = f"no answer within {timeout_s:.1f} s"
        end = time.monotonic() + timeout_s
        while waiting and (left := end - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                connection, endpoint = waiting.pop(number)
                poll.unregister(number)
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    return {}
                reasons[endpoint] = os.strerror(code)
    return reasons


def _connect(endpoint: str) -> socket.socket:
    host, _, port = endpoint.rpartition(":")
    family, kind, _, _, place = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM
    )[0]
    connection = socket.socket(family, kind)
    connection.setblocking(False)
    code = connection.connect_ex(place)
    if code not in (0, errno.EINPROGRESS):
        connection.close()
        raise OSError(code, os.strerror(code))
    return connection
