"""The real loop on real sockets and a real disk, in one process. Loopback, free ports."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import socket
import ssl
import struct
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from raftsched.cluster.local.ports import free_ports
from raftsched.cluster.ops import tls
from raftsched.cluster.raft import adapter
from raftsched.cluster.raft.bench_node import BenchMachine
from raftsched.cluster.raft.disk import RealDisk
from raftsched.cluster.raft.driver import Driver, Place
from raftsched.cluster.raft.faults import CallRefused, DiskFailed
from raftsched.cluster.raft.journal import CONFIG, Entry, JournalLimits
from raftsched.cluster.raft.message import Append, Introduce, SnapshotOffer, encode
from raftsched.cluster.raft.transport import split

SMALL = JournalLimits(segment=7 << 20)
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


class Quiet:
    """A watcher that only counts."""

    def __init__(self) -> None:
        self.gained: list[int] = []

    def leadership_gained(self, term: int) -> None:
        self.gained.append(term)

    def leadership_lost(self, term: int) -> None:
        """Nobody asks."""

    def removed(self) -> None:
        """Nobody asks."""

    def linked(self, peer: str) -> None:
        """Nobody asks."""

    def on_notice(self, peer: str, text: bytes) -> None:
        """Nobody tells anything in here."""


def driver(
    folder: Path, name: str, contacts: dict[str, str], contexts: Contexts | None = None
) -> Driver:
    disk = RealDisk(folder / name)
    place = Place(cluster="test", node=name, contacts=contacts, journal=SMALL, contexts=contexts)
    return Driver(place, disk, BenchMachine(disk), Quiet(), dice=random.Random(name))


@asynccontextmanager
async def cluster(
    folder: Path, count: int, contexts: Callable[[str], Contexts] | None = None
) -> AsyncIterator[dict[str, Driver]]:
    names = [f"n{i}" for i in range(1, count + 1)]
    ports = free_ports(count)
    contacts = {n: f"127.0.0.1:{p}" for n, p in zip(names, ports, strict=True)}
    drivers = {n: driver(folder, n, contacts, contexts(n) if contexts else None) for n in names}
    for each in drivers.values():
        await each.start()
    try:
        yield drivers
    finally:
        for each in drivers.values():
            await each.stop()


async def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.002)


async def leader_of(drivers: dict[str, Driver]) -> Driver:
    await until(lambda: any(d.status().ready for d in drivers.values()))
    return next(d for d in drivers.values() if d.status().ready)


async def test_three_nodes_agree_over_sockets(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as drivers:
        leader = await leader_of(drivers)

        index = await leader.propose(b"hello", 2.0)
        barrier = await leader.barrier(2.0)

        assert index is not None
        assert barrier is not None
        assert barrier >= index
        await until(lambda: all(d.status().applied >= index for d in drivers.values()))


@pytest.mark.parametrize(("count", "most"), [(1, 1), (3, 3)])
async def test_a_commit_waits_for_few_turns_of_a_busy_loop(
    tmp_path: Path, count: int, most: int
) -> None:
    """Alone: for its disk. Among three: for the disk of another, and for the links between them."""
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            # Longer than a sync, so that the turns are counted and not the time.
            time.sleep(0.01)
            turns += 1
            await asyncio.sleep(0)

    async with cluster(tmp_path, count) as drivers:
        leader = await leader_of(drivers)
        waited: list[int] = []
        working = asyncio.create_task(work())
        for number in range(20):
            done = asyncio.Event()

            def reply(_: int | None, began: int = turns, done: asyncio.Event = done) -> None:
                waited.append(turns - began)
                done.set()

            leader.submit(b"%d" % number, reply)
            leader.go_on()
            await done.wait()
        working.cancel()

    assert min(waited) <= most, waited


async def test_one_node_alone_is_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)

        assert await leader.propose(b"alone", 2.0) is not None
        assert await leader.barrier(2.0) is not None


async def test_what_came_is_on_its_way_to_the_disk_while_something_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    async with cluster(tmp_path, 3) as drivers:
        of = {drivers[name].core.machine: drivers[name] for name in drivers}

        def apply(self: BenchMachine, index: int, data: bytes) -> None:
            self.index = index
            if of[self].core.journal.bytes_waiting:
                seen.append(of[self]._journal._batch is not None)

        monkeypatch.setattr(BenchMachine, "apply", apply)
        leader = await leader_of(drivers)
        async with asyncio.timeout(10.0):
            while len(seen) < 10:
                assert await leader.propose(b"next", 2.0) is not None

    assert all(seen)


async def test_leadership_is_handed_over_on_request(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as drivers:
        leader = await leader_of(drivers)
        target = next(n for n in drivers if drivers[n] is not leader)
        await until(lambda: len(leader.links.sessions) == 2)

        went = await leader.transfer(target, 3.0)

        assert went
        await until(lambda: drivers[target].status().ready)


async def test_who_wants_to_know_is_told_at_once_that_another_one_leads(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as drivers:
        leader = await leader_of(drivers)
        others = [each for each in drivers.values() if each is not leader]
        told: dict[str, tuple[str | None, bool]] = {}

        def listen(each: Driver) -> None:
            status = each.status()
            told[each.place.node] = (status.leader, status.ready)

        for each in others:
            each.on_leader_change(partial(listen, each))
        await leader.stop()
        await until(lambda: any(each.status().ready for each in others))

        heir, follower = sorted(others, key=lambda each: not each.status().ready)
        assert told[heir.place.node] == (heir.place.node, True)
        await until(lambda: told[follower.place.node] == (heir.place.node, False))


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)
        index = await leader.propose(b"kept", 2.0)
        await leader.stop()
        leader.core.journal.disk.close()  # type: ignore[attr-defined]  # It is a RealDisk.

    again = driver(tmp_path, "n1", leader.place.contacts)

    assert index is not None
    assert again.core.journal.entry(index).data == b"kept"


async def test_a_disk_that_fails_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)

        def fails(_: str) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(leader.core.journal.disk, "sync", fails)
        answer = await leader.propose(b"lost", 0.3)

        assert answer is None
        with pytest.raises(DiskFailed, match="this node stops"):
            leader.ended.result()


async def raw(address: str, *parts: bytes) -> bytes:
    """Send bytes as a stranger would, and return what comes until the end."""
    host, port = split(address)
    async with asyncio.timeout(3.0):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(parts))
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


HELLO = b'{"cluster":"%s","protocol":1,"node":"%s","incarnation":7}'
NESTED = b"[" * 20_000
STRANGERS = [
    struct.pack("<I", 1 << 30),
    frame(b"\x00garbage"),
    frame(b"[]"),
    frame(HELLO % (b"other", b"n2")),
    frame(HELLO % (b"test", b"n1")),
    frame(HELLO.replace(b":1,", b":9,") % (b"test", b"n2")),
    frame(HELLO % (b"test", b"n2")) + frame(b"\x63nonsense"),
    frame(HELLO % (b"test", b"n2")) + frame(b"\x08" + bytes(16)),
    frame(b"[" * 4000),
    frame(HELLO % (b"test", b"x" * 65)),
    *(
        frame(HELLO % (b"test", b"n2")) + frame(encode(message, 7))
        for message in (
            SnapshotOffer(1 << 40, b"%08x" % zlib.crc32(NESTED) + NESTED),
            Append(1 << 40, 0, 0, 0, (Entry(1, 1, CONFIG, NESTED[:2000]),)),
            Append(1 << 40, 0, 0, 0, (Entry(1, 1, CONFIG, b'{"n1":[1,"nowhere",true]}'),)),
            Introduce(0, NESTED),
        )
    ),
]


@pytest.mark.parametrize("said", STRANGERS, ids=range(len(STRANGERS)))
async def test_a_stranger_is_shown_out_and_disturbs_nobody(tmp_path: Path, said: bytes) -> None:
    async with cluster(tmp_path, 1) as drivers:
        leader = await leader_of(drivers)

        await raw(leader.place.contacts["n1"], said)

        assert leader.links.sessions == {}
        assert await leader.propose(b"still here", 2.0) is not None


async def test_a_taken_address_is_refused_with_advice(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = driver(tmp_path, "n1", {"n1": address})

        with pytest.raises(CallRefused, match="choose another address"):
            await node.start()
        await node.stop()


def test_another_pysyncobj_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "AUDITED_SHA256", "0" * 64)

    with pytest.raises(CallRefused, match=r"Install pysyncobj==0\.3\.17 unchanged"):
        adapter.check_audited()


def certify(folder: Path, names: list[str]) -> Callable[[str], Contexts]:
    """Make an authority and a certificate for each name."""
    folder.mkdir(exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30
        )

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in names:
        openssl(
            "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
        )
        (folder / "ext").write_text(f"subjectAltName=DNS:{name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")

    def contexts(name: str) -> Contexts:
        files = (str(folder / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key"))
        return tls.mutual(*files)

    return contexts


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
async def test_nodes_agree_over_mutual_tls(tmp_path: Path) -> None:
    contexts = certify(tmp_path, ["n1", "n2", "n3"])

    async with cluster(tmp_path, 3, contexts) as drivers:
        leader = await leader_of(drivers)

        assert await leader.propose(b"secret", 2.0) is not None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
async def test_a_node_of_another_authority_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = certify(tmp_path / "ours", ["n1"]), certify(tmp_path / "theirs", ["n2"])

    async with cluster(tmp_path, 2, lambda name: contexts[name == "n2"](name)) as drivers:
        await until(lambda: all(d.links.refused for d in drivers.values()))

        assert "certificate verify failed" in drivers["n1"].links.refused["n2"]
        assert "certificate verify failed" in drivers["n1"].bootstrap_waits()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
async def test_a_certificate_speaks_for_its_own_node_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    contexts = certify(tmp_path, ["n1", "n2", "other"])

    def stolen(name: str) -> Contexts:
        return contexts("other" if name == "n2" else name)

    async with cluster(tmp_path, 2, stolen) as drivers:
        await until(lambda: "says that it is 'n2', and its certificate says" in caplog.text)
        await until(lambda: caplog.text.count("certificate is not valid for 'n2'") > 2)

        assert all(not d.links.sessions for d in drivers.values())

    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    # It is dialled again and again, and both sides say so once.
    assert len([words for words in warned if "certificate is not valid for 'n2'" in words]) == 1
    assert len([words for words in warned if "its certificate says ['other']" in words]) == 1
