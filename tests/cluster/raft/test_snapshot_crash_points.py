"""Every point at which the power can go while snapshots are made, fetched and put in place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.cluster.raft.message import AppendAck
from raftsched.cluster.raft.port import RaftSettings

from .recording import FailingDisk, RecordingDisk, images

SETTINGS = RaftSettings(
    compact_bytes=1 << 20, tail_entries=0, chunk_bytes=512, chunk_window=2, append_bytes=4000
)
Promise = tuple[int, int, tuple[int, str]]  # Steps done, last index said to be here, term and vote.


class Scene:
    """Three nodes, one of which has a disk that is watched; the others never fail."""

    def __init__(self, disk: RecordingDisk) -> None:
        self.group, self.disk = Group(3, SETTINGS), disk
        self.digests: dict[int, str] = {}  # Of the state at each index.
        self.terms: dict[int, int] = {}
        self.promises: list[Promise] = []
        self.watched = self.group.nodes["n3"]

    def play(self) -> None:
        """Two snapshots arrive, one is made, and the log goes on in between."""
        group = self.group
        self.watched = group.nodes["n3"] = GroupNode("n3", group.names, SETTINGS, self.disk)
        for name in ("n1", "n2"):
            self.watched.core.link_up(name, 0.0)
        leader = group.lead()
        while leader is self.watched:
            leader.core.transfer(None, group.now, lambda _: None)
            self.run(0.3)
            leader = group.lead()
        for part in range(2):
            group.passes = lambda a, b, m: "n3" not in (a, b)
            self.write(leader, 6, part)
            leader.core.make_snapshot()
            self.run(0.2)
            journal, last = leader.core.journal, leader.core.last_applied
            journal.reset(last, journal.last_term, journal.configs[-1:])  # As if it were cut.
            self.write(leader, 3, part + 10)
            group.passes = lambda a, b, m: True
            self.until(lambda: self.watched.core.snapshots.last_index > 0)
            self.until(lambda: self.watched.core.last_applied == leader.core.last_applied)
            self.write(leader, 3, part + 20)
        self.watched.core.make_snapshot()
        self.write(leader, 3, 30)

    def write(self, leader: GroupNode, count: int, part: int) -> None:
        for number in range(count):
            self.group.write(leader, f"{part}-{number}-{'x' * 300}")
            self.run(0.05)

    def until(self, what: Callable[[], bool]) -> None:
        for _ in range(200):
            if what():
                return
            self.run(0.05)
        raise AssertionError("it does not come about")

    def run(self, seconds: float) -> None:
        """Let time go on, and note what is known and what was said."""
        until = self.group.now + seconds
        while self.group.now < until:
            self.group.now += 0.01
            self.group.turns()
            self.note()

    def note(self) -> None:
        for node in self.group.nodes.values():
            journal = node.core.journal
            self.digests[node.machine.index] = node.machine.digest
            for index in range(journal.base_index, journal.last_index + 1):
                self.terms[index] = journal.term_at(index)
        said = [m.at for _, m in self.watched.sent if isinstance(m, AppendAck) and m.ok]
        journal = self.watched.core.journal
        vote = (journal.term, journal.vote or "")
        self.promises.append((len(self.disk.steps), max(said, default=0), vote))


def start(disk: SimDisk, scene: Scene) -> GroupNode:
    """Start a process on what is left of a disk."""
    return GroupNode("n3", scene.group.names, SETTINGS, disk)


def check(disk: SimDisk, scene: Scene, acked: int, vote: tuple[int, str], where: str) -> None:
    node = start(disk, scene)
    journal, machine = node.core.journal, node.machine
    assert machine.digest == scene.digests.get(machine.index, ""), where
    assert node.core.last_applied >= journal.base_index, where
    assert journal.last_index >= acked, where
    for index in range(journal.base_index, journal.last_index + 1):
        assert journal.term_at(index) == scene.terms.get(index, 0), (where, index)
    assert journal.term >= vote[0], where
    if journal.term == vote[0]:
        assert vote[1] in ("", journal.vote), where
    again = start(disk, scene)
    assert (again.machine.digest, again.core.journal.last_index) == (
        machine.digest,
        journal.last_index,
    ), where


@pytest.mark.slow
def test_wherever_the_power_goes_the_state_is_one_that_was() -> None:
    scene = Scene(RecordingDisk())
    scene.play()
    dice, tried = random.Random(1), 0
    renamed = [str(s[1][1]) for s in scene.disk.steps if s[0] == "rename"]

    for end in range(len(scene.disk.steps) + 1):
        _, acked, vote = max((p for p in scene.promises if p[0] <= end), default=(0, 0, (0, "")))
        for image in images(scene.disk.steps[:end], dice):
            tried += 1
            check(image, scene, acked, vote, f"after step {end}")

    # Two came, one was made, and the oldest went.
    assert [name.rpartition("/")[2].isdecimal() for name in renamed] == [True] * 3 + [False]
    assert tried > 1000


@pytest.mark.slow
def test_whichever_sync_fails_what_a_later_start_holds_is_on_the_disk() -> None:
    """The process ends and starts again on the same page cache; then the power goes."""
    for number in itertools.count(1):
        disk = FailingDisk(number)
        scene = Scene(disk)
        try:
            scene.play()
        except OSError:
            disk.sync_error = False
            scene.note()
        else:
            break
        journal = start(disk, scene).core.journal
        vote = (journal.term, journal.vote or "")
        check(disk.image(), scene, journal.last_index, vote, f"sync {number}")

    assert number > 40
