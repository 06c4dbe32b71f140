"""A backup: one tar archive of a node's state at one revision, made while the node runs.

    state/CURRENT, state/000012.sst, ...   the files of a checkpoint
    manifest.json                          whose they are, and size and SHA-256 of each

The manifest comes last, so that the archive is read once and sent as it is read; its length is
known before, and so is that of the whole. An archive without one was cut off.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol, cast

import msgspec

from ...statemachine.core.rocks_store import peek, peek_between
from ...statemachine.core.store import Corrupt
from ...statemachine.model import keys
from ...statemachine.model.record import MetaRecord, UsageRecord, parse
from .table_reader import read_whole_beside

FORMAT = 1
FOLDER = "state/"
MANIFEST = "manifest.json"
PIECE = 512 << 10
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
NO_DIGEST = "0" * 64
MANIFEST_MAX = 16 << 20
_NAME = re.compile(r"state/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


class StateArchive:
    """One archive on its way out. Not for the loop: it reads files."""

    def __init__(self, folder: Path, about: dict[str, object]) -> None:
        """`folder` holds a checkpoint and goes with `remove`; `about` stands in the manifest."""
        self.folder = folder
        value = peek(folder, keys.META)
        self.meta = parse(keys.META, value, MetaRecord) if value else MetaRecord()
        jobs, live = count(peek_between(folder, keys.USAGE, keys.after(keys.USAGE)))
        self.about: dict[str, object] = {
            "format": FORMAT, **about, "revision": self.meta.revision,
            "applied_index": self.meta.applied_index, "fingerprint": self.meta.fingerprint.hex(),
            "jobs": jobs, "live_runs": live,
        }  # fmt: skip
        self.sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}

    @property
    def total(self) -> int:
        """The size of the archive in bytes."""
        bodies = [*self.sizes.values(), len(self._manifest(dict.fromkeys(self.sizes, NO_DIGEST)))]
        return sum(BLOCK + size + -size % BLOCK for size in bodies) + len(END)

    def pieces(self) -> Iterator[bytes]:
        """The archive, in order; each file is read once, and hashed as it is."""
        digests: dict[str, str] = {}
        for name, size in self.sizes.items():
            yield _head(FOLDER + name, size)
            digest, left = sha256(), size
            with (self.folder / name).open("rb") as file:
                while left and (piece := file.read(min(PIECE, left))):
                    digest.update(piece)
                    left -= len(piece)
                    yield piece if left else piece + bytes(-size % BLOCK)
            if left:
                raise OSError(f"{name} of the checkpoint lacks {left} of {size} bytes")
            digests[name] = digest.hexdigest()
        manifest = self._manifest(digests)
        yield _head(MANIFEST, len(manifest)) + manifest + bytes(-len(manifest) % BLOCK) + END

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _manifest(self, digests: dict[str, str]) -> bytes:
        files = [
            {"name": FOLDER + name, "size": size, "sha256": digests[name]}
            for name, size in self.sizes.items()
        ]
        return json.dumps({**self.about, "files": files}, indent=1).encode()


class CheckpointSource(Protocol):
    """The state that a backup is made of: the replica of a node."""

    @property
    def damaged(self) -> Callable[[Corrupt], None]: ...

    def checkpoint_into(self, folder: Path) -> None: ...


def take(replica: CheckpointSource, folder: Path, about: dict[str, object]) -> StateArchive:
    """Make the checkpoint; where no other state is put in the place of this one meanwhile. All of
    it is read through: whoever needs a backup has nothing else."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    replica.checkpoint_into(folder)
    try:
        read_whole_beside(folder)
    except Corrupt as error:
        shutil.rmtree(folder, ignore_errors=True)
        replica.damaged(error)  # Its tables are those of the state.
        raise
    return StateArchive(folder, about)


def count(usages: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Jobs, and runs under way, of all namespaces."""
    jobs = live = 0
    for key, value in usages:
        usage = parse(key, value, UsageRecord)
        jobs, live = jobs + usage.jobs, live + usage.live
    return jobs, live


def _head(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)


class NoBackup(Exception):
    """A file is no archive that could be put back; the text says why."""


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file of an archive."""

    name: str
    size: int
    sha256: str


class ArchiveManifest(msgspec.Struct, frozen=True):
    """What an archive says of itself. What a later version adds does not matter here."""

    format: int
    cluster: str
    node: str
    term: int
    revision: int
    applied_index: int
    fingerprint: str
    feature_level: int
    version: str
    time: str
    files: list[ArchivedFile]
    # Versions before did not count them.
    jobs: int = 0
    live_runs: int = 0


class Readable(Protocol):
    """Bytes in order."""

    def read(self, size: int, /) -> bytes: ...


def unpack(archive: Path, folder: Path) -> ArchiveManifest:
    """As `unpack_from`, of a file."""
    with archive.open("rb") as file:
        return unpack_from(file, folder)


def unpack_from(archive: Readable, folder: Path) -> ArchiveManifest:
    """Write the state into a new folder; all of it is as the manifest says, or NoBackup."""
    folder.mkdir(mode=0o700, parents=True)
    found: dict[str, tuple[int, str]] = {}
    manifest: ArchiveManifest | None = None
    try:
        # Of a stream it asks for bytes in order, and for nothing else.
        with tarfile.open(fileobj=cast("IO[bytes]", archive), mode="r|") as opened:
            for entry in opened:
                body = opened.extractfile(entry)
                if body is None or manifest is not None:
                    raise NoBackup(f"{entry.name[:80]!r} should not be there")
                if entry.name == MANIFEST:
                    manifest = msgspec.json.decode(body.read(MANIFEST_MAX), type=ArchiveManifest)
                elif entry.name in found or not _NAME.fullmatch(entry.name):
                    raise NoBackup(f"{entry.name[:80]!r} is no file of a state")
                else:
                    found[entry.name] = _write(body, folder / entry.name.removeprefix(FOLDER))
    except (tarfile.TarError, msgspec.DecodeError, EOFError) as error:
        raise NoBackup(f"it is damaged, or no archive: {error}") from error
    if manifest is None:
        holds = f"after {len(found)} files" if found else "and so is all else"
        raise NoBackup(f"its manifest is missing, {holds}: it was cut off; take another backup")
    if wrong_value := _wrong_value(manifest):
        raise NoBackup(f"its manifest says {wrong_value}; take another backup")
    stated = {file.name: (file.size, file.sha256) for file in manifest.files}
    if wrong := sorted(n for n in stated | found if stated.get(n) != found.get(n)):
        raise NoBackup(f"{wrong[0]} is not as the manifest says")
    return manifest


def _wrong_value(manifest: ArchiveManifest) -> str:
    """What of a manifest cannot be, as text; empty when all can."""
    for name in ("format", "term", "revision", "applied_index", "jobs", "live_runs"):
        value = getattr(manifest, name)
        if value < 0:
            return f"{name}: {value}, which is no count"
    try:
        datetime.fromisoformat(manifest.time)
    except ValueError:
        return f"time: {manifest.time[:40]!r}, which is no time"
    return ""


def mismatch(meta: MetaRecord, manifest: ArchiveManifest) -> str:
    """How a state is another than its manifest says; empty when it is the one."""
    stated, held = (
        (manifest.revision, manifest.fingerprint),
        (meta.revision, meta.fingerprint.hex()),
    )
    if stated == held:
        return ""
    return (
        f"it holds revision {held[0]} with the fingerprint {held[1]}, and its manifest says "
        f"revision {stated[0]} with {stated[1][:64]!r}: one of the two was changed after it was "
        "made; take another backup"
    )


def _write(body: IO[bytes], path: Path) -> tuple[int, str]:
    digest, size = sha256(), 0
    with path.open("xb") as out:
        while block := body.read(PIECE):
            digest.update(block)
            size += len(block)
            out.write(block)
    return size, digest.hexdigest()
