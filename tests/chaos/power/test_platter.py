"""A disk that keeps, when the power goes, what was synced and any part of the rest."""

from __future__ import annotations

import random

from raftsched.chaos.power.platter import SECTOR, Inode, Platter


def file_of(platter: Platter, name: str, data: bytes, folder: Inode | None = None) -> Inode:
    node = Inode(is_folder=False, mode=0o600)
    platter.change((folder or platter.root, name, node))
    node.write(0, data)
    return node


def left_after(platter: Platter, seed: int, style: str = "power") -> dict[str, bytes]:
    """The files at the top after a cut; the platter goes on as it was."""
    platter.arm(0, style, seed)
    platter.cut_now()
    assert platter.image is not None
    root, _ = platter.image
    return {name: bytes(node.seen) for name, node in root.names.items() if not node.is_folder}


def test_what_was_synced_is_there_after_each_cut() -> None:
    platter = Platter()
    node = file_of(platter, "a", b"x" * 3000)
    node.sync()
    platter.sync_folder(platter.root)
    node.write(1000, b"y" * 100)

    for seed in range(50):
        left = left_after(platter, seed)["a"]
        assert left[:SECTOR] == b"x" * SECTOR
        assert len(left) == 3000


def test_sectors_and_names_are_lost_in_any_mixture() -> None:
    platter = Platter()
    file_of(platter, "a", b"x" * 4 * SECTOR)
    file_of(platter, "b", b"y" * SECTOR)
    found = [left_after(platter, seed) for seed in range(300)]

    # Names reach the disk in their order; a name says nothing of what is in the file.
    assert {tuple(sorted(left)) for left in found} == {(), ("a",), ("a", "b")}
    sectors = {left["a"] for left in found if "a" in left}
    assert b"" in sectors
    assert b"x" * 4 * SECTOR in sectors
    assert any(b"\0" in one and b"x" in one for one in sectors)


def test_a_synced_folder_keeps_its_own_name_and_those_before_it() -> None:
    platter = Platter()
    folder = Inode(is_folder=True, mode=0o700)
    platter.change((platter.root, "f", folder))
    other = file_of(platter, "other", b"z")
    other.sync()
    inner = file_of(platter, "inner", b"i", folder)
    inner.sync()

    platter.sync_folder(folder)

    platter.arm(0, "power", 1)
    for seed in range(30):
        platter.arm(0, "power", seed)
        platter.cut_now()
        assert platter.image is not None
        kept = platter.image[0].names["f"].names
        assert bytes(kept["inner"].seen) == b"i"


def test_a_rename_is_whole_or_not_there() -> None:
    platter = Platter()
    old = file_of(platter, "new", b"old")
    old.sync()
    fresh = file_of(platter, "making", b"fresh")
    fresh.sync()
    platter.sync_folder(platter.root)
    platter.change((platter.root, "making", None), (platter.root, "new", fresh))

    found = {tuple(sorted(left_after(platter, seed).items())) for seed in range(40)}

    assert found == {
        (("making", b"fresh"), ("new", b"old")),
        (("new", b"fresh"),),
    }


def test_a_file_with_two_names_is_one_file_after_a_cut() -> None:
    platter = Platter()
    node = file_of(platter, "a", b"one")
    platter.change((platter.root, "b", node))
    node.sync()
    platter.sync_folder(platter.root)
    platter.arm(0, "power", 3)

    platter.swap()

    assert platter.root.names["a"] is platter.root.names["b"]
    assert platter.root.names["a"].links == 2


def test_a_cut_that_is_armed_comes_before_the_operation_it_was_armed_for() -> None:
    platter = Platter()
    node = file_of(platter, "a", b"1")
    node.sync()
    platter.sync_folder(platter.root)
    platter.arm(1, "kill", 1)

    for data in (b"2", b"3", b"4"):
        platter.operation()
        node.write(0, data)
    platter.swap()

    assert bytes(platter.root.names["a"].seen) == b"2"


def test_a_killed_process_leaves_all_it_wrote_and_it_can_be_lost_later() -> None:
    platter = Platter()
    file_of(platter, "a", b"written")
    platter.arm(0, "kill", 1)

    platter.swap()

    assert bytes(platter.root.names["a"].seen) == b"written"
    assert {"a" in left_after(platter, seed) for seed in range(20)} == {True, False}


def test_the_same_seed_leaves_the_same() -> None:
    platter = Platter()
    for n in range(9):
        file_of(platter, f"f{n}", random.Random(n).randbytes(2000))

    assert left_after(platter, 5) == left_after(platter, 5)
