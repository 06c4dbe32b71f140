"""Certificates are read again when their files change, without a restart."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from raftsched.cluster.ops import tls
from raftsched.cluster.ops.config import Config
from raftsched.cluster.ops.config_load import load
from raftsched.cluster.ops.probes import HttpPort
from raftsched.cluster.raft.transport import split

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="makes its certificates with openssl"
)


def make(folder: Path, serial: int) -> None:
    """An authority where there is none, and a certificate for n1 with this serial number."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    if not (folder / "ca.pem").exists():
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    names = "subjectAltName=DNS:n1,DNS:localhost,IP:127.0.0.1"
    openssl("req", *key, "-keyout", "new.key", "-out", "n1.csr", "-subj", "/CN=n1",
            "-addext", names)  # fmt: skip
    openssl("x509", "-req", "-in", "n1.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "1",
            "-copy_extensions", "copy", "-set_serial", str(serial), "-out", "new.pem")  # fmt: skip
    for end in ("key", "pem"):
        (folder / f"new.{end}").replace(folder / f"n1.{end}")


def config(folder: Path) -> Config:
    make(folder, 11)
    flags = {"name": "n1", "members": "n1=127.0.0.1:1/127.0.0.1:2"}
    for door in ("peer", "server"):
        flags |= {
            f"tls.{door}.certificate_file": str(folder / "n1.pem"),
            f"tls.{door}.key_file": str(folder / "n1.key"),
        }
    flags["tls.peer.ca_file"] = str(folder / "ca.pem")
    return load(None, {}, flags).config


def serial_of(certificate: bytes, folder: Path) -> int:
    text = ssl.DER_cert_to_PEM_cert(certificate)
    said = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=text, text=True,
                          check=True, capture_output=True)  # fmt: skip
    return int(said.stdout.strip().partition("=")[2], 16)


def peer_serial(contexts: tuple[ssl.SSLContext, ssl.SSLContext], folder: Path) -> int:
    accepting, dialling = contexts
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = accepting.wrap_bio(there, back, server_side=True)
    client = dialling.wrap_bio(back, there, server_hostname="n1")
    for _ in range(tls.ROUNDS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return serial_of(found, folder)


def test_nodes_show_a_new_certificate_on_each_new_connection(tmp_path: Path) -> None:
    made = config(tmp_path)
    contexts = tls.peer_contexts(made)
    assert contexts is not None
    renewal = tls.Renewal("tls.peer", made.tls.peer, contexts)
    assert peer_serial(contexts, tmp_path) == 11
    make(tmp_path, 12)
    renewal.look()
    assert peer_serial(contexts, tmp_path) == 12
    # What makes no pair is not taken, and what was taken goes on.
    (tmp_path / "n1.key").write_text("nonsense")
    renewal.look()
    assert peer_serial(contexts, tmp_path) == 12
    make(tmp_path, 13)
    renewal.look()
    assert peer_serial(contexts, tmp_path) == 13


def test_it_is_known_when_they_end(tmp_path: Path) -> None:
    made = config(tmp_path)
    found = tls.expiries(made)
    assert set(found) == {"peer", "server"}
    assert all(0 < at - time.time() <= 86_400 + 60 for at in found.values())
    (tmp_path / "n1.key").write_text("nonsense")
    assert set(tls.expiries(made).values()) == {0.0}


async def test_clients_are_shown_a_new_certificate(tmp_path: Path) -> None:
    made = config(tmp_path)
    credentials = tls.server(made)
    assert credentials is not None
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        assert await client_serial(port, tmp_path) == 11
        make(tmp_path, 12)
        assert await client_serial(port, tmp_path) == 12
        (tmp_path / "n1.pem").write_text("nonsense")
        assert await client_serial(port, tmp_path) == 12
    finally:
        await server.stop(0)


async def test_http_shows_a_new_certificate(tmp_path: Path) -> None:
    """Seen before: the one of the start, until the next start."""
    made = config(tmp_path)
    files = made.tls.server
    http = HttpPort(CollectorRegistry(), dict, {}, files)
    assert http.context is not None
    renewal = tls.Renewal("tls.server of HTTP", files, (http.context,))
    port = split(await http.start("127.0.0.1:0"))[1]
    try:
        assert await client_serial(port, tmp_path, "http/1.1") == 11
        make(tmp_path, 12)
        renewal.look()
        assert await client_serial(port, tmp_path, "http/1.1") == 12
        (tmp_path / "n1.pem").write_text("nonsense")
        renewal.look()
        assert await client_serial(port, tmp_path, "http/1.1") == 12
    finally:
        await http.stop()


async def client_serial(port: int, folder: Path, speaks: str = "h2") -> int:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols([speaks])

    def connect() -> int:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as secure,
        ):
            found = secure.getpeercert(binary_form=True)
            assert found is not None
            return serial_of(found, folder)

    return await asyncio.to_thread(connect)
