"""What is asked of the engine, and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched.statemachine.core import rocks_store
from raftsched.statemachine.core.rocks_store import RocksStore


def test_the_engine_has_nothing_to_flush_while_it_makes_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the interpreter meanwhile, and with it the node's loop."""
    store = RocksStore(tmp_path / "store", cache_bytes=8 << 20)
    store.write([(number.to_bytes(4), bytes(10_000)) for number in range(2_000)], [])
    engine: Any = vars(rocks_store)["rocksdict"]
    make, in_memory = engine.Checkpoint, [store.figures()["cur_size_all_mem_tables"]]

    def begun(db: object) -> object:
        in_memory.append(store.figures()["cur_size_all_mem_tables"])
        return make(db)

    monkeypatch.setattr(engine, "Checkpoint", begun)
    store.checkpoint(tmp_path / "copy")
    store.close()

    assert in_memory[0] > 20_000_000
    assert in_memory[1] < 1_000_000


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere threads have no priority of their own"
)
def test_merging_tables_stands_back_behind_everything_else(tmp_path: Path) -> None:
    """All nodes merge at the same moment, since they write the same: on a small machine that took
    the processors away from their loops."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    store = RocksStore(tmp_path / "store", cache_bytes=8 << 20)
    for number in range(6):
        store.write([(bytes([number, each]), bytes(100)) for each in range(100)], [])
        store.flush()
    store.close()
    assert set(nice_of("rocksdb:low")) == {min(19, usual + rocks_store.MERGE_NICENESS)}
    # Writers may have to wait for a flush, so it stands back less.
    assert set(nice_of("rocksdb:high")) == {min(19, usual + rocks_store.FLUSH_NICENESS)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


def nice_of(name: str) -> list[int]:
    """How far the threads of this process that have a name stand back."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            found.append(int(fields[16]))
    return found


@pytest.mark.parametrize("turns", [1, 3, 1_000])
@pytest.mark.parametrize("count", [1, 7, 100, 1_000])
def test_all_is_read_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int, count: int
) -> None:
    monkeypatch.setattr(rocks_store, "TURNS", turns)
    store = RocksStore(tmp_path / "store", cache_bytes=8 << 20)
    store.write([(b"%04d" % number, b"value") for number in range(300)], [])
    store.flush()

    assert sum(rocks_store.read_through(store.path, count)) == 300
    store.close()


def test_whoever_reads_slowly_does_not_keep_files_that_were_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_store, "TURNS", 1)
    store = RocksStore(tmp_path / "store", cache_bytes=8 << 20)
    for _ in range(3):
        store.write([(b"%04d" % number, os.urandom(20)) for number in range(300)], [])
        store.flush()
    reading = rocks_store.read_through(store.path, 100)
    next(reading)
    store._db.compact_range(None, None)
    next(reading)

    opened = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    mine = [path for path in opened if path.startswith(str(tmp_path))]
    assert mine
    assert not [path for path in mine if path.endswith(".sst (deleted)")]
    assert sum(reading) == 100
    store.close()


MOUNT = 'mount -t tmpfs -o size=100m none "$1" && shift && exec "$@"'
# What a node does on a full disk: it asks for a snapshot, which is a flush, twice a second.
FULL = """
import os, sys, time
from pathlib import Path
from raftsched.statemachine.core.rocks_store import RocksStore

def outcome(what):
    try:
        what()
    except OSError as error:
        return os.strerror(error.errno)
    return "ok"

disk = Path(sys.argv[1])
store = RocksStore(disk / "state")
store.write([(b"%d" % i, os.urandom(60_000)) for i in range(400)], [])
filler = disk / "filler"
filler.write_bytes(bytes(80 << 20))
for _ in range(4):
    print("flush:", outcome(store.flush))
    time.sleep(0.5)
filler.unlink()
deadline = time.monotonic() + 20
while (last := outcome(store.flush)) != "ok" and time.monotonic() < deadline:
    time.sleep(0.5)
print("flush:", last, "write:", outcome(lambda: store.write([(b"a", b"b")], [])))
"""


@pytest.mark.slow
def test_flushes_on_a_full_disk_do_not_keep_the_engine_from_seeing_that_there_is_room(
    tmp_path: Path,
) -> None:
    """Seen before: with two flushes a second the engine found no moment to go on, for ever."""
    if not shutil.which("unshare"):
        pytest.skip("this system does not let us mount a small disk")
    small = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(tmp_path)]
    if subprocess.run([*small, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")

    words = [*small, sys.executable, "-c", FULL, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert ended.stdout.splitlines() == [
        *(["flush: No space left on device"] * 4),
        "flush: ok write: ok",
    ], ended.stderr
