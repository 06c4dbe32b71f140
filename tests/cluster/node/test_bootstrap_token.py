"""The secret in a node's folder that makes the first access token."""

from __future__ import annotations

import os
from pathlib import Path

from raftsched.cluster.node.bootstrap_token import Bootstrap, digest, first_secret, used_by


def test_a_start_makes_a_secret_for_the_owner_alone_and_the_next_one_keeps_it(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        first = Bootstrap(tmp_path)
        first.open()
    finally:
        os.umask(before)
    text = first.file.read_text().strip()
    again = Bootstrap(tmp_path)
    again.open()

    assert first.file.stat().st_mode & 0o777 == 0o600
    assert len(text) >= 43
    assert first.digest == again.digest == digest(text)
    again.close(used_by("root", 1_763_546_400_000))
    assert (again.digest, again.file.exists()) == (b"", False)
    note = again.note.read_text()
    assert note.startswith("used on 2025-11-19T10:00:00Z: the first access token 'root' was made")
    assert again.note.stat().st_mode & 0o777 == 0o600
    again.close(used_by("other", 0))
    assert again.note.read_text() == note


def test_a_secret_that_was_used_while_its_node_was_down_goes_at_the_next_start(
    tmp_path: Path,
) -> None:
    Bootstrap(tmp_path).open()
    started = Bootstrap(tmp_path)
    assert started.open_still
    started.close(used_by("root", 0))
    assert not started.open_still
    assert not started.file.exists()
    assert started.note.exists()
    started.open()
    assert not started.note.exists()


def test_a_secret_that_others_may_have_read_or_chosen_is_made_anew(tmp_path: Path) -> None:
    bootstrap = Bootstrap(tmp_path)
    bootstrap.open()
    mine = bootstrap.digest
    bootstrap.file.chmod(0o644)
    bootstrap.open()
    assert bootstrap.digest != mine
    for text in ("", "rsb_short", "x" * 60):
        bootstrap.file.write_text(text)
        bootstrap.open()
        assert bootstrap.digest == digest(bootstrap.file.read_text().strip())
        assert bootstrap.digest != digest(text)
    other = tmp_path / "other"
    other.write_text("rsb_" + "a" * 60)
    other.chmod(0o600)
    bootstrap.file.unlink()
    bootstrap.file.symlink_to(other)
    bootstrap.open()
    assert bootstrap.digest != digest(other.read_text())
    assert not bootstrap.file.is_symlink()
    assert other.read_text().startswith("rsb_aaa")


def test_the_first_secret_needs_both_the_bootstrap_secret_and_the_request_id() -> None:
    made = first_secret("b", "r", "rs_")
    assert made == first_secret("b", "r", "rs_")
    assert made.startswith("rs_")
    assert len({made, first_secret("b", "other", "rs_"), first_secret("c", "r", "rs_")}) == 3
