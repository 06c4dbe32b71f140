"""The check of effects takes no token below the highest it saw."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raftsched.chaos.real import history
from raftsched.chaos.real.effect_sink import EffectSink
from raftsched.chaos.real.history import Effect, HistoryFile


def test_a_token_below_the_last_is_refused_and_all_is_written_down(tmp_path: Path) -> None:
    journal = HistoryFile(tmp_path / "sink.jsonl")
    sink = EffectSink(journal)
    assert [sink.take("a", 5), sink.take("a", 5), sink.take("a", 4), sink.take("a", 6)] == [
        True, True, False, True,
    ]  # fmt: skip
    assert sink.take("b", 1)
    journal.close()
    seen = [e for e in history.read([tmp_path / "sink.jsonl"]) if isinstance(e, Effect)]
    assert [(e.run, e.token, e.accepted) for e in seen] == [
        ("a", 5, True), ("a", 5, True), ("a", 4, False), ("a", 6, True), ("b", 1, True),
    ]  # fmt: skip


def test_it_answers_over_a_socket(tmp_path: Path) -> None:
    async def story() -> list[bytes]:
        journal = HistoryFile(tmp_path / "sink.jsonl")
        sink = EffectSink(journal)
        server = await asyncio.start_server(sink.serve, "127.0.0.1", 0)
        async with server, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.sockets[0].getsockname()[1]
            )
            writer.write(b"run 2\nrun 1\nrun 3\n")
            answers = [await reader.readline() for _ in range(3)]
            writer.close()
        journal.close()
        return answers

    assert asyncio.run(story()) == [b"1\n", b"0\n", b"1\n"]
