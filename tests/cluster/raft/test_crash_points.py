"""Every point at which the power can go, over a recorded workload (as ALICE does it)."""

from __future__ import annotations

import itertools
import random

import pytest

from raftsched.cluster.raft.faults import Damaged
from raftsched.cluster.raft.journal import COMMAND, Entry, Journal, JournalLimits

from .recording import FailingDisk, RecordingDisk, images

LIMITS = JournalLimits(segment=14 << 10, cache=2 << 10, entry=3 << 10)
ID = "00112233445566aa"
Promise = tuple[int, dict[int, int], tuple[int, str | None]]


def workload(
    disk: RecordingDisk, *, relieved: bool = False
) -> tuple[list[Promise], set[tuple[int, int]]]:
    """Append, sync, vote, replace tails, cut and reset; return what was promised when."""
    dice = random.Random(7)
    journal = Journal(disk, LIMITS, ID)
    promises: list[Promise] = [(len(disk.steps), {}, (0, None))]
    written: set[tuple[int, int]] = set()
    term = 1
    for step in range(200):
        what = dice.random()
        if what < 0.15:
            term += 1
            journal.set_term(term, dice.choice(("n1", "n2", None)))
        elif what < 0.22 and journal.last_index - 3 > journal.base_index:
            term += 1
            journal.append(Entry(journal.last_index - 2, term, COMMAND, b"replaced"))
        elif what < 0.27 and journal.synced_index - 8 > journal.base_index:
            journal.cut(journal.synced_index - 8)
        elif step == 70:
            journal.reset(journal.last_index + 100, term, [])
        else:
            index = journal.last_index + 1
            journal.append(Entry(index, term, COMMAND, b"x" * dice.randint(1, 1500)))
        written.add((journal.last_index, journal.last_term))
        if dice.random() < 0.5 and (batch := journal.take()) is not None:
            if relieved:
                journal.relieve(batch)
            batch.run()
            journal.end_round(batch)
            base, last = journal.base_index, journal.synced_index
            held = {i: journal.term_at(i) for i in range(base, last + 1)}
            promises.append((len(disk.steps), held, (journal.term, journal.vote)))
    return promises, written


@pytest.mark.slow
@pytest.mark.parametrize("relieved", [False, True])
def test_wherever_the_power_goes_what_was_promised_is_there(*, relieved: bool) -> None:
    """Also where each round, as on a full disk, begins with the removal of what was cut."""
    recording = RecordingDisk()
    promises, written = workload(recording, relieved=relieved)
    dice, tried = random.Random(1), 0

    for end in range(len(recording.steps) + 1):
        _, held, (term, vote) = max(p for p in promises if p[0] <= max(end, promises[0][0]))
        for image in images(recording.steps[:end], dice):
            tried += 1
            journal = Journal(image, LIMITS, ID)
            again = Journal(image, LIMITS, ID)
            found = {
                i: journal.term_at(i) for i in range(journal.base_index, journal.last_index + 1)
            }
            # Nothing promised is gone, unless something later took its place or it was cut.
            for index, held_term in held.items() if end >= promises[0][0] else ():
                later = index > journal.last_index and journal.last_term > held_term
                cut = index < journal.base_index
                assert cut or later or found[index] >= held_term, (end, index)
            assert (journal.term, journal.vote or "") >= (term, ""), end
            assert journal.term > term or journal.vote == vote, end
            assert {p for p in found.items() if p[0] > journal.base_index} <= written | set(
                held.items()
            ), end
            assert (again.last_index, again.term, again.vote) == (
                journal.last_index,
                journal.term,
                journal.vote,
            )

    assert tried > 3000


@pytest.mark.slow
def test_whichever_sync_fails_a_later_start_promises_only_what_is_on_the_disk() -> None:
    """The process ends and starts again on the same page cache; then the power goes."""
    for number in itertools.count(1):
        disk = FailingDisk(number)
        try:
            workload(disk)
        except OSError:
            disk.sync_error = False
        else:
            break
        journal = Journal(disk, LIMITS, ID)
        held = {i: journal.term_at(i) for i in range(journal.base_index, journal.last_index + 1)}

        left = Journal(disk.image(), LIMITS, ID)

        assert (left.term, left.vote) == (journal.term, journal.vote), number
        found = {i: left.term_at(i) for i in range(left.base_index, left.last_index + 1)}
        # Segments whose removal is not durable may be back.
        assert found.items() >= held.items(), number
        assert max(found) == max(held), number

    assert number > 100


@pytest.mark.slow
def test_damage_anywhere_before_a_seal_is_found() -> None:
    """The corruption matrix: every byte region of every segment, four kinds of damage."""
    disk = RecordingDisk()
    workload(disk)
    journal = Journal(disk, LIMITS, ID)
    batch = journal.take(idle=True)
    while batch is not None:
        batch.run()
        journal.end_round(batch)
        batch = journal.take(idle=True)
    ends = {n: len(bytes(f.seen).rstrip(b"\0")) for n, f in disk.files.items()}
    last = max(ends)
    tried = 0

    for name, end in ends.items():
        stop = end - 80 if name == last else end  # The last seal itself promises nothing.
        for offset in [*range(0, 64, 3), *range(8192, stop, 37)]:
            for damage in (b"\xff", b"\0" * 16, b"RSJOURN1"):
                image = disk.image()
                content = bytearray(image.files[name].seen)
                before = bytes(content)
                if damage == b"\xff":
                    content[offset] ^= 0x10
                else:
                    content[offset : offset + len(damage)] = damage
                if bytes(content) == before:
                    continue
                image.files[name].seen = content
                tried += 1
                with pytest.raises(Damaged):
                    Journal(image, LIMITS, ID)

    assert tried > 1000
