"""What a snapshot holds: files with size and digest, and its place in the log."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .membership import Configuration
from .record import INDEX_MAX, TERM_MAX

FOLDER = "snapshots"
MANIFEST = "manifest.json"
FILES_MAX = 20_000  # Their manifest fits into a frame.


class FileOf(NamedTuple):
    """A file of a snapshot."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a snapshot holds, and where in the log it stands."""

    index: int
    term: int
    state: int  # What the machine says it holds: less than `index` where no-ops follow.
    configs: list[tuple[int, str]]
    files: list[FileOf]

    @cached_property
    def id(self) -> int:
        """A name for exactly these bytes."""
        digest = hashlib.sha256(self._body()).digest()
        return int.from_bytes(digest[:7], "big")

    def _body(self) -> bytes:
        fields = [self.index, self.term, self.state, self.configs, self.files]
        return json.dumps(fields, separators=(",", ":")).encode()

    def encode(self) -> bytes:
        body = self._body()
        return b"%08x" % zlib.crc32(body) + body

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Raise ValueError if these bytes are no manifest: a disk or a peer may have them."""
        try:
            if data[:8] != b"%08x" % zlib.crc32(data[8:]):
                raise ValueError("its checksum differs")
            index, term, state, configs, files = json.loads(data[8:])
            manifest = cls(
                index,
                term,
                state,
                [(at, text) for at, text in configs],
                [FileOf(name, size, digest) for name, size, digest in files],
            )
            manifest.check()
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"this is no manifest of a snapshot: {error}") from error
        return manifest

    def check(self) -> None:
        """Raise ValueError for what no node that works would write."""
        places = (self.index, self.term, self.state, *(at for at, _ in self.configs))
        if any(type(place) is not int for place in places):
            raise ValueError("a place in the log is a number")
        if not (0 < self.index < INDEX_MAX and 0 <= self.term <= TERM_MAX):
            raise ValueError(f"it stands at {self.index} in term {self.term}")
        if not 0 <= self.state <= self.index or len(self.configs) != 1:
            raise ValueError("its state is beyond it, or its members are not named once")
        [(at, text)] = self.configs
        if not 0 < at <= self.index or not isinstance(text, str):
            raise ValueError(f"its members are those of index {at}")
        Configuration.decode(text)
        if len(self.files) > FILES_MAX:
            raise ValueError(f"{len(self.files)} files are over {FILES_MAX}")
        if len({file.name for file in self.files}) < len(self.files):
            raise ValueError("a file is named twice")
        for file in self.files:
            _check_file(file)


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _check_file(file: FileOf) -> None:
    if not isinstance(file.name, str) or file.name == MANIFEST or not _NAME.fullmatch(file.name):
        raise ValueError(f"{file.name!r} is no file of a snapshot")
    if type(file.size) is not int or not 0 <= file.size < INDEX_MAX:
        raise ValueError(f"{file.name} has {file.size!r} bytes")
    if not isinstance(file.sha256, str) or not _DIGEST.fullmatch(file.sha256):
        raise ValueError(f"{file.name} has no digest")


def folder_of(index: int) -> str:
    return f"{FOLDER}/{index:020d}"
