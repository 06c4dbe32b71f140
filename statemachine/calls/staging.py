"""A backup on its way into a cluster that runs: its bytes, piece by piece, in the state itself.

So they are replicated, survive what the state survives, and come along in snapshots; what takes the
place of the state is the same on every node, whoever led when it arrived. One backup is on its way
at a time. When all of it is there the stage is sealed, each node makes it ready, and a single entry
of the log puts it in place of the state that held it. Until then nothing has happened; a stage that
nobody is heard of is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..core import limits
from ..core.rejection import Reason, Refused
from ..core.store import Reading
from ..model import keys
from ..model.record import StagedRecord, parse
from ..model.request import DropStage, SealStage, StagePiece
from ..model.view import View

BYTES_MAX = 4 << 30  # Each node holds it twice for a while, beside its state.
PIECE_BYTES = 240 << 10  # It fits into a request.
SILENT_MS = limits.MINUTE_MS  # Whoever sends it is heard some hundred times in that.
REMOVED = 1_000  # Pieces removed by one change.


def stage(view: View, request: StagePiece, actor: str) -> int:
    """Take the next piece. One that came before is not taken twice."""
    staged = view.get(keys.STAGED, StagedRecord)
    if staged is None:
        staged = _begin(view, request, actor)
    elif staged.id != request.id:
        raise Refused.because(
            Reason.ERROR_REASON_BACKLOG_FULL,
            f"another backup is being put back by {staged.actor or 'somebody'}, with "
            f"{staged.received} of {staged.size} bytes here; wait until it is done, or for "
            f"{SILENT_MS // 1000} s after it was given up",
        )
    end = request.offset + len(request.data)
    _check(staged, request, end)
    if end > staged.received:
        view.put_raw(keys.piece(staged.serial, request.offset), request.data)
        staged.received = end
    staged.touched_at_ms = view.now_ms
    view.put(keys.STAGED, staged)
    return staged.received


def _begin(view: View, request: StagePiece, actor: str) -> StagedRecord:
    if request.offset:
        raise _gone(request.id)
    if not 0 < request.size <= BYTES_MAX:
        raise _invalid("size", f"is {request.size}; a backup has 1 to {BYTES_MAX} bytes")
    return StagedRecord(
        id=request.id, serial=view.base + 1, size=request.size, actor=actor,
        request_id=request.call_id,
    )  # fmt: skip


def _check(staged: StagedRecord, request: StagePiece, end: int) -> None:
    if not request.data or len(request.data) > PIECE_BYTES:
        raise _invalid("data", f"has {len(request.data)} bytes; a piece has 1 to {PIECE_BYTES}")
    if request.size != staged.size or end > staged.size:
        raise _invalid("size", f"is {request.size}, and that of the first piece was {staged.size}")
    if request.offset != staged.received and end > staged.received:
        raise _invalid("offset", f"is {request.offset}, and {staged.received} bytes are here")


def seal(view: View, request: SealStage, actor: str) -> StagedRecord:
    """Nothing is added from now on, and each node may make it ready."""
    staged = view.get(keys.STAGED, StagedRecord)
    if staged is None or staged.id != request.id:
        raise _gone(request.id)
    if staged.received < staged.size:
        raise _invalid("", f": only {staged.received} of {staged.size} bytes are here; send all")
    if not staged.origin:
        staged.origin, staged.other_cluster = request.origin, request.other_cluster
        staged.actor, staged.sealed_at_ms = actor, view.now_ms
    staged.touched_at_ms = view.now_ms
    view.put(keys.STAGED, staged)
    return staged


def drop(view: View, request: DropStage, actor: str) -> bool:
    """Throw it away, if it is the one that is meant; then remove pieces that belong to none."""
    staged = view.get(keys.STAGED, StagedRecord)
    if staged is not None and _is_meant(staged, request):
        view.delete(keys.STAGED)
        staged = None
    serial = staged.serial if staged is not None else 0
    found = list(islice(_orphans(view.stored, serial), REMOVED))
    for key in found:
        view.delete_raw(key)
    return len(found) == REMOVED


def _is_meant(staged: StagedRecord, request: DropStage) -> bool:
    return staged.serial == request.serial or staged.touched_at_ms < request.silent_since_ms


def _orphans(store: Reading, serial: int) -> Iterator[bytes]:
    """Numbers of stages grow, so those of others stand before the one that is there."""
    end = keys.piece(serial, 0) if serial else keys.after(keys.PIECE)
    return (key for key, _ in store.scan(keys.PIECE, end))


def staged_in(store: Reading) -> StagedRecord | None:
    """What is on its way."""
    value = store.get(keys.STAGED)
    return parse(keys.STAGED, value, StagedRecord) if value is not None else None


def has_orphans(store: Reading) -> bool:
    """Whether pieces are there that belong to no stage."""
    staged = staged_in(store)
    return next(_orphans(store, staged.serial if staged is not None else 0), None) is not None


def pieces(store: Reading, serial: int) -> Iterator[bytes]:
    """The bytes of a stage, in order."""
    first = keys.piece(serial, 0)
    for _, value in store.scan(first, keys.piece(serial + 1, 0)):
        yield value


def _gone(stage_id: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_FIELD_INVALID,
        f"no backup '{stage_id}' is on its way: it never was, or was thrown away after "
        f"{SILENT_MS // 1000} s without a word; begin anew",
        field="backup_id",
    )


def _invalid(field: str, what: str) -> Refused:
    return Refused.because(Reason.ERROR_REASON_FIELD_INVALID, f"{field} {what}", field=field)
