"""The secret with which the first access token is made, where `tokens` is on.

Nobody is an admin by default: whoever can read the folder of a node is. Each node writes a secret
of its own at its first start and sends the others its hash, so whichever is shown, the leader
knows it. As soon as there is a token the file goes, and no such secret opens anything; a note in
its place says when and by what it was used, to whoever could read the secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path

from ...statemachine.core.store import Store
from ...statemachine.tenants import access
from . import admin_recovery

logger = logging.getLogger(__name__)

BOOTSTRAP = "bootstrap-secret"  # The file in the folder that makes the first access token.
PREFIX = "rsb_"  # So that a secret that was published is found by those who look for such.
SECRET_BYTES = 32
FILE_MAX = 1_024


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def used_by(name: str, at_ms: int) -> str:
    """The note: when the first access token was made, and which it was."""
    when = datetime.fromtimestamp(at_ms / 1000, UTC)
    return (
        f"used on {when:%Y-%m-%dT%H:%M:%SZ}: the first access token {name!r} was made, so no "
        "bootstrap secret opens anything any more"
    )


def first_secret(bootstrap: str, request_id: str, prefix: str) -> str:
    """The secret of the first token: the same when the call is repeated, since the answer may get
    lost with the leader. Nobody finds it by the bootstrap secret alone: the id is by chance."""
    derived = hmac.digest(bootstrap.encode(), f"first token {request_id}".encode(), "sha256")
    return prefix + base64.urlsafe_b64encode(derived).decode().rstrip("=")


class Bootstrap:
    """The file in a node's folder, until there is a token."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / BOOTSTRAP
        self.note = folder / f"{BOOTSTRAP}.used"
        self.digest = b""
        # See admin_recovery.py.
        self.recovery = b""
        # Whether an earlier process may have left the file.
        self._unsure = True

    @property
    def place(self) -> str:
        """Where the secret is found, for people."""
        return str(self.file) if self.digest else BOOTSTRAP

    def look(self, store: Store, *, is_wanted: bool) -> None:
        """Have a secret as long as it is wanted and there is no token."""
        self.recovery = admin_recovery.found(self.file.parent, time.time())
        closed = access.any_token(store)
        if closed and self.open_still:
            self.close(used_by(*access.first_token(store)))
        elif is_wanted and not self.digest and not closed:
            self.open()

    def open(self) -> None:
        """Read the secret, or make one. OSError when the folder cannot be written to."""
        secret = self._read()
        if not secret:
            secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
            self._write(secret, self.file)
            self.note.unlink(missing_ok=True)
        self.digest = digest(secret)

    def close(self, used: str) -> None:
        """There is a token: the secret opens nothing any more, here and in the file."""
        self.digest, self._unsure = b"", False
        try:
            if self.file.exists():
                self._write(used, self.note)
                self.file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s opens nothing any more; remove it by hand: %s", self.file, error)

    @property
    def open_still(self) -> bool:
        """Whether the file may be there."""
        return self._unsure or bool(self.digest)

    def _read(self) -> str:
        """What an earlier start wrote; empty if that was not all of it, or not for us alone."""
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return ""  # It is not there, or is no file of ours: then it is written anew.
        with os.fdopen(fd) as opened:
            private = not os.fstat(fd).st_mode & 0o077
            text = opened.read(FILE_MAX).strip() if private else ""
        whole = text.startswith(PREFIX) and len(text) > SECRET_BYTES
        return text if whole and text.isascii() else ""

    def _write(self, text: str, file: Path) -> None:
        """Whole or not at all, and never for the eyes of others."""
        new = self.file.with_name(f"{BOOTSTRAP}.new")
        new.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "w") as opened:
            opened.write(f"{text}\n")
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
