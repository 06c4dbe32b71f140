"""Ends the PostgreSQL of a data folder when this program ends, however it does.

    python -m raftsched.chaos.bench.peers.guard FOLDER...

Patroni lets go of the servers that it starts, so they would stay when the benchmark is killed. The
one that waits for that is a child of the one that is killed with the benchmark.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from .postgres import kill_server

LOOK_S = 0.2


def main() -> None:
    folders = [Path(word) for word in sys.argv[1:]]
    guarded = os.getpid()
    if os.fork():
        signal.pause()
        return
    os.setsid()
    while os.getppid() == guarded:
        time.sleep(LOOK_S)
    for folder in folders:
        kill_server(folder)


if __name__ == "__main__":
    main()
