"""What a person does to all dead letters that fit a filter.

Where few of them fit, many are looked at in vain. So a call looks in as many decisions as it takes,
each with others in between, until it finds some; with these it ends.

A call ends without any when it has looked at 200,000. A step that finds none changes nothing, so
the state remembers nothing of it: the next one is asked to go on from there (`Letters`).
"""

from __future__ import annotations

from itertools import count

from ...proto.v1 import dead_letter_pb2
from ..core import filters, limits
from ..core.rejection import Reason, Refused
from ..model import keys
from ..model.entities import run_with
from ..model.record import RunRecord
from ..model.request import Letters
from ..model.view import View
from ..runs import history
from ..tenants import audit_log, idempotency, namespaces
from . import filtered
from . import runs as run_calls

Requeue = dead_letter_pb2.RequeueDeadLettersRequest
Purge = dead_letter_pb2.PurgeDeadLettersRequest
Requeued = dead_letter_pb2.RequeueDeadLettersResponse
Purged = dead_letter_pb2.PurgeDeadLettersResponse
LOOK = 16  # Letters that are looked at between two questions for the time.


def all_at_once(view: View, request: Requeue | Purge, actor: str) -> Requeued | Purged:
    """A call in one decision, however long it looks."""
    done, left_out, rest = _go_through(view, Letters(request), is_whole=True)
    return _answer(view, request, actor, done, left_out, more=rest is not None)


def some(view: View, body: Letters, actor: str) -> Requeued | Purged | Letters:
    """As far as there is room: what was done, or where to look on."""
    request = body.request
    if request.request_id:
        before = idempotency.find(view, request.request_id, request)
        if before is not None:
            assert isinstance(before, Requeued | Purged), before
            return before
    done, left_out, rest = _go_through(view, body, is_whole=False)
    if rest is not None and not done:
        return rest
    answer = _answer(view, request, actor, done, left_out, more=rest is not None)
    if request.request_id:
        idempotency.add(view, request.request_id, request, answer)
    return answer


def _go_through(view: View, body: Letters, *, is_whole: bool) -> tuple[int, int, Letters | None]:
    """How many were done, newest first, how many fit and stay, and where those begin that were not
    looked at."""
    request = body.request
    number = namespaces.need(view, request.namespace).number
    wanted = filters.parse(request.filter, filtered.RUN_FIELDS)
    first, end = filtered.dead_range(wanted, number)
    found = view.scan_stored(body.begin or first, end)
    done, left_out = 0, body.left_out
    for looked, key in zip(count(body.looked), found, strict=False):
        asks = looked > body.looked and (done or looked % LOOK == 0)
        if done == limits.CHANGE_ITEMS or (asks and view.is_full and (done or not is_whole)):
            return done, left_out, Letters(request, key, looked, left_out)
        if looked == limits.LETTERS_LOOKED_AT:
            if done:
                return done, left_out, Letters(request, key, looked, left_out)
            raise _too_few(looked)
        is_done = _do(view, request, key, wanted)
        done += is_done is True
        left_out += is_done is None
    return done, left_out, None


def _do(view: View, request: Requeue | Purge, key: bytes, wanted: filters.Filter) -> bool | None:
    """Whether a letter fits; then it is requeued or purged. None: it fits and stays where it is,
    since another run has its business key."""
    jid, occurrence = keys.run_of(key)
    record = view.need(keys.ended(jid, occurrence), RunRecord)
    run = run_with(view.job(jid), occurrence, record)
    if not wanted.fits(filtered.of_run(view, run)):
        return False
    if isinstance(request, Purge):
        history.drop(view, run)
    elif run_calls.other_holder(view, run) is not None:
        return None
    else:
        run_calls.begin_again(view, run)
    return True


def _too_few(looked: int) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_LIMIT_EXCEEDED,
        f"of the newest {looked} dead letters none fits, and one call looks at no more; take a "
        "filter that more of them fit",
        limit="looked_at", maximum=looked, actual=looked + 1,
    )  # fmt: skip


def _answer(
    view: View, request: Requeue | Purge, actor: str, done: int, left_out: int, *, more: bool
) -> Requeued | Purged:
    is_purge = isinstance(request, Purge)
    if done:
        method = "PurgeDeadLetters" if is_purge else "RequeueDeadLetters"
        namespace = request.namespace or namespaces.DEFAULT
        detail = f"{done} dead letters"
        audit_log.add(view, actor, method, namespace, "dead", request, detail)
    if is_purge:
        return Purged(purged=done, more=more)
    return Requeued(requeued=done, more=more, left_out=left_out)
