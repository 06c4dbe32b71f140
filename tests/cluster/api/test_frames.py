"""Frames joined from pieces are the bytes of the message that they stand for."""

from __future__ import annotations

import pytest

from raftsched.cluster.api.frames import Heads, take, varint
from raftsched.cluster.api.worker_frames import FRAME_MAX
from raftsched.cluster.api.worker_stream import ACKS, HEAD_MAX, LEASES, STOPS, WorkStream
from raftsched.proto.v1 import worker_pb2

from ...rows import each

Response = worker_pb2.WorkResponse


@each("size", [0, 1, 100, 127, 128, 4_095, 4_096, 5_000, 70_000, 3 << 20])
def test_a_piece_is_an_element_of_its_field(size: int) -> None:
    lease = worker_pb2.Lease(run="r", checkpoint=b"x" * size)
    wanted = Response(leases=[lease, lease])

    for _ in range(2):
        assert Response.FromString(b"".join(LEASES.pieces([lease, lease]))) == wanted


def test_pieces_of_several_fields_make_one_message() -> None:
    leases = [worker_pb2.Lease(run=f"r{number}", token=number) for number in range(300)]
    acks = [worker_pb2.ResultAck(token=number) for number in range(3)]
    stops = [worker_pb2.Stop(token=7, run="r7", message="gone")]

    data = b"".join(ACKS.pieces(acks) + STOPS.pieces(stops) + LEASES.pieces(leases))

    assert Response.FromString(data) == Response(leases=leases, acks=acks, stops=stops)


def test_heads_of_long_messages_are_not_kept() -> None:
    heads = Heads(2)
    assert [heads[length] for length in (5, 5_000)] == [b"\x12\x05", b"\x12\x88\x27"]
    assert list(heads) == [5]
    assert varint(300) == b"\xac\x02"


def test_what_is_taken_is_bounded_by_number_and_bytes() -> None:
    line = [b"12", b"345", b"6"]
    assert take(line, 9, 4) == [b"12"]
    assert take(line, 1, 9) == [b"345"]
    assert take(line, 9, 0) == []
    assert take(line, 9, 1) == [b"6"]
    assert line == []


async def test_a_lease_larger_than_a_frame_goes_alone_and_the_last_word_behind_it() -> None:
    stream = WorkStream(None, worker_pb2.Welcome())  # type: ignore[arg-type]  # It writes nothing.
    stream.ended.set_result(None)
    small = worker_pb2.Lease(run="small")
    large = worker_pb2.Lease(run="large", checkpoint=b"x" * FRAME_MAX)
    fitting = worker_pb2.Lease(run="fits", checkpoint=b"x" * (FRAME_MAX - HEAD_MAX - 100))
    stream.leases([small, large, fitting, small])
    stream.acks([worker_pb2.ResultAck(token=1)])
    stream.drain("enough")

    frames = []
    while stream._has_words():
        frames.append(stream._frame())

    found = [Response.FromString(frame) for frame in frames]
    assert [[lease.run for lease in frame.leases] for frame in found] == [
        ["small"], ["large"], ["fits", "small"],
    ]  # fmt: skip
    assert [len(frame.acks) for frame in found] == [1, 0, 0]
    assert [frame.drain for frame in found] == [False, False, True]
    assert [frame.HasField("welcome") for frame in found] == [True, False, False]
    assert all(len(frame) <= FRAME_MAX for frame in (frames[0], frames[2]))


async def test_words_that_were_foreseen_are_told_once_and_the_others_as_they_are() -> None:
    stream = WorkStream(None, worker_pb2.Welcome())  # type: ignore[arg-type]  # It writes nothing.
    stream.ended.set_result(None)
    leases = [worker_pb2.Lease(run="a", token=1)]
    acks = [worker_pb2.ResultAck(token=2)]
    same = [worker_pb2.ResultAck(token=3)]
    for words in (leases, acks, same):
        stream.pre_serialize(words)

    stream.leases(leases)
    stream.acks(acks)
    stream.acks([worker_pb2.ResultAck(token=4)])
    stream.acks([])
    stream.acks(same)
    stream.acks(same)

    found = Response.FromString(stream._frame())
    assert [lease.token for lease in found.leases] == [1]
    assert [ack.token for ack in found.acks] == [2, 4, 3, 3]
    assert not stream._pre_serialized


@pytest.mark.parametrize("what", ["acks", "stops"])
async def test_an_answer_that_is_larger_than_a_frame_goes_alone(what: str) -> None:
    """Its worker named a run with an id of millions of characters; it was tried again for ever."""
    stream = WorkStream(None, worker_pb2.Welcome())  # type: ignore[arg-type]  # It writes nothing.
    stream.end()
    stream._frame()
    if what == "acks":
        stream.acks([worker_pb2.ResultAck(token=1, message="x" * FRAME_MAX)])
    else:
        stream.stops([worker_pb2.Stop(token=1, run="x" * FRAME_MAX)])

    frame = worker_pb2.WorkResponse.FromString(stream._frame())
    assert [said.token for said in getattr(frame, what)] == [1]
    assert not stream._has_words()
