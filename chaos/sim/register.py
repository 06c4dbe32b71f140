"""A small replicated state behind the same hooks as the scheduler's rules.

Values by key, a list that is appended to, and the answer to each request by its id, so that a
request that is sent twice happens once. A running digest over everything applied distinguishes two
replicas apart after the first difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from ...cluster.raft.port import Disk

VALUE_MAX = 500


class Register:
    """A machine for consensus, kept in memory and in snapshots."""

    def __init__(self, disk: Disk, seen: Callable[[int, bytes, str], None]) -> None:
        self.disk = disk
        self.seen = seen  # Called with each entry that is applied, and of the digest after it.
        self.index = 0
        self.digest = ""
        self.values: dict[str, str] = {}
        self.requests: dict[str, int] = {}

    def applied(self) -> int:
        return self.index

    def apply(self, index: int, data: bytes) -> None:
        request = json.loads(data)
        self.index = index
        if request["id"] not in self.requests:
            self.requests[request["id"]] = index
            value = self.values.get(request["key"], "") + request["add"]
            self.values[request["key"]] = value[-VALUE_MAX:]  # A snapshot stays small.
        digest = hashlib.blake2b(self.digest.encode() + index.to_bytes(8, "big") + data)
        self.digest = digest.hexdigest()[:24]
        self.seen(index, data, self.digest)

    def checkpoint(self) -> Callable[[str], int]:
        index = self.index
        halves = [
            json.dumps([index, self.digest, self.requests]).encode(),
            json.dumps(self.values).encode(),
            b"",  # RocksDB has empty files too.
        ]

        def write(folder: str) -> int:
            for number, data in enumerate(halves):
                path = f"{folder}/part-{number}"
                self.disk.write(path, 0, data)
                self.disk.sync(path)
            return index

        return write

    def check(self, folder: str) -> None:
        """The digests of its files say all in here."""

    def restore(self, folder: str) -> None:
        parts = []
        for number in range(2):
            path = f"{folder}/part-{number}"
            parts.append(json.loads(self.disk.read(path, 0, self.disk.size(path))))
        (self.index, self.digest, self.requests), self.values = parts
