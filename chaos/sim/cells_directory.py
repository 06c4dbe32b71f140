"""The map of namespaces and cells, and what keeps a move between them safe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guards:
    """What keeps a move safe; a mutant goes without one of them."""

    seal_is_logged: bool = True
    seal_stops_firing: bool = True
    seal_stops_reports: bool = True
    seal_names_the_epoch: bool = True
    copy_after_seal: bool = True
    whole_before_switch: bool = True
    directory_decides: bool = True
    abort_takes_an_epoch: bool = True
    cell_asks_itself: bool = True
    requests_move: bool = True
    times_move: bool = True
    tokens_go_on: bool = True
    newest_copy_counts: bool = True
    restored_waits: bool = True
    restore_ends_moves: bool = True
    arrival_is_awaited: bool = True


@dataclass(slots=True)
class MapEntry:
    """One line of the map."""

    home: str
    epoch: int = 1
    to: str = ""  # Where it is moving; empty: it stays.
    arrived: bool = True  # Its home has reported that it lives there.

    @property
    def move(self) -> int:
        return self.epoch + 1


class Directory:
    """The map. Each call is one entry of its log; `end` and `abort` exclude each other."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        self.entries: dict[str, MapEntry] = {}
        self.generations: dict[str, int] = {}
        self.up, self.switched = True, 0

    def plan(self, name: str, to: str) -> None:
        entry = self.entries[name]
        if not entry.to and entry.home != to and entry.arrived:
            entry.to = to

    def confirm(self, name: str, home: str, epoch: int) -> None:
        """It lives there. Until then nobody may move it on: what has arrived is the only copy that
        counts, and another epoch would make it an old one."""
        entry = self.entries[name]
        entry.arrived = entry.arrived or (entry.home, entry.epoch) == (home, epoch)

    def switch(self, name: str, move: int) -> None:
        """The one moment of a move: before it the namespace lives there, after it here."""
        entry = self.entries[name]
        if entry.to and entry.move == move:
            self.entries[name] = MapEntry(
                entry.to, move, arrived=not self.guards.arrival_is_awaited
            )
            self.switched += 1

    def abort(self, name: str, move: int) -> None:
        """Give a move up. It takes its epoch along, so nothing that is under way for it counts."""
        entry = self.entries[name]
        if entry.to and entry.move == move:
            spent = move + 1 if self.guards.abort_takes_an_epoch else entry.epoch
            self.entries[name] = MapEntry(entry.home, spent)

    def register(self, cell: str, generation: int) -> None:
        """A cell that was restored has lost what it had promised: no move goes on with it."""
        if generation > self.generations.get(cell, 1):
            self.generations[cell] = generation
            for name, entry in self.entries.items():
                if entry.to and cell in (entry.to, entry.home) and self.guards.restore_ends_moves:
                    self.abort(name, entry.move)
                if entry.home == cell:
                    entry.arrived = True  # It has what the backup has, and nothing else will come.
