"""What a cluster is doing now, as far as it can be learned within a second.

Each part is asked for by itself. What is refused, or does not come in time, is left out; so are the
others once nobody answers, since a picture that is late shows nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import messages as m
from ..render.output import plain
from ..session import Invocation
from ..times import now_ms, timestamp

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ..messages import alert_pb2, cluster_pb2, common_pb2, event_pb2, queue_pb2, worker_pb2

PART_S = 1.0  # For each question.
LOOKED_AT = 100  # Of queues, workers, alerts and events.
EVENTS_KEPT = 50
PAST = 50  # Changes before the first look whose events are shown.
ALL_OF_IT = 2**31 - 1  # The place behind all events of a change.


@dataclass(frozen=True, slots=True)
class Rates:
    """What was done a second, between two looks at one leader."""

    over_s: float
    fired: float
    leased: float
    ended: float
    dead_letters: float
    # Milliseconds after the due time until the lease; None when there was none.
    p50_ms: float | None
    p99_ms: float | None


@dataclass
class ClusterSnapshot:
    """What was learned."""

    at_ms: int
    # What could not be asked for, and why.
    missing: dict[str, str] = field(default_factory=dict)
    status: cluster_pb2.ClusterStatus | None = None
    rates: Rates | None = None
    queues: Sequence[queue_pb2.Queue] | None = None
    workers: Sequence[worker_pb2.Worker] | None = None
    # Those that are raised.
    alerts: Sequence[alert_pb2.Alert] | None = None
    # The newest last.
    events: Sequence[event_pb2.Event] = ()

    def document(self) -> dict[str, Any]:
        """For programs: what is known, under the names of the API."""
        document: dict[str, Any] = {"time": timestamp(self.at_ms).ToJsonString()}
        if self.status is not None:
            document["cluster"] = plain(self.status)
        if (rates := self.rates) is not None:
            document["rates"] = {
                "seconds": round(rates.over_s, 3), "fired": round(rates.fired, 1),
                "leased": round(rates.leased, 1), "ended": round(rates.ended, 1),
                "deadLetters": round(rates.dead_letters, 1),
            }  # fmt: skip
            if rates.p50_ms is not None and rates.p99_ms is not None:
                document["lateness"] = {
                    "p50Ms": round(rates.p50_ms, 1),
                    "p99Ms": round(rates.p99_ms, 1),
                }
        for name in ("queues", "workers", "alerts", "events"):
            if (items := getattr(self, name)) is not None:
                document[name] = [plain(item) for item in items]
        if self.missing:
            document["missing"] = {part: str(why) for part, why in self.missing.items()}
        return document


class SnapshotReader:
    """Looks again and again, and remembers what rates are made of."""

    def __init__(self, session: Invocation) -> None:
        self.session = session
        # Who was counting at the last look, when, and how far it was.
        self._before: tuple[str, float, cluster_pb2.Tally] | None = None
        self._progress: common_pb2.Revision | None = None
        self._events: deque[event_pb2.Event] = deque(maxlen=EVENTS_KEPT)

    def read(self) -> ClusterSnapshot:
        snapshot = ClusterSnapshot(now_ms())
        status = self._ask(snapshot, "cluster", m.cluster_pb2.GetClusterStatusRequest())
        if status is None:
            return snapshot
        snapshot.status = status = self._of_leader(snapshot, status)
        if not status.leader:
            snapshot.missing["queues, workers, events"] = "no leader is known"
            return snapshot
        snapshot.rates = self._rates(status)
        namespace = self.session.namespace
        for name, request in (
            ("queues", m.queue_pb2.ListQueuesRequest(namespace=namespace, page_size=LOOKED_AT)),
            ("workers", m.worker_pb2.ListWorkersRequest(namespace=namespace, page_size=LOOKED_AT)),
        ):
            answer = self._ask(snapshot, name, request)
            if answer is not None:
                setattr(snapshot, name, getattr(answer, name))
        snapshot.alerts = list(self._alerts(snapshot, namespace))
        self._hear(snapshot, status)
        snapshot.events = tuple(self._events)
        return snapshot

    def _ask(self, snapshot: ClusterSnapshot, part: str, request: Message, **options: Any) -> Any:
        """Any answer of the contracts; None when there is none."""
        from ...sdk.errors import ClusterError, RaftschedError

        if any(isinstance(one, _Silence) for one in snapshot.missing.values()):
            return None
        try:
            return self.session.client.call(request, timeout=PART_S, **options)
        except ClusterError as error:
            snapshot.missing[part] = _Silence(error.message)
        except RaftschedError as error:
            if error.reason == "REVISION_GONE":
                self._progress = None
            snapshot.missing[part] = error.message
        return None

    def _of_leader(
        self, snapshot: ClusterSnapshot, status: cluster_pb2.ClusterStatus
    ) -> cluster_pb2.ClusterStatus:
        """The leader's own view, which knows most, as long as it can be asked."""
        if status.leader in ("", status.node):
            return status
        address = next((n.client_address for n in status.nodes if n.name == status.leader), "")
        if not address:
            return status
        request = m.cluster_pb2.GetClusterStatusRequest()
        aside = ClusterSnapshot(snapshot.at_ms)
        return self._ask(aside, "leader", request, endpoint=address, retry=False) or status

    def _rates(self, status: cluster_pb2.ClusterStatus) -> Rates | None:
        if not status.HasField("tally"):
            return None
        before, now = self._before, (status.node, monotonic(), status.tally)
        self._before = now
        if before is None or before[0] != now[0] or before[2].leased > now[2].leased:
            return None
        return rates(before[2], now[2], now[1] - before[1])

    def _alerts(self, snapshot: ClusterSnapshot, namespace: str) -> Iterator[alert_pb2.Alert]:
        for part, whose in (("alerts", namespace), ("alerts of the cluster", "")):
            request = m.alert_pb2.ListAlertsRequest(namespace=whose, page_size=LOOKED_AT)
            answer = self._ask(snapshot, part, request)
            if answer is not None:
                yield from (one for one in answer.alerts if one.HasField("raised_time"))

    def _hear(self, snapshot: ClusterSnapshot, status: cluster_pb2.ClusterStatus) -> None:
        """The newest events. Under load there are more than anybody reads: those of the last change
        stand for them."""
        oldest = max(status.oldest_revision - 1, 0)
        after = self._progress or _behind(max(oldest, status.revision - PAST))
        page = self._page(snapshot, after)
        if page is not None and not page.end:
            page = self._page(snapshot, _behind(max(oldest, status.revision - 1)))
        if page is not None:
            self._progress = page.progress

    def _page(
        self, snapshot: ClusterSnapshot, after: common_pb2.Revision
    ) -> event_pb2.ListEventsResponse | None:
        request = m.event_pb2.ListEventsRequest(
            namespace=self.session.namespace, after=after, page_size=LOOKED_AT
        )
        page: event_pb2.ListEventsResponse | None = self._ask(snapshot, "events", request)
        if page is not None:
            self._events.extend(page.events)
        return page


class _Silence(str):
    """Why nobody could answer: it is of no use to ask for more."""


def _behind(change: int) -> common_pb2.Revision:
    return m.common_pb2.Revision(change=change, position=ALL_OF_IT)


def rates(before: cluster_pb2.Tally, now: cluster_pb2.Tally, seconds: float) -> Rates:
    """What was done between two looks, a second."""
    seconds = max(seconds, 0.001)
    earlier = [one.leases for one in before.lateness] or [0] * len(now.lateness)
    bands = [
        (one.most.ToMilliseconds() if one.HasField("most") else None, one.leases - was)
        for one, was in zip(now.lateness, earlier, strict=True)
    ]
    return Rates(
        seconds,
        (now.scheduled_times - before.scheduled_times) / seconds,
        (now.leased - before.leased) / seconds,
        (now.ended - before.ended) / seconds,
        (now.dead_letters - before.dead_letters) / seconds,
        percentile(bands, 0.50),
        percentile(bands, 0.99),
    )


def percentile(bands: Sequence[tuple[int | None, int]], share: float) -> float | None:
    """The lateness that so large a share of leases is within, even within its band."""
    wanted = share * sum(count for _, count in bands)
    if not wanted:
        return None
    least = 0.0
    for most, count in bands:
        if most is None:
            break
        if count and wanted <= count:
            return least + (most - least) * wanted / count
        wanted -= count
        least = float(most)
    return least
