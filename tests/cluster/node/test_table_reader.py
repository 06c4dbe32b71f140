"""Tables are read through in another process, which ends with the one that asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched.cluster.node import scrub, table_reader
from raftsched.cluster.node.scrub import Scrub, ScrubStopped, at_once
from raftsched.cluster.node.table_reader import NotRead, TableFault, read_beside, read_whole_beside
from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.core.store import Corrupt

from .test_scrub import flip, state, tables

DELETED = 300_000
PIECE_S = 0.05  # Ten times what it may take.


def nothing() -> None:
    """No rest while the other process reads."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = state(tmp_path)
    yield made
    made.close()


def test_no_piece_of_a_pass_takes_the_interpreter_for_long(
    tmp_path: Path, store: RocksStore
) -> None:
    """Behind deleted entries it was 130 ms. By the processor time of the thread: how busy the
    machine is must not matter."""
    keys = [b"9-%08d" % number for number in range(DELETED)]
    store.write([(key, b"") for key in keys], [])
    store.flush()
    store.write([], keys)
    store.flush()
    pieces, last = list[float](), time.thread_time()

    def pace(size: int) -> None:
        nonlocal last
        now = time.thread_time()
        pieces.append(now - last)
        last = now

    Scrub(tmp_path).check_state(store, pace)
    assert max(pieces) < PIECE_S


def test_all_is_read(store: RocksStore) -> None:
    assert list(read_beside(store.path, 2_500, nothing)) == [2_500, 2_500, 1_000]


@pytest.mark.parametrize("executable", [sys.executable, "/nothing"])
def test_a_whole_state_is_read_with_or_without_another_process(
    tmp_path: Path, store: RocksStore, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    store.checkpoint(tmp_path / "copy")
    read_whole_beside(tmp_path / "copy")
    flip(next((tmp_path / "copy").glob("*.sst")), 70_000)
    with pytest.raises(Corrupt, match="checksum mismatch"):
        read_whole_beside(tmp_path / "copy")


def test_what_the_engine_says_is_told_in_its_words(tmp_path: Path, store: RocksStore) -> None:
    damaged = tables(tmp_path)[1]
    flip(damaged, 70_000)
    with pytest.raises(TableFault, match=f"checksum mismatch.*{damaged.name}"):
        sum(read_beside(store.path, 100, nothing))


def test_a_state_that_went_away_is_not_read(tmp_path: Path, store: RocksStore) -> None:
    with pytest.raises(TableFault, match="No such file"):
        sum(read_beside(tmp_path / "state-0", 100, nothing))


def test_the_other_process_ends_with_the_one_that_asked(store: RocksStore) -> None:
    command = [sys.executable, "-P", "-m", table_reader.__name__, str(store.path), "100"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    assert os.read(other.stdout.fileno(), 10) == b"100"
    other.stdin.close()
    assert other.wait(10) == 0
    other.stdout.close()


def test_a_node_that_stops_does_not_wait_for_it(
    store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, stopping, popen = list[subprocess.Popen[bytes]](), threading.Event(), subprocess.Popen

    def start(command: list[str], **how: object) -> subprocess.Popen[bytes]:
        silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        started.append(popen(silent, **how))  # type: ignore[call-overload]
        stopping.set()
        return started[0]

    def look() -> None:
        if stopping.is_set():
            raise ScrubStopped

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(ScrubStopped):
        sum(read_beside(store.path, 100, look))
    assert started[0].poll() is not None


def test_a_process_that_says_nothing_is_given_up(
    store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "SILENT_S", -1.0)
    monkeypatch.setattr(table_reader, "LOOK_S", 0.0)
    with pytest.raises(NotRead, match="was silent"):
        sum(read_beside(store.path, 100, nothing))


def test_where_no_process_can_be_started_the_next_pass_tries_again(
    tmp_path: Path, store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(tables(tmp_path)[1], 70_000)
    checked, executable = Scrub(tmp_path), sys.executable
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    checked.check_state(store)
    assert checked._known == {}
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(Exception, match="checksum mismatch"):
        checked.check_state(store)


def test_a_table_that_was_merged_meanwhile_is_no_damage(
    tmp_path: Path, store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = list[Path]()

    def fail(path: Path, *_: object) -> Iterator[int]:
        tries.append(path)
        raise TableFault(
            "IO error: No such file or directory: While open a file: 000001.sst: No such"
        )
        yield 0

    monkeypatch.setattr(scrub, "read_beside", fail)
    checked = Scrub(tmp_path)
    checked.check_state(store, at_once)
    assert len(tries) == scrub.TRIES
    assert checked._known == {}
