"""What a node counts: right, cheap, and in a form that Prometheus reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.leader_loop import Leader
from raftsched.cluster.node.loop_steps import LoopTotals
from raftsched.cluster.ops import metrics
from raftsched.cluster.ops.metrics import Histogram, Metrics
from raftsched.proto.v1.run_pb2 import CAUSE_BACKFILL
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import Prepared
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import Change, MetaRecord, RunRecord, encode

META = MetaRecord()
NOW_MS = 1_700_000_000_000


def shown(counted: Metrics) -> dict[str, float]:
    """Samples by name and labels, as a scraper sees them."""
    families = text_string_to_metric_families(generate_latest(counted.registry).decode())
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def leading() -> Metrics:
    counted = Metrics(wall=lambda: NOW_MS / 1000)
    leader = SimpleNamespace(leading=True, done=LoopTotals())
    counted.follow(Applied(MemoryStore()), cast(Leader, leader))
    return counted


def prepared(change: Change) -> Prepared:
    return Prepared(encode(change), change, lambda last: None)


def of(puts: dict[bytes, bytes]) -> Change:
    """A change has its keys in their order."""
    return Change(keys=sorted(puts), values=[puts[key] for key in sorted(puts)])


def leases(count: int, late_ms: int = 3) -> Change:
    """A change that grants so many."""
    puts = {}
    for token in range(count):
        run = keys.run(1 << 40 | token, 5 << 16)
        puts[run] = encode(RunRecord(due_at_ms=NOW_MS - late_ms, token=token))
        puts[keys.lease(1, token)] = run[1:]
    return of(puts)


def test_a_change_counts_what_its_keys_tell() -> None:
    counted = leading()
    change = Change(
        keys=sorted([keys.ledger(1, 2), keys.ended(1, 2), keys.ended(1, 3), keys.dead(1, 2, 3, 4)]),
        values=[b""] * 4,
        deletes=[keys.lease(1, 2), keys.state(1)],
    )

    counted.changed(1, prepared(change), META)

    found = shown(counted)
    assert found["raftsched_scheduled_times_total"] == 1
    assert found["raftsched_runs_ended_total"] == 2
    assert found["raftsched_dead_letters_total"] == 1
    assert found["raftsched_leases_ended_total"] == 1
    assert found["raftsched_change_items_count"] == 1
    assert found["raftsched_change_items_sum"] == 6


def test_the_tally_says_the_same_by_grpc() -> None:
    counted = leading()
    change = Change(
        keys=sorted([keys.ledger(1, 2), keys.ended(1, 2), keys.ended(1, 3), keys.dead(1, 2, 3, 4)]),
        values=[b""] * 4,
    )

    counted.changed(1, prepared(change), META)
    counted.changed(2, prepared(leases(3, late_ms=3)), META)
    counted.changed(3, prepared(leases(2, late_ms=4_000_000)), META)

    tally = counted.tally()
    assert (tally.scheduled_times, tally.leased, tally.ended, tally.dead_letters) == (1, 5, 2, 1)
    assert [(one.most.ToMilliseconds(), one.leases) for one in tally.lateness if one.leases] == [
        (5, 3), (0, 2),
    ]  # fmt: skip
    assert not tally.lateness[-1].HasField("most")


@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_lateness_counts_every_lease_though_it_looks_at_few(count: int) -> None:
    counted = leading()

    counted.changed(1, prepared(leases(count, late_ms=3)), META)

    found = shown(counted)
    assert found["raftsched_leases_granted_total"] == count
    assert found["raftsched_lateness_seconds_count"] == count
    assert found["raftsched_lateness_seconds_bucket le=0.002"] == 0
    assert found["raftsched_lateness_seconds_bucket le=0.005"] == count
    assert found["raftsched_lateness_seconds_sum"] == pytest.approx(0.003 * count)


def test_a_backfilled_run_is_not_late() -> None:
    counted = leading()
    run, past = keys.run(1, 2), keys.run(1, 3)
    backfilled = RunRecord(due_at_ms=NOW_MS - 86_400_000, attempt=1, cause=CAUSE_BACKFILL)
    puts = {
        run: encode(RunRecord(due_at_ms=NOW_MS - 3, attempt=1)),
        keys.lease(1, 1): run[1:],
        past: encode(backfilled),
        keys.lease(1, 2): past[1:],
    }

    counted.changed(1, prepared(of(puts)), META)

    found = shown(counted)
    assert found["raftsched_leases_granted_total"] == 2
    assert found["raftsched_lateness_seconds_count"] == 1
    assert found["raftsched_lateness_seconds_sum"] == pytest.approx(0.003)


def test_a_second_attempt_says_nothing_of_lateness() -> None:
    counted = leading()
    run, again = keys.run(1, 2), keys.run(1, 3)
    puts = {
        run: encode(RunRecord(due_at_ms=NOW_MS, attempt=1)),
        keys.lease(1, 1): run[1:],
        again: encode(RunRecord(due_at_ms=NOW_MS - 60_000, attempt=2)),
        keys.lease(1, 2): again[1:],
    }

    counted.changed(1, prepared(of(puts)), META)

    found = shown(counted)
    assert found["raftsched_leases_granted_total"] == 2
    assert found["raftsched_lateness_seconds_count"] == 1
    assert found["raftsched_lateness_seconds_sum"] == 0


def test_the_time_of_each_change_is_told_by_the_sums_of_the_loop() -> None:
    counted, done = Metrics(), LoopTotals()
    leader = SimpleNamespace(leading=True, done=done)
    counted.follow(Applied(MemoryStore()), cast(Leader, leader))

    for decide_s, commit_s in ((0.0015, 0.0), (0.0035, 0.015), (0.0047, 0.025)):
        done.decide_s, done.commit_s = decide_s, commit_s
        counted.changed(1, prepared(Change()), META)

    found = shown(counted)
    assert found["raftsched_decide_seconds_count"] == 3
    assert found["raftsched_decide_seconds_bucket le=0.001"] == 0
    assert found["raftsched_decide_seconds_bucket le=0.002"] == 3
    assert found["raftsched_commit_seconds_count"] == 2
    assert found["raftsched_commit_seconds_sum"] == pytest.approx(0.025)


def test_a_follower_counts_no_changes_but_what_they_cost_it() -> None:
    counted = Metrics()
    counted.follow(Applied(MemoryStore()), cast(Leader, SimpleNamespace(leading=False)))

    counted.changed(1, prepared(leases(3)), META)

    assert shown(counted)["raftsched_leases_granted_total"] == 0
    assert shown(counted)["raftsched_change_bytes_count"] == 0
    assert shown(counted)["raftsched_apply_seconds_count"] == 1


def test_calls_are_counted_by_method_and_code() -> None:
    counted = Metrics()

    for code in ("OK", "OK", "NOT_FOUND"):
        counted.called("JobService/GetJob", code, 0.003)

    found = shown(counted)
    assert found["raftsched_calls_total code=OK method=JobService/GetJob"] == 2
    assert found["raftsched_calls_total code=NOT_FOUND method=JobService/GetJob"] == 1
    assert found["raftsched_call_seconds_count method=JobService/GetJob"] == 3


def test_made_up_methods_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SERIES_MAX", 10)
    counted = Metrics()

    for number in range(100):
        counted.called(f"made/up{number}", "UNIMPLEMENTED", 0.0)

    found = shown(counted)
    assert found["raftsched_calls_total code=UNIMPLEMENTED method=other"] == 90
    assert len(counted.call_seconds) == 11


def test_a_spread_holds_each_value_in_one_bucket() -> None:
    spread = Histogram((1.0, 2.0))

    for value in (0.5, 1.0, 1.5, 3.0):
        spread.add(value)
    spread.add_all([1.5, 3.0], 5)

    assert spread.buckets() == [("1.0", 2.0), ("2.0", 6.0), ("+Inf", 9.0)]
    assert spread.total == 6.0 + 3 * 1.5 + 2 * 3.0


def test_nothing_of_another_registry_is_shown() -> None:
    names = {name.split("{")[0].split(" ")[0] for name in shown(Metrics())}

    assert all(name.startswith(("raftsched_", "process_")) for name in names)
