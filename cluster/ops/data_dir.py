"""A node's folder: taken by one process, of one node, of one cluster, of a format we know.

Nothing is written before it is sure that the folder is ours or empty.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from ..node.peer_info import FEATURE_LEVEL
from ..node.removal import REMOVED
from ..raft.disk import file_limit, sync_entries
from .exits import NodeCannotStart, NodeExit

FORMAT = 1
LOCK = "lock"
IDENTITY = "node.json"
IDENTITY_MAX = 64 * 1024
PROBE = "probe"
PROBE_BYTES = 1 << 20
# Our own, and what a file system puts into an empty volume.
HARMLESS = frozenset({LOCK, PROBE, IDENTITY + ".new", "lost+found"})
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Folder:
    """The folder, locked until `close` or the end of the process."""

    def __init__(
        self, path: Path, cluster: str, node: str, room: int = PROBE_BYTES, *, whose: bool = True
    ) -> None:
        """Take it, or raise CannotStart. A fresh node must find so much room. Without `whose` a
        fresh folder is nobody's until `own` is called."""
        self.path, self.cluster, self.node = path, cluster, node
        with explained(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = set(os.listdir(path))
        self.fresh = fresh = IDENTITY not in names
        if fresh and (foreign := sorted(names - HARMLESS)):
            raise NodeCannotStart(
                NodeExit.FOLDER_FOREIGN,
                f"{path} is not empty and no node's folder (it holds {foreign[0]!r}); "
                "name another folder, or empty this one if nothing in it is needed",
            )
        with explained(path):
            self._lock = _take(path)
        try:
            level = 0 if fresh else _check(path, cluster, node)
            with explained(path):
                _probe(path, room if fresh else PROBE_BYTES)
            claims = whose if fresh else level < FEATURE_LEVEL
            if claims:
                self.own()
        except BaseException:
            self.close()
            raise

    def own(self) -> None:
        """Say whose it is: from now on a node starts in it."""
        with explained(self.path):
            _write_identity(self.path, self.cluster, self.node)

    def check_not_removed(self) -> None:
        """Raise CannotStart if a start before learned that the cluster removed this node."""
        try:
            with (self.path / REMOVED).open("rb") as opened:
                identity = json.loads(opened.read(IDENTITY_MAX))
        except FileNotFoundError:
            return
        except ValueError:
            identity = {}  # A crash left half of it, and that it is there says enough.
        since = identity.get("since", "before") if isinstance(identity, dict) else "before"
        raise NodeCannotStart(NodeExit.REMOVED, removal(self.cluster, self.node, since))

    def close(self) -> None:
        """Give the lock back; may be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def removal(cluster: str, node: str, since: str) -> str:
    """What to do with a node that its cluster removed."""
    return (
        f"the cluster {cluster!r} has removed the node {node!r} ({since}), so it has no part in it "
        "and its copy is old; to have it back, empty its folder, start it, and: raftsched cluster "
        f"add {node} --help. Otherwise do not start it any more"
    )


def _take(path: Path) -> int:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise NodeCannotStart(
            NodeExit.FOLDER_LOCKED,
            f"{path} is in use by another process{f' ({holder})' if holder else ''}; stop it, or "
            "name another folder: two nodes cannot share one",
        ) from None
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        os.close(lock)
        raise
    return lock


def _check(path: Path, cluster: str, node: str) -> int:
    """The highest level of a version that was here, or CannotStart unless the folder is of this
    node and this version can read what lies in it."""
    file = path / IDENTITY
    try:
        with file.open("rb") as opened:
            identity = json.loads(opened.read(IDENTITY_MAX))
        form, of_cluster = int(identity["format"]), str(identity["cluster"])
        of_node = str(identity["node"])
        level = int(identity.get("level", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NodeCannotStart(
            NodeExit.FOLDER_FOREIGN,
            f"{file} cannot be read ({error!r}); name the right folder, or empty this one so that "
            "the node fetches all from the others",
        ) from error
    if form > FORMAT:
        raise NodeCannotStart(
            NodeExit.NEWER_FORMAT,
            f"{path} has format {form}, this version knows {FORMAT}; start the version that wrote "
            f"it ({identity.get('version', 'a newer one')}) or a newer one",
        )
    if level > FEATURE_LEVEL + 1:
        raise NodeCannotStart(
            NodeExit.NEWER_FORMAT,
            f"{path} was used by version {identity.get('version', '?')} of level {level}, and "
            f"this one of level {FEATURE_LEVEL} reads what was written up to level "
            f"{FEATURE_LEVEL + 1}; start that version, or the one before it",
        )
    if of_cluster != cluster:
        raise NodeCannotStart(
            NodeExit.OTHER_CLUSTER,
            f"{path} belongs to the cluster {of_cluster!r}, this node to {cluster!r}; "
            "set `cluster` or `folder` right",
        )
    if of_node != node:
        raise NodeCannotStart(
            NodeExit.OTHER_NODE,
            f"{path} belongs to the node {of_node!r}, this one is {node!r}; "
            "set `name` or `folder` right: a node's vote is in its folder",
        )
    return level


def _probe(path: Path, size: int) -> None:
    """Prove that the disk takes that much."""
    probe = path / PROBE
    try:
        fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            os.pwrite(fd, b"probe", 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
    finally:
        probe.unlink(missing_ok=True)


def _write_identity(path: Path, cluster: str, node: str) -> None:
    """Whole or not at all: a crash leaves no half of it."""
    identity = {
        "format": FORMAT,
        # The highest of all versions that were here: one step back is possible, two are not.
        "level": FEATURE_LEVEL,
        "cluster": cluster,
        "node": node,
        "version": metadata.version("raftsched"),
    }
    new = path / (IDENTITY + ".new")
    with new.open("w") as opened:
        opened.write(json.dumps(identity, indent=2) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.rename(path / IDENTITY)
    sync_entries(path)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a line with its own code."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise NodeCannotStart(
            NodeExit.FOLDER_FOREIGN, f"{error.filename or path} is a file; name a folder"
        ) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise NodeCannotStart(
                NodeExit.DISK_FULL,
                f"the disk below {path} is full: {error.strerror}; make room, then start again: "
                "nothing was lost",
            ) from error
        if error.errno == errno.EFBIG:
            raise NodeCannotStart(NodeExit.FILE_LIMIT, file_limit()) from error
        raise NodeCannotStart(
            NodeExit.FOLDER_UNWRITABLE,
            f"{path} cannot be written to: {error.strerror or error}; give this user the right, "
            "mount it to be written, replace a disk that fails, or name another folder",
        ) from error
