# Made from aio/workers.py by calls/generate.py; write there.
"""The workers that the leader knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import worker_pb2
from ...sdk.options import EachCall, Writing
from ...sdk.ranges import made
from .service import Service


class Workers(Service):
    """The workers that the leader knows."""

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[EachCall]
    ) -> Iterator[worker_pb2.Worker]:
        """List the sessions that the leader knows. Filter fields: `queue`, `labels.…`,
        `draining`.

        for worker in client.workers.list("queue=mail"):
            print(worker.worker, worker.leased, worker.slots)
        """
        request = made(worker_pb2.ListWorkersRequest, filter=filter)
        return self._items(request, "workers", limit, options)

    def drain(
        self, worker: str, reason: str = "", **options: Unpack[Writing]
    ) -> worker_pb2.DrainWorkerResponse:
        """Ask a worker to finish what it has and take no more; it gets no lease from now on. If
        several tenants have a worker of this id, a token for one namespace drains those that
        serve it alone, and one for all namespaces drains all of them. A new leader hears of it
        from the worker (rule 8), so if the leader is lost before the worker has heard, call
        again: Worker.draining says whether it holds.

        client.workers.drain("host-1.4711.x7", "new version")
        """
        request = made(worker_pb2.DrainWorkerRequest, worker=worker, reason=reason)
        return self._send(request, worker_pb2.DrainWorkerResponse, options)
