"""All the leases of a worker's session: when it says hello on a new stream, when it was silent for
too long, and when a new leader looks who is there.

Tokens grow over the whole cluster. Heartbeats are not here: the leader hears them, and asks for a
`Lapse` when a session was silent. A lapse ends leases in steps; the runs go back at once, without
back-off, since it was the worker that went away. A worker that says hello on a new stream lists
what it holds; the other leases of its session never reached it, so they end without counting as an
attempt. But a run that is delivered at most once fails then: a worker that stopped its handlers by
itself also holds nothing, so the run may have begun.

Leases that were taken under a request id are remembered as the steps between their tokens, a byte
or two for each; the rest is looked up in the state, so what comes again is what still stands. A
session counts its leases that are to be cancelled, so a heartbeat costs nothing where there are
none. `holders` shows a new leader whom to give a full period.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice

from ...proto.v1 import job_pb2, run_pb2, worker_pb2
from ..core.store import Reading
from ..model import answers, keys
from ..model.entities import Run
from ..model.phases import LEASED
from ..model.record import JobRecord, SessionRecord, parse
from ..model.request import Again, Lapse, Resume, Resumed, WorkDone
from ..model.view import View
from ..tenants import idempotency
from . import recorded, reports, runs

Stop = worker_pb2.Stop
LAPSED = run_pb2.Attempt.END_LAPSED


def holders(store: Reading) -> Iterator[tuple[str, int]]:
    """Yield every session with the number of its leases, by worker. One that holds none goes with
    a Lapse; the others get a full period from a new leader first."""
    for key, value in store.scan(keys.SESSION, keys.after(keys.SESSION)):
        yield key[1:].decode(), parse(key, value, SessionRecord).leased


def held_by(store: Reading, worker: str) -> int:
    """How many leases a worker holds."""
    value = store.get(keys.session(worker))
    return 0 if value is None else parse(keys.session(worker), value, SessionRecord).leased


def namespaces_of(store: Reading, worker: str) -> set[int]:
    """The numbers of the namespaces in which a worker holds leases."""
    value = store.get(keys.session(worker))
    if value is None:
        return set()
    session = parse(keys.session(worker), value, SessionRecord)
    first, end = (
        keys.lease(session.number, session.token_from),
        keys.lease(session.number, keys.OCCURRENCE_MAX),
    )
    found = islice(store.scan(first, end), session.leased)
    return {keys.namespace_of(keys.run_of(value)[0]) for _, value in found}


def again(view: View, request: Again, actor: str) -> list[worker_pb2.Lease] | None:
    return taken(view, request.request)


def taken(view: View, request: worker_pb2.LeaseRequest) -> list[worker_pb2.Lease] | None:
    """The leases that were taken under a request id, as far as they still stand."""
    found = idempotency.find_leases(view, request) if request.request_id else None
    if found is None:
        return None
    standing = [_run(view, key) for key in found if view.get_raw(key) is not None]
    return [answers.lease(view, run) for run in standing]


def cancels(view: View, worker: str) -> list[Stop]:
    """The cancels that a worker has to hear of again. Without any it is one read."""
    session = view.get(keys.session(worker), SessionRecord)
    found: list[Stop] = []
    for key in _of(view, session) if session is not None and session.cancels else ():
        run = _run(view, key)
        if run.record.cancel_at_ms:
            found.append(runs.stop_word(run, Stop.KIND_CANCEL))
            if session is not None and len(found) == session.cancels:
                break
    return found


def lapse(view: View, request: Lapse, actor: str) -> Generator[None, None, WorkDone]:
    """End the leases of a worker that was silent for too long."""
    session = view.get(keys.session(request.worker), SessionRecord)
    if session is None:
        return WorkDone(0, more=False)
    ahead = (key for key in _of(view, session) if key not in request.but)
    found = list(islice(ahead, request.most))
    error = run_pb2.RunError(
        kind="lapsed",
        message=f"the worker {keys.worker_id(request.worker)} was silent for too long",
    )
    for count, key in enumerate(found):
        if count and view.is_full:
            del found[count:]
            break
        view.subject = key
        reports.attempt_failed(view, _run(view, key), LAPSED, error)
        if view.ended is not None:
            yield
    if not session.leased:
        view.delete(keys.session(request.worker))
        return WorkDone(len(found), more=False)
    if found and not request.but:
        session.token_from = keys.run_of(found[-1])[1] + 1
        view.put(keys.session(request.worker), session)
    return WorkDone(len(found), more=bool(found) or not request.but)


def resume(view: View, request: Resume, actor: str) -> Generator[None, None, Resumed]:
    """A worker reported which leases it holds: the others of its session never reached it, and end.

    Those that were granted in this very change are not stored yet, and stay. Between two steps a
    lease may end, of which its worker hears as ever; none is added, since none is offered to it.
    """
    session = view.get(keys.session(request.worker), SessionRecord)
    first, most = request.looked, request.most
    stops: list[Stop] = []
    count = 0
    for token, run in islice(request.held.items(), first, first + most):
        if count and view.is_full:
            break
        count += 1
        if (stop := _stop(view, session, token, run, request.only)) is not None:
            stops.append(stop)
    left = replace(request, looked=first + count)
    is_done = left.looked == len(request.held)
    if is_done:
        return Resumed(tuple(stops), (yield from _end_others(view, session, left, count)))
    return Resumed(tuple(stops), left)


def _end_others(
    view: View, session: SessionRecord | None, request: Resume, count: int
) -> Generator[None, None, Resume | None]:
    """End the leases of a session that its worker does not hold; what is left to look at."""
    if session is None:
        return None
    first = keys.lease(session.number, max(session.token_from, request.token_from))
    end = keys.lease(session.number, keys.OCCURRENCE_MAX)
    for key in list(islice(view.scan_stored(first, end), request.most - count + 1)):
        token = keys.run_of(key)[1]
        if count == request.most or (count and view.is_full):
            return replace(request, token_from=token)
        count += 1
        held = request.held.get(token)
        if held is not None and keys.run_key(held) == keys.run_of(_value(view, key)):
            continue
        if key not in request.but:
            view.subject = key
            _end_unheard(view, request.worker, _run(view, key))
            if view.ended is not None:
                yield
    return None


def _of(view: View, session: SessionRecord) -> Iterator[bytes]:
    """The leases of a session, oldest first."""
    first = keys.lease(session.number, session.token_from)
    return view.scan_stored(first, keys.lease(session.number, keys.OCCURRENCE_MAX))


def _value(view: View, lease: bytes) -> bytes:
    value = view.get_raw(lease)
    assert value is not None, f"the lease {lease!r} is gone"
    return value


def _run(view: View, lease: bytes) -> Run:
    return view.run(keys.run_of(_value(view, lease)))


def _end_unheard(view: View, worker: str, run: Run) -> None:
    """End a lease that its worker does not hold; the attempt does not count."""
    spec = view.need(keys.job(run.jid), JobRecord).template.spec
    if spec.delivery == job_pb2.DELIVERY_AT_MOST_ONCE:
        # A worker that stopped its handlers by itself holds nothing either, so it may have begun.
        message = f"the worker {keys.worker_id(worker)} does not hold it any more, "
        message += "and it may have begun"
        error = run_pb2.RunError(kind="lapsed", message=message)
        reports.attempt_failed(view, run, LAPSED, error)
    else:
        reports.put_back(view, run)


def _stop(
    view: View, session: SessionRecord | None, token: int, run_id: str, only: int | None
) -> Stop | None:
    """What a worker hears about a lease that it lists; None when it may simply go on. A run of a
    namespace that it may not ask about is to it as one that is not there."""
    place = keys.run_key(run_id)
    if place is not None and only not in (None, keys.namespace_of(place[0])):
        place = None
    run = view.find_run(place) if place is not None else None
    record = recorded.last_of(view, place, run) if place is not None else None
    if (
        run is None
        or record is None
        or session is None
        or record.phase != LEASED
        or record.token != token
        or record.session != session.number
    ):
        message = recorded.ended(run_id, token, record)
        return Stop(token=token, run=run_id, kind=Stop.KIND_LOST, message=message)
    return runs.stop_word(run, Stop.KIND_CANCEL) if record.cancel_at_ms else None
