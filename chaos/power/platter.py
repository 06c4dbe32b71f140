"""FuseFiles of one node, as its processes see them and as the platter has them.

A power cut keeps any part of what was not synced: sectors of files, whether a file has grown or
shrunk, and any beginning of the changes to names. The names that a sync of a folder makes durable
are those in it, its own, and what these stand on.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field

SECTOR = 512
STYLES = ("none", "all", "some", "some", "some")


class Inode:
    """A file or a folder."""

    def __init__(self, *, is_folder: bool, mode: int) -> None:
        self.is_folder, self.mode = is_folder, mode
        self.links = 0
        # A file: bytes, and which of them differ.
        self.seen, self.kept = bytearray(), bytearray()
        self.dirty: set[int] = set()
        # A folder: its names.
        self.names: dict[str, Inode] = {}
        self.kept_names: dict[str, Inode] = {}

    def write(self, offset: int, data: bytes) -> None:
        if offset > len(self.seen):
            self.resize(offset)
        self.seen[offset : offset + len(data)] = data
        self._mark(offset, offset + len(data))

    def resize(self, size: int) -> None:
        before = len(self.seen)
        if size < before:
            del self.seen[size:]
        else:
            self.seen.extend(bytes(size - before))
        self._mark(min(size, before), max(size, before))

    def _mark(self, first: int, end: int) -> None:
        self.dirty.update(range(first // SECTOR, -(-end // SECTOR)))

    def sync(self) -> None:
        if self.dirty:
            self.kept[:] = self.seen
            self.dirty.clear()

    def survivor(self, style: str, dice: random.Random) -> bytearray:
        """What a cut leaves of a file."""
        if style == "none" or not self.dirty:
            return bytearray(self.kept)
        if style == "all":
            return bytearray(self.seen)
        size = len(dice.choice((self.seen, self.kept)))
        left = bytearray(self.kept[:size].ljust(size, b"\0"))
        for sector in sorted(self.dirty):
            if dice.random() < 0.5:
                at, end = sector * SECTOR, min((sector + 1) * SECTOR, size)
                piece = self.seen[at:end]
                left[at : at + len(piece)] = piece
        return left


@dataclass
class NameChange:
    """Names that change together: (folder, name, what it leads to or None)."""

    sets: list[tuple[Inode, str, Inode | None]]

    def touches(self, folder: Inode) -> bool:
        return any(f is folder or n is folder for f, _, n in self.sets)

    def shares_a_name(self, other: NameChange) -> bool:
        mine = {(id(f), name) for f, name, _ in self.sets}
        return any((id(f), name) in mine for f, name, _ in other.sets)

    def carry_out(self) -> None:
        for folder, name, node in self.sets:
            put(folder.kept_names, name, node)


def put(names: dict[str, Inode], name: str, node: Inode | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


@dataclass
class Armed:
    """A cut that comes after so many more operations."""

    left: int
    style: str
    dice: random.Random


@dataclass
class Platter:
    """The disk of one node."""

    root: Inode = field(default_factory=lambda: Inode(is_folder=True, mode=0o755))
    changes: list[NameChange] = field(default_factory=list)
    armed: Armed | None = None
    # What is left, with the changes to names that are still on their way.
    image: tuple[Inode, list[NameChange]] | None = None

    def operation(self) -> None:
        """Called before each that changes something, or syncs."""
        if self.armed is not None and self.image is None:
            if self.armed.left <= 0:
                self.cut()
            self.armed.left -= 1

    def change(self, *sets: tuple[Inode, str, Inode | None]) -> None:
        for folder, name, node in sets:
            old = folder.names.get(name)
            if old is not None:
                old.links -= 1
            if node is not None:
                node.links += 1
            put(folder.names, name, node)
        self.changes.append(NameChange(list(sets)))

    def sync_folder(self, folder: Inode) -> None:
        wanted = [change.touches(folder) for change in self.changes]
        # Backwards: what a name stands on came before it, and so did other changes of that name.
        for at in reversed(range(len(self.changes))):
            if wanted[at]:
                change = self.changes[at]
                parents = [f for f, _, _ in change.sets]
                for before in range(at):
                    earlier = self.changes[before]
                    makes = any(n is p for p in parents for _, _, n in earlier.sets)
                    if makes or earlier.shares_a_name(change):
                        wanted[before] = True
        for change, is_wanted in zip(self.changes, wanted, strict=True):
            if is_wanted:
                change.carry_out()
        self.changes = [c for c, w in zip(self.changes, wanted, strict=True) if not w]

    # Cuts.

    def arm(self, after: int, style: str, seed: int) -> None:
        self.armed, self.image = Armed(after, style, random.Random(seed)), None

    def cut(self) -> None:
        """Make what is left if the power goes now; or, after a mere kill, all that was written."""
        assert self.armed is not None
        style, dice = self.armed.style, self.armed.dice
        if style == "kill":
            # A process that dies takes nothing along: the system has what was written, unsynced.
            self.image = deepcopy((self.root, self.changes))
            return
        style = dice.choice(STYLES)
        reached = {"none": 0, "all": len(self.changes)}.get(
            style, dice.randint(0, len(self.changes))
        )
        image = self._copy(self.root, style, dice, self._names_after(reached), {})
        self.image = image, []

    def _names_after(self, reached: int) -> dict[int, dict[str, Inode]]:
        """The names of each folder on the platter once so many of the changes have reached it."""
        names: dict[int, dict[str, Inode]] = {}
        for change in self.changes[:reached]:
            for folder, name, node in change.sets:
                own = names.setdefault(id(folder), dict(folder.kept_names))
                put(own, name, node)
        return names

    def _copy(
        self,
        folder: Inode,
        style: str,
        dice: random.Random,
        names: dict[int, dict[str, Inode]],
        made: dict[int, Inode],
    ) -> Inode:
        copy = Inode(is_folder=True, mode=folder.mode)
        for name, node in sorted(names.get(id(folder), folder.kept_names).items()):
            child = made.get(id(node))
            if child is None and node.is_folder:
                child = self._copy(node, style, dice, names, made)
            elif child is None:
                child = made[id(node)] = Inode(is_folder=False, mode=node.mode)
                child.seen = node.survivor(style, dice)
                child.kept = bytearray(child.seen)
            child.links += 1
            copy.names[name] = copy.kept_names[name] = child
        return copy

    def cut_now(self) -> None:
        """What comes after this is lost, if the cut was not before."""
        if self.image is None:
            self.cut()

    def swap(self) -> None:
        """Go on from what was left."""
        self.cut_now()
        assert self.image is not None
        (self.root, self.changes), self.image, self.armed = self.image, None, None
