"""The keys for secrets of jobs' targets, which operators keep, and what is encrypted under them.

A value is encrypted under a key of its own (AES-256-GCM), and that under the operators' key: both
are bound to the namespace, the name and the version of the value, so what was encrypted opens at
its own place alone. The id of a key is the beginning of a hash of it: ids may be shown and
compared, and two keys never have one.

The file has a key a line, 32 bytes in base64: the first one encrypts, the others open what was
encrypted before. It is read again when it changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...statemachine.model.request import SealedPlace, SealedSecret

logger = logging.getLogger(__name__)

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
ID_CHARS = 12
KEYS_MAX = 16
TEXT_MAX = 64 << 10  # Of a file, or of what a command prints.
COMMAND_S = 10.0
FORMAT = b"\x01"  # Of what is encrypted.
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES
HOW = "write a key a line, each 32 bytes in base64 (openssl rand -base64 32), the newest first"


class KeysWrong(Exception):
    """The keys cannot be read; the text says why and what to write."""


class NotOpened(Exception):
    """What is stored is not what was encrypted for this place under this key."""


class SecretKey:
    """One key of the operators."""

    __slots__ = ("_digests", "_wraps", "id")

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES, "a key of another length is refused where it is read"
        self.id = hashlib.sha256(b"raftsched secret key id\0" + key).hexdigest()[:ID_CHARS]
        self._wraps = AESGCM(_derived(key, b"encrypt"))
        self._digests = _derived(key, b"fingerprint")

    def seal(self, place: SealedPlace, value: str) -> SealedSecret:
        own, bound = AESGCM.generate_key(8 * KEY_BYTES), _bound(place, self.id)
        first, second = os.urandom(NONCE_BYTES), os.urandom(NONCE_BYTES)
        wrapped = first + self._wraps.encrypt(first, own, bound)
        data = second + AESGCM(own).encrypt(second, value.encode(), bound)
        return SealedSecret(place, self.id, FORMAT + wrapped + data)

    def open(self, sealed: SealedSecret) -> str:
        """The value. NotOpened if it was changed, or encrypted for another place."""
        bound, end = _bound(sealed.place, self.id), 1 + WRAPPED_BYTES
        wrapped, data = sealed.data[1:end], sealed.data[end:]
        try:
            if sealed.data[:1] != FORMAT:
                raise InvalidTag
            own = self._wraps.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], bound)
            return AESGCM(own).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound).decode()
        except (InvalidTag, ValueError):
            name = sealed.place.name
            raise NotOpened(
                f"the secret '{name}' does not open under the key {self.id}: what is stored is not "
                "what was encrypted for it; put it again"
            ) from None

    def fingerprint(self, data: bytes) -> bytes:
        """A hash that nobody without the key can try values with."""
        return hmac.digest(self._digests, data, "sha256")[:16]

    def __repr__(self) -> str:
        return f"SecretKey({self.id})"


def _derived(key: bytes, use: bytes) -> bytes:
    return hmac.digest(key, b"raftsched secret " + use, "sha256")


def _bound(place: SealedPlace, key_id: str) -> bytes:
    """No name has a line end, so no two places are written alike."""
    parts = (place.number, place.namespace, place.name, place.version, key_id)
    return "\n".join(map(str, parts)).encode()


class SecretKeys:
    """The keys of a node: none, those of a file, or those that a command prints at the start."""

    def __init__(self, file: str = "", command: str = "") -> None:
        self.file, self.command = file, command
        self._stamp: tuple[int, ...] = ()
        self.keys: tuple[SecretKey, ...] = ()
        if file:
            self._stamp = self._look()
            self.keys = keys_in(_file_text(file), file)
        elif command:
            self.keys = keys_in(_command_text(command), "what secrets.key_command prints")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key.id for key in self.keys)

    def find(self, key_id: str) -> SecretKey | None:
        return next((key for key in self.keys if key.id == key_id), None)

    def look(self) -> bool:
        """Read the file again if it has changed; whether there are other keys. To be called now and
        then. A wrong file is logged, and the former keys go on."""
        if not self.file or (stamp := self._look()) == self._stamp or not stamp:
            return False
        self._stamp = stamp
        try:
            found = keys_in(_file_text(self.file), self.file)
        except KeysWrong as error:
            logger.error("secrets.key_file was changed, and the former keys go on: %s", error)
            return False
        if tuple(key.id for key in found) == self.ids:
            return False
        self.keys = found
        logger.info("secrets.key_file was read again; the keys are %s", ", ".join(self.ids))
        return True

    def _look(self) -> tuple[int, ...]:
        """Which file it is; empty while it is being replaced."""
        try:
            found = os.stat(self.file)
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino


def keys_in(text: str, where: str) -> tuple[SecretKey, ...]:
    """The keys that a text has, a line each. No word of a refusal repeats a line."""
    found: list[SecretKey] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            raise KeysWrong(f"{where}: line {number} is no base64; {HOW}") from None
        if len(key) != KEY_BYTES:
            why = f"line {number} has {len(key)} bytes, and a key has {KEY_BYTES}"
            raise KeysWrong(f"{where}: {why}; {HOW}")
        found.append(SecretKey(key))
    if not found:
        raise KeysWrong(f"{where}: there is no key; {HOW}")
    if len(found) > KEYS_MAX:
        raise KeysWrong(f"{where}: there are {len(found)} keys; {KEYS_MAX} are the most")
    if len({key.id for key in found}) < len(found):
        raise KeysWrong(f"{where}: a key stands there twice; take one line out")
    return tuple(found)


def _file_text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            return _text_of(opened.read(TEXT_MAX + 1), file)
    except OSError as error:
        raise KeysWrong(f"secrets.key_file = {file!r} cannot be read: {error.strerror}") from error


def _command_text(command: str) -> str:
    """What a command prints; it has ten seconds, and nothing on its standard input."""
    name = f"secrets.key_command = {command!r}"
    try:
        words = shlex.split(command)
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
    except (OSError, ValueError, IndexError) as error:
        raise KeysWrong(f"{name} cannot be run: {error}") from error
    except subprocess.TimeoutExpired:
        raise KeysWrong(f"{name} did not end within {COMMAND_S:.0f} s") from None
    if ran.returncode:
        output = ran.stderr[-300:].decode(errors="replace").strip()
        raise KeysWrong(f"{name} ended with {ran.returncode}: {output}")
    return _text_of(ran.stdout, name)


def _text_of(data: bytes, where: str) -> str:
    if len(data) > TEXT_MAX:
        raise KeysWrong(f"{where}: it has over {TEXT_MAX} bytes, so it is no list of keys")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise KeysWrong(f"{where}: it is no text; {HOW}") from None


def new_key() -> str:
    """A line for such a file."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def differing(own: Iterable[str], others: dict[str, tuple[str, ...]], name: str) -> list[str]:
    """Where the keys of nodes differ, in sentences."""
    mine, found = tuple(own), []
    for other, theirs in sorted(others.items()):
        if set(theirs) != set(mine):
            found.append(
                f"{other} has the keys for secrets {_listed(theirs)}, {name} has {_listed(mine)}; "
                "give all nodes the same [secrets]."
            )
        elif theirs != mine:
            found.append(
                f"{other} encrypts secrets under {theirs[0]}, {name} under {mine[0]}; put the same "
                "key first on all nodes."
            )
    return found


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "none"
