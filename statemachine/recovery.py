"""A state that goes on although what came after it is lost: a backup that was put back, or the copy
of one node when the majority is gone.

What was lost may have given out revisions, tokens and numbers of jobs, and ended leases that stand
in here. So every lease lapses, and all three go on far above what can have been given out. That is
decided by the rules like anything else, but outside of any log: nobody else has this state yet.

Leases lapse by the usual rule, at the state's own time. A double still keeps tokens apart after
8,000 losses. The fingerprint goes on with the origin of the new history, so two histories that
begin from one backup differ. Scheduled times since then are late, and the misfire policies say what
becomes of them; so what ran in what is lost may run again, under a higher token.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice

import msgspec

from ..proto.v1 import cluster_pb2
from .core.store import Store
from .machine import Request, apply, decide, read_meta
from .model import keys
from .model.record import MetaRecord, StagedRecord, encode
from .model.request import Lapse, WorkDone
from .model.view import View
from .runs import leases
from .tenants import audit_log

# At 30,000 leases a second this is more than a year of them, and of changes, of which there are a
# thousand a second at most, 34 years. Numbers stay exact in a double for 8,000 recoveries.
SKIP = 1 << 40
# Of 2^40 in all: as many as a cluster has jobs at most, and some.
SKIP_JOBS = 1 << 24
LEASES = 1_000  # Ended by one change.
PIECES = 1_000  # Removed by one write.
METHOD = "RestoreBackup"  # As the audit log has it.


def recover(store: Store, at_least: int, origin: str) -> MetaRecord:
    """End all leases and skip the numbers. The state then stands at an index of the log of
    `at_least`, and has a fingerprint that no other history can have."""
    _forget_stages(store)
    for worker, _ in list(leases.holders(store)):
        while _lapse(store, worker):
            pass
    meta = read_meta(store)
    meta.applied_index = max(meta.applied_index, at_least)
    meta.revision += SKIP
    meta.token += SKIP
    meta.job_serial += SKIP_JOBS
    meta.fingerprint = blake2b(origin.encode(), key=meta.fingerprint, digest_size=16).digest()
    store.write([(keys.META, encode(meta))], [])
    return meta


def replace(store: Store, staged: StagedRecord, what: str) -> MetaRecord:
    """Make of a backup what takes the place of the state it was staged in: the same on every node.
    Its audit log has who did it, at the time of that state; where the two meet, `beyond` says."""
    meta = read_meta(store)
    view = View(store, max(meta.now_ms, staged.sealed_at_ms))
    request = cluster_pb2.RestoreBackupRequest(request_id=staged.request_id)
    audit_log.add(view, staged.actor, METHOD, "", "cluster", request, what)
    apply(store, meta.applied_index + 1, view.seal())
    return recover(store, 0, staged.origin)


def beyond(made: MetaRecord, present: MetaRecord) -> MetaRecord:
    """Where the history of a replaced state goes on: far above what it and the backup gave out, and
    not before the time of either."""
    return msgspec.structs.replace(
        made,
        revision=max(made.revision, present.revision + SKIP),
        token=max(made.token, present.token + SKIP),
        job_serial=max(made.job_serial, present.job_serial + SKIP_JOBS),
        now_ms=max(made.now_ms, present.now_ms),
    )


def _forget_stages(store: Store) -> None:
    """A backup may have been made while another one was put back."""
    found = (key for key, _ in store.scan(keys.PIECE, keys.after(keys.PIECE)))
    store.write([], [keys.STAGED, keys.RESTORED])
    while some := list(islice(found, PIECES)):
        store.write([], some)
        found = (key for key, _ in store.scan(keys.PIECE, keys.after(keys.PIECE)))


def _lapse(store: Store, worker: str) -> bool:
    """End some leases of a session, at the time of the state; whether there are more."""
    meta = read_meta(store)
    decision = decide(View(store, meta.now_ms), [Request(Lapse(worker, LEASES))])
    [fired] = decision.replies
    assert isinstance(fired, WorkDone), fired
    if decision.change:
        apply(store, meta.applied_index + 1, decision.change)
    return fired.more
