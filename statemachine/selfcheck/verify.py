"""The self-check: every derived table and counter computed anew, compared, and mended.

`verify` reads records, the truth, and says where a derived entry differs from them. `repair` puts
what `verify` wants, as a change like any other, so that every node is mended in the same way. A
sound state has no differences; each one is a bug worth a report, even after it was mended.
"""

from __future__ import annotations

from itertools import chain, islice

from ..core import limits
from ..core.store import Reading
from ..model import idempotency_by_age, keys
from ..model.difference import Difference
from ..model.record import parse
from ..model.request import Repair, Repaired
from ..model.view import View
from . import counters, entries
from .counters import COUNTED

__all__ = ["Difference", "repair", "verify"]


def verify(store: Reading, most: int = limits.LOOKED_AT) -> list[Difference]:
    """Where the derived tables and counters differ from the records; at most so many places."""
    found = chain(
        entries.differences(store),
        counters.differences(store),
        idempotency_by_age.differences(store),
    )
    return list(islice(found, most))


def repair(view: View, request: Repair, actor: str = "") -> Repaired:
    """Mend what differs, a bounded number of entries. Repeat until nothing is mended: some entries
    are derived from others, and are right only after those are."""
    assert not view.writes, "repair compares what is stored, so it must come first in its change"
    found = verify(view.stored, request.most)
    for difference in found:
        _mend(view, difference)
    return Repaired(tuple(found))


def _mend(view: View, difference: Difference) -> None:
    key, wanted = difference.key, difference.wanted
    if wanted is None:
        view.delete(key)
    elif key[:1] == keys.TIMER:
        (view.put_later if keys.timer_at(key) & keys.LATER else view.put_timer)(key)
    elif key[:1] in COUNTED:
        # As a record, since the leader may hold the wrong one in memory.
        view.put(key, parse(key, wanted, COUNTED[key[:1]]))
    else:
        view.put_raw(key, wanted)
