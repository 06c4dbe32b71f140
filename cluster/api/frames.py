"""Frames made of messages that were serialised one by one.

On the wire a repeated field is its messages one behind the other, each behind its tag and length,
so bytes can be joined where a message would copy each of its parts, and write them again.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

KEPT_MAX = 4_096  # Heads of messages up to so long are kept: most are much shorter.


class Heads(dict[int, bytes]):
    """What stands before a message in a repeated field, by the message's length."""

    def __init__(self, field: int) -> None:
        super().__init__()
        self.tag = varint(field << 3 | 2)

    def __missing__(self, length: int) -> bytes:
        head = self.tag + varint(length)
        if length < KEPT_MAX:
            self[length] = head
        return head

    def pieces(self, messages: Iterable[Message]) -> list[bytes]:
        """Each message as its part of a frame."""
        return [self[len(data := each.SerializeToString())] + data for each in messages]


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def take(line: list[bytes], most: int, room: int) -> list[bytes]:
    """Pieces from the head of a line, at most so many and of so many bytes together."""
    count = size = 0
    for piece in line[:most]:
        size += len(piece)
        if size > room:
            break
        count += 1
    taken = line[:count]
    del line[:count]
    return taken
