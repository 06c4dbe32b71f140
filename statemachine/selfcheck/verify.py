"""The self-check: every derived table and counter computed anew, and compared.

`verify` reads records, the truth, and says where a derived entry differs from them; what it finds
is mended by `mend.py`, as a change like any other, so that every node is mended in the same way. A
sound state has no differences; each one is a bug worth a report, even after it was mended.
"""

from __future__ import annotations

from itertools import chain, islice

from ..core import limits
from ..core.store import Reading
from ..model import idempotency_by_age
from ..model.difference import Difference
from . import counters, entries

__all__ = ["Difference", "verify"]


def verify(store: Reading, most: int = limits.LOOKED_AT) -> list[Difference]:
    """Where the derived tables and counters differ from the records; at most so many places."""
    found = chain(
        entries.differences(store),
        counters.differences(store),
        idempotency_by_age.differences(store),
    )
    return list(islice(found, most))
