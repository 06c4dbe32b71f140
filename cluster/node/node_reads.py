"""Reads of one node: fresh enough, on the loop or beside it, in turns between those who ask."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from ...proto.v1 import common_pb2, job_pb2
from ...statemachine.core.instants import to_ms
from ...statemachine.core.rejection import Refused, Rejection
from ...statemachine.core.store import Reading
from ...statemachine.machine import Prepared
from ...statemachine.model.record import MetaRecord
from ...statemachine.model.view import View
from ...statemachine.model.workers import Workers
from ...statemachine.piecewise import FATAL, Failure, failed
from ...statemachine.reads import forecast, reads
from ..raft import faults
from ..raft.driver import Driver
from . import refusals
from .clock import SteadyClock
from .forecasts import Forecasts
from .leader_loop import Leader
from .readers import Readers
from .virtual_clock import VirtualClock
from .whereabouts import Whereabouts

STALE_READ_MAX = 86_400.0  # Seconds; no stale read is answered from an older state.
# Seconds without a message of a majority after which there may be none.
MAJORITY_CONTACT_TIMEOUT = 1.0

Finish = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer, the revision it is true at, and how old it may be."""

    message: Message
    revision: int
    age_ms: int = 0


def nothing(answer: Message) -> None:
    """It is finished as it is."""


class NodeReads:
    """See the head of this file."""

    def __init__(
        self, driver: Driver, leader: Leader, clock: SteadyClock | VirtualClock,
        readers: Readers, whereabouts: Whereabouts,
    ) -> None:  # fmt: skip
        self._driver, self._leader, self._clock = driver, leader, clock
        self._readers, self._whereabouts = readers, whereabouts
        self._replica, self._name = leader.applied, leader.name
        self._forecasts = Forecasts(readers, self.snapshot)
        self._moved = asyncio.Event()
        self._replica.on_change(self._applied)

    def _applied(self, index: int, prepared: Prepared, meta: MetaRecord) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def read(
        self, body: Message, options: common_pb2.ReadOptions | None, timeout: float,
        caller: str, finish: Finish,
    ) -> ReadAnswer:  # fmt: skip
        """Answer a read. Raises Refused. What looks at much takes its turn among callers; `finish`
        is done to the answer where it is made."""
        options, state = options or common_pb2.ReadOptions(), "no quorum"
        try:
            async with asyncio.timeout(timeout):
                stale = options.consistency == common_pb2.CONSISTENCY_STALE
                await self._wait_for_state(timeout, stale=stale)
                state = "revision"
                await self._wait_for_revision(options.min_revision.change)
                state = "read"
                return await self._read(body, caller, finish, stale=stale)
        except TimeoutError:
            if state == "read":
                raise refusals.read_timeout(timeout, caller) from None
            if state == "revision":
                wanted, revision = options.min_revision.change, self._replica.meta.revision
                raise refusals.not_reached(self._name, wanted, revision, timeout) from None
            raise self.too_late(timeout) from None

    async def _wait_for_state(self, timeout: float, *, stale: bool) -> None:
        """Return when the state here is fresh enough."""
        if not stale:
            await self.barrier(timeout)
        elif (age_s := self._age_s()) > STALE_READ_MAX:
            raise refusals.too_old(self._name, age_s, STALE_READ_MAX)

    def _age_s(self) -> float:
        """How old the state is at most. A node that has heard of no leader since it began goes by
        its last change, as far as its clock can be trusted."""
        heard = self._driver.staleness()
        since_change = (self._clock.now_ms() - self._replica.meta.now_ms) / 1000
        return heard if math.isfinite(heard) else max(0.0, since_change)

    async def _wait_for_revision(self, wanted: int) -> None:
        while self._replica.meta.revision < wanted:
            # Whoever moves it makes a new one.
            await self._moved.wait()

    async def _read(self, body: Message, caller: str, finish: Finish, *, stale: bool) -> ReadAnswer:
        steps = self._leader.steps
        try:
            found: ReadAnswer | Rejection
            if isinstance(body, job_pb2.ForecastFiringsRequest) and body.HasField("max_age"):
                found = await self._forecast(body, finish, stale=stale)
            elif isinstance(body, reads.OF_FEW_RECORDS):
                began = steps.seconds()
                found = self._reading(body, finish, self._replica.store, stale=stale)()
                steps.end("read", began, body)
            else:
                found = await self._readers.read(
                    caller,
                    lambda: self._reading(body, finish, self.snapshot(), stale=stale),
                )
        except (Refused, *FATAL):
            raise
        except Exception as error:
            name = type(body).__name__
            self._leader.troubles.add([Failure(name, error, "refused")])
            raise Refused(failed(name, error)) from None
        if isinstance(found, Rejection):
            raise Refused(found)
        return found

    async def _forecast(
        self, body: job_pb2.ForecastFiringsRequest, finish: Finish, *, stale: bool
    ) -> ReadAnswer:
        """A count that is kept, against what the workers can do now: some minutes are added up."""
        view = View(self._replica.store, self._now_ms())
        number, ahead_ms = forecast.asked(view, body)
        found = await self._forecasts.get(number, view.now_ms, ahead_ms, to_ms(body.max_age))
        age_ms = int(self._age_s() * 1000) if stale else 0
        view, revision = View(self._replica.store, self._now_ms()), self._replica.meta.revision
        reply = forecast.shown(view, body, self._workers(body), found)
        finish(reply)
        return ReadAnswer(reply, revision, age_ms)

    def _now_ms(self) -> int:
        return max(self._clock.now_ms(), self._replica.meta.now_ms)

    def _workers(self, body: Message) -> Workers:
        """Those that a read asks for; the leader alone knows them."""
        wanted = self._leader.leading and isinstance(body, reads.OF_WORKERS)
        return self._leader.sessions.workers() if wanted else []

    def stop(self) -> None:
        """What nobody waits for ends soon."""
        self._forecasts.stop()

    def snapshot(self) -> Reading:
        """The state as it is now, for a thread, which stands back for the loop."""
        return self._readers.paced(self._replica.store.snapshot())

    def _reading(
        self, body: Message, finish: Finish, reading: Reading, *, stale: bool
    ) -> Callable[[], ReadAnswer | Rejection]:
        """What is to be done to answer a read from the state as it is now."""
        age_ms = int(self._age_s() * 1000) if stale else 0
        meta, now_ms, workers = self._replica.meta, self._now_ms(), self._workers(body)

        def answer() -> ReadAnswer | Rejection:
            reply = reads.read(View(reading, now_ms), body, workers)
            if isinstance(reply, Rejection):
                return reply
            finish(reply)
            return ReadAnswer(reply, meta.revision, age_ms)

        return answer

    async def barrier(self, timeout: float) -> None:
        """Return when all that was acknowledged before is in the state of this leader."""
        if not self._leader.leading:
            raise refusals.not_leader(self._name, self._whereabouts.leader_address)
        try:
            index = await self._driver.barrier(timeout)
        except faults.CallRefused:
            index = None
        if index is None:
            raise self.too_late(timeout)

    def nobody_leads(self) -> Refused:
        """Why a call finds no leader: a full disk of this node keeps it from leading itself."""
        full = self._driver.status().full
        return refusals.disk_full(self._name) if full else refusals.no_quorum(self._name)

    def too_late(self, seconds: float) -> Refused:
        """Why a read was not answered within its time: a majority that was heard just now is there,
        so the time was too short."""
        heard = self._driver.silence_s() < MAJORITY_CONTACT_TIMEOUT
        if self._whereabouts.leader_name and heard:
            return refusals.deadline_passed(self._name, seconds)
        return self.nobody_leads()
