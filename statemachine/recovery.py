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

from .core.store import Store
from .machine import Request, apply, decide, read_meta
from .model import keys
from .model.record import MetaRecord, encode
from .model.request import Lapse, WorkDone
from .model.view import View
from .runs import leases

# At 30,000 leases a second this is more than a year of them, and of changes, of which there are a
# thousand a second at most, 34 years. Numbers stay exact in a double for 8,000 recoveries.
SKIP = 1 << 40
# Of 2^40 in all: as many as a cluster has jobs at most, and some.
SKIP_JOBS = 1 << 24
LEASES = 1_000  # Ended by one change.


def recover(store: Store, at_least: int, origin: str) -> MetaRecord:
    """End all leases and skip the numbers. The state then stands at an index of the log of
    `at_least`, and has a fingerprint that no other history can have."""
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


def _lapse(store: Store, worker: str) -> bool:
    """End some leases of a session, at the time of the state; whether there are more."""
    meta = read_meta(store)
    decision = decide(View(store, meta.now_ms), [Request(Lapse(worker, LEASES))])
    [fired] = decision.replies
    assert isinstance(fired, WorkDone), fired
    if decision.change:
        apply(store, meta.applied_index + 1, decision.change)
    return fired.more
