"""Snapshots that are not what was written: found, named, and never put in place."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator

import pytest

from raftsched.chaos.sim.disk import SimDisk
from raftsched.chaos.sim.group import Group, GroupNode
from raftsched.chaos.sim.register import Register
from raftsched.cluster.raft.faults import Damaged
from raftsched.cluster.raft.manifest import FileOf, Manifest, folder_of
from raftsched.cluster.raft.message import BadCopy, Chunk, Message, SnapshotOffer, WireError
from raftsched.cluster.raft.port import RaftSettings

SETTINGS = RaftSettings(tail_entries=0, chunk_bytes=200)
MEMBERS = '{"n1":[1,"n1:1",true]}'
DIGEST = "ab" * 32


def grown() -> tuple[Group, GroupNode, str]:
    """Return a leader with a snapshot, and the folder of that."""
    group = Group(3, SETTINGS)
    leader = group.lead()
    for number in range(5):
        group.write(leader, f"w{number}")
    group.run(0.3)
    leader.core.make_snapshot()
    group.run(0.1)
    return group, leader, folder_of(leader.core.snapshots.last_index)


def starts(node: GroupNode, disk: SimDisk) -> GroupNode:
    return GroupNode(node.name, sorted(node.contacts), SETTINGS, disk)


def changed(disk: SimDisk, path: str, content: bytes | None) -> SimDisk:
    image = disk.image()
    if content is None:
        del image.files[path], image.kept[path]
    else:
        image.files[path].seen = bytearray(content)
    return image


def damages(disk: SimDisk, folder: str) -> Iterator[tuple[str, SimDisk]]:
    """Every bit of a byte here and there, every kind of loss, and files that changed places."""
    paths = [p for p in sorted(disk.files) if p.startswith(folder)]
    for path in paths:
        data = bytes(disk.files[path].seen)
        for at in range(0, len(data), 3):
            flipped = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
            yield f"{path} flipped at {at}", changed(disk, path, flipped)
        for end in sorted({0, len(data) // 2, len(data) - 1} & set(range(len(data)))):
            yield f"{path} ends at {end}", changed(disk, path, data[:end])
        yield f"{path} goes on", changed(disk, path, data + b"\0")
        yield f"{path} is missing", changed(disk, path, None)
    for one in paths:
        for other in paths:
            image = disk.image()
            image.files[one], image.files[other] = image.files[other], image.files[one]
            if bytes(image.files[one].seen) != bytes(image.files[other].seen):
                yield f"{one} and {other} changed places", image


def test_a_damaged_snapshot_is_named_and_not_put_in_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, leader, folder = grown()
    tried = 0

    for what, image in damages(leader.disk, folder):
        tried += 1
        caplog.clear()
        node = starts(leader, image)
        assert f"{folder} is set aside" in caplog.text, f"{what}: {caplog.text or 'not found'}"
        assert node.machine.applied() == 0, what
        assert node.core.snapshots.latest is None, what

    assert tried > 100
    assert starts(leader, leader.disk.image()).machine.digest == leader.machine.digest


def remade(manifest: bytes, change: Callable[[list[object]], None]) -> bytes:
    fields = json.loads(manifest[8:])
    change(fields)
    body = json.dumps(fields).encode()
    return b"%08x" % zlib.crc32(body) + body


def swap_names(fields: list[object]) -> None:
    files = fields[4]
    assert isinstance(files, list)
    files[0][0], files[1][0] = files[1][0], files[0][0]


def test_a_manifest_that_names_files_wrongly_is_found_by_their_digests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, leader, folder = grown()
    path = f"{folder}/manifest.json"
    found = remade(bytes(leader.disk.files[path].seen), swap_names)

    node = starts(leader, changed(leader.disk, path, found))

    assert "is not what was written" in caplog.text
    assert node.machine.applied() == 0


def test_a_snapshot_in_the_folder_of_another_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    _, leader, folder = grown()
    leader.disk.rename(folder, folder_of(999))

    node = starts(leader, leader.disk)

    assert "it is that of snapshot" in caplog.text
    assert node.machine.applied() == 0


def file(name: str, size: int = 5, digest: str = DIGEST) -> list[FileOf]:
    return [FileOf(name, size, digest)]


NO_MANIFESTS = [
    Manifest(0, 1, 0, [(1, MEMBERS)], []),
    Manifest(9, 1, 10, [(1, MEMBERS)], []),
    Manifest(9, 1 << 60, 9, [(1, MEMBERS)], []),
    Manifest(9, 1, 9, [], []),
    Manifest(9, 1, 9, [(1, MEMBERS), (2, MEMBERS)], []),
    Manifest(9, 1, 9, [(10, MEMBERS)], []),
    Manifest(9, 1, 9, [(1, '{"n1":[1,"nonsense",true]}')], []),
    Manifest(9, 1, 9, [(1, "[" * 2000)], []),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("../vote")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("..")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("a\0b")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("x" * 129)),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("manifest.json")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("part-0", -1)),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("part-0", 1 << 60)),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("part-0", 5, "00")),
    Manifest(9, 1, 9, [(1, MEMBERS)], file("part-0") * 2),
]
BODIES = [b"", b"[", b"{}", b"[1,1,1]", b"[NaN,1,1,[],[]]", b"[1e999,1,1,[],[]]", b"[" * 50_000]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"00000000[]",
        b"zzzzzzzz[1]",
        Manifest(1, 1, 1, [(1, MEMBERS)], []).encode()[:-1],
        *(b"%08x" % zlib.crc32(body) + body for body in BODIES),
        *(manifest.encode() for manifest in NO_MANIFESTS),
    ],
    ids=lambda data: data[8:48].decode(),
)
def test_what_is_no_manifest_is_refused(three: Group, data: bytes) -> None:
    leader = three.lead()
    follower = three.others(leader)[0]

    with pytest.raises(ValueError, match="no manifest"):
        Manifest.decode(data)
    with pytest.raises(WireError, match="no manifest"):
        follower.core.receive(
            leader.name, leader.core.incarnation, SnapshotOffer(leader.core.term, data), three.now
        )
    assert follower.core.receiver.incoming is None


def behind(group: Group, leader: GroupNode) -> GroupNode:
    """Return a follower that needs the leader's snapshot."""
    follower = group.others(leader)[0]
    group.passes = lambda a, b, m: follower.name not in (a, b)
    for number in range(5):
        group.write(leader, f"more{number}")
    group.run(0.3)
    leader.core.make_snapshot()
    group.run(0.1)
    journal, last = leader.core.journal, leader.core.last_applied
    journal.reset(last, journal.last_term, journal.configs[-1:])  # As if it were cut.
    return follower


def test_what_does_not_arrive_as_it_was_sent_is_fetched_again() -> None:
    group, leader, _ = grown()
    follower = behind(group, leader)
    told: list[Message] = []

    def mangled(a: str, b: str, message: Message) -> bool:
        if isinstance(message, BadCopy):
            told.append(message)
        if isinstance(message, Chunk) and not told:
            bad = message._replace(data=bytes(len(message.data)))
            follower.core.receive(a, leader.core.incarnation, bad, group.now)
            return False
        return True

    group.passes = mangled
    group.run(3.0)

    assert len(told) == 1
    assert follower.machine.digest == leader.machine.digest


def test_a_snapshot_is_read_again_once_however_often_it_is_complained_of() -> None:
    group, leader, _ = grown()
    behind(group, leader)
    ids = [manifest.id for manifest in leader.core.snapshots.by_index.values()]

    for number in range(100):
        leader.core.receive("n9", 1, BadCopy(1, ids[number % len(ids)]), group.now)
        leader.core.receive("n9", 1, BadCopy(1, number), group.now)

    assert len(ids) == 2
    assert len(leader.core.jobs) == 2


def test_a_snapshot_that_is_removed_while_it_is_read_is_no_damage() -> None:
    _, leader, folder = grown()
    snapshots = leader.core.snapshots
    manifest = snapshots.by_index.pop(snapshots.last_index)
    leader.disk.remove(folder)

    snapshots.verification(manifest, leader.machine.check)()


def test_a_leader_whose_own_snapshot_is_damaged_stops_when_it_is_told() -> None:
    """Followers would fetch it again and again, and none could ever use it."""
    group, leader, _ = grown()
    follower = behind(group, leader)
    digest = follower.machine.digest
    path = f"{folder_of(leader.core.snapshots.last_index)}/part-0"
    leader.disk.flip(path, 3, 1)
    group.passes = lambda a, b, m: True

    with pytest.raises(Damaged, match="is not what was written"):
        group.run(3.0)
    assert follower.machine.digest == digest


def unreadable(node: GroupNode) -> None:
    """What it is given was written so, and still no state can be read from it."""

    def check(folder: str) -> None:
        raise Damaged(f"{folder} cannot be read through")

    node.machine.check = check  # type: ignore[method-assign]


def test_a_state_that_was_damaged_before_it_was_sent_is_not_put_in_place() -> None:
    """Its digests are those of the damaged files, so they tell nobody."""
    group, leader, _ = grown()
    follower = behind(group, leader)
    digest = follower.machine.digest
    told: list[Message] = []

    def seen(a: str, b: str, message: Message) -> bool:
        told.extend([message] if isinstance(message, BadCopy) else [])
        return True

    group.passes = seen
    unreadable(follower)
    unreadable(leader)

    with pytest.raises(Damaged, match="cannot be read through"):
        group.run(3.0)

    assert len(told) == 1
    assert follower.machine.digest == digest
    assert follower.core.snapshots.latest is None
    assert not [path for path in follower.disk.files if path.startswith("snapshots/0")]


def test_a_snapshot_of_a_damaged_state_is_set_aside_at_a_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, leader, folder = grown()

    def check(machine: Register, folder: str) -> None:
        raise Damaged(f"{folder} cannot be read through")

    monkeypatch.setattr(Register, "check", check)
    node = starts(leader, leader.disk.image())

    assert f"{folder} is set aside" in caplog.text
    assert node.machine.applied() == 0
