"""Pages that look at the same at the same moment cost the cluster one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from raftsched.client.gateway import answers
from raftsched.client.gateway.answers import AGE, BYTES_MAX, KEPT_MAX, SHARED_S, SharedAnswers
from raftsched.client.gateway.exchange import Answered

from ..stage import Node, Stage
from .served import serving

Answerer = Callable[[], Message]
KEY = ("token", "Service/Call", b"")


class Made:
    """Answers, one after the other."""

    def __init__(self) -> None:
        self.at, self.count, self.gate = 0.0, 0, asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.size = 10

    def seconds(self) -> float:
        return self.at

    async def make(self) -> Answered:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Answered(b"x" * self.size, headers={AGE: "5"})


async def test_an_answer_serves_all_who_ask_within_a_moment_and_no_others() -> None:
    made = Made()
    shared = SharedAnswers(made.seconds)
    made.gate.clear()
    asking = [asyncio.ensure_future(shared.get(KEY, made.make)) for _ in range(20)]
    await asyncio.sleep(0)
    # Whoever leaves, the first one among them, takes nothing from the others.
    asking[0].cancel()
    made.gate.set()
    found = await asyncio.gather(*asking[1:])
    assert (made.count, {one.headers[AGE] for one in found}) == (1, {"5"})
    assert len({id(one) for one in found}) == len(found)
    made.at += 0.9 * SHARED_S
    late = await shared.get(KEY, made.make)
    assert (made.count, late.headers[AGE]) == (1, "905")
    await shared.get(("other", *KEY[1:]), made.make)
    await shared.get((*KEY[:2], b"more"), made.make)
    assert made.count == 3
    made.at += 0.2 * SHARED_S
    await shared.get(KEY, made.make)
    assert made.count == 4


async def test_what_fails_or_is_large_is_not_kept_and_what_is_kept_has_an_end() -> None:
    made = Made()
    shared = SharedAnswers(made.seconds)
    made.error = ValueError("no")
    for count in (1, 2):
        with pytest.raises(ValueError, match="no"):
            await shared.get(KEY, made.make)
        assert made.count == count
    made.error, made.size = None, BYTES_MAX + 1
    for count in (3, 4):
        assert len((await shared.get(KEY, made.make)).body) > BYTES_MAX
        assert made.count == count
    made.size = 10
    for number in range(2 * KEPT_MAX):
        await shared.get((str(number), *KEY[1:]), made.make)
    assert len(shared._kept) == KEPT_MAX
    made.at += SHARED_S
    await shared.get(KEY, made.make)
    assert len(shared._kept) == 1


async def test_reads_of_what_a_node_has_at_hand_are_shared_and_others_are_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is.
    monkeypatch.setattr(answers, "SHARED_S", 3_600.0)
    async with serving(stage.endpoints) as gateway:

        async def asked(path: str) -> int:
            heard = [0]

            def count(node: Node, request: object, context: object, answer: Answerer) -> Message:
                heard[0] += 1
                return answer()

            # Any node may be asked for what it has at hand.
            for node in stage.nodes:
                node.faults.extend([count] * 3)
            for _ in range(3):
                assert (await gateway.ask("GET", path)).status == 200
            for node in stage.nodes:
                node.faults.clear()
            return heard[0]

        assert await asked("/v1/jobs?read.consistency=CONSISTENCY_STALE") == 1
        assert await asked("/v1/jobs") == 3
