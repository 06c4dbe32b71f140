"""Who calls cells: users, workers, and the movers that carry namespaces from one to another."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from .cells import PIECES, CellAnswer, SimCell

if TYPE_CHECKING:
    from .cells_world import CellsWorld

TRIES_MAX = 12  # Of one errand of a mover; then whoever looks next goes on.


class CellsUser:
    """Triggers runs under request ids, and asks again until it is answered."""

    def __init__(self, world: CellsWorld, space: str) -> None:
        self.world, self.space = world, space
        self.cell = world.directory.entries[space].home
        self.count = 0

    def ask(self) -> None:
        self.count += 1
        self._try(f"{self.space}-r{self.count}", 0)

    def _try(self, request: str, hops: int) -> None:
        def then(answer: CellAnswer | None) -> None:
            if answer is not None and answer.ok:
                self.world.oracle.answered(self.space, request, answer.run)
                if self.world.faulty:
                    self.world.world.after(dice.expovariate(1 / 2.0), self.ask)
                return
            follow(self, self.space, answer, hops, lambda n: self._try(request, n))

        dice = self.world.world.dice
        self.world.call(self.cell, lambda cell: cell.trigger(self.space, request), then)


class CellsWorker:
    """Takes runs, works, reports. It may be slow, and come back when its lease is over."""

    def __init__(self, world: CellsWorld, space: str, name: str) -> None:
        self.world, self.space, self.name = world, space, name
        self.cell = world.directory.entries[space].home

    def ask(self, hops: int = 0) -> None:
        def then(answer: CellAnswer | None) -> None:
            if answer is None or not answer.ok:
                follow(self, self.space, answer, hops, self.ask)
                return
            slow = self.world.faulty and dice.random() < 0.1
            work = dice.uniform(3.0, 7.0) if slow else dice.uniform(0.02, 0.3)
            self.world.world.after(work, lambda: self._report(answer, 0))

        dice = self.world.world.dice
        world = self.world.world
        self.world.call(self.cell, lambda cell: cell.lease(self.space, self.name, world.now), then)

    def _report(self, lease: CellAnswer, hops: int) -> None:
        def then(answer: CellAnswer | None) -> None:
            if answer is not None and answer.ok:
                self.ask()
                return
            follow(self, self.space, answer, hops, lambda n: self._report(lease, n))

        self.world.call(
            self.cell, lambda cell: cell.report(self.space, lease.run, lease.token), then
        )


def follow(
    who: CellsUser | CellsWorker, space: str, answer: CellAnswer | None, hops: int,
    again: Callable[[int], None],
) -> None:  # fmt: skip
    """Go once where a refusal points; after that the map is asked, which may be old by then."""
    world = who.world
    if answer is not None and answer.cell and hops == 0:
        who.cell = answer.cell
        again(1)
        return

    def look() -> None:
        who.cell = world.directory.entries[space].home

    if answer is None or answer.cell or world.world.dice.random() < 0.3:
        world.ask_directory(look)
    world.world.after(world.world.dice.uniform(0.1, 0.4), lambda: again(0))


class Mover:
    """Carries moves out, a step at a time, from what the directory says. It remembers nothing that
    counts, so it may die at any step, and two may work on the same move."""

    def __init__(self, world: CellsWorld) -> None:
        self.world = world

    def look(self) -> None:
        dice = self.world.world.dice
        moving = [name for name, entry in self.world.directory.entries.items() if entry.to]
        if moving and self.world.directory.up:
            name = dice.choice(moving)
            entry = self.world.directory.entries[name]
            Errand(self.world, name, entry.home, entry.to, entry.move).begin()
        self.world.world.after(dice.uniform(0.3, 0.9), self.look)


class Errand:
    """One try of a move: seal, copy piece by piece, switch."""

    def __init__(self, world: CellsWorld, name: str, home: str, to: str, move: int) -> None:
        self.world, self.name, self.home, self.to, self.move = world, name, home, to, move
        self.guards = world.directory.guards
        self.tries = 0

    def begin(self) -> None:
        def then(answer: CellAnswer | None) -> None:
            if (answer is not None and answer.ok) or not self.guards.copy_after_seal:
                self._copy(0)

        self._ask(self.home, lambda cell: cell.seal(self.name, self.move - 1), then)

    def _copy(self, at: int) -> None:
        piece = PIECES[at]

        def then(answer: CellAnswer | None) -> None:
            if answer is not None and answer.ok:
                content = answer.piece
                self._ask(
                    self.to,
                    lambda cell: cell.stage(self.name, self.move, piece, deepcopy(content)),
                    lambda staged: self._go_on(at, staged),
                )

        self._ask(self.home, lambda cell: cell.copy(self.name, self.move, piece), then)

    def _go_on(self, at: int, staged: CellAnswer | None) -> None:
        if staged is not None and staged.ok:
            self.world.ask_directory(lambda: self.world.directory.switch(self.name, self.move))
        elif staged is not None and at + 1 < len(PIECES):
            self._copy(at + 1)

    def _ask(
        self,
        cell: str,
        what: Callable[[SimCell], CellAnswer],
        then: Callable[[CellAnswer | None], None],
    ) -> None:
        self.tries += 1
        if self.tries > TRIES_MAX or self.world._chance("mover", 0.05):
            return  # It died.
        self.world.call(cell, what, then, inside=True)
