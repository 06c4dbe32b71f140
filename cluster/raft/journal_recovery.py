"""What a start finds on the disk: the log as its segments hold it, and damage if there is any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import segment
from .faults import Damaged, Unsupported
from .log_index import LogIndex
from .port import Disk
from .record import CONFIG, ENTRY_KINDS, IDENTITY, SEAL, VOTE, DiskRecord


class Recovered:
    """The state of a journal that is read back, segment by segment; nothing is written yet."""

    def __init__(self, disk: Disk, folder: str, journal_id: str) -> None:
        self.disk, self.folder = disk, folder
        self.journal_id = journal_id  # That on the disk wins.
        self.term = 0
        self.vote: str | None = None
        self.identity: dict[str, Any] = {}
        self.configs: list[tuple[int, str]] = []
        self.base_index = self.base_term = 0
        self.last_index = self.last_term = 0
        self.index = LogIndex()
        self.segments: list[int] = []
        self.number = self.offset = self.crc = 0  # Of the last segment: its number and its end.
        # What makes durable what was found.
        self.ops: list[Callable[[], None]] = []
        self._read()

    def _read(self) -> None:
        numbers = segment.numbers(self.disk, self.folder)
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))) if numbers else False:
            raise Damaged(f"segments are missing among {numbers}. {segment.ADVICE}")
        last = None
        for number in numbers:
            part = segment.read(self.disk, self.folder, number)
            if part is not None:
                self._take_segment(part)
                # One segment in memory at a time.
                last = part._replace(records=[])
            elif number != numbers[-1]:
                raise Damaged(f"segment {number} has no intact header. {segment.ADVICE}")
            else:
                self.disk.remove(segment.path_of(self.folder, number))
                self.disk.sync_folder(self.folder)
            del part
        if last is not None:
            self._clean_tail(last)

    def _take_segment(self, part: segment.SegmentFound) -> None:
        header = part.header
        if header.reset or not self.segments:
            self.index.clear()
            self.configs = list(header.configs)
            self.base_index = self.last_index = header.last_index
            self.base_term = self.last_term = header.last_term
            self.journal_id = header.journal_id
        elif header.chain != self.crc or header.journal_id != self.journal_id:
            where = segment.path_of(self.folder, self.number)
            raise Damaged(f"{where}: its end is not what the next segment saw. {segment.ADVICE}")
        self.term, self.vote, self.identity = header.term, header.vote, header.identity
        self.number = header.number
        self.segments.append(header.number)
        for record in part.records:
            self._take_record(record)
        self.crc, self.offset = part.crc, part.end

    def _take_record(self, record: DiskRecord) -> None:
        if record.kind == VOTE:
            self.term, self.vote = record.term, record.payload.decode() or None
        elif record.kind in ENTRY_KINDS:
            if record.index <= self.base_index or not self.index.runs:
                self._rebase(record)
            elif record.index <= self.last_index:
                self.index.truncate(record.index)
                self.configs = [c for c in self.configs if c[0] < record.index]
                self.last_index = record.index - 1
            if record.index != (self.last_index if self.index.runs else self.base_index) + 1:
                raise Damaged(f"entry {record.index} follows {self.last_index}. {segment.ADVICE}")
            self._place(record)
        elif record.kind not in (SEAL, IDENTITY):
            raise Unsupported(
                f"the journal has a record of kind {record.kind}, which this release does not "
                "know. A newer release wrote it; start that one."
            )

    def _place(self, record: DiskRecord) -> None:
        self.index.add(record.index, record.term, self.number, record.offset)
        if record.kind == CONFIG:
            self.configs.append((record.index, record.payload.decode()))
        self.last_index, self.last_term = record.index, record.term

    def _rebase(self, record: DiskRecord) -> None:
        """Begin at a record that has nothing before it any more.

        A header says where the log ended when its segment began. If that end was replaced later
        and the segments before have been cut, the first entries in force are further down.
        """
        if record.index > self.base_index + 1:
            raise Damaged(f"entry {record.index} follows {self.base_index}. {segment.ADVICE}")
        self.index.clear()
        self.base_index, self.base_term = record.index - 1, record.prev_term
        self.configs = [c for c in self.configs if c[0] < record.index]

    def _clean_tail(self, last: segment.SegmentFound) -> None:
        """Overwrite a torn tail: a part of it must not become valid behind a later record."""
        disk, path = self.disk, segment.path_of(self.folder, self.number)
        if last.torn:
            zeros = bytes(last.torn)
            self.ops.append(lambda: disk.write(path, last.end, zeros))
        # A sync that failed before leaves pages that are readable, clean and not on the disk.
        # Only writing them again makes the next sync write them. The header may be among them,
        # and with it a term and a vote; so may the segment's name.
        self.ops.append(lambda: disk.write(path, 0, last.header.encode()))
        self.ops.append(lambda: disk.write(path, last.unsure_from, last.unsure))
        # What was found need not have been synced before the crash; now it is spoken of.
        self.ops.append(lambda: disk.sync(path))
        self.ops.append(lambda: disk.sync_folder(self.folder))
