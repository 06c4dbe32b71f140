"""The workers of a benchmark, each a process of its own."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...cluster.local.process import Process
from ..percentile import percentile


class WorkerProcesses:
    """Some workers, and how many runs they have begun."""

    def __init__(
        self, folder: Path, endpoints: str, count: int, *, slots: int, lateness: bool = False
    ) -> None:
        # What those had begun that ended and were started again.
        self.before = 0
        self.files = [folder / f"lateness-{number}" for number in range(count)]
        self.workers = [
            Process(
                f"worker-{number}",
                [
                    "raftsched.chaos.bench.worker", endpoints, "--slots", str(slots),
                    *(["--lateness", str(self.files[number])] if lateness else []),
                ],
                folder / f"worker-{number}.log",
            )
            for number in range(count)
        ]  # fmt: skip

    def start(self) -> None:
        for worker, file in zip(self.workers, self.files, strict=True):
            # What a worker before it wrote in the same folder is not of this one.
            worker.log.unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            worker.start()

    def change(self, number: int) -> None:
        """One ends in order, and another one takes its place."""
        worker = self.workers[number]
        worker.stop()
        self.before += _last_count(worker)
        worker.log.unlink()
        worker.start()

    def begun(self) -> int:
        return self.before + sum(map(_last_count, self.workers))

    def cpu_s(self) -> float:
        return sum(worker.cpu_s() for worker in self.workers)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()

    def pairs(self, since: float) -> Iterator[tuple[float, float]]:
        """Due time and lateness of each such run; to be asked after `stop`."""
        found = array("d")
        for file in self.files:
            found.frombytes(file.read_bytes())
        for due, late in zip(found[::2], found[1::2], strict=True):
            if due >= since - 0.001:
                yield due, late


def _last_count(worker: Process) -> int:
    """The last whole line that it wrote."""
    with worker.log.open("rb") as log:
        log.seek(max(0, log.seek(0, 2) - 64))
        lines = log.read().split(b"\n")[:-1]
    return int(lines[-1]) if lines and lines[-1].isdigit() else 0


def by_second(pairs: Sequence[tuple[float, float]], since: float, share: float) -> list[float]:
    """Of those who were due in each second, the lateness below which this share of them lies; 0
    where nobody was."""
    seconds: dict[int, list[float]] = {}
    for due, late in pairs:
        seconds.setdefault(int(due - since), []).append(late)
    last = max(seconds, default=-1)
    return [percentile(seconds.get(n, ()), share, 0.0) for n in range(last + 1)]
