"""WaitRun: an answer when a run has ended.

A run under way has a record that goes when it ends. Each change names what it deletes, so nobody
is asked about a run whose record stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left

from ...proto.v1 import run_pb2
from ...statemachine.core.instants import to_ms
from ...statemachine.machine import Prepared
from ...statemachine.model import keys
from ...statemachine.model.record import MetaRecord
from .call import Call
from .caller_limits import CallerShare
from .lasting import Lasting
from .node_port import NodePort

TIMEOUT_S = 30.0
TIMEOUT_MAX_S = 60.0
ENDED = frozenset(
    {
        run_pb2.RUN_STATE_SUCCEEDED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_CANCELLED,
        run_pb2.RUN_STATE_SKIPPED,
    }
)


class RunWaits:
    """Who waits for which run."""

    def __init__(self, node: NodePort, share: CallerShare, lasting: Lasting) -> None:
        self.node, self.share, self.lasting = node, share, lasting
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        node.replica.on_change(self._applied)

    async def wait(self, call: Call, request: run_pb2.WaitRunRequest) -> run_pb2.Run:
        """The run once it has ended, or as it is when the time is over."""
        timeout = request.timeout
        wait_s = to_ms(timeout) / 1000 if request.HasField("timeout") else TIMEOUT_S
        until = asyncio.get_running_loop().time() + min(wait_s, TIMEOUT_MAX_S, call.wait_max())
        while True:
            run = await self._run(call, request)
            left = until - asyncio.get_running_loop().time()
            if run.state in ENDED or left <= 0:
                return run
            place = keys.run_key(run.id)
            assert place is not None, f"{run.id} was read by this very id"
            with self.share.taken(call.caller), self.lasting.watched(call):
                await self._ended(keys.run(*place), left)
            self.lasting.check(call)

    async def _run(self, call: Call, request: run_pb2.WaitRunRequest) -> run_pb2.Run:
        ask = run_pb2.GetRunRequest(namespace=request.namespace, run=request.run)
        found = await self.node.read(ask, None, call.timeout())
        assert isinstance(found.message, run_pb2.Run)
        return found.message

    async def _ended(self, key: bytes, seconds: float) -> None:
        """Return when the record of a run under way is gone, or after a while."""
        if self.node.replica.store.get(key) is None:
            # It ended between the answer and now.
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await future
        finally:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(future)
                if not waiting:
                    del self._waiting[key]

    def _applied(self, index: int, prepared: Prepared, meta: MetaRecord) -> None:
        """Wake those whose run has ended in a change."""
        if not self._waiting:
            return
        deletes = prepared.change.deletes
        first = bisect_left(deletes, keys.RUN)
        for place in range(first, bisect_left(deletes, keys.after(keys.RUN), first)):
            if deletes[place] in self._waiting:
                self._wake(deletes[place])

    def wake_all(self) -> None:
        """Leadership has moved: all must ask again, perhaps elsewhere."""
        for key in list(self._waiting):
            self._wake(key)

    def _wake(self, key: bytes) -> None:
        for future in self._waiting.pop(key):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        self.node.replica.forget(self._applied)
        self.wake_all()
