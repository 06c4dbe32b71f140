"""Whose a worker is, and so under which name it is known: that of its tenant and its id.

The tenant is what its access token is for: one namespace, or all of them. So another token of the
same tenant takes its place, and whoever takes an id keeps nobody else from it. Where there are no
tokens a worker is known by its id alone, as under older versions; so such a session may be that of
a worker which says hello with a token by now. It goes on if it is of that tenant's namespace only.
"""

from __future__ import annotations

from ...statemachine.model import keys
from ...statemachine.runs import leases
from ..node.worker_session import WorkerSession
from .call import Call
from .node_port import NodePort
from .places import number_of

LEVEL = 3  # A member of an older version that leads takes such a name for another worker's.


def name_of(node: NodePort, owner: str, worker: str) -> str:
    """The name of a worker whose token is for a namespace, or for all ("")."""
    name, known = keys.worker_of(owner, worker), node.sessions.by_worker
    if name in known or keys.worker_id(worker) != worker:
        return name
    former = known.get(worker)
    if former is None:
        return name if node.knows(LEVEL) else worker
    return worker if not owner or is_of(node, former, owner) else name


def is_of(node: NodePort, session: WorkerSession, namespace: str) -> bool:
    """Whether a session is of one namespace only; of one that this leader knows by its leases,
    whether these are."""
    if not session.from_lease_only:
        return all(each == namespace for each in session.kind[0])
    found = leases.namespaces_of(node.replica.store, session.worker)
    return found == {number_of(node, namespace)}


def sessions_of(node: NodePort, call: Call, worker: str) -> list[WorkerSession]:
    """The sessions under an id of which a caller may speak: who may see all means all of them."""
    known = node.sessions.by_worker
    if not call.namespace:
        return [one for name, one in known.items() if keys.worker_id(name) == worker]
    if keys.worker_id(worker) != worker:
        return []
    own = keys.worker_of(call.namespace, worker)
    others = [known[name] for name in (keys.worker_of("", worker), worker) if name in known]
    found = [session for session in others if is_of(node, session, call.namespace)]
    return [known[own], *found] if own in known else found
