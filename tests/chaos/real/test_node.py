"""The node with a hand on it is as fast as the one that is shipped."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from raftsched.chaos.real.node import LOOK_S, Control, NodeControl


def test_a_hand_looks_seldom_and_soon_does_what_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks, now = tmp_path / "control", list[Path](), [100.0]
    path.write_bytes(msgspec.json.encode(Control()))
    hand, stat = NodeControl(path), os.stat

    def counted(of: Path) -> os.stat_result:
        looks.append(of)
        return stat(of)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", counted)
        patched.setattr(time, "monotonic", lambda: now[0])
        for _ in range(1_000):
            hand.look()
    assert len(looks) == 1

    path.write_bytes(msgspec.json.encode(Control(poison="job")))
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now[0] + LOOK_S)
        assert hand.look().poison == "job"


def test_a_clock_is_set_back_and_forth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "node.control", [100.0]
    path.write_bytes(msgspec.json.encode(Control(clock_ms=400.0, strobe_ms=40.0)))
    hand = NodeControl(path)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time_ns", lambda: 0)

    seen = []
    for _ in range(4):
        seen.append(hand.time_ns())
        now[0] += 0.04

    assert sorted(set(seen)) == [0, 400_000_000]
    assert seen[0] == seen[2] != seen[1] == seen[3]
