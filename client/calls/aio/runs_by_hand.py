"""Why by hand: `wait` asks again until the run has ended, as no server holds an answer for ever."""

from __future__ import annotations

from ....proto.v1 import run_pb2
from .run import AsyncRun
from .service import AsyncService


class AsyncRunsByHand(AsyncService):
    """Beside what the contracts say by themselves."""

    async def wait(
        self, run: str, timeout: float | None = None, *, namespace: str | None = None
    ) -> AsyncRun:
        """Wait until a run has ended; RunNotEnded if it has not within `timeout` seconds.

        run = await client.runs.wait("report.17.1763456400000", 60)
        """
        whose = self._client.namespace if namespace is None else namespace
        unseen = run_pb2.Run(id=run, namespace=whose)
        return await AsyncRun(self._client, unseen).wait(timeout)
