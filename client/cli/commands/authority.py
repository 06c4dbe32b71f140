"""An authority of one's own in a folder: ca.pem, ca.key, and a folder for each that it has signed.

tls/ca.pem  tls/ca.key  tls/n1/node.pem  tls/n1/node.key  tls/n1/ca.pem  tls/n1/node.toml
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
CERTIFICATE, KEY, TRUST, CONFIG = "node.pem", "node.key", "ca.pem", "node.toml"
AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
# Clocks of machines differ.
EARLIER = timedelta(hours=1)
FILE_MAX = 1 << 20
PEER_PORT, CLIENT_PORT, HTTP = 7410, 7400, "127.0.0.1:7420"
# On its own machine a node is asked by these.
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Issued:
    """A certificate that was made just now."""

    name: str
    host: str
    until: datetime
    certificate: Path
    key: Path
    # It ends before it was asked to, as the authority does.
    is_cut: bool


@dataclass(frozen=True)
class Authority:
    """Who signs. Raises OSError, and ValueError for files that are something else."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, cluster: str, days: int) -> Authority:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"raftsched {cluster}")])
        now = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _begun(name, name, key, now, now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        made = cls(folder, certificate, key)
        # The key comes last: with it the folder is one.
        _write(folder / AUTHORITY, _pem(certificate), 0o644)
        _write(folder / AUTHORITY_KEY, _key_pem(key), 0o600)
        return made

    @classmethod
    def read(cls, folder: Path) -> Authority:
        key = serialization.load_pem_private_key(_read(folder / AUTHORITY_KEY), None)
        certificate = x509.load_pem_x509_certificate(_read(folder / AUTHORITY))
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{folder / AUTHORITY_KEY} is of another kind")
        if key.public_key() != certificate.public_key():
            raise ValueError(f"{AUTHORITY} and {AUTHORITY_KEY} are no pair")
        return cls(folder, certificate, key)

    def names(self) -> tuple[str, ...]:
        """Whom it has signed for."""
        return tuple(sorted(path.parent.name for path in self.folder.glob(f"*/{CERTIFICATE}")))

    def issue(self, name: str, names: Sequence[str], days: int) -> Issued:
        """A key and a certificate for these names and addresses, as server and as client."""
        place = self.folder / name
        place.mkdir(mode=0o700, exist_ok=True)
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        until = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        known = dict.fromkeys((*names, *LOCAL))
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=False, crl_sign=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            _begun(subject, self.certificate.subject, key, now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(signer, critical=False)
            .add_extension(x509.SubjectAlternativeName([*map(_general, known)]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        _write(place / TRUST, _pem(self.certificate), 0o644)
        _write(place / KEY, _key_pem(key), 0o600)
        _write(place / CERTIFICATE, _pem(certificate), 0o644)
        cut = until < now + timedelta(days=days)
        return Issued(name, names[-1], until, place / CERTIFICATE, place / KEY, cut)

    def renew(self, name: str, days: int) -> Issued:
        """The same names, another key, a later end."""
        found = self._of(name).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = [str(one.value) for one in found.value]
        return self.issue(name, [one for one in names if one not in LOCAL], days)

    def days_left(self, name: str) -> int:
        return (self._of(name).not_valid_after_utc - datetime.now(UTC)).days

    def _of(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(_read(self.folder / name / CERTIFICATE))


def node_toml(name: str, cluster: str, hosts: Mapping[str, str], place: str) -> str:
    """The configuration of a node whose files lie there."""
    files = [
        f"certificate_file = {json.dumps(f'{place}/{CERTIFICATE}')}",
        f"key_file = {json.dumps(f'{place}/{KEY}')}",
    ]
    lines = [
        "# Made by `raftsched tls init`; all keys: raftsched node config init",
        f"name = {json.dumps(name)}",
        f"cluster = {json.dumps(cluster)}",
        'folder = "/var/lib/raftsched/node"',
        f"http = {json.dumps(HTTP)}",
        "# Access tokens say who may call; the first one: raftsched token bootstrap --help",
        "tokens = true", "", "[tls.peer]", *files,
        f"ca_file = {json.dumps(f'{place}/{TRUST}')}", "", "[tls.server]", *files,
    ]  # fmt: skip
    for member, host in hosts.items():
        shown = f"[{host}]" if ":" in host else host
        lines += [
            "", f"[members.{member}]", f"peer = {json.dumps(f'{shown}:{PEER_PORT}')}",
            f"client = {json.dumps(f'{shown}:{CLIENT_PORT}')}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(issuer).public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER).not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )  # fmt: skip


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_MAX)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whoever reads it meets the former file or the new one, never a part of it."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(mode)
    new.replace(path)
