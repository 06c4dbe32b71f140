"""What is asked of the engine, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftsched.statemachine import rocks_store
from raftsched.statemachine.rocks_store import RocksStore


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
