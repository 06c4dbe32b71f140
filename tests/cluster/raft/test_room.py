"""No room on the disk and no descriptor for a file: waited out, told, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import LIMITS, Group, GroupNode
from raftsched.cluster.raft.disk import OPEN_MAX, SPARES, RealDisk
from raftsched.cluster.raft.driver import Driver
from raftsched.cluster.raft.faults import CallRefused, DiskFull
from raftsched.cluster.raft.journal import COMMAND, Entry, Journal
from raftsched.cluster.raft.segment import numbers
from raftsched.cluster.raft.transport import CONNECTIONS_MAX, STRANGERS_MAX, split

from .test_driver import SMALL, cluster, leader_of, until


def fill_state(node: GroupNode) -> Callable[[], None]:
    """Let the machine of a node have no room; returns what gives it room again."""
    apply = node.machine.apply

    def full(index: int, data: bytes) -> None:
        raise DiskFull("No space left on device")

    node.machine.apply = full  # type: ignore[method-assign]

    def free() -> None:
        node.machine.apply = apply  # type: ignore[method-assign]

    return free


def test_a_leader_whose_state_has_no_room_hands_over_and_goes_on_when_it_has(three: Group) -> None:
    leader = three.lead()
    free = fill_state(leader)
    written = three.write(leader, "first")

    three.run(1.5)
    next_leader = next(node for node in three.others(leader) if node.core.in_office)
    three.write(next_leader, "second")
    three.run(0.5)

    assert written == [None]
    assert leader.core.node.full
    assert not leader.core.in_office
    assert len(next_leader.applied) == 2
    assert leader.applied == []
    assert leader.core.staleness(three.now) < 3

    free()
    three.run(2.0)

    assert not leader.core.node.full
    assert leader.applied == next_leader.applied


def test_a_follower_whose_state_has_no_room_takes_no_entries_until_it_has(three: Group) -> None:
    leader = three.lead()
    follower, other = three.others(leader)
    free = fill_state(follower)
    answers = [three.write(leader, f"w{number}") for number in range(3)]
    three.run(1.0)
    three.write(leader, "later")
    three.run(1.0)

    assert all(answer and answer[0] for answer in answers)
    assert follower.core.journal.last_index < leader.core.journal.last_index
    assert len(other.applied) == 4

    free()
    three.run(5.0)
    assert follower.applied == other.applied


def test_when_no_state_has_room_nobody_leads_and_all_comes_back(three: Group) -> None:
    leader = three.lead()
    frees = [fill_state(node) for node in three.nodes.values()]
    three.write(leader, "first")
    three.run(3.0)
    assert not any(node.core.in_office for node in three.nodes.values())
    with pytest.raises(CallRefused):
        three.write(leader, "refused")

    for free in frees:
        free()
    leader = three.lead()
    three.write(leader, "second")
    three.run(2.0)

    histories = [node.applied for node in three.nodes.values()]
    assert histories[0] == histories[1] == histories[2]
    assert len(histories[0]) == 2


@contextmanager
def no_descriptors(but: int = 0) -> Iterator[None]:
    """Take all descriptors of this process but so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for _ in range(but):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_are_kept_back_for_the_journal(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("journal")
    disk.write("journal/first", 0, b"x")
    with no_descriptors():
        for number in range(SPARES):
            disk.write(f"journal/more-{number}", 0, b"y")
        with pytest.raises(OSError, match="Too many open files") as told:
            disk.write("journal/last", 0, b"z")
        assert disk.read("journal/first", 0, 1) == b"x"
    disk.write("journal/last", 0, b"z")
    disk.sync_folder("journal")

    assert told.value.errno == errno.EMFILE
    assert disk.read("journal/last", 0, 1) == b"z"
    disk.close()


def test_a_folder_of_many_files_takes_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("snapshot")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5 * OPEN_MAX):
        disk.write(f"snapshot/{number}", 0, b"%d" % number)
    taken = len(os.listdir("/proc/self/fd")) - before

    assert taken <= OPEN_MAX + SPARES
    for number in range(5 * OPEN_MAX):
        assert disk.read(f"snapshot/{number}", 0, 9) == b"%d" % number
    disk.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_segment_is_not_begun_with_the_last_of_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path)
    room = SimpleNamespace(f_bavail=1_900, f_frsize=1_000)
    with monkeypatch.context() as little:
        little.setattr("raftsched.cluster.raft.disk.os.fstatvfs", lambda fd: room)
        with pytest.raises(OSError, match="No space left") as told:
            disk.allocate("segment", 1_000_000)
        room.f_bavail = 2_100
        disk.allocate("segment", 1_000_000)

    assert told.value.errno == errno.ENOSPC
    assert disk.size("segment") == 1_000_000
    disk.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
async def test_a_round_of_the_journal_that_lacks_something_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)

        def lacks(_: str) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as short:
            short.setattr(leader.core.journal.disk, "sync", lacks)
            assert await leader.propose(b"unknown", 0.3) is None
            await until(lambda: leader.status().full)
            with pytest.raises(CallRefused):
                await leader.propose(b"refused", 0.3)

        await until(lambda: leader.status().ready)
        assert await leader.propose(b"after", 2.0) is not None
        assert not leader.ended.done()


async def test_a_full_disk_gives_back_what_a_snapshot_stands_for_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Five segments fit, and compaction would begin at many more: seen before, nothing was written
    from the fourth on, though old segments were all that filled the disk."""
    segment = SMALL.segment

    def left(_: int) -> SimpleNamespace:
        used = sum(file.stat().st_size for file in tmp_path.rglob("*.segment"))
        return SimpleNamespace(f_bavail=max(0, 5 * segment - used), f_frsize=1)

    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)
        monkeypatch.setattr("raftsched.cluster.raft.disk.os.fstatvfs", left)
        for _ in range(2 * 5 * segment >> 20):
            await written(drivers, b"x" * (1 << 20))
        await until(lambda: not leader.status().full)

        assert not leader.ended.done()
        assert len(list(tmp_path.rglob("*.segment"))) <= 4
        assert len(leader.core.snapshots.by_index) <= 2
    assert "of its journal that its newest snapshot stands for" in caplog.text


def test_what_goes_early_on_a_full_disk_leaves_the_newest_durable_segment() -> None:
    disk = SimDisk()
    journal = Journal(disk, LIMITS, "00112233445566aa")
    while write_one(journal) <= 4:
        sync(journal)
    journal.cut(journal.synced_index)
    batch = journal.take()
    assert batch is not None
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        batch.run()
    journal.relieve(batch)
    with pytest.raises(OSError, match="no space"):
        batch.run()
    assert numbers(disk, "journal") == [4, 5]

    disk.full = False
    batch.run()
    journal.end_round(batch)
    assert numbers(disk, "journal") == [5]


def write_one(journal: Journal) -> int:
    """Append an entry; the number of the segment that has it."""
    journal.append(Entry(journal.last_index + 1, 1, COMMAND, b"x" * 3_000))
    return journal._number


def sync(journal: Journal) -> None:
    batch = journal.take()
    assert batch is not None
    batch.run()
    journal.end_round(batch)


async def written(drivers: dict[str, Driver], data: bytes) -> None:
    """Have something agreed on by whoever leads by then."""
    async with asyncio.timeout(20):
        while True:
            with suppress(CallRefused):
                if await (await leader_of(drivers)).propose(data, 1.0) is not None:
                    return
            await asyncio.sleep(0.01)


async def test_strangers_without_a_word_take_no_place_of_a_node(tmp_path: Path) -> None:
    """Nodes say who they are at once; of many who do not, the oldest goes for each that comes."""
    async with cluster(tmp_path, 3) as drivers:
        leader = await leader_of(drivers)
        host, port = split(leader.place.contacts[leader.place.node])
        idle = [await asyncio.open_connection(host, port) for _ in range(3 * CONNECTIONS_MAX)]
        try:
            await until(lambda: len(leader.links.sessions) == 2)
            taken = len(leader.links._all)
            for session in list(leader.links.sessions.values()):
                session.close("a test")
            await until(lambda: len(leader.links.sessions) == 2)
            await written(drivers, b"still here")
        finally:
            for _, writer in idle:
                writer.close()

    assert taken <= STRANGERS_MAX + 4
