"""Has another process read through a state that this one has open. Both ends of that are here.

The library holds the interpreter while the engine waits for the disk and while it steps over
deleted entries: behind 600,000 of them for 130 ms, in which a node hears nobody. A process of its
own holds up nothing, stands back on a busy machine, and ends with the one that asked.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...statemachine.core.rocks_store import (
    MERGE_NICENESS,
    WHOLE,
    meaning,
    read_through,
    read_whole,
)

logger = logging.getLogger(__name__)

WORD_MAX = 4_000  # Bytes, which a pipe hands over in one piece.
LOOK_S = 0.1
SILENT_S = 60.0
DONE, FAILED = b"done", b"failed "


class NotRead(Exception):
    """The other process could not do it, which says nothing of the state."""


class TableFault(Exception):
    """What the engine reported, in its words."""


def read_beside(path: Path, count: int, look: Callable[[], None]) -> Iterator[int]:
    """How many entries were read, `count` at a time; more are read when more are asked for. `look`
    is called while the other process reads, and may end it by what it raises."""
    # Without `-P` the folder in which a node was started comes first.
    command = [sys.executable, "-P", "-m", __name__, str(path), str(count)]
    try:
        # In a group of its own, Ctrl-C is for this one alone. Nothing of ours is inherited.
        other = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            close_fds=False, process_group=0,
        )  # fmt: skip
    except OSError as error:
        raise NotRead(f"no process could be started to read {path}: {error}") from error
    with other:
        try:
            while (word := _word(other, look)) != DONE:
                if word.startswith(FAILED):
                    raise TableFault(word.removeprefix(FAILED).decode(errors="replace"))
                if not word:
                    raise NotRead(f"the process that read {path} ended with {other.wait()}")
                yield int(word)
                assert other.stdin is not None
                other.stdin.write(b"\n")
        except BrokenPipeError as error:
            raise NotRead(f"the process that read {path} ended: {error}") from error
        finally:
            other.kill()


def read_whole_beside(path: Path) -> None:
    """Raise Corrupt if a state that nobody has open is damaged. Where no other process can be
    started, this one reads it."""
    try:
        for _ in read_beside(path, WHOLE, lambda: None):
            pass
    except TableFault as fault:
        raise meaning(fault, path) from fault
    except NotRead as reason:
        logger.warning("%s; it is read in this one", reason)
        read_whole(path)


def _word(other: subprocess.Popen[bytes], look: Callable[[], None]) -> bytes:
    """What the other process says next; nothing, if it has ended."""
    assert other.stdout is not None
    poller, until = select.poll(), time.monotonic() + SILENT_S
    poller.register(other.stdout)
    while not poller.poll(1000 * LOOK_S):
        look()
        if time.monotonic() > until:
            raise NotRead(f"the process that reads tables was silent for {SILENT_S:.0f} s")
    return os.read(other.stdout.fileno(), WORD_MAX)


def main(path: Path, count: int) -> None:
    """The other process: says how many it has read, and waits until it may go on."""
    os.nice(MERGE_NICENESS)
    try:
        for read in read_through(path, count):
            os.write(sys.stdout.fileno(), str(read).encode())
            if not os.read(sys.stdin.fileno(), 1):
                return  # Nobody asks any more.
        last = DONE
    except Exception as error:
        last = FAILED + str(error.__cause__ or error).encode()[: WORD_MAX - len(FAILED)]
    os.write(sys.stdout.fileno(), last)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
