"""The way back when every admin's secret is lost: the folders of a majority of the nodes.

`raftsched node recover-admin` writes the hash of a secret into the folder of a node, and each node
shows the others what it found in its own. The leader takes the secret for an admin's while a
majority of the voters show the same hash, to make access tokens and for nothing else. So one disk
alone, or a copy of it, opens nothing: it takes as many machines as could rewrite the log anyway,
and what is made with it is decided, replicated and written into the audit log like all else.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

FILE = "admin-recovery"  # In the folder of a node: the hash, readable by its owner alone.
PREFIX = "rsa_"
SECRET_BYTES = 32
VALID_S = 3_600.0
HASH = re.compile(rb"[0-9a-f]{64}\n?")


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def is_secret(text: str) -> bool:
    return text.startswith(PREFIX) and len(text) > SECRET_BYTES and text.isascii()


def write(folder: Path, secret: str) -> Path:
    """Have the node in this folder show a secret from now on, for an hour."""
    file = folder / FILE
    new = file.with_name(f"{FILE}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o600), "w") as opened:
        opened.write(f"{hashlib.sha256(secret.encode()).hexdigest()}\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
    return file


def found(folder: Path, wall_s: float) -> bytes:
    """The hash in this folder; b"" if there is none, it is an hour old, or others may have written
    it."""
    try:
        fd = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return b""  # Nobody recovers here.
    with os.fdopen(fd, "rb") as opened:
        about = os.fstat(fd)
        text = opened.read(100)
    private = not about.st_mode & 0o077 and about.st_uid == os.geteuid()
    fresh = abs(wall_s - about.st_mtime) < VALID_S
    return bytes.fromhex(text.decode()) if private and fresh and HASH.fullmatch(text) else b""
