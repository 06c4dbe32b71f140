"""WaitRun: an answer when a run has ended.

A run under way has a record that goes when it ends. One look after each change, some milliseconds
later at most, serves all that wait: whether the records of their runs are still there.
"""

from __future__ import annotations

import asyncio
import contextlib

from ...proto.v1 import run_pb2
from ...statemachine import keys
from ...statemachine.instants import to_ms
from ...statemachine.machine import Prepared
from ...statemachine.record import MetaRecord
from .. import refusals
from .call import Call
from .port import Node

TIMEOUT_S = 30.0
TIMEOUT_MAX_S = 60.0
WAITING_MAX = 10_000
LOOK_S = 0.01
ENDED = frozenset(
    {
        run_pb2.RUN_STATE_SUCCEEDED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_CANCELLED,
        run_pb2.RUN_STATE_SKIPPED,
    }
)


class Waits:
    """Who waits for which run."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._looking = False
        node.replica.listeners.append(self._applied)

    async def wait(self, call: Call, request: run_pb2.WaitRunRequest) -> run_pb2.Run:
        """The run once it has ended, or as it is when the time is over."""
        wish = request.timeout
        wait_s = to_ms(wish) / 1000 if request.HasField("timeout") else TIMEOUT_S
        until = asyncio.get_running_loop().time() + min(wait_s, TIMEOUT_MAX_S, call.patience())
        while True:
            run = await self._run(call, request)
            left = until - asyncio.get_running_loop().time()
            if run.state in ENDED or left <= 0:
                return run
            place = keys.run_key(run.id)
            assert place is not None, f"{run.id} was read by this very id"
            await self._ended(keys.run(*place), left)

    async def _run(self, call: Call, request: run_pb2.WaitRunRequest) -> run_pb2.Run:
        ask = run_pb2.GetRunRequest(namespace=request.namespace, run=request.run)
        found = await self.node.read(ask, None, call.timeout())
        assert isinstance(found.message, run_pb2.Run)
        return found.message

    async def _ended(self, key: bytes, seconds: float) -> None:
        """Return when the record of a run under way is gone, or after a while."""
        if self._count >= WAITING_MAX:
            raise refusals.backlog_full(f"{WAITING_MAX} calls wait for runs to end already")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        self._count += 1
        # What ended between the answer and now is seen by this look.
        self._applied()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await future
        finally:
            self._count -= 1
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(future)
                if not waiting:
                    del self._waiting[key]

    def _applied(self, *_: int | Prepared | MetaRecord) -> None:
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = False
        get = self.node.replica.store.get
        for key in [key for key in self._waiting if get(key) is None]:
            self._wake(key)

    def wake_all(self) -> None:
        """Leadership has moved: all must ask again, perhaps elsewhere."""
        for key in list(self._waiting):
            self._wake(key)

    def _wake(self, key: bytes) -> None:
        for future in self._waiting.pop(key):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        self.node.replica.listeners.remove(self._applied)
        self.wake_all()
