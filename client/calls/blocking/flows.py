# Made from aio/flows.py by calls/generate.py; write there.
"""Flow runs: passes through jobs that depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from ....proto.v1 import flow_pb2
from ...sdk.options import ReadOptions
from ...sdk.ranges import made
from .service import Service


class Flows(Service):
    """Flow runs: passes through jobs that depend on each other."""

    def get(self, flow: str, **options: Unpack[ReadOptions]) -> flow_pb2.Flow:
        """Show a flow run.

        for step in client.flows.get("extract.4.1763456400000").steps:
            print(step.job, step.run, step.because)
        """
        request = made(flow_pb2.GetFlowRequest, flow=flow)
        return self._send(request, flow_pb2.Flow, options)

    def list(
        self, filter: str = "", *, limit: int | None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[flow_pb2.Flow]:
        """List flow runs, newest first. Filter fields: `state`, `job`, `create_time`, `end_time`.

        for flow in client.flows.list("state=STUCK"):
            print(flow.id)
        """
        request = made(flow_pb2.ListFlowsRequest, filter=filter)
        return self._items(request, "flows", limit, options)

    def graph(self, job: str, **options: Unpack[ReadOptions]) -> flow_pb2.Graph:
        """The jobs around one job: all it depends on and all that depend on it, and which jobs a
        failure of these triggers. Which failures trigger a job, ListJobs says
        (`on_failure=report`).

        print(client.flows.graph("load").jobs)
        """
        request = made(flow_pb2.GetGraphRequest, job=job)
        return self._send(request, flow_pb2.Graph, options)
