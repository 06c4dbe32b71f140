from __future__ import annotations

import random

import pytest

from raftsched.cluster.raft.journal import COMMAND, NOOP, Entry
from raftsched.cluster.raft.message import (
    FRAME_MAX,
    NOTICE_MAX,
    Append,
    AppendAck,
    BadCopy,
    Chunk,
    Fetch,
    Heartbeat,
    HeartbeatAck,
    Introduce,
    Message,
    NodeNotice,
    PreVote,
    PreVoteReply,
    SnapshotOffer,
    TimeoutNow,
    Vote,
    VoteReply,
    WireError,
    decode,
    encode,
)
from raftsched.cluster.raft.record import INDEX_MAX, TERM_MAX

from ...rows import each

SAMPLES: list[Message] = [
    Append(5, 10, 4, 9, (Entry(11, 4, COMMAND, b"abc"), Entry(12, 5, NOOP, b""))),
    Append(5, 10, 4, 9),
    AppendAck(5, 10, 12, True),
    Heartbeat(5, 7, 100, 90, 1234.5, 0.25),
    HeartbeatAck(5, 7, 1234.5),
    PreVote(6, 10, 5),
    PreVoteReply(5, 6, True, 0),
    Vote(6, 10, 5, False),
    VoteReply(6, True),
    TimeoutNow(5),
    SnapshotOffer(5, b"manifest"),
    Fetch(5, 77, 1, 4096, 1024),
    Chunk(5, 77, 1, 4096, True, b"data"),
    Introduce(0, b"{}"),
    NodeNotice(5, b"{}"),
    BadCopy(5, 77),
]


@each("message", SAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_reads_back_as_it_was_written(message: Message) -> None:
    assert decode(encode(message, 99)) == (message, 99)


HOSTILE = [
    (b"", "no message of kind nothing"),
    (b"\x63" + bytes(40), "no message of kind 99"),
    (encode(VoteReply(1, True), 1)[:-1], "too few"),
    (encode(VoteReply(1, True), 1) + b"x", "too many"),
    (encode(Append(TERM_MAX + 1, 0, 0, 0), 1), "term"),
    (encode(AppendAck(1, INDEX_MAX, 0, True), 1), "out of bounds"),
    (encode(Heartbeat(1, 1, 1, 1, float("nan"), 0.0), 1), "out of bounds"),
    (encode(Append(1, 0, 0, 0, (Entry(1, 2, COMMAND, b""),)), 1), "term 2 cannot be here"),
    (encode(Append(3, 0, 0, 0, (Entry(1, 1, 9, b""),)), 1), "no entry of kind 9"),
    (encode(Append(3, 0, 0, 0, (Entry(1, 1, COMMAND, b"long"),)), 1)[:-1], "cut off"),
    (bytes(FRAME_MAX + 1), "over"),
    (
        encode(NodeNotice(1, bytes(NOTICE_MAX + 1)), 1),
        f"{NOTICE_MAX + 1} bytes are over {NOTICE_MAX}",
    ),
]


@each(("frame", "why"), HOSTILE)
def test_a_hostile_frame_is_refused_with_its_reason(frame: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode(frame)


def test_mangled_frames_raise_nothing_but_wire_errors() -> None:
    seed = 20_240_607
    dice = random.Random(seed)
    frames = [encode(m, 1) for m in SAMPLES]
    refused = 0

    for _ in range(20_000):
        frame = bytearray(dice.choice(frames))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(frame))
            frame[at : at + dice.choice((0, 1, 1, 4))] = dice.randbytes(dice.choice((0, 1, 4)))
            frame = frame or bytearray(b"\0")
        try:
            decode(bytes(frame))
        except WireError:
            refused += 1

    assert refused > 5_000, f"seed {seed}"
