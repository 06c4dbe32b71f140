"""The process with the files, as a history sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ...cluster.raft.disk import RealDisk

READY_S = 20.0


class Mount:
    """Folders whose power can be cut. Needs /dev/fuse, and the right to mount."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raftsched.chaos.power.server", str(folder), *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        if self._line() != "ready":
            self.close()
            raise OSError(f"{folder} could not be mounted: /dev/fuse and root are needed")

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class PowerDisk(RealDisk):
    """The disk of production, in a folder whose power can be cut."""

    def __init__(self, mount: Mount, node: str) -> None:
        self.mount, self.node = mount, node
        super().__init__(mount.folder / node)

    def ask(self, what: str, *words: object) -> str:
        return self.mount.ask(what, self.node, *words)

    def crash(self, dice: object) -> None:
        """The cut is armed already; see `PowerNode.die`."""
