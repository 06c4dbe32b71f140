"""One cell of many, and the directory that says which namespace lives where. See docs/scale.md.

A cell stands for a whole cluster: what it keeps has gone through its log, so each call here is one
entry, applied whole or not at all, and a change of its leader loses nothing but what was in memory.
The directory stands for the small cluster that keeps the map. What the simulation is after is what
lies between them: calls that are lost, doubled, late or answered too late, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum

from .cells_directory import Guards
from .cells_oracle import CellsOracle

LEASE_S = 3.0
TOKEN_GAP = 1 << 20  # Tokens of a namespace go on so far above all that were given before.
PIECES = ("times", "runs", "requests")  # In which a namespace is copied.


class Phase(Enum):
    """What a cell knows of a namespace of its own."""

    ACTIVE = "active"  # It lives here: it fires, leases and answers.
    SEALED = "sealed"  # It is leaving: nothing of it changes here any more.
    GONE = "gone"  # It lives in another cell, which `home` names.
    RESTORED = "restored"  # It came with a backup; the directory has to say whether it lives here.


@dataclass(slots=True)
class Run:
    """A run: who holds it, and until when."""

    name: str
    token: int = 0
    worker: str = ""
    until: float = 0.0
    done: bool = False


@dataclass(slots=True)
class Space:
    """A namespace, as one cell has it."""

    phase: Phase
    epoch: int
    home: str  # Where it lives, as far as this cell knows.
    move: int = 0  # The epoch of the move for which it is sealed.
    confirmed: bool = False  # The directory knows that it lives here.
    times: dict[str, int] = field(default_factory=dict)  # Job -> how many of its times have fired.
    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)  # Request id -> the run that it made.


@dataclass(frozen=True)
class Piece:
    """A part of a namespace on its way."""

    times: dict[str, int] = field(default_factory=dict)
    tokens: int = 0  # The highest that its cell has given.
    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)


NOTHING = Piece()


@dataclass(slots=True)
class StagedSpace:
    """What has arrived of a namespace that moves here; it fires nothing."""

    move: int
    pieces: dict[str, Piece] = field(default_factory=dict)

    def is_whole(self) -> bool:
        return len(self.pieces) == len(PIECES)


@dataclass(slots=True)
class Kept:
    """What is in the log of a cell, and so in its backups."""

    spaces: dict[str, Space] = field(default_factory=dict)
    stages: dict[str, StagedSpace] = field(default_factory=dict)
    tokens: int = 0


@dataclass(frozen=True)
class CellAnswer:
    """What a cell says: `ok`, or why not; `cell` is where to ask instead."""

    ok: bool
    cell: str = ""
    run: str = ""
    token: int = 0
    piece: Piece = NOTHING


REFUSED = CellAnswer(ok=False)


class SimCell:
    """See the head of this file."""

    def __init__(
        self, name: str, periods: dict[str, float], guards: Guards, oracle: CellsOracle
    ) -> None:
        self.name, self.periods, self.guards, self.oracle = name, periods, guards, oracle
        self.kept = Kept()
        self.generation = 1  # A restored cell is another one.
        self.up, self.lost = True, False

    # What it does by itself.

    def fire_and_lapse(self, now: float) -> None:
        for name, space in self.kept.spaces.items():
            if not self._fires(space):
                continue
            for job, period in self.periods.items():
                if job.split("/")[0] == name:
                    self._fire(name, space, job, period, now)
            for run in space.runs.values():
                if run.worker and run.until < now:
                    run.worker = ""

    def _fires(self, space: Space) -> bool:
        if space.phase is Phase.SEALED:
            return not self.guards.seal_stops_firing
        return space.phase is Phase.ACTIVE

    def _fire(self, name: str, space: Space, job: str, period: float, now: float) -> None:
        """Fire what is due; what became due while the namespace moved is late, not lost."""
        fired = space.times.get(job, -1)
        if fired < 0:
            fired = int(now / period)  # Only a namespace that came without its times is here.
        while fired * period <= now:
            run = f"{job}/{fired}"
            fired += 1
            space.runs[run] = Run(run)
            self.oracle.fired(name, run, self.name, now)
        space.times[job] = fired

    def change_leader(self) -> None:
        """The next leader has what is in the log; a seal that was not is forgotten."""
        if not self.guards.seal_is_logged:
            for space in self.kept.spaces.values():
                if space.phase is Phase.SEALED:
                    space.phase = Phase.ACTIVE

    def restore(self, backup: Kept) -> None:
        """A backup in a new cluster: nothing of it fires before the directory was asked."""
        self.kept = deepcopy(backup)
        self.generation += 1
        self.kept.tokens += TOKEN_GAP
        self.up, self.lost = True, False
        if self.guards.restored_waits:
            for space in self.kept.spaces.values():
                space.phase = Phase.RESTORED

    def unsure(self) -> Iterator[str]:
        """Namespaces of which it asks the directory, again and again."""
        waiting = (Phase.SEALED, Phase.RESTORED)
        yield from [
            n
            for n, s in self.kept.spaces.items()
            if s.phase in waiting or (s.phase is Phase.ACTIVE and not s.confirmed)
        ]
        yield from [n for n in self.kept.stages if n not in self.kept.spaces]
        yield from [n for n in self.kept.stages if self._phase(n) is Phase.GONE]

    def _phase(self, name: str) -> Phase | None:
        space = self.kept.spaces.get(name)
        return space.phase if space else None

    # Calls of users and workers.

    def _here(self, name: str) -> Space | CellAnswer:
        """The namespace, if it lives here; else where to ask. No map of a caller's counts here."""
        space = self.kept.spaces.get(name)
        if space is None and not self.guards.cell_asks_itself:
            space = self.kept.spaces[name] = Space(Phase.ACTIVE, 1, self.name)
        if space is None:
            return REFUSED
        if space.phase is Phase.GONE and self.guards.cell_asks_itself:
            return CellAnswer(ok=False, cell=space.home)
        return space if space.phase in (Phase.ACTIVE, Phase.GONE) else REFUSED

    def trigger(self, name: str, request: str) -> CellAnswer:
        space = self._here(name)
        if isinstance(space, CellAnswer):
            return space
        run = space.requests.get(request)
        if run is None:
            run = space.requests[request] = f"{name}/by-hand/{request}@{self.name}"
            space.runs[run] = Run(run)
            self.oracle.triggered(name, request, run)
        return CellAnswer(ok=True, run=run)

    def lease(self, name: str, worker: str, now: float) -> CellAnswer:
        space = self._here(name)
        if isinstance(space, CellAnswer):
            return space
        free = (r for r in space.runs.values() if not r.done and not r.worker)
        run = next(free, None)
        if run is None:
            return REFUSED
        self.kept.tokens += 1
        run.token, run.worker, run.until = self.kept.tokens, worker, now + LEASE_S
        self.oracle.leased(name, run.name, run.token)
        return CellAnswer(ok=True, run=run.name, token=run.token)

    def report(self, name: str, run_name: str, token: int) -> CellAnswer:
        """`ok` with a run: it counts. `ok` without: the lease is lost, there is no use in asking
        again."""
        space = self._here(name)
        if isinstance(space, CellAnswer):
            sealed = self.kept.spaces.get(name)
            if self.guards.seal_stops_reports or sealed is None:
                return space
            space = sealed
        run = space.runs.get(run_name)
        if run is None or run.token != token:
            return CellAnswer(ok=True)
        if not run.done:
            run.done, run.worker = True, ""
            self.oracle.completed(name, run_name, self.name)
        return CellAnswer(ok=True, run=run_name)

    # Calls of a move.

    def seal(self, name: str, epoch: int) -> CellAnswer:
        space = self.kept.spaces.get(name)
        if space is None or space.phase not in (Phase.ACTIVE, Phase.SEALED):
            return REFUSED
        if self.guards.seal_names_the_epoch and space.epoch != epoch:
            return REFUSED
        if space.phase is Phase.ACTIVE:
            space.phase, space.move = Phase.SEALED, epoch + 1
        return CellAnswer(ok=True)

    def copy(self, name: str, move: int, piece: str) -> CellAnswer:
        space = self.kept.spaces.get(name)
        if space is None or space.phase not in (Phase.SEALED, Phase.ACTIVE):
            return REFUSED
        if self.guards.copy_after_seal and (space.phase, space.move) != (Phase.SEALED, move):
            return REFUSED
        content = NOTHING
        if piece == "times":
            times = dict(space.times) if self.guards.times_move else {}
            content = Piece(times=times, tokens=self.kept.tokens)
        elif piece == "runs":
            content = Piece(runs=deepcopy(space.runs))
        elif self.guards.requests_move:
            content = Piece(requests=dict(space.requests))
        return CellAnswer(ok=True, piece=content)

    def stage(self, name: str, move: int, piece: str, content: Piece) -> CellAnswer:
        """Take a piece; one of an older move than the newest that was heard of is refused."""
        stage = self.kept.stages.get(name)
        space = self.kept.spaces.get(name)
        if (stage and stage.move > move) or (space and space.epoch >= move):
            return REFUSED
        if stage is None or stage.move < move:
            stage = self.kept.stages[name] = StagedSpace(move)
        stage.pieces.setdefault(piece, content)
        if stage.is_whole() and not self.guards.directory_decides:
            self.learn(name, self.name, move)
        return CellAnswer(ok=stage.is_whole() or not self.guards.whole_before_switch)

    def claim(self, name: str) -> int:
        """The epoch in which a namespace lives here, for the directory; 0: it does not."""
        space = self.kept.spaces.get(name)
        return space.epoch if space and space.phase is Phase.ACTIVE else 0

    def learn(self, name: str, home: str, epoch: int, *, arrived: bool = False) -> None:
        """The directory's word, which may be an old one. Epochs decide."""
        space, stage = self.kept.spaces.get(name), self.kept.stages.get(name)
        if home == self.name:
            self._learn_it_is_here(name, space, stage, epoch)
            if arrived and self.claim(name) == epoch:
                self.kept.spaces[name].confirmed = True
            return
        if space and space.epoch < epoch and space.phase in (Phase.SEALED, Phase.RESTORED):
            self.kept.spaces[name] = Space(Phase.GONE, epoch, home)
        elif space and space.epoch < epoch and space.phase is Phase.GONE:
            space.home, space.epoch = home, epoch
        if stage and stage.move <= epoch:
            del self.kept.stages[name]

    def _learn_it_is_here(
        self, name: str, space: Space | None, stage: StagedSpace | None, epoch: int
    ) -> None:
        phase = space.phase if space else None
        arrived = stage if stage is not None and stage.move == epoch else None
        if self.guards.newest_copy_counts and arrived and phase is not Phase.ACTIVE:
            # Before the old copy: it may be sealed still, for the move by which this one left.
            self._begin(name, arrived)
        elif space and phase is Phase.RESTORED and epoch >= space.epoch:
            space.phase, space.epoch = Phase.ACTIVE, epoch
        elif space and phase is Phase.SEALED and epoch > space.epoch:
            space.phase, space.epoch = Phase.ACTIVE, epoch  # The move was given up.
        elif space and phase is Phase.SEALED and not self.guards.abort_takes_an_epoch:
            space.phase = Phase.ACTIVE
        elif arrived and phase is not Phase.ACTIVE:
            self._begin(name, arrived)
        if stage is not None and stage.move < epoch:
            self.kept.stages.pop(name, None)

    def _begin(self, name: str, stage: StagedSpace) -> None:
        """Live here from now on, with what has arrived. Who holds a lease has a full period."""
        times, runs, requests = (stage.pieces.get(name, NOTHING) for name in PIECES)
        space = Space(
            Phase.ACTIVE,
            stage.move,
            self.name,
            times=dict(times.times),
            runs=deepcopy(runs.runs),
            requests=dict(requests.requests),
        )
        for run in space.runs.values():
            run.until = self.oracle.now() + LEASE_S
        if self.guards.tokens_go_on:
            self.kept.tokens = max(self.kept.tokens, times.tokens) + TOKEN_GAP
        self.kept.spaces[name] = space
        self.kept.stages.pop(name, None)
