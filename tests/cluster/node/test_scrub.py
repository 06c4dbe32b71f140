"""What does not change is read again: at a start after a bad end, and slowly while a node runs."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from raftsched.cluster.node.node import Node
from raftsched.cluster.node.scrub import (
    AT_START_S,
    FIRST_S,
    HASTE,
    KNOWN,
    SPREAD_S,
    STOPPED,
    Background,
    Pace,
    Scrub,
    ScrubStopped,
    at_once,
)
from raftsched.cluster.raft.faults import Damaged
from raftsched.statemachine.core.rocks_store import RocksStore
from raftsched.statemachine.core.store import Corrupt

from .test_damage import JOBS, fill
from .test_node import cluster, leader_of, until


def state(folder: Path) -> RocksStore:
    store = RocksStore(folder / "state" / "state-1", cache_bytes=1 << 20)
    for number in range(3):
        store.write([(b"%d-%04d" % (number, each), os.urandom(90)) for each in range(2_000)], [])
        store.flush()
    return store


def tables(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sst"))


def flip(path: Path, at: int) -> None:
    """Damage four bytes and leave the times as they were, as a disk does."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        found = file.read(4)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in found))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def anywhere(path: Path) -> list[int]:
    size = path.stat().st_size
    return [0, size // 3, size // 2, size - 6_000, size - 1_400, size - 700, size - 50, size - 4]


@pytest.mark.parametrize("place", range(8))
def test_any_damage_of_a_table_that_was_read_before_is_found(tmp_path: Path, place: int) -> None:
    """That of a filter too, which the engine never tells."""
    store, scrub = state(tmp_path), Scrub(tmp_path)
    scrub.check_state(store)
    scrub.save()
    path = tables(tmp_path)[1]
    flip(path, anywhere(path)[place])

    with pytest.raises(Corrupt, match=path.name):
        Scrub(tmp_path).check_state(store)
    store.close()


def test_damage_of_a_table_that_is_seen_first_is_found_by_the_engine(tmp_path: Path) -> None:
    store = state(tmp_path)
    flip(tables(tmp_path)[1], 70_000)

    with pytest.raises(Corrupt, match="checksum mismatch"):
        Scrub(tmp_path).check_state(store)
    store.close()


def test_a_start_reads_for_so_long_and_leaves_the_rest_to_the_first_pass(tmp_path: Path) -> None:
    store, scrub = state(tmp_path), Scrub(tmp_path)
    size = sum(path.stat().st_size for path in tables(tmp_path))
    flip(tables(tmp_path)[2], 70_000)
    ticks = iter([0.0, 0.0, AT_START_S + 1])

    scrub.check_at_start(store, lambda: next(ticks))

    assert scrub.behind
    assert 0 < scrub.verified_bytes < size
    # What was not read to its end is not known.
    with pytest.raises(Corrupt, match="checksum mismatch"):
        scrub.check_state(store)
    store.close()


def test_a_start_that_has_read_all_leaves_nothing(tmp_path: Path) -> None:
    store, scrub = state(tmp_path), Scrub(tmp_path)
    scrub.check_at_start(store, lambda: 0.0)

    assert not scrub.behind
    store.close()


def test_the_first_pass_begins_at_once_and_hastes_where_the_start_left_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftsched.cluster.node.scrub.FIRST_S", 3_600.0)
    waits, begun = list[float](), threading.Event()

    def one_pass(pace: Pace) -> None:
        pace(10)
        begun.set()

    background = Background(one_pass, lambda error: None, 1_000)
    wait = background._stop.wait

    def note(timeout: float | None = None) -> bool:
        waits.append(timeout or 0.0)
        return wait(timeout)

    monkeypatch.setattr(background._stop, "wait", note)
    background.start(hastes=True)
    assert begun.wait(10)
    background.stop()
    assert waits[:2] == [0.0, 10 / 1_000 / HASTE]


def test_after_a_stop_in_order_the_first_pass_is_put_off_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three nodes that start together do not read together."""
    waits = set[float]()

    def ended(timeout: float = 0.0) -> bool:
        waits.add(timeout)
        return True

    for _ in range(20):
        background = Background(lambda pace: None, lambda error: None, 1)
        monkeypatch.setattr(background._stop, "wait", ended)
        background.start()
        background.stop()
    assert len(waits) > 10
    assert all(FIRST_S <= wait <= FIRST_S + SPREAD_S for wait in waits)


def test_tables_come_and_go(tmp_path: Path) -> None:
    store, scrub = state(tmp_path), Scrub(tmp_path)
    scrub.check_state(store)
    first = scrub.verified_bytes
    for number in range(4):
        store.write([(b"%d-0001" % number, b"new")], [])
        store.flush()
    scrub.check_state(store)
    scrub.save()
    again = Scrub(tmp_path)
    again.check_state(store)

    assert first == sum(path.stat().st_size for path in tables(tmp_path)[:3]) or first > 500_000
    assert again.verified_bytes > 0
    store.close()


def test_what_is_known_may_be_lost(tmp_path: Path) -> None:
    store = state(tmp_path)
    (tmp_path / KNOWN).write_text('{"half')
    Scrub(tmp_path).check_state(store)
    store.close()


def test_a_pass_keeps_to_its_pace_and_ends_when_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftsched.cluster.node.scrub.FIRST_S", 0.0)
    monkeypatch.setattr("raftsched.cluster.node.scrub.SPREAD_S", 0.0)
    begun = threading.Event()
    ended: list[bool] = []

    def one_pass(pace: Pace) -> None:
        begun.set()
        try:
            while True:
                pace(1_000)
        except ScrubStopped:
            ended.append(True)
            raise

    background = Background(one_pass, lambda error: None, 1)
    background.start()
    assert begun.wait(10)
    background.stop()
    assert ended == [True]


def test_what_a_pass_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftsched.cluster.node.scrub.FIRST_S", 0.0)
    monkeypatch.setattr("raftsched.cluster.node.scrub.SPREAD_S", 0.0)
    told, failed = threading.Event(), list[Exception]()

    def one_pass(pace: Pace) -> None:
        raise OSError(5, "Input/output error")

    def hear(error: Exception) -> None:
        failed.append(error)
        told.set()

    background = Background(one_pass, hear, 1)
    background.start()
    assert told.wait(10)
    background.stop()
    assert isinstance(failed[0], OSError)


async def stopped(nodes: dict[str, Node]) -> Node:
    """A node with tables, that was stopped in order."""
    leader = await fill(nodes)
    node = next(node for node in nodes.values() if node is not leader)
    await until(lambda: node.revision >= JOBS, 20)
    await node.stop()
    assert (node.spec.folder / STOPPED).exists()
    return node


async def test_a_start_after_a_bad_end_reads_the_tables_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftsched.cluster.node.scrub.AT_START_S", 600.0)
    async with cluster(tmp_path, 3) as nodes:
        node = await stopped(nodes)
        (node.spec.folder / STOPPED).unlink()
        flip(tables(node.spec.folder / "state")[0], 100_000)
        again = nodes[node.name] = Node(node.spec)
        await again.start()

        assert (node.spec.folder / "damaged" / "state-1").is_dir()
        await until(lambda: again.revision >= JOBS, 20)


async def test_what_such_a_start_has_no_time_for_is_read_right_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftsched.cluster.node.scrub.AT_START_S", -1.0)
    monkeypatch.setattr("raftsched.cluster.node.scrub.FIRST_S", 3_600.0)
    async with cluster(tmp_path, 3) as nodes:
        node = await stopped(nodes)
        (node.spec.folder / STOPPED).unlink()
        flip(tables(node.spec.folder / "state")[0], 100_000)
        again = nodes[node.name] = Node(node.spec)
        await again.start()

        await until(lambda: again.ended.done(), 20)
        assert isinstance(again.ended.exception(), Damaged)
        assert (node.spec.folder / "damaged.json").exists()


async def test_a_start_after_a_stop_in_order_reads_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        node = await stopped(nodes)
        again = nodes[node.name] = Node(node.spec)

        assert again.damage.scrub.verified_bytes == 0
        assert not (node.spec.folder / STOPPED).exists()
        await again.start()


async def test_a_pass_that_finds_damage_ends_the_node_with_a_note(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        leader.damage._background.stop()  # One pass at a time, as on a node.
        leader.replica.store.flush()
        await asyncio.to_thread(leader.damage._scrub, at_once)
        # In a filter, where no read would meet it.
        path = tables(leader.spec.folder / "state")[0]
        assert any(name.endswith(path.name) for name in leader.damage.scrub._known), (
            "it was not read"
        )
        flip(path, path.stat().st_size - 3_000)
        await asyncio.to_thread(leader.damage._scrub, at_once)

        await until(lambda: leader.ended.done())
        assert (leader.spec.folder / "damaged.json").exists()
        others = {name: node for name, node in nodes.items() if node is not leader}
        assert (await leader_of(others)).revision >= JOBS


async def test_a_pass_does_without_a_damaged_snapshot_and_makes_another(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        leader = await fill(nodes)
        leader.damage._background.stop()
        core = leader.driver.core
        core.make_snapshot()
        leader.driver.wake()
        await until(lambda: bool(core.snapshots.last_index), 20)
        index = core.snapshots.last_index
        folder = leader.disk.root / f"snapshots/{index:020d}"
        path = next(path for path in folder.iterdir() if path.name.startswith("OPTIONS"))
        flip(path, 100)
        await asyncio.to_thread(leader.damage._scrub, at_once)
        await until(lambda: index not in core.snapshots.by_index)
        leader.driver.wake()

        await until(lambda: bool(core.snapshots.last_index), 20)
        assert not leader.ended.done()
        assert (leader.disk.root / "snapshots" / "damaged").is_dir()
        await asyncio.to_thread(leader.damage._scrub, at_once)
        assert leader.damage.scrub.pass_ended


@pytest.mark.parametrize("content", ["[]", "7", '{"state/a": 3}', '{"a": [1, 2]}', "\x00"])
def test_checksums_that_cannot_be_read_count_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / KNOWN).write_text(content)
    assert Scrub(tmp_path)._known == {}


def test_checksums_that_are_no_file_count_as_none(tmp_path: Path) -> None:
    (tmp_path / KNOWN).mkdir()
    assert Scrub(tmp_path)._known == {}
