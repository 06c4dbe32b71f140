"""What nodes say to each other, and its bytes.

A frame is a kind, the incarnation of the sender and the fields, all of fixed width, then one
tail of bytes where the message has one. Entries carry no index: it follows from `prev`, so a gap
cannot be sent. Decoding trusts nothing: each number has a bound, each length is checked, and
whatever is wrong is a WireError that costs the sender its connection.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .membership import Configuration
from .record import CONFIG, ENTRY_KINDS, INDEX_MAX, TERM_MAX, Entry

PROTOCOL = 1
FRAME_MAX = 9 << 20  # What one append may gather, the largest entry on top, and their heads.
ENTRIES_MAX = 1 << 16  # In one append; twice what fits into one that a leader makes.
INTRODUCTION_MAX = 16 << 10
NOTICE_MAX = 32 << 10  # The names of all time zones are 10 KiB.


class WireError(Exception):
    """A peer sent bytes that are no message; its connection is closed."""


class Append(NamedTuple):
    """Entries that follow `prev`; none to find out whether `prev` is there."""

    term: int
    prev: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...] = ()


class AppendAck(NamedTuple):
    """`ok`: all up to `at` is durable here and as the leader has it. Else: try from `at`."""

    term: int
    prev: int
    at: int
    ok: bool


class Heartbeat(NamedTuple):
    """The leader lives. Overtakes entries; `known` is what the receiver surely has."""

    term: int
    round: int
    commit: int
    known: int
    echo: float  # The receiver's own clock, as it last sent it.
    age: float  # Seconds since the leader last knew that a majority followed it.


class HeartbeatAck(NamedTuple):
    term: int
    round: int
    at: float


class PreVote(NamedTuple):
    """Would you vote for me in `term`?"""

    term: int
    last: int
    last_term: int


class PreVoteReply(NamedTuple):
    term: int
    asked: int  # The term that was asked for.
    granted: bool
    removed_at: int  # Index of the committed configuration without the asker, or 0.


class Vote(NamedTuple):
    term: int
    last: int
    last_term: int
    transfer: bool  # The leader wants this election.


class VoteReply(NamedTuple):
    term: int
    granted: bool


class TimeoutNow(NamedTuple):
    """The leader asks the receiver to take over."""

    term: int


class SnapshotOffer(NamedTuple):
    """You are too far behind for the log: here is a snapshot's manifest."""

    term: int
    manifest: bytes


class Fetch(NamedTuple):
    """Send me `size` bytes of a file of the snapshot."""

    term: int
    snapshot: int
    file: int
    offset: int
    size: int


class Chunk(NamedTuple):
    """The answer to a Fetch; `there` is false if the snapshot is gone."""

    term: int
    snapshot: int
    file: int
    offset: int
    there: bool
    data: bytes


class BadCopy(NamedTuple):
    """What came of this snapshot is not what its manifest says; look at yours."""

    term: int
    snapshot: int


class Introduce(NamedTuple):
    """Who I am and whether I belong to a cluster; JSON, since it is rare."""

    term: int
    text: bytes


class NodeNotice(NamedTuple):
    """What one node's server sends the others of itself; nothing to do with agreement."""

    term: int
    text: bytes


Message = (
    Append | AppendAck | Heartbeat | HeartbeatAck | PreVote | PreVoteReply | Vote | VoteReply
    | TimeoutNow | SnapshotOffer | Fetch | Chunk | Introduce | NodeNotice | BadCopy
)  # fmt: skip

_KINDS: list[tuple[type[Message], str]] = [
    (Append, "QQQQ"),
    (AppendAck, "QQQ?"),
    (Heartbeat, "QQQQdd"),
    (HeartbeatAck, "QQd"),
    (PreVote, "QQQ"),
    (PreVoteReply, "QQ?Q"),
    (Vote, "QQQ?"),
    (VoteReply, "Q?"),
    (TimeoutNow, "Q"),
    (SnapshotOffer, "Q"),
    (Fetch, "QQIQI"),
    (Chunk, "QQIQ?"),
    (Introduce, "Q"),
    (NodeNotice, "Q"),
    (BadCopy, "QQ"),
]
_HEAD = "<BQ"
_ENTRY = struct.Struct("<QBI")
_BY_TYPE = {kind: (n, struct.Struct(_HEAD + fmt)) for n, (kind, fmt) in enumerate(_KINDS)}
_BY_NUMBER = [(kind, struct.Struct(_HEAD + fmt)) for kind, fmt in _KINDS]
_TAILED = (SnapshotOffer, Chunk, Introduce, NodeNotice)
_TAIL_MAX: dict[type[Message], int] = {Introduce: INTRODUCTION_MAX, NodeNotice: NOTICE_MAX}


def encode(message: Message, incarnation: int) -> bytes:
    """Return the frame of a message."""
    number, head = _BY_TYPE[type(message)]
    if isinstance(message, Append):
        parts = [head.pack(number, incarnation, *message[:4])]
        for entry in message.entries:
            parts.append(_ENTRY.pack(entry.term, entry.kind, len(entry.data)))
            parts.append(entry.data)
        return b"".join(parts)
    if isinstance(message, _TAILED):
        return head.pack(number, incarnation, *message[:-1]) + bytes(message[-1])
    return head.pack(number, incarnation, *message)


def decode(frame: bytes) -> tuple[Message, int]:
    """Return message and incarnation of the sender, or raise WireError."""
    if not frame or frame[0] >= len(_BY_NUMBER):
        raise WireError(f"there is no message of kind {frame[0] if frame else 'nothing'}")
    if len(frame) > FRAME_MAX:
        raise WireError(f"a frame of {len(frame)} bytes is over {FRAME_MAX}")
    kind, head = _BY_NUMBER[frame[0]]
    if len(frame) < head.size:
        raise WireError(f"{kind.__name__}: {len(frame)} bytes are too few")
    _, incarnation, *fields = head.unpack_from(frame)
    _check(kind, fields)
    tail = frame[head.size :]
    if len(tail) > _TAIL_MAX.get(kind, FRAME_MAX):
        raise WireError(f"{kind.__name__}: {len(tail)} bytes are over {_TAIL_MAX[kind]}")
    if kind is Append:
        term, prev, prev_term, commit = fields
        entries = _entries(tail, prev, term, prev_term)
        return Append(term, prev, prev_term, commit, entries), incarnation
    if kind in _TAILED:
        return kind(*fields, tail), incarnation  # type: ignore[call-arg]  # See _TAILED.
    if tail:
        raise WireError(f"{kind.__name__}: {len(tail)} bytes too many")
    return kind(*fields), incarnation


def _check(kind: type[Message], fields: list[int | float | bool]) -> None:
    if fields[0] > TERM_MAX:
        raise WireError(f"{kind.__name__}: term {fields[0]} is over {TERM_MAX}")
    for value in fields[1:]:
        # The comparison is false for NaN too.
        if not -INDEX_MAX < value < INDEX_MAX:
            raise WireError(f"{kind.__name__}: {value} is out of bounds")


def _entries(tail: bytes, prev: int, leader_term: int, before: int) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    offset = 0
    while offset < len(tail):
        if offset + _ENTRY.size > len(tail):
            raise WireError("Append: an entry's head is cut off")
        term, kind, length = _ENTRY.unpack_from(tail, offset)
        offset += _ENTRY.size
        if kind not in ENTRY_KINDS:
            raise WireError(f"Append: there is no entry of kind {kind}")
        if not before <= term <= leader_term:
            raise WireError(f"Append: an entry of term {term} cannot be here")
        if offset + length > len(tail):
            raise WireError("Append: an entry is cut off")
        if len(entries) >= ENTRIES_MAX:
            raise WireError(f"Append: there are over {ENTRIES_MAX} entries")
        data, before = tail[offset : offset + length], term
        if kind == CONFIG:
            _check_members(data)
        entries.append(Entry(prev + 1 + len(entries), term, kind, data))
        offset += length
    return tuple(entries)


def _check_members(data: bytes) -> None:
    try:
        Configuration.decode(data)
    except ValueError as error:
        raise WireError(f"Append: these are no members: {error}") from error
