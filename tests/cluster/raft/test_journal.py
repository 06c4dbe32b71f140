from __future__ import annotations

import errno
import random
import tracemalloc
from pathlib import Path

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.cluster.raft import segment
from raftsched.cluster.raft.disk import RealDisk
from raftsched.cluster.raft.faults import Broken, CallRefused, Damaged
from raftsched.cluster.raft.journal import COMMAND, CONFIG, Entry, Journal, JournalLimits

from ...rows import each

LIMITS = JournalLimits(segment=16 << 10, cache=2 << 10, entry=4 << 10)
ID = "00112233445566aa"


def opened(disk: SimDisk) -> Journal:
    return Journal(disk, LIMITS, ID)


def entry(index: int, term: int = 1, size: int = 10) -> Entry:
    return Entry(index, term, COMMAND, b"%d/%d " % (index, term) + b"x" * size)


def sync(journal: Journal) -> None:
    while (batch := journal.take()) is not None:
        batch.run()
        journal.end_round(batch)


def filled(disk: SimDisk, count: int, size: int = 10) -> Journal:
    journal = opened(disk)
    for index in range(1, count + 1):
        journal.append(entry(index, size=size))
    sync(journal)
    return journal


def contents(journal: Journal) -> list[Entry]:
    return [journal.entry(i) for i in range(journal.base_index + 1, journal.last_index + 1)]


def test_what_was_synced_is_there_after_a_power_cut() -> None:
    disk = SimDisk()
    journal = filled(disk, 50)
    journal.set_term(3, "n2")
    sync(journal)

    disk.crash(random.Random(1))
    again = opened(disk)

    assert contents(again) == [entry(i) for i in range(1, 51)]
    assert (again.term, again.vote) == (3, "n2")


def test_nothing_counts_as_durable_before_its_sync() -> None:
    journal = opened(SimDisk())

    journal.append(entry(1))
    batch = journal.take()

    assert batch is not None
    assert journal.synced_index == 0
    batch.run()
    assert journal.synced_index == 0
    journal.end_round(batch)
    assert journal.synced_index == 1


def test_a_vote_cannot_change_within_a_term() -> None:
    journal = opened(SimDisk())
    journal.set_term(2, "n1")

    with pytest.raises(Broken, match="voted for n1"):
        journal.set_term(2, "n3")
    with pytest.raises(Broken, match="may not go from 2 to 1"):
        journal.set_term(1, None)


def test_an_entry_at_an_old_place_voids_the_tail() -> None:
    disk = SimDisk()
    journal = filled(disk, 20)

    journal.append(entry(11, term=2))
    sync(journal)

    wanted = [entry(i) for i in range(1, 11)] + [entry(11, term=2)]
    assert contents(journal) == wanted
    assert contents(opened(disk.image())) == wanted


def test_a_crash_while_a_tail_is_replaced_leaves_one_or_the_other() -> None:
    disk = SimDisk()
    journal = filled(disk, 20)
    journal.append(entry(11, term=2, size=2000))
    batch = journal.take()
    assert batch is not None
    batch.ops[0]()

    disk.crash(random.Random(5))
    again = contents(opened(disk))

    old = [entry(i) for i in range(1, 21)]
    assert again in (old, [*old[:10], entry(11, term=2, size=2000)])


def test_a_torn_tail_is_cut_and_stays_cut() -> None:
    disk = SimDisk()
    journal = filled(disk, 5)
    journal.append(entry(6, size=3000))
    batch = journal.take()
    assert batch is not None
    batch.ops[0]()
    path = "journal/000000000001.segment"
    disk.files[path].keep({min(disk.files[path].dirty)})

    disk.restart_from_kept()
    once = contents(opened(disk))
    twice = contents(opened(disk))

    assert once == twice == [entry(i) for i in range(1, 6)]


def test_damage_before_a_seal_is_refused() -> None:
    disk = SimDisk()
    journal = filled(disk, 5)
    journal.append(entry(6))
    sync(journal)
    disk.flip("journal/000000000001.segment", 8300, 3)

    with pytest.raises(Damaged, match=r"damaged at byte .* empty one"):
        opened(disk)


def test_an_idle_journal_seals_its_last_round() -> None:
    disk = SimDisk()
    journal = filled(disk, 5)
    batch = journal.take(idle=True)
    assert batch is not None
    batch.run()
    journal.end_round(batch)
    last = journal._index.runs[-1].offsets[-1]
    disk.flip("journal/000000000001.segment", last + 50, 0)

    with pytest.raises(Damaged):
        opened(disk)
    assert journal.take(idle=True) is None


def test_entries_beyond_the_cache_come_from_the_disk() -> None:
    journal = filled(SimDisk(), 200, size=100)

    held = len(journal._cache.entries)

    assert journal._cache.bytes <= LIMITS.cache
    assert held < 50
    assert contents(journal) == [entry(i, size=100) for i in range(1, 201)]


def test_damage_found_while_reading_is_not_passed_on() -> None:
    disk = SimDisk()
    journal = filled(disk, 200, size=100)
    run = journal._index.runs[0]
    disk.flip(f"journal/{run.number:012d}.segment", run.offsets[3] + 60, 1)

    with pytest.raises(Damaged, match="entry 4 is not intact"):
        journal.entry(4)


def test_a_cut_drops_whole_segments_and_keeps_the_rest() -> None:
    disk = SimDisk()
    journal = filled(disk, 300, size=200)
    before = journal.bytes_kept

    journal.cut(200)
    sync(journal)

    assert 0 < journal.base_index <= 200
    assert journal.bytes_kept < before
    again = opened(disk.image())
    assert again.base_index == journal.base_index
    assert again.base_term == 1
    assert contents(again) == contents(journal)


def test_old_segments_are_there_until_the_cut_is_durable() -> None:
    disk = SimDisk()
    journal = filled(disk, 300, size=200)
    names = disk.list("journal")

    journal.cut(200)

    assert disk.list("journal") == names


def test_a_journal_cut_in_a_replaced_tail_begins_where_it_should() -> None:
    """A header may name an end of the log that was replaced after it was written."""
    disk = SimDisk()
    journal = filled(disk, 60, size=200)
    journal.append(entry(50, term=2))
    for index in range(51, 200):
        journal.append(entry(index, term=2, size=200))
    sync(journal)

    journal.cut(49)
    sync(journal)

    again = opened(disk.image())
    assert (again.base_index, again.last_index) == (journal.base_index, 199)
    assert contents(again) == contents(journal)


def test_a_start_has_one_segment_in_memory_at_a_time() -> None:
    limits = JournalLimits(segment=1 << 20, cache=2 << 10, entry=64 << 10)
    disk = SimDisk()
    journal = Journal(disk, limits, ID)
    for index in range(1, 400):
        journal.append(entry(index, size=40_000))
    sync(journal)

    tracemalloc.start()
    again = Journal(disk, limits, ID)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert journal.bytes_kept > 14 << 20
    assert again.last_index == 399
    # The bytes of one as they are read, and the records that they are cut into.
    assert most < 5 << 20
    assert kept < 1 << 20


def test_a_reset_voids_everything_before_it() -> None:
    disk = SimDisk()
    journal = filled(disk, 20)
    journal.set_term(7, "n1")

    journal.reset(100, 6, [(90, "{}")])
    journal.append(entry(101, term=7))
    sync(journal)

    again = opened(disk.image())
    assert (again.base_index, again.base_term, again.last_index) == (100, 6, 101)
    assert (again.term, again.vote, again.configs) == (7, "n1", [(90, "{}")])
    assert len(disk.list("journal")) == 1


def test_a_configuration_is_forgotten_with_its_entry() -> None:
    journal = filled(SimDisk(), 3)
    journal.append(Entry(4, 1, CONFIG, b"{}"))

    journal.append(entry(4, term=2))

    assert journal.configs == []


def test_a_full_disk_loses_nothing_and_goes_on_later() -> None:
    disk = SimDisk()
    journal = filled(disk, 5)
    disk.full = True
    for index in range(6, 12):
        journal.append(entry(index, size=3000))
    batch = journal.take()
    assert batch is not None

    with pytest.raises(OSError, match="no space") as error:
        batch.run()
    assert error.value.errno == errno.ENOSPC
    assert journal.synced_index == 5
    disk.full = False
    batch.run()
    journal.end_round(batch)

    assert opened(disk.image()).last_index == 11


def test_a_failed_sync_is_not_forgotten_by_a_restart() -> None:
    """Linux tells of a failed sync once; the pages stay readable, clean and not on the disk."""
    disk = SimDisk()
    journal = filled(disk, 5)
    journal.append(entry(6))
    batch = journal.take()
    assert batch is not None
    disk.sync_error = True
    with pytest.raises(OSError, match="input/output"):
        batch.run()
    disk.sync_error = False

    again = opened(disk)

    assert again.last_index == 6
    assert opened(disk.image()).last_index == 6


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    Journal(first, LIMITS, ID)

    with pytest.raises(CallRefused, match="in use by another process"):
        Journal(second, LIMITS, ID)
    first.close()
    Journal(second, LIMITS, ID)
    second.close()


def test_a_real_disk_keeps_what_a_simulated_one_does(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    journal = Journal(disk, LIMITS, ID)
    for index in range(1, 100):
        journal.append(entry(index, size=300))
    sync(journal)
    journal.cut(60)
    sync(journal)
    kept = contents(journal)
    disk.close()

    again = RealDisk(tmp_path)
    assert contents(Journal(again, LIMITS, ID)) == kept
    again.close()


@each("seed", range(12))
def test_any_sequence_of_changes_reads_back_as_a_plain_list(seed: int) -> None:
    dice, disk = random.Random(seed), SimDisk()
    journal, model, term, base = opened(disk), dict[int, Entry](), 1, 0

    for _ in range(300):
        what = dice.random()
        if what < 0.75:
            low = max(base + 1, journal.last_index - 5 if what < 0.05 else journal.last_index + 1)
            term += what < 0.05
            new = entry(low, term, dice.randint(0, 800))
            journal.append(new)
            model = {i: e for i, e in model.items() if i < low} | {low: new}
        elif what < 0.9:
            sync(journal)
        elif what < 0.95 and journal.synced_index - 10 > base:
            journal.cut(journal.synced_index - 10)
            base = journal.base_index
            model = {i: e for i, e in model.items() if i > base}
        elif what >= 0.95:
            sync(journal)
            disk.crash(dice)
            journal = opened(disk)

    assert contents(journal) == list(model.values()), f"seed {seed}"


@each("zeros", [0, 1, segment.BLOCK - 1, segment.BLOCK, 3 * segment.BLOCK + 7])
@each("before", [0, 1, segment.BLOCK - 1, segment.BLOCK, segment.BLOCK + 1])
def test_where_the_zeros_of_a_segment_begin(before: int, zeros: int) -> None:
    data = bytes(before // 2) + b"x" * (before - before // 2) + bytes(zeros)

    assert segment.written(data) == len(data.rstrip(b"\0"))
