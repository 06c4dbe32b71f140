"""The bytes of the journal: segment headers and records.

A record names the CRC of the record before it, so that one which is valid by itself but stands
in the wrong place (a lost write between two others, a stale block) does not pass.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HEADER_BYTES = 8192
TERM_MAX = 1 << 48  # An election each millisecond for 8,000 years.
INDEX_MAX = 1 << 56
MAGIC = b"RSJOURN1"
_HEAD = struct.Struct("<8sII")
# crc, crc of the record before, length of the payload, kind, index, term, term of the entry before
RECORD = struct.Struct("<IIIBQQQ")
_SEAL = struct.Struct("<8sQQI")

# Kind 0 does not exist: a zeroed block must not read as a record.
NOOP, COMMAND, CONFIG, VOTE, SEAL, IDENTITY = range(1, 7)
# A command that puts another state in place of the one before. A kind of its own, so that a node of
# a release that does not know it ends by it.
SWITCH = 16
# Kinds that later releases may add are stored and passed on, and stop a node that has to apply
# one; refusing them on the wire would cut a node off instead, without a word.
FUTURE = range(17, 32)
ENTRY_KINDS = frozenset({NOOP, COMMAND, CONFIG, SWITCH, *FUTURE})


class Entry(NamedTuple):
    """One place in the log."""

    index: int  # type: ignore[assignment]  # Nobody asks a tuple of ours for `index()`.
    term: int
    kind: int
    data: bytes


@dataclass(slots=True, kw_only=True)
class Header:
    """What a segment must know although the segments before it may be gone."""

    number: int
    journal_id: str
    reset: bool  # Everything before this segment does not count: a snapshot took its place.
    chain: int  # The CRC of the last record before this segment.
    last_index: int
    last_term: int
    term: int
    vote: str | None
    identity: dict[str, Any] = field(default_factory=dict)
    configs: list[tuple[int, str]] = field(default_factory=list)

    def encode(self) -> bytes:
        body = json.dumps(
            {name: getattr(self, name) for name in self.__slots__}, separators=(",", ":")
        ).encode()
        head = _HEAD.pack(MAGIC, len(body), zlib.crc32(body))
        if len(head) + len(body) > HEADER_BYTES:
            raise ValueError(f"a segment header of {len(body)} bytes is over {HEADER_BYTES}")
        return (head + body).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Header | None:
        """Return None if these bytes are no intact header."""
        if len(data) < HEADER_BYTES:
            return None
        magic, length, crc = _HEAD.unpack_from(data)
        body = data[_HEAD.size : _HEAD.size + length]
        if magic != MAGIC or len(body) != length or zlib.crc32(body) != crc:
            return None
        values = json.loads(body)
        values["configs"] = [(index, text) for index, text in values["configs"]]
        return cls(**values)

    def seed(self) -> int:
        """The CRC the first record of this segment is chained to."""
        return zlib.crc32(f"{self.journal_id}/{self.number}".encode())


class DiskRecord(NamedTuple):
    """A record as found on disk."""

    offset: int
    end: int
    crc: int
    kind: int
    index: int  # type: ignore[assignment]  # As above.
    term: int
    prev_term: int
    payload: bytes


def encode(
    kind: int, index: int, term: int, prev_term: int, payload: bytes, before: int
) -> tuple[bytes, int]:
    """Return the bytes of a record and its CRC."""
    head = RECORD.pack(0, before, len(payload), kind, index, term, prev_term)[4:]
    crc = zlib.crc32(payload, zlib.crc32(head))
    return b"".join((crc.to_bytes(4, "little"), head, payload)), crc


def decode(data: bytes, offset: int, before: int | None = None) -> DiskRecord | None:
    """Return the record at `offset`, or None if there is no intact one after `before`."""
    if offset + RECORD.size > len(data):
        return None
    crc, chain, length, kind, index, term, prev_term = RECORD.unpack_from(data, offset)
    end = offset + RECORD.size + length
    if kind == 0 or end > len(data) or before not in (None, chain):
        return None
    if zlib.crc32(memoryview(data)[offset + 4 : end]) != crc:
        return None
    payload = data[offset + RECORD.size : end]
    return DiskRecord(offset, end, crc, kind, index, term, prev_term, payload)


def seal_payload(journal_id: str, number: int, offset: int) -> bytes:
    """Say that segment `number` was durable up to `offset` when this was written.

    It carries a CRC of its own, so that it can be found behind damage, where the chain is
    broken: its presence there proves that what is damaged had been promised.
    """
    body = _SEAL.pack(bytes.fromhex(journal_id), number, offset, 0)[:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def promised_beyond(data: bytes, journal_id: str, number: int, offset: int) -> bool:
    """Return whether a seal after `offset` vouches for bytes at or beyond it."""
    magic = bytes.fromhex(journal_id)
    at = data.find(magic, offset)
    while at >= 0:
        body = data[at : at + _SEAL.size]
        if len(body) == _SEAL.size:
            _, sealed_number, sealed, crc = _SEAL.unpack(body)
            if crc == zlib.crc32(body[:-4]) and sealed_number == number and sealed > offset:
                return True
        at = data.find(magic, at + 1)
    return False
