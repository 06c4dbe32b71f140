"""One file of the journal, read back: whole after a start, and single entries later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .faults import Damaged
from .port import Disk
from .record import (
    HEADER_BYTES,
    RECORD,
    SEAL,
    DiskRecord,
    Entry,
    Header,
    decode,
    promised_beyond,
)

SUFFIX = ".segment"
BLOCK = 64 << 10
ZEROS = bytes(BLOCK)


def path_of(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}{SUFFIX}"


def numbers(disk: Disk, folder: str) -> list[int]:
    names = disk.list(folder)
    return sorted(int(n.removesuffix(SUFFIX)) for n in names if n.endswith(SUFFIX))


class SegmentFound(NamedTuple):
    """What a segment holds: its records up to the first that is not intact."""

    header: Header
    records: list[DiskRecord]
    end: int
    crc: int
    torn: int  # How many bytes behind `end` are not zero.
    unsure_from: int  # Where the last seal stands: what follows need not have been synced.
    unsure: bytes


def read(disk: Disk, folder: str, number: int) -> SegmentFound | None:
    """Return None for a segment whose creation did not get as far as its first record."""
    path = path_of(folder, number)
    data = disk.read(path, 0, disk.size(path))
    header = Header.decode(data[:HEADER_BYTES])
    if header is None:
        if written(data) > HEADER_BYTES:
            raise Damaged(f"{path}: the header is not intact but records follow it. {ADVICE}")
        return None
    if header.number != number:
        raise Damaged(f"{path}: the header is that of segment {header.number}. {ADVICE}")
    records, end, crc = [], HEADER_BYTES, header.seed()
    while (record := decode(data, end, crc)) is not None:
        records.append(record)
        end, crc = record.end, record.crc
    torn = max(0, written(data) - end)
    if torn and promised_beyond(data, header.journal_id, number, end):
        raise Damaged(f"{path}: damaged at byte {end}, before a point known as durable. {ADVICE}")
    unsure = next((r.offset for r in reversed(records) if r.kind == SEAL), HEADER_BYTES)
    return SegmentFound(header, records, end, crc, torn, unsure, data[unsure:end])


def read_entries(
    disk: Disk, path: str, places: Iterable[tuple[int, int]], size: int, entry_max: int
) -> Iterator[Entry]:
    """Read the entries of which each place says index and offset: one at least, about `size` bytes
    in all."""
    for index, offset in places:
        data = disk.read(path, offset, RECORD.size)
        length = RECORD.unpack(data)[2] if len(data) == RECORD.size else 0
        if length <= entry_max:
            data += disk.read(path, offset + RECORD.size, length)
        record = decode(data, 0)
        if record is None or record.index != index:
            raise Damaged(f"{path}: entry {index} is not intact. {ADVICE}")
        yield Entry(index, record.term, record.kind, record.payload)
        size -= len(data)
        if size <= 0:
            return


def written(data: bytes) -> int:
    """Where the zeros at the end begin. A segment is allocated whole, so that a young one is nearly
    all zeros: to look at each of them kept a start busy for a second."""
    end = len(data)
    while end >= BLOCK and data[end - BLOCK : end] == ZEROS:
        end -= BLOCK
    first = max(0, end - BLOCK)
    return first + len(data[first:end].rstrip(b"\0"))


ADVICE = (
    "Acknowledged entries may be missing, so this node must not vote or acknowledge with this "
    "disk. A start while the others lead sets it aside and rebuilds the node from them; where they "
    "cannot lead, put this disk right, or set the folder aside and start with an empty one."
)
