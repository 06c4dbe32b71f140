"""Calls the webhooks of alerts: the leader for all that the log knows, each node for itself when
there is no leader.

What was sent stands in the state, so the next leader goes on where this one was lost; a webhook
may hear of the same event twice then, and knows it by its revision. Between two tries an alert may
change: then its webhook hears how it stands, not of each turn that it missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import islice

import structlog
from google.protobuf.json_format import MessageToJson

from ...proto.v1 import event_pb2
from ...statemachine.calls.alerts import event_of, waits_for_webhook
from ...statemachine.core.instants import ms_or, set_ms
from ...statemachine.core.rejection import Refused
from ...statemachine.model import keys
from ...statemachine.model.record import AlertRecord, parse
from ...statemachine.model.request import Called
from ..node.backoff import backoff
from ..node.node import Node
from .webhook_call import Sender

logs = structlog.get_logger("raftsched.cluster.ops.webhooks")

LOOK_S = 1.0
CALL_S = 10.0  # From the name's look-up to the answer's first line.
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0
GIVE_UP_MS = 3_600_000
CALLS_MAX = 32  # At a time; others wait for their turn, or for their next try.
TASKS_MAX = 1_000
LOOKED_AT = 1_000  # Alerts in one look; the next one goes on behind them.
WRITE_S = 10.0
ALONE_MS = 5_000  # Without a leader for so long is more than an election.

RAISED = event_pb2.EVENT_KIND_ALERT_RAISED
CLEARED = event_pb2.EVENT_KIND_ALERT_CLEARED


class Webhooks:
    """A task; it may not end before `stop`."""

    def __init__(self, node: Node, sender: Sender) -> None:
        self.node, self.sender = node, sender
        self._calls: dict[bytes, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._after = keys.ALERT
        # Since when no leader is known, and the alerts that were raised for it.
        self._alone_since: float | None = None
        self._sent_alone: dict[bytes, AlertRecord] = {}
        self.task = asyncio.create_task(self._keep_looking(), name="webhooks")

    async def stop(self) -> None:
        tasks = [self.task, *self._calls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.sender.close()

    async def _keep_looking(self) -> None:
        while True:
            if self.node.leads:
                self._look()
            self._look_for_leader()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        """Call those whose webhook has not heard how they stand."""
        found = self._alerts(self._after)
        self._after = found[-1][0] + b"\0" if len(found) == LOOKED_AT else keys.ALERT
        for key, record in found:
            if waits_for_webhook(record):
                self._begin(key, self._send(key))

    def _alerts(self, first: bytes) -> list[tuple[bytes, AlertRecord]]:
        found = islice(self.node.replica.store.scan(first, keys.after(keys.ALERT)), LOOKED_AT)
        return [(key, parse(key, value, AlertRecord)) for key, value in found]

    def _begin(self, key: bytes, call: Coroutine[None, None, None]) -> bool:
        """Unless it is being called, or too many are; the next look tries again."""
        if key in self._calls or len(self._calls) >= TASKS_MAX:
            call.close()
            return False
        task = self._calls[key] = asyncio.create_task(call)
        task.add_done_callback(lambda task: self._ended(key, task))
        return True

    def _ended(self, key: bytes, task: asyncio.Task[None]) -> None:
        del self._calls[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.node.fail(error)

    async def _send(self, key: bytes) -> None:
        """Try until it has heard, it is too late, or somebody else leads."""
        waits = backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while self.node.leads:
            record = self._read(key)
            if record is None or not waits_for_webhook(record):
                return
            over = self.node.clock.now_ms() - record.changed_at_ms > GIVE_UP_MS
            if over or await self._call(record, _event(record), record.changed_in):
                if over:
                    logs.error("webhook given up", alert=record.settings.name)
                await self._note(Called(key, record.changed_in))
                return
            await asyncio.sleep(next(waits))

    def _read(self, key: bytes) -> AlertRecord | None:
        value = self.node.replica.store.get(key)
        return parse(key, value, AlertRecord) if value is not None else None

    async def _note(self, called: Called) -> None:
        try:
            await self.node.ask(called, "", WRITE_S)
        except Refused as refused:
            # The next look, or the next leader, calls again.
            logs.warning("webhook call not noted", why=refused.rejection.message)

    async def _call(self, record: AlertRecord, event: event_pb2.Event, number: int) -> bool:
        settings = record.settings
        try:
            async with self._turns, asyncio.timeout(CALL_S):
                body = MessageToJson(event).encode()
                now_s = self.node.clock.now_ms() // 1000
                status = await self.sender.post(settings.webhook, body, _id(event, number), now_s)
        except Exception as error:  # An address that breaks it must not end every leader.
            why = str(error) or f"{type(error).__name__} within {CALL_S:.0f} s"
        else:
            if 200 <= status < 300:
                logs.info("webhook called", alert=settings.name, revision=number, status=status)
                return True
            why = f"it answers {status}"
        logs.warning("webhook call failed", alert=settings.name, revision=number, why=why)
        return False

    # Without a leader nothing can be written, so this lives in memory.

    def _look_for_leader(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.node.leader_name:
            self._alone_since = None
            for key, record in list(self._sent_alone.items()):
                if self._begin(b"alone" + key, self._send_alone(key, record, CLEARED)):
                    del self._sent_alone[key]
            return
        if self._alone_since is None:
            self._alone_since = now
        alone_ms = (now - self._alone_since) * 1000
        if alone_ms < ALONE_MS:
            return
        for key, record in self._alerts(keys.alert(keys.CLUSTER, "")):
            hold_ms = ms_or(record.settings, "hold", 0)
            wanted = record.settings.condition.no_quorum and record.settings.webhook
            if wanted and alone_ms >= hold_ms and key not in self._sent_alone:
                self._begin(b"alone" + key, self._send_alone(key, record, RAISED))

    async def _send_alone(
        self, key: bytes, record: AlertRecord, kind: event_pb2.EventKind.ValueType
    ) -> None:
        """Try for as long as it is so. What nobody heard may be raised again, but not cleared."""
        event = event_pb2.Event(kind=kind, alert=record.settings.name)
        event.message = f"{self.node.name} has heard from no leader"
        if kind == CLEARED:
            event.message = f"{self.node.name} hears from {self.node.leader_name}"
        set_ms(event.time, self.node.clock.now_ms())
        waits = backoff(RETRY_FIRST_S, RETRY_MOST_S)
        until = self.node.clock.now_ms() + GIVE_UP_MS
        while bool(self.node.leader_name) == (kind == CLEARED):
            if await self._call(record, event, 0) or self.node.clock.now_ms() > until:
                if kind == RAISED:
                    self._sent_alone[key] = record
                return
            await asyncio.sleep(next(waits))


def _id(event: event_pb2.Event, number: int) -> str:
    """The same when it is sent again. Without a leader there is no revision."""
    whose = f"{event.namespace}/" if event.namespace else ""
    return f"alert-{whose}{event.alert}-{number or f'at-{event.time.ToMilliseconds()}'}"


def _event(record: AlertRecord) -> event_pb2.Event:
    event = event_of(record)
    event.revision.change = record.changed_in
    set_ms(event.time, record.changed_at_ms)
    return event
