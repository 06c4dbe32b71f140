"""What `raftsched doctor` finds at the doors of nodes: certificates that end, open ports."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .. import messages as m
from .doctor import CheckResult

if TYPE_CHECKING:
    from ..session import Invocation

CONNECT_S = 2.0
SOON_DAYS = 14
FILE_MAX = 1 << 20


def certificates(session: Invocation, addresses: Iterable[str]) -> Iterator[CheckResult]:
    """Until when those are valid that nodes show, and those that we show and trust."""
    files = {name: session.values[name].value for name in ("ca_file", "cert_file")}
    for name, path in files.items():
        if path:
            yield of_file(f"certificate {name}", Path(path))
    if any(files.values()):
        for address in addresses:
            yield of_port(f"certificate {address}", address)


def of_port(check: str, address: str) -> CheckResult:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    # It is looked at, not trusted.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain:
            plain.settimeout(CONNECT_S)
            with context.wrap_socket(plain, server_hostname=host.strip("[]")) as link:
                found = link.getpeercert(binary_form=True)
    except OSError as error:
        return CheckResult(check, "warning", f"not seen: {error}", "raftsched cluster status")
    return judged(check, found or b"", "raftsched tls renew FOLDER, or as your authority does it")


def of_file(check: str, path: Path) -> CheckResult:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX)
        der = ssl.PEM_cert_to_DER_cert(data.decode().partition("-----END CERTIFICATE-----")[0]
                                       + "-----END CERTIFICATE-----")  # fmt: skip
    except (OSError, ValueError) as error:
        return CheckResult(check, "wrong", f"{path}: {error}", "a PEM file with a certificate")
    return judged(check, der, f"another {path}")


def judged(check: str, der: bytes, then: str) -> CheckResult:
    """How long it is still valid."""
    from cryptography import x509

    found = x509.load_der_x509_certificate(der)
    now = datetime.now(UTC)
    days = (found.not_valid_after_utc - now).days
    text = f"valid until {found.not_valid_after_utc:%Y-%m-%d}, {days} days"
    if now < found.not_valid_before_utc:
        return CheckResult(check, "wrong", f"not valid before {found.not_valid_before_utc}",
                         "set this machine's clock, or the authority's")  # fmt: skip
    if days < 0:
        return CheckResult(check, "wrong", f"ended {found.not_valid_after_utc:%Y-%m-%d}", then)
    return CheckResult(check, "warning" if days < SOON_DAYS else "ok", text, then)


def strangers(session: Invocation, addresses: Iterable[str]) -> Iterator[CheckResult]:
    """Whether a port beyond this machine answers who shows neither token nor certificate."""
    from ... import Client, Tls
    from ...sdk.endpoints import is_loopback
    from ...sdk.errors import RaftschedError

    ca = session.values["ca_file"].value
    request = m.cluster_pb2.GetClusterStatusRequest()
    for address in addresses:
        check = f"strangers at {address}"
        if is_loopback(address):
            continue
        with Client(address, tls=Tls(ca) if ca else None, insecure=True) as nobody:
            try:
                nobody.call(request, endpoint=address, retry=False, timeout=CONNECT_S)
            except RaftschedError as error:
                why = error.reason or "the connection"
                yield CheckResult(check, "ok", f"turned away ({why})")
            else:
                yield CheckResult(
                    check, "wrong",
                    "it answers everybody: no token and no certificate is asked for",
                    "tokens = true in the configuration of the nodes, with tls.server",
                )  # fmt: skip
