"""The queues in which runs wait for a slot of their job or key: one for each owner and lane.

A queue in an ordered store leaves tombstones at its head. So beside each stands from where on it
has entries (`keys.FIRST_WAITING`), which also says in which lanes runs wait for an owner. An
owner for whom none waits has none of these, and one of a state of before gets them when somebody
asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..model import keys
from ..model.view import View


def enter(view: View, owner: bytes, entry: bytes, others: int) -> None:
    """A run waits, and so do so many others for the same owner."""
    if others:
        _index(view, owner)
    view.put_raw(entry)
    first = keys.first_waiting(keys.wait_queue_in(entry))
    known, place = view.get_raw(first), entry[-keys.PLACE :]
    if known is None or place < known:
        view.put_raw(first, place)


def forget(view: View, owner: bytes) -> None:
    """None waits for this owner any more."""
    prefix = keys.first_waiting(owner)
    for first in list(view.scan(prefix, keys.after(prefix))):
        view.delete_raw(first)


def of(view: View, owner: bytes) -> Iterator[bytes]:
    """The wait queues of an owner for whom some wait."""
    _index(view, owner)
    prefix = keys.first_waiting(owner)
    for first in list(view.scan(prefix, keys.after(prefix))):
        yield keys.PARKED + first[1:]


def head(view: View, wait_queue: bytes, most: int) -> list[bytes]:
    """The runs that wait first in a queue, so many, which are to leave it now."""
    first = keys.first_waiting(wait_queue)
    known = view.get_raw(first)
    entries = view.scan(wait_queue + (known or b""), keys.after(wait_queue))
    found = list(islice(entries, most + 1))
    if len(found) > most:
        view.put_raw(first, found[most][-keys.PLACE :])
    elif known is not None:
        view.delete_raw(first)
    return found[:most]


def _index(view: View, owner: bytes) -> None:
    """Find the queues of an owner of which nothing is known, though runs wait for it."""
    prefix = keys.first_waiting(owner)
    if next(view.scan(prefix, keys.after(prefix)), None) is not None:
        return
    at, end = owner, keys.after(owner)
    while entry := next(view.scan(at, end), None):
        wait_queue = keys.wait_queue_in(entry)
        view.put_raw(keys.first_waiting(wait_queue), entry[-keys.PLACE :])
        at = keys.after(wait_queue)
