"""Reads the pages of the manual and does what they say, as their reader would.

A page is read from top to bottom, in one shell and one empty folder. What stands in a fence is:

* `console`: each line behind `$ ` is typed, and must succeed; what stands below it must be printed,
  in this order. `…` is anything, a number or a time is any, and so is the width of a gap.
* `console fails`: the same, and the last command must fail.
* `console elsewhere`: what cannot be typed on one machine. Of each `raftsched` command in it the
  options must be there.
* any language with `file=NAME`: saved as this file.
* `python`: run as a program of its own, which must end well.
* any of them with `needs=MODULE,MODULE`: left out where one of these is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENDS_S = 60.0  # A command, or a program of a page.
MARK = "--- ended with"
LINE_BYTES_MAX = 1 << 20
COLUMNS = 80
# What moves the cursor and colours text.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Fence:
    language: str
    words: list[str]
    lines: list[str]
    at: int

    @property
    def file(self) -> str:
        return self._said("file=")

    @property
    def missing(self) -> list[str]:
        """What it needs and is not installed."""
        needed = filter(None, self._said("needs=").split(","))
        return [one for one in needed if importlib.util.find_spec(one) is None]

    def _said(self, mark: str) -> str:
        return next((w.removeprefix(mark) for w in self.words if w.startswith(mark)), "")


@dataclass
class Typed:
    command: str
    printed: list[str]
    at: int


def fences(text: str) -> Iterator[Fence]:
    now: Fence | None = None
    for at, line in enumerate(text.splitlines(), 1):
        if line.startswith("```") and now is None:
            language, *words = line[3:].split() or [""]
            now = Fence(language, words, [], at)
        elif line.startswith("```") and now is not None:
            yield now
            now = None
        elif now is not None:
            now.lines.append(line)
    assert now is None, f"line {now.at if now else 0}: a fence is not closed"


def typed(fence: Fence) -> list[Typed]:
    """The commands of a fence, each with what it prints. One goes on behind `\\` and in `>`."""
    found: list[Typed] = []
    goes_on = False
    for at, line in enumerate(fence.lines, fence.at + 1):
        if line.startswith("$ "):
            found.append(Typed(line[2:], [], at))
        elif goes_on or (line.startswith("> ") and found and not found[-1].printed):
            found[-1].command += "\n" + line.removeprefix("> ")
        else:
            assert found, f"line {at}: nothing was typed before this is printed"
            found[-1].printed.append(line)
        goes_on = bool(found) and not found[-1].printed and line.endswith("\\")
    return found


NUMBER = re.compile(r"\d[\d:.,TZ+-]*")
DAY = re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b")


def pattern(expected: str) -> str:
    """What a line of a page allows."""

    def piece(text: str) -> str:
        text = NUMBER.sub("0", DAY.sub("Day", text.strip()))
        words = [re.escape(word) for word in text.split()]
        return r"\s+".join(words).replace("0", r"[\d:.,TZ+-]+").replace("Day", r"\w{3}")

    return r"\s*" + r".*?".join(piece(part) for part in expected.split("…")) + r"\s*"


def differs(expected: list[str], printed: str) -> str:
    """The line of a page that was not printed where it should be; empty for none. A page may leave
    out all that a command prints."""
    if not any(line.strip() for line in expected):
        return ""
    lines, place, free = printed.splitlines(), 0, False
    for line in [one for one in expected if one.strip()]:
        if line.strip() == "…":
            free = True
            continue
        allowed = re.compile(pattern(line))
        while place < len(lines) and not allowed.fullmatch(lines[place]):
            if not free and lines[place].strip():
                return line
            place += 1
        if place == len(lines):
            return line
        place, free = place + 1, False
    return "" if free or not any(line.strip() for line in lines[place:]) else "(more was printed)"


class Shell:
    """One shell for one page; what a page starts in the background ends with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        # What is printed on a terminal differs from what a pipe gets.
        self._screen, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (40, COLUMNS))
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, bufsize=0,
            stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self._read = b""

    def run(self, command: str) -> tuple[int, str]:
        """How it ended, and what was printed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f'{{ {command}\n}} </dev/null\necho "{MARK} $?"\n'.encode())
        printed: list[str] = []
        until = time.monotonic() + ENDS_S
        while True:
            line = self._line(until)
            assert line is not None, f"not ended after {ENDS_S:.0f} s: {command}\n" + "\n".join(
                printed
            )
            before, mark, code = line.partition(MARK)
            if mark:
                return int(code), "\n".join([*printed, before] if before else printed)
            printed.append(line)

    def _line(self, until: float) -> str | None:
        while b"\n" not in self._read:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._screen], [], [], max(left, 0))
            data = os.read(self._screen, 65536) if ready else b""
            assert len(self._read) < LINE_BYTES_MAX
            if not data:
                return None
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return ESCAPES.sub("", line.decode(errors="replace")).rstrip("\r").rpartition("\r")[2]

    def close(self) -> None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)
        os.close(self._screen)
        if self.process.stdin is not None:
            self.process.stdin.close()


def options_of(command: str) -> tuple[list[str], list[str]]:
    """Of a `raftsched` command of a page: its names up to the first option, and its options."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    names: list[str] = []
    for word in words[1:]:
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        names.append(word)
    return names, [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
