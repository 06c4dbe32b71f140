"""The locks on a node's doors, made from the files of its configuration."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc

from .config import Config, ConfigWrong, Files

logger = logging.getLogger(__name__)

ROUNDS = 10  # Of a handshake: three of TLS 1.3, some more of others.
# None where a door has no lock.
Contexts = tuple[ssl.SSLContext, ssl.SSLContext] | None
Server = grpc.ServerCredentials | None
Onward = grpc.ChannelCredentials | None


def peer_contexts(config: Config) -> Contexts:
    """For accepting and for dialling other nodes: both sides show who they are."""
    files = config.tls.peer
    if not files.certificate_file:
        return None
    try:
        return mutual(files.ca_file, files.certificate_file, files.key_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigWrong([f"tls.peer: the files do not make a certificate: {error}"]) from error


def mutual(ca: str, certificate: str, key: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For accepting and for dialling, where both sides show a certificate."""
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    accepting.verify_mode = ssl.CERT_REQUIRED
    dialling = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    for context in (accepting, dialling):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # From Python 3.13 on it is strict by itself, and a node that comes back with a newer
        # interpreter would turn away others with the very certificates that it took before.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(certificate, key)
    return accepting, dialling


def server(config: Config) -> Server:
    """For clients; with a ca_file, they must show a certificate it has signed."""
    files = config.tls.server
    if not files.certificate_file:
        return None
    _check("tls.server", files)
    stamp = Stamp(files)

    def read() -> grpc.ServerCertificateConfiguration:
        ca = _bytes(files.ca_file)
        pair = (Path(files.key_file).read_bytes(), Path(files.certificate_file).read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC at each handshake, on a thread of its own: None for what it has."""
        if not stamp.changed():
            return None
        try:
            _check("tls.server", files)
            found = read()
        except (ConfigWrong, OSError) as error:
            stamp.refused("tls.server", error)
            return None
        stamp.taken("tls.server")
        return found

    # Its stubs do not know that None means what it has.
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
    return grpc.dynamic_ssl_server_credentials(
        read(), fetch, require_client_authentication=bool(files.ca_file)
    )


class Stamp:
    """Whether certificate files are others than those that are in use, by time and size."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known = self._look()

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        names = (self.files.certificate_file, self.files.key_file, self.files.ca_file)
        looked = [os.stat(name) for name in names if name]
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in looked)

    def changed(self) -> bool:
        """Once for each change."""
        try:
            now = self._look()
        except OSError:
            return False  # It is being replaced; the next look sees what came of it.
        changed, self._known = now != self._known, now
        return changed

    def taken(self, section: str) -> None:
        logger.info("%s: the certificate was read again, as its files changed", section)

    def refused(self, section: str, error: Exception) -> None:
        logger.error("%s: the changed files are not used, and the former certificate goes on: %s",
                     section, error)  # fmt: skip


class Renewal:
    """Gives contexts the certificates of files that change while they are in use: connections that
    stand go on, each new one shows the new certificate."""

    def __init__(self, section: str, files: Files, contexts: tuple[ssl.SSLContext, ...]) -> None:
        self._section, self._files, self._contexts = section, files, contexts
        self._stamp = Stamp(files) if contexts else None

    def look(self) -> None:
        """Take what has changed. To be called now and then."""
        files, stamp = self._files, self._stamp
        if stamp is None or not stamp.changed():
            return
        try:
            # Key and certificate of two pairs would spoil the contexts that are in use.
            _check(self._section, files)
            for context in self._contexts:
                if files.ca_file and context.verify_mode != ssl.CERT_NONE:
                    context.load_verify_locations(files.ca_file)
                context.load_cert_chain(files.certificate_file, files.key_file)
        except (ConfigWrong, ssl.SSLError, OSError) as error:
            stamp.refused(self._section, error)
            return
        stamp.taken(self._section)


def expiries(config: Config) -> dict[str, float]:
    """Until when the certificate of each door is valid, in seconds since 1970; 0: it is not."""
    doors = {"peer": config.tls.peer, "server": config.tls.server}
    return {name: _expiry(files) for name, files in doors.items() if files.certificate_file}


def _expiry(files: Files) -> float:
    """Found by talking to itself, since only a certificate that holds is shown in words."""
    dialling = ssl.create_default_context(cafile=files.certificate_file)
    dialling.check_hostname = False
    dialling.verify_flags &= ~ssl.VERIFY_X509_STRICT
    dialling.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        accepting.load_cert_chain(files.certificate_file, files.key_file)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = accepting.wrap_bio(there, back, server_side=True)
        client = dialling.wrap_bio(back, there)
        _talk(client, server)
    except (ssl.SSLError, OSError) as error:
        logger.warning("%s is not valid: %s", files.certificate_file, error)
        return 0.0
    peer_certificate = client.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(peer_certificate["notAfter"])))


def onward(config: Config) -> Onward:
    """For calls to the leader's door for clients: this node is a client there."""
    files = config.tls.server
    if not files.certificate_file:
        return None
    # Without certificates of clients, whoever signs for the nodes signs for this door as well.
    authority = files.ca_file or config.tls.peer.ca_file
    return grpc.ssl_channel_credentials(
        _bytes(authority), _bytes(files.key_file), _bytes(files.certificate_file)
    )


def faults(config: Config) -> list[str]:
    """Why nobody would talk to this node, though its files can be read: found by talking to itself.

    Not for a start to refuse, since a clock that is not set yet makes every certificate wrong.
    """
    found = []
    peer, server = config.tls.peer, config.tls.server
    if peer.certificate_file:
        try:
            contexts = mutual(peer.ca_file, peer.certificate_file, peer.key_file)
            _shake_hands(*contexts, config.name)
        except ssl.SSLError as error:
            found.append(
                f"tls.peer.certificate_file = {peer.certificate_file!r} would be turned away by "
                f"other nodes: {_why(error)}; it must be signed by {peer.ca_file!r}, be valid "
                f"today, for servers and clients, and be made for DNS:{config.name}"
            )
    if server.certificate_file:
        # Clients may know another authority and another name: only the dates can be judged.
        dialling = ssl.create_default_context(cafile=server.certificate_file)
        dialling.check_hostname = False
        dialling.verify_flags &= ~ssl.VERIFY_X509_STRICT
        dialling.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            accepting.load_cert_chain(server.certificate_file, server.key_file)
            _shake_hands(accepting, dialling, None)
        except ssl.SSLError as error:
            found.append(
                f"tls.server.certificate_file = {server.certificate_file!r} would be turned away "
                f"by clients: {_why(error)}"
            )
    return found


def _shake_hands(accepting: ssl.SSLContext, dialling: ssl.SSLContext, name: str | None) -> None:
    """As two nodes would, in memory; raises what would break their connection."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = accepting.wrap_bio(there, back, server_side=True)
    _talk(dialling.wrap_bio(back, there, server_hostname=name), server)


def _talk(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    waiting = [client, server]
    for _ in range(ROUNDS):
        for side in list(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
    assert not waiting, "a handshake takes fewer rounds"


def _why(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or error.reason or str(error)


def _check(section: str, files: Files) -> None:
    """gRPC would accept anything here, and say no to every client later."""
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca_file or None)
        context.load_cert_chain(files.certificate_file, files.key_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigWrong([f"{section}: the files do not make a certificate: {error}"]) from error


def _bytes(file: str) -> bytes | None:
    return Path(file).read_bytes() if file else None
