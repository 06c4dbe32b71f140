"""A backup on its way into a file: written under another name, verified, then renamed; and on its
way back into a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import messages as m
from ..exits import Exit, Trouble, wrong_use
from ..render.progress import bar

if TYPE_CHECKING:
    from ..messages import cluster_pb2
    from ..session import Invocation

PIECE_BYTES = 240 << 10  # As StageBackup takes it.
EXCHANGE_S = 60.0  # Beside the time that the nodes take to make the backup ready,
BYTES_A_SECOND = 1 << 20  # which is far less on any disk.
MANIFEST = "manifest.json"
MANIFEST_MAX = 16 << 20
BLOCK = 1 << 20
AHEAD_MS = 3_600_000  # A time further ahead than this is pointed out.
# What a manifest must say, and of what kind.
KINDS: dict[str, type] = {
    "cluster": str, "node": str, "revision": int, "fingerprint": str, "time": str, "files": list,
}  # fmt: skip
NAMES: dict[type, str] = {str: "text", int: "number", list: "list"}
COUNTS = ("revision", "jobs", "live_runs")  # Versions before did not count the last two.


@dataclass(frozen=True)
class Backup:
    """What an archive says of itself."""

    file: str
    cluster: str
    node: str
    revision: int
    fingerprint: str
    time: str
    files: int
    size: int
    # None: it was made by a version that did not count them.
    jobs: int | None = None
    live_runs: int | None = None

    def text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def save(session: Invocation, file: Path, *, force: bool) -> Backup:
    """Stream a backup into a file that is there only when it is whole."""
    if file.exists() and not force:
        raise Trouble(f"{file} is there already", "", "the same with --force, or another name",
                      Exit.CONFLICT)  # fmt: skip
    part = file.with_name(f"{file.name}.part")
    try:
        with _created(part) as out:
            _receive(session, out)
            out.flush()
            os.fsync(out.fileno())
        verified = verify(part, str(file))
        part.replace(file)
        _sync(file.parent)
    except OSError as wrong:
        reason = wrong.strerror or str(wrong)
        raise wrong_use(f"cannot write {file}", reason, "name a file elsewhere") from wrong
    finally:
        part.unlink(missing_ok=True)
    return verified


@contextlib.contextmanager
def _created(part: Path) -> Iterator[IO[bytes]]:
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        yield out


def _receive(session: Invocation, out: IO[bytes]) -> None:
    from contextlib import closing

    from ..refused import refusals

    doing = "make a backup"
    with refusals(session, doing):
        answers = session.client.stream(m.cluster_pb2.BackupRequest(), timeout=session.timeout_s)
        with closing(answers):
            first = next(answers, None)
            total = first.total if first is not None else 0
            done = _write(first, out)
            with bar("Backup, bytes", total, done) as advance:
                for answer in answers:
                    count = _write(answer, out)
                    advance(count)
                    done += count
    if not total or done != total:
        raise Trouble(
            f"cannot {doing}", f"it ended after {done:,} of {total:,} bytes", "the same again",
            Exit.UNREACHABLE,
        )  # fmt: skip


def _write(answer: Any, out: IO[bytes]) -> int:  # A message of the stream.
    return out.write(answer.data) if answer is not None else 0


def verify(path: Path, name: str) -> Backup:
    """Read an archive again and compare each file with its checksum."""
    found: dict[str, tuple[int, str]] = {}
    manifest: dict[str, Any] = {}
    try:
        with tarfile.open(path, "r|") as archive:
            for entry in archive:
                body = archive.extractfile(entry)
                if body is None or manifest:
                    raise ValueError(f"{entry.name} should not be there")
                if entry.name == MANIFEST:
                    manifest = json.loads(body.read(MANIFEST_MAX))
                else:
                    found[entry.name] = _digest(body)
        if not found and not manifest:
            raise ValueError(f"it holds no file at all in {path.stat().st_size:,} bytes")
        stated = _stated(manifest)
        if wrong := sorted(n for n in stated | found if stated.get(n) != found.get(n)):
            raise ValueError(f"{wrong[0]} is not as the manifest says")
        texts = {
            key: manifest[key] for key in ("cluster", "node", "revision", "fingerprint", "time")
        }
        return Backup(
            name, **texts, files=len(found), size=path.stat().st_size, jobs=manifest.get("jobs"),
            live_runs=manifest.get("live_runs"),
        )  # fmt: skip
    except OSError as wrong:
        raise wrong_use(
            f"cannot read {name}", wrong.strerror or str(wrong), "name a backup file"
        ) from wrong
    except (tarfile.TarError, ValueError) as error:
        raise Trouble(
            f"the backup {name} is not whole", str(error),
            "another file, or make it again: raftsched cluster backup",
        ) from error  # fmt: skip


def _stated(manifest: Any) -> dict[str, tuple[int, str]]:
    """The files that a manifest names, once all that is shown of it makes sense."""
    if not manifest:
        raise ValueError(f"it was cut off: its {MANIFEST} is missing")
    if not isinstance(manifest, dict):
        raise ValueError(f"its {MANIFEST} is no object but {_short(manifest)}")
    for key, kind in KINDS.items():
        value = manifest.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"its manifest says {key}: {_short(value)}, which is no {NAMES[kind]}")
    for key in COUNTS:
        value = manifest.get(key, 0)
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"its manifest says {key}: {_short(value)}, which is no count")
    if ahead_ms(manifest["time"]) is None:
        raise ValueError(f"its manifest says time: {_short(manifest['time'])}, which is no time")
    stated: dict[str, tuple[int, str]] = {}
    for file in manifest["files"]:
        if not isinstance(file, dict) or not file.keys() >= {"name", "size", "sha256"}:
            raise ValueError(f"its manifest says of a file {_short(file)}, without all it needs")
        stated[str(file["name"])] = file["size"], file["sha256"]
    return stated


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]


def ahead_ms(text: str) -> int | None:
    """How far a time is ahead of this machine's clock; None: it is no time."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    if instant.tzinfo is None:
        return None
    return int((instant.timestamp() - time.time()) * 1000)


def put_back(
    session: Invocation, file: Path, backup: Backup, *, other_cluster: bool
) -> cluster_pb2.RestoreBackupResponse:
    """Send a backup that was verified, and have it take the place of the state."""
    backup_id = f"{backup.revision}-{uuid.uuid4()}"
    try:
        with file.open("rb") as opened, bar("Restore, bytes", backup.size) as advance:
            offset = 0
            while piece := opened.read(PIECE_BYTES):
                request = m.cluster_pb2.StageBackupRequest(
                    backup_id=backup_id, size=backup.size, offset=offset, data=piece
                )
                kind = m.cluster_pb2.StageBackupResponse
                session.ask(session.write(request), kind, "send the backup")
                offset += len(piece)
                advance(len(piece))
    except OSError as wrong:
        raise wrong_use(f"cannot read {file}", wrong.strerror or str(wrong), "") from wrong
    session.say("All of it was sent; the nodes make it ready.")
    return session.ask(
        session.write(
            m.cluster_pb2.RestoreBackupRequest(backup_id=backup_id, other_cluster=other_cluster)
        ),
        m.cluster_pb2.RestoreBackupResponse, "put the backup back",
        timeout=max(session.timeout_s, EXCHANGE_S + backup.size / BYTES_A_SECOND),
    )  # fmt: skip


def _digest(body: IO[bytes]) -> tuple[int, str]:
    digest, size = sha256(), 0
    while block := body.read(BLOCK):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
