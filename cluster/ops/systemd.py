"""A word to systemd, where it started us (`Type=notify`)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send READY=1, STOPPING=1 or STATUS=...; without systemd, nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    # Nobody may listen there any more; then nobody wants to know.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)
        sending.sendto(state.encode(), address)
