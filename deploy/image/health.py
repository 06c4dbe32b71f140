"""Whether the program in this container lives: it ends with 0 if its port answers.

It never asks for a quorum: whoever restarts what is not healthy would restart a healthy minority.
RAFTSCHED_HEALTH names another address than the one of a node's probes; http, https or tcp.
"""

import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

DEFAULT = "http://127.0.0.1:7420/healthz"
SECONDS = 4.0
ANSWER_MAX = 64


def healthy(address: str) -> bool:
    """Ask once. Whether a certificate is right is for those who come from outside."""
    where = urlsplit(address)
    try:
        with socket.create_connection((where.hostname or "", where.port or 0), SECONDS) as link:
            if where.scheme == "tcp":
                return True
            if where.scheme == "https":
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                link = context.wrap_socket(link)
            link.settimeout(SECONDS)
            head = (
                f"GET {where.path or '/'} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            link.sendall(head.encode())
            return b" 200 " in link.recv(ANSWER_MAX)
    except OSError as error:
        sys.stderr.write(f"{address} does not answer: {error}\n")
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ.get("RAFTSCHED_HEALTH", DEFAULT)) else 1)
