"""Damaged files of the store: never an answer made of them, and whoever asks is told by type."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.statemachine.core.rocks_store import RocksStore, StoreLocked, peek
from raftsched.statemachine.core.store import Corrupt

TABLES, EACH = 4, 3_000
KEYS = [b"k%06d" % number for number in range(TABLES * EACH)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "state-1"
    dice = random.Random(1)
    store = RocksStore(folder, cache_bytes=1 << 20)
    for table in range(TABLES):
        keys = KEYS[table * EACH : (table + 1) * EACH]
        store.write([(key, dice.randbytes(60)) for key in keys], [])
        store.flush()
    store.close()
    return folder


def flip(path: Path, offset: int) -> None:
    """Damage four bytes; counted from the end if the offset is negative."""
    data = bytearray(path.read_bytes())
    at = offset % len(data)
    data[at : at + 4] = bytes(byte ^ 0xFF for byte in data[at : at + 4])
    path.write_bytes(data)


def table(folder: Path) -> Path:
    return sorted(folder.glob("*.sst"))[1]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "footer": lambda folder: flip(table(folder), -8),
    "checksum of the footer": lambda folder: flip(table(folder), -45),
    "data block": lambda folder: flip(table(folder), 5_000),
    "data block in the middle": lambda folder: flip(
        table(folder), table(folder).stat().st_size // 2
    ),
    "last data block": lambda folder: flip(table(folder), int(0.97 * table(folder).stat().st_size)),
    "index": lambda folder: flip(table(folder), -1_350),
    "manifest": lambda folder: flip(next(folder.glob("MANIFEST*")), 20),
    "end of the manifest": lambda folder: flip(next(folder.glob("MANIFEST*")), -20),
    "CURRENT": lambda folder: flip(folder / "CURRENT", 3),
    "empty CURRENT": lambda folder: os.truncate(folder / "CURRENT", 0),
    "no CURRENT": lambda folder: (folder / "CURRENT").unlink(),
    "cut table": lambda folder: os.truncate(table(folder), 100_000),
    "no table": lambda folder: table(folder).unlink(),
}

READS: dict[str, Callable[[RocksStore], int]] = {
    "get": lambda store: sum(store.get(key) is not None for key in KEYS),
    "get_many": lambda store: sum(value is not None for value in store.get_many(KEYS)),
    "scan": lambda store: len(list(store.scan(b"k", b"l"))),
    "backwards": lambda store: len(list(store.scan(b"k", b"l", backwards=True))),
    "snapshot": lambda store: len(list(store.snapshot().scan(b"k", b"l"))),
    "snapshot backwards": lambda store: len(
        list(store.snapshot().scan(b"k", b"l", backwards=True))
    ),
    "snapshot get": lambda store: sum(
        value is not None for value in store.snapshot().get_many(KEYS)
    ),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_answer_is_made_of_damaged_files(
    whole: Path, tmp_path: Path, damage: str, read: str
) -> None:
    """The engine's iterators end at damage as if there were no more: 0 of 12,000 entries."""
    folder = tmp_path / "state-1"
    shutil.copytree(whole, folder)
    DAMAGES[damage](folder)
    told: list[Corrupt] = []
    opened: list[RocksStore] = []

    def read_all() -> None:
        opened.append(RocksStore(folder, cache_bytes=1 << 20, damaged=told.append))
        READS[read](opened[0])

    with pytest.raises(Corrupt, match="state-1 is damaged"):
        read_all()

    assert len(told) == len(opened)
    for store in opened:
        store.close()


def test_a_table_that_merging_cannot_read_is_told_by_the_next_writes(
    whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "state-1"
    shutil.copytree(whole, folder)
    flip(table(folder), 5_000)
    told: list[Corrupt] = []
    store = RocksStore(folder, cache_bytes=1 << 20, damaged=told.append)

    def write_until_told() -> None:
        for _ in range(2_000):
            store.write([(key, b"new") for key in KEYS[::7]], [])
            store.flush()

    with pytest.raises(Corrupt):
        write_until_told()

    assert told


def test_a_damaged_block_is_not_taken_for_a_locked_folder(whole: Path, tmp_path: Path) -> None:
    """ "block" holds the word "lock", by which it was told."""
    folder = tmp_path / "state-1"
    shutil.copytree(whole, folder)
    flip(table(folder), -1_350)
    with pytest.raises(Corrupt):
        RocksStore(folder, cache_bytes=1 << 20)


def test_a_folder_that_is_open_elsewhere_is_told(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state-1"
    shutil.copytree(whole, folder)
    store = RocksStore(folder, cache_bytes=1 << 20)
    with pytest.raises(StoreLocked):
        RocksStore(folder, cache_bytes=1 << 20)
    store.close()


def test_a_damaged_copy_is_told_when_it_is_looked_into(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state-1"
    shutil.copytree(whole, folder)
    (folder / "CURRENT").write_bytes(b"")
    with pytest.raises(Corrupt):
        peek(folder, KEYS[0])
