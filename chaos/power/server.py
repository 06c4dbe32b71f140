"""The process that holds the files; what a cut leaves is decided here, between two calls.

    python -m raftsched.chaos.power.server FOLDER NODE...

It mounts at FOLDER, and takes one line on stdin at a time: `fresh NODE`, `arm NODE AFTER
STYLE SEED`, `cut NODE`, `swap NODE`. Each is answered with a line. It ends with stdin.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from . import fuse
from .platter import Platter

LINE_MAX = 1 << 12


def obey(platters: dict[str, Platter], line: str) -> str:
    what, node, *more = line.split()
    platter = platters[node]
    if what == "fresh":
        platters[node] = Platter()
    elif what == "arm":
        platter.arm(int(more[0]), more[1], int(more[2]))
    elif what == "cut":
        platter.cut_now()
    elif what == "swap":
        platter.swap()
    else:
        raise ValueError(line)
    return "done"


def main() -> None:
    folder, *names = sys.argv[1:]
    place = Path(folder)
    platters = {name: Platter() for name in names}
    fd = fuse.mount(place)
    files = fuse.FuseFiles(fd, platters)
    os.set_blocking(fd, False)
    os.write(1, b"ready\n")
    try:
        while True:
            ready, _, _ = select.select([fd, 0], [], [])
            if fd in ready and not files.answer_one():
                return
            if 0 in ready:
                line = os.read(0, LINE_MAX).decode()
                if not line:
                    return
                os.write(1, f"{obey(platters, line)}\n".encode())
    finally:
        fuse.unmount(place)
        os.close(fd)


if __name__ == "__main__":
    main()
