"""Calls a second of a namespace, and of a caller: a bucket for each that has such a limit.

Buckets are of this node. Nearly all calls are answered by the leader, so its bucket is the one that
counts. What workers say about their leases is free: it is what ends the load.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

from ...proto.contract import Named, named
from ...statemachine.core.rejection import Reason, Refused, Rejection
from ...statemachine.model import keys
from ...statemachine.model.record import NamespaceRecord, parse
from ...statemachine.tenants import namespaces
from .call import Call
from .node_port import NodePort

LOOK_S = 1.0  # How old what is known of a quota may be.
BUCKETS = 10_000
FREE = "WorkerService/"


@dataclass(slots=True)
class Bucket:
    """One namespace: calls a second (0: any number), and what may be called now."""

    rate: int
    left: float
    filled_at: float
    looked_at: float


class CallRates:
    """See the head of this file."""

    def __init__(self, node: NodePort, clock: Callable[[], float] = time.monotonic) -> None:
        self.node, self.clock = node, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._callers: OrderedDict[str, Bucket] = OrderedDict()

    def count(self, call: Call, request: Message) -> None:
        """Count a call, or refuse it."""
        if call.method.name.startswith(FREE):
            return
        if call.token is not None and call.token.calls_per_second:
            self._count_caller(call, call.token.calls_per_second)
        for name in places_of(request):
            bucket = self._bucket(name, self.clock())
            if bucket is not None and bucket.rate:
                take(bucket, f"the namespace {name}", {"namespace": name})

    def _count_caller(self, call: Call, rate: int) -> None:
        """By the name of who calls: an access token, or whom a provider vouches for."""
        now, name = self.clock(), call.caller
        bucket = self._callers.pop(name, None) or Bucket(rate, rate, now, now)
        bucket.rate = rate
        fill(bucket, now)
        self._callers[name] = bucket
        if len(self._callers) > BUCKETS:
            self._callers.popitem(last=False)
        take(bucket, name, {"caller": name})

    def _bucket(self, name: str, now: float) -> Bucket | None:
        """That of a namespace that is there: names that mean nothing must not push others out."""
        bucket = self._buckets.get(name)
        if bucket is None:
            rate = self._rate(name)
            if rate is None:
                return None
            bucket = self._buckets[name] = Bucket(rate, rate, now, now)
            if len(self._buckets) > BUCKETS:
                self._buckets.popitem(last=False)
            return bucket
        if now - bucket.looked_at >= LOOK_S:
            bucket.rate, bucket.looked_at = self._rate(name) or 0, now
            self._buckets.move_to_end(name)
        if bucket.rate:
            fill(bucket, now)
        return bucket

    def _rate(self, name: str) -> int | None:
        key = keys.namespace(name)
        value = self.node.replica.store.get(key)
        if value is None:
            return 0 if name == namespaces.DEFAULT else None
        return parse(key, value, NamespaceRecord).settings.quota.calls_per_second


def fill(bucket: Bucket, now: float) -> None:
    bucket.left = min(bucket.rate, bucket.left + (now - bucket.filled_at) * bucket.rate)
    bucket.filled_at = now


def take(bucket: Bucket, who: str, values: dict[str, str]) -> None:
    """Count a call, or refuse it until there is room."""
    if bucket.left < 1:
        wait_ms = int((1 - bucket.left) / bucket.rate * 1000) + 1
        raise Refused(
            Rejection(
                Reason.ERROR_REASON_RATE_LIMITED,
                f"{who} may make {bucket.rate} calls a second; try again in {wait_ms} ms, or have "
                "calls_per_second raised",
                {**values, "maximum": str(bucket.rate)},
                retry_after_ms=wait_ms,
            )
        )
    bucket.left -= 1


def places_of(request: Message) -> Iterable[str]:
    """The namespaces that a request is about, each once: an import may be about many."""
    names = named(request, Named.NAMED_NAMESPACE)
    return dict.fromkeys(name or namespaces.DEFAULT for name in names)
