"""Namespaces that callers name before they wait in them.

A call about a namespace that is not there is refused by the rules. Whoever waits for what comes, as
workers and watchers do, would wait in one that is misspelt for ever, so these are asked here.
"""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from itertools import islice

from ...proto.v1 import worker_pb2
from ...statemachine.core.rejection import Reason, Refused
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.record import NamespaceRecord, parse
from ...statemachine.tenants import namespaces
from ..node import refusals
from ..node.event_feed import EventFeed
from .call import Call
from .node_port import NodePort

NEAR_AMONG = (
    1_000  # Namespaces that are looked through for a near name, as this is done on the loop.
)
NOWHERE = -1  # The number of no namespace.
CATCH_UP_S = 1.0  # How long a follower may be behind the leader that has just made a namespace.


async def need_of(node: NodePort, hello: worker_pb2.WorkerHello, timeout: float) -> None:
    """Refuse a first hello with a namespace that is not there.

    Whoever was welcome before knows how to spell them: what is gone was deleted.
    """
    if hello.welcomed or all(_there(node, name) for name in hello.namespaces):
        return
    for name in hello.namespaces:
        await need(node, name, timeout)


async def need(node: NodePort, name: str, timeout: float) -> None:
    """Refuse a namespace that is not there; on the leader."""
    if not _there(node, name):
        # One that was deposed and does not know it yet has not heard of what was made since.
        await node.barrier(timeout)
        if not _there(node, name):
            raise _missing(name, node.replica.store)


async def need_here(node: NodePort, feed: EventFeed, name: str) -> None:
    """The same on any node, which may hear of it in a moment."""
    clock = asyncio.get_running_loop().time
    until = clock() + CATCH_UP_S
    while not _there(node, name):
        if clock() >= until:
            raise _missing(name, node.replica.store)
        await feed.wait(until - clock())


def number_of(node: NodePort, name: str) -> int:
    """The number of a namespace that is there; 0 is that of the default one."""
    value = node.replica.store.get(keys.namespace(name))
    if value is None:
        return 0 if name == namespaces.DEFAULT else NOWHERE
    return parse(keys.namespace(name), value, NamespaceRecord).number


def only_of(node: NodePort, call: Call) -> int | None:
    """The number of the only namespace of which a caller may speak; None for all."""
    return number_of(node, call.namespace) if call.namespace else None


def _there(node: NodePort, name: str) -> bool:
    if name in ("", namespaces.DEFAULT):
        return True
    return node.replica.store.get(keys.namespace(name)) is not None


def _missing(name: str, state: Reading) -> Refused:
    found = state.scan(keys.NAMESPACE, keys.after(keys.NAMESPACE))
    names = {namespaces.DEFAULT, *(key[1:].decode() for key, _ in islice(found, NEAR_AMONG))}
    near = " or ".join(get_close_matches(name, sorted(names)))
    hint = f"did you mean {near}?" if near else "'raftsched namespace list' shows all."
    return refusals.refused(
        Reason.ERROR_REASON_NAMESPACE_NOT_FOUND,
        f"there is no namespace '{name[:128]}', and nothing would ever come of it; {hint} If it is "
        f"to be made: raftsched namespace create {name[:128]}",
        namespace=name,
    )
