"""The self-check: every derived table and counter computed anew, compared, and mended.

`verify` reads records, the truth, and says where a derived entry differs from them. `repair` puts
what `verify` wants, as a change like any other, so that every node is mended in the same way. A
sound state has no differences; each one is a bug worth a report, even after it was mended.
"""

from __future__ import annotations

from itertools import chain, islice

from . import derived_counters, derived_entries, keys, limits, remembered_line, timers
from .derived_counters import COUNTED
from .difference import Difference
from .request import Repair, Repaired
from .store import Reading
from .view import View, parse

__all__ = ["Difference", "repair", "verify"]


def verify(store: Reading, most: int = limits.LOOKED_AT) -> list[Difference]:
    """Where the derived tables and counters differ from the records; at most so many places."""
    found = chain(
        derived_entries.differences(store),
        derived_counters.differences(store),
        remembered_line.differences(store),
    )
    return list(islice(found, most))


def repair(view: View, request: Repair, actor: str = "") -> Repaired:
    """Mend what differs, a bounded number of entries; ask again while there is more."""
    assert not view.writes, "repair compares what is stored, so it must come first in its change"
    found = verify(view.stored, request.most + 1)
    for difference in found[: request.most]:
        if difference.wanted is None:
            view.delete(difference.key)
        elif difference.key[:1] == keys.TIMER:
            timers.put(view, difference.key)
        elif difference.key[:1] in COUNTED:
            # As a record, since the leader may hold the wrong one in memory.
            kind = COUNTED[difference.key[:1]]
            view.put(difference.key, parse(difference.key, difference.wanted, kind))
        else:
            view.put_raw(difference.key, difference.wanted)
    return Repaired(tuple(found[: request.most]), more=len(found) > request.most)
