"""Where the peers keep their jobs: what is needed of PostgreSQL and of Redis alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ....cluster.local.process import ProcessFailed


class PeerServers(Protocol):
    """Servers that run, below one folder."""

    @property
    def folder(self) -> Path: ...

    @property
    def port(self) -> int:
        """Where clients find the primary, also after it has changed."""
        ...

    @property
    def sentinels(self) -> Sequence[int]:
        """Where clients ask who is the primary; empty when they need not ask."""
        ...

    def pids(self) -> list[int]:
        """All servers."""
        ...

    def kill_primary(self) -> None:
        """As the loss of its machine ends it, with all that looks after it there."""
        ...


Serving = Callable[[Path], AbstractContextManager[PeerServers]]


def program(name: str, package: str) -> str:
    """Where a program is that a package of Debian and Ubuntu has."""
    found = shutil.which(name)
    if found is None:
        raise ProcessFailed(
            f"there is no {name} on the path; on Debian and Ubuntu: apt-get install {package}"
        )
    return found
