"""A world of cells: users, workers and movers whose calls get lost, and cells that fail."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from .cells import REFUSED, CellAnswer, Kept, Phase, SimCell, Space
from .cells_directory import Directory, Guards, MapEntry
from .cells_oracle import CellsOracle
from .cells_people import CellsUser, CellsWorker, Mover
from .world import SimViolation, World

FAULTS = (
    "leader", "down", "away", "slow", "lost", "late", "double", "abort", "mover", "gone",
)  # fmt: skip
TICK_S = 0.25
CALL_S = 1.0  # Who has no answer by then asks again.
# Of a mutant alone: a cell asks so late that what left it may be back before.
SILENT = "silent"
# What happens to a cell or to the directory; the other classes are of messages.
KINDS = {"leader", "down", "away", "slow", "abort", "gone", SILENT}
FAULTS_S, QUIET_S, STRETCHES_MAX = 30.0, 25.0, 4
BACKUP_S = 4.0
WORKERS_EACH = 3


@dataclass(kw_only=True)
class CellOptions:
    """What one seed decides."""

    seed: int
    cells: int
    spaces: int
    faults: frozenset[str]
    delay: float
    quiet: float  # Mean seconds between faults.
    moves: float  # Mean seconds between moves that somebody plans.
    until_restored: float  # Seconds from the loss of a cell to its backup in a new one.
    ask: float  # A cell asks the directory so often of what it is not sure of.
    late: float  # The share of messages that come seconds later.

    def describe(self) -> str:
        return (
            f"seed={self.seed} cells={self.cells} namespaces={self.spaces} "
            f"delay={self.delay * 1e3:.0f}ms quiet={self.quiet:.1f}s moves={self.moves:.1f}s "
            f"faults={','.join(sorted(self.faults))}"
        )


class CellsWorld:
    """See the head of this file."""

    def __init__(self, options: CellOptions, guards: Guards) -> None:
        self.options, self.world = options, World(options.seed)
        self.oracle = CellsOracle(lambda: self.world.now)
        dice = self.world.dice
        self.spaces = [f"ns{n}" for n in range(options.spaces)]
        self.periods = {
            f"{space}/job{n}": dice.choice((1.1, 2.3, 4.1))
            for space in self.spaces
            for n in range(dice.choice((1, 2)))
        }
        self.directory = Directory(guards)
        names = [f"cell{n}" for n in range(options.cells)]
        self.cells = {n: SimCell(n, self.periods, guards, self.oracle) for n in names}
        self.away: set[str] = set()  # Cells that movers and the directory do not reach.
        self.silent: set[str] = set()  # Cells that do not come to ask the directory.
        self.backups: dict[str, list[Kept]] = {name: [] for name in names}
        self.faulty = True
        # The next cell to which a namespace has been copied whole is lost right then.
        self.loses_next = self.has_lost = False
        for space in self.spaces:
            home = self.cells[dice.choice(names)]
            self._found(space, home)

    def _found(self, space: str, home: SimCell) -> None:
        self.directory.entries[space] = MapEntry(home.name)
        jobs = {job: 0 for job in self.periods if job.split("/")[0] == space}
        home.kept.spaces[space] = Space(Phase.ACTIVE, 1, home.name, times=jobs)

    def moves(self) -> int:
        return self.directory.switched

    # Calls.

    def call(
        self,
        cell: str,
        what: Callable[[SimCell], CellAnswer],
        then: Callable[[CellAnswer | None], None],
        *,
        inside: bool = False,
    ) -> None:
        """Ask a cell; `then` hears the answer, or None if none came within `CALL_S`.

        `inside`: by a mover or the directory, which a cell that is away does not reach.
        """
        answered: list[bool] = []

        def hear(answer: CellAnswer | None) -> None:
            if not answered:
                answered.append(True)
                then(answer)

        def arrive() -> None:
            target = self.cells[cell]
            if not target.up or (inside and cell in self.away):
                return
            answer = what(target)
            self._check()
            if self.loses_next and any(stage.is_whole() for stage in target.kept.stages.values()):
                self.loses_next = False
                self.world.after(0.0, lambda: self._lose(target))
            if not self._drops():
                self.world.after(self._way(), lambda: hear(answer))

        for _ in range(2 if self._chance("double", 0.2) else 1):
            if not self._drops():
                self.world.after(self._way(), arrive)
        self.world.after(CALL_S, lambda: hear(None))

    def ask_directory(self, then: Callable[[], None]) -> None:
        """Carry something out at the directory, if it is reached."""
        if not self._drops():
            self.world.after(self._way(), lambda: then() if self.directory.up else None)

    def _way(self) -> float:
        dice = self.world.dice
        if self._chance("late", self.options.late):
            return dice.uniform(0.5, 8.0)
        return self.options.delay * dice.uniform(0.5, 1.5)

    def _drops(self) -> bool:
        return self._chance("lost", 0.1)

    def _chance(self, fault: str, share: float) -> bool:
        return self.faulty and fault in self.options.faults and self.world.dice.random() < share

    def _check(self) -> None:
        active: dict[str, list[str]] = {}
        for cell in self.cells.values():
            for name, space in cell.kept.spaces.items():
                if space.phase is Phase.ACTIVE and cell.up:
                    active.setdefault(name, []).append(cell.name)
        self.oracle.check_homes(active)

    # What goes on.

    def run(self) -> None:
        for cell in self.cells.values():
            self._tick(cell)
            self._ask(cell)
            self._back_up(cell)
        for space in self.spaces:
            CellsUser(self, space).ask()
            for n in range(WORKERS_EACH):
                CellsWorker(self, space, f"{space}-w{n}").ask()
        Mover(self).look()
        Mover(self).look()
        self._plan()
        self._fault()
        self.world.run(FAULTS_S)
        self.faulty = False
        self.away.clear()
        self.silent.clear()
        self.directory.up = True
        due = {
            space: [
                f"{job}/{k}"
                for job, period in self.periods.items()
                if job.split("/")[0] == space
                for k in range(int((FAULTS_S + QUIET_S / 3) / period))
            ]
            for space in self.spaces
        }
        # Most have done all their work after one stretch; a few have much to make up for.
        for stretch in range(1, STRETCHES_MAX + 1):
            self.world.run(FAULTS_S + stretch * QUIET_S)
            missing = self.oracle.missing(due)
            if not missing:
                return
        raise SimViolation(missing)

    def _tick(self, cell: SimCell) -> None:
        if cell.up:
            cell.fire_and_lapse(self.world.now)
            self._check()
        self.world.after(TICK_S, lambda: self._tick(cell))

    def _ask(self, cell: SimCell) -> None:
        """What a cell is not sure of it asks the directory, until it knows."""
        if cell.up and cell.name not in self.away | self.silent:
            for name in dict.fromkeys(cell.unsure()):
                self._ask_of(cell, name)
            if cell.generation > 1:
                generation = cell.generation
                self.ask_directory(lambda: self.directory.register(cell.name, generation))
        self.world.after(self.options.ask, lambda: self._ask(cell))

    def _ask_of(self, cell: SimCell, name: str) -> None:
        claim, asked = cell.claim(name), cell.generation

        def answer() -> None:
            if self.directory.generations.get(cell.name, 1) != asked:
                return  # A cell that was restored registers first.
            self.directory.confirm(name, cell.name, claim)
            entry = self.directory.entries[name]
            home, epoch, arrived = entry.home, entry.epoch, entry.arrived

            def learn(target: SimCell) -> CellAnswer:
                if target.generation == asked:
                    target.learn(name, home, epoch, arrived=arrived)
                return REFUSED

            self.call(cell.name, learn, lambda answer: None, inside=True)

        self.ask_directory(answer)

    def _back_up(self, cell: SimCell) -> None:
        if cell.up:
            self.backups[cell.name] = [*self.backups[cell.name][-1:], deepcopy(cell.kept)]
        self.world.after(BACKUP_S, lambda: self._back_up(cell))

    def _plan(self) -> None:
        """An operator who moves what needs no move."""
        dice = self.world.dice
        if self.faulty:
            name, to = dice.choice(self.spaces), dice.choice(list(self.cells))
            self.ask_directory(lambda: self.directory.plan(name, to))
            self.world.after(dice.expovariate(1 / self.options.moves), self._plan)

    def _fault(self) -> None:
        dice = self.world.dice
        if not self.faulty:
            return
        kinds = sorted(self.options.faults & KINDS)
        cell = self.cells[dice.choice(list(self.cells))]
        kind = dice.choice(kinds) if kinds else ""
        if kind:
            self.world.fault(f"{kind} {cell.name}")
        if kind == "leader" and cell.up:
            cell.change_leader()
        elif kind == "down" and cell.up:
            self._stop_for_a_while(cell)
        elif kind == "away":
            self.away.add(cell.name)
            self.world.after(dice.uniform(0.5, 6), lambda: self.away.discard(cell.name))
        elif kind == SILENT:
            self.silent.add(cell.name)
            self.world.after(dice.uniform(2, 10), lambda: self.silent.discard(cell.name))
        elif kind == "slow":
            self.directory.up = False
            self.world.after(dice.uniform(0.5, 4), self._directory_back)
        elif kind == "abort":
            name = dice.choice(self.spaces)
            move = self.directory.entries[name].move
            self.ask_directory(lambda: self.directory.abort(name, move))
        elif kind == "gone" and not self.has_lost:
            self.has_lost = self.loses_next = True
            if dice.random() < 0.5:
                self.loses_next = False
                self._lose(cell)
        self.world.after(dice.expovariate(1 / self.options.quiet), self._fault)

    def _directory_back(self) -> None:
        self.directory.up = True

    def _stop_for_a_while(self, cell: SimCell) -> None:
        def back() -> None:
            if not cell.lost:
                cell.up = True
                cell.change_leader()

        cell.up = False
        self.world.after(self.world.dice.uniform(0.5, 5), back)

    def _lose(self, cell: SimCell) -> None:
        """All its disks at once. A backup of some seconds ago takes its place, later."""
        cell.up, cell.lost = False, True

        def restore() -> None:
            for name, entry in self.directory.entries.items():
                # What it had done since the backup is gone; what has left it by then is not.
                if entry.home == cell.name:
                    self.oracle.excused.add(name)
            self.world.note(f"{cell.name} is restored")
            cell.restore(self.backups[cell.name][0] if self.backups[cell.name] else Kept())
            self.directory.register(cell.name, cell.generation)

        self.world.after(self.options.until_restored, restore)
