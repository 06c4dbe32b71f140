"""Alerts are raised when their condition has held for long enough, and cleared when it does not."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import alert_pb2, event_pb2, job_pb2, namespace_pb2
from raftsched.statemachine.calls.alerts import event_of, waits_for_webhook
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.machine import decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import AlertRecord, parse
from raftsched.statemachine.model.request import Called, Observe, Observed, Offer
from raftsched.statemachine.model.workers import Worker, WorkerCounts, Workers
from raftsched.statemachine.reads.events import events

from .asking import ask, pages, refuse
from .driver import MINUTE_MS, SECOND_MS, Machine, image

Alert = alert_pb2.Alert
Condition = alert_pb2.AlertCondition
Below = alert_pb2.WorkersBelow
ONCE = job_pb2.RetryPolicy(max_attempts=1)
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
RAISED = event_pb2.EVENT_KIND_ALERT_RAISED
CLEARED = event_pb2.EVENT_KIND_ALERT_CLEARED


def order(
    name: str = "a", namespace: str = "default", *, hold_ms: int | None = None, webhook: str = "",
    etag: str = "", **condition: object,
) -> alert_pb2.PutAlertRequest:  # fmt: skip
    alert = Alert(
        name=name, namespace=namespace, webhook=webhook, etag=etag,
        condition=Condition(**condition),  # type: ignore[arg-type]
    )  # fmt: skip
    if hold_ms is not None:
        alert.hold.CopyFrom(duration(hold_ms))
    return alert_pb2.PutAlertRequest(alert=alert)


def put(machine: Machine, *args: str, **fields: object) -> Alert:
    return machine.ask(order(*args, **fields), Alert)  # type: ignore[arg-type]


def observe(
    machine: Machine, workers: Workers = (), *, margin: bool = True, skew_ms: int = 0,
    most: int = 100, after: bytes = b"",
) -> bytes:  # fmt: skip
    request = Observe(WorkerCounts(workers), margin, skew_ms, most, after)
    return machine.ask(request, Observed).after


def listed(machine: Machine, namespace: str = "default") -> list[Alert]:
    request = alert_pb2.ListAlertsRequest(namespace=namespace, page_size=2)
    answers = pages(machine, request, alert_pb2.ListAlertsResponse)
    return [alert for page in answers for alert in page.alerts]


def raised(machine: Machine, namespace: str = "default") -> list[str]:
    return [alert.name for alert in listed(machine, namespace) if alert.HasField("raised_time")]


def told(machine: Machine) -> list[tuple[int, str, str]]:
    """What the last change says of alerts."""
    found = events(machine.log[-1], machine.index, machine.store)
    return [(event.kind, event.namespace, event.alert) for event in found if event.alert]


def dead(machine: Machine, count: int, namespace: str = "") -> None:
    name = f"job{machine.index}"
    machine.create(name, retry=ONCE, overlap=ALLOW, namespace=namespace)
    for _ in range(count):
        machine.trigger(name, namespace=namespace)
        machine.fail(machine.grant(namespaces=(namespace or "default",))[0])


def test_dead_letters_over_a_threshold_raise_an_alert(machine: Machine) -> None:
    put(machine, dead_letters_above=2)
    dead(machine, 2)
    observe(machine)
    assert raised(machine) == []
    dead(machine, 1)

    observe(machine)

    assert raised(machine) == ["a"]
    assert listed(machine)[0].raised_time.ToMilliseconds() == machine.now_ms
    assert told(machine) == [(RAISED, "default", "a")]


def test_an_alert_is_told_once_and_writes_nothing_meanwhile(machine: Machine) -> None:
    put(machine, dead_letters_above=0)
    dead(machine, 1)
    observe(machine)
    before = image(machine.store)
    machine.advance(MINUTE_MS)

    observe(machine)

    assert image(machine.store) == before


def test_an_alert_is_cleared_when_its_condition_is_no_longer_true(machine: Machine) -> None:
    put(machine, namespace="", no_margin=True)
    observe(machine, margin=False)
    assert told(machine) == [(RAISED, "", "a")]

    observe(machine, margin=True)

    assert told(machine) == [(CLEARED, "", "a")]
    assert raised(machine, "") == []


def test_a_condition_must_hold_for_some_time(machine: Machine) -> None:
    put(machine, namespace="", hold_ms=5_000, no_margin=True)
    observe(machine, margin=False)
    assert (raised(machine, ""), told(machine)) == ([], [])
    machine.advance(4_999)
    observe(machine, margin=False)
    assert raised(machine, "") == []
    machine.advance(1)
    observe(machine, margin=False)
    assert raised(machine, "") == ["a"]


def test_a_condition_that_was_false_in_between_holds_anew(machine: Machine) -> None:
    put(machine, namespace="", hold_ms=5_000, no_margin=True)
    observe(machine, margin=False)
    machine.advance(4_000)
    observe(machine, margin=True)
    assert told(machine) == []
    observe(machine, margin=False)
    machine.advance(4_000)

    observe(machine, margin=False)

    assert raised(machine, "") == []


def test_a_run_that_waits_for_long_raises_an_alert(machine: Machine) -> None:
    put(machine, lateness_above=duration(10 * SECOND_MS))
    put(machine, "of-cluster", "", lateness_above=duration(10 * SECOND_MS))
    machine.create("low", priority=3, overlap=ALLOW)
    machine.create("high", priority=1, overlap=ALLOW)
    machine.trigger("low")
    machine.advance(5 * SECOND_MS)
    machine.trigger("high")
    machine.advance(5 * SECOND_MS)
    observe(machine)
    assert (raised(machine), raised(machine, "")) == ([], [])
    machine.advance(1)
    observe(machine)
    assert (raised(machine), raised(machine, "")) == (["a"], ["of-cluster"])

    first, second = machine.grant()
    assert first.job == "high"
    observe(machine)
    assert (raised(machine), raised(machine, "")) == ([], [])
    machine.succeed(first)
    machine.succeed(second)


def test_too_few_workers_raise_an_alert(machine: Machine) -> None:
    put(machine, workers_below=Below(queue="default", minimum=2))
    put(machine, "c", "", workers_below=Below(queue="default", minimum=3))
    mine = Worker(Offer("w1", 1, queues=("default", "mail")), 1)
    others = Worker(Offer("w2", 1, namespaces=("n", "default")), 1)
    elsewhere = Worker(Offer("w3", 1, namespaces=("n",)), 1)

    observe(machine, [mine, elsewhere])
    assert (raised(machine), raised(machine, "")) == (["a"], ["c"])
    observe(machine, [mine, others])
    assert (raised(machine), raised(machine, "")) == ([], ["c"])
    observe(machine, [mine, others, elsewhere])
    assert (raised(machine), raised(machine, "")) == ([], [])


def test_a_clock_that_is_off_raises_an_alert(machine: Machine) -> None:
    put(machine, namespace="", clock_skew_above=duration(500))
    observe(machine, skew_ms=500)
    assert raised(machine, "") == []
    observe(machine, skew_ms=501)
    assert raised(machine, "") == ["a"]


def test_the_clusters_dead_letters_are_those_of_all_namespaces(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="n")))
    put(machine, namespace="", dead_letters_above=1)
    put(machine, "b", "n", dead_letters_above=1)
    dead(machine, 1)
    dead(machine, 1, "n")

    observe(machine)

    assert (raised(machine, ""), raised(machine, "n")) == (["a"], [])


def test_without_a_quorum_nothing_can_be_written(machine: Machine) -> None:
    put(machine, namespace="", no_quorum=True)

    observe(machine, margin=False, skew_ms=10_000)

    assert raised(machine, "") == []


def test_alerts_are_looked_at_in_steps(machine: Machine) -> None:
    for name in ("a", "b", "c", "d"):
        put(machine, name, "", no_margin=True)

    after = observe(machine, margin=False, most=2)
    assert raised(machine, "") == ["a", "b"]
    after = observe(machine, margin=False, most=2, after=after)
    assert (raised(machine, ""), after) == (["a", "b", "c", "d"], b"")


def test_a_change_of_the_condition_begins_anew(machine: Machine) -> None:
    put(machine, dead_letters_above=0)
    dead(machine, 1)
    observe(machine)

    put(machine, dead_letters_above=0, webhook="https://x")
    assert (raised(machine), told(machine)) == (["a"], [])
    changed = put(machine, dead_letters_above=5)

    assert told(machine) == [(CLEARED, "default", "a")]
    assert not changed.HasField("raised_time")
    assert changed.etag == "v3"


def test_an_alert_is_replaced_by_its_version(machine: Machine) -> None:
    etag = put(machine, dead_letters_above=1).etag
    put(machine, etag=etag, dead_letters_above=2)

    old = machine.refused(order(etag=etag, dead_letters_above=3))
    new = machine.refused(order("b", etag="v1", dead_letters_above=3))
    gone = machine.refused(alert_pb2.DeleteAlertRequest(namespace="default", alert="a", etag="v1"))

    assert (old.word, new.word, gone.word) == ("ETAG_MISMATCH",) * 3
    machine.do(alert_pb2.DeleteAlertRequest(namespace="default", alert="a", etag="v2"))
    assert listed(machine) == []


@pytest.mark.parametrize(
    ("wanted", "field", "reason"),
    [
        (order("", dead_letters_above=1), "alert.name", "FIELD_REQUIRED"),
        (order(), "alert.condition", "FIELD_REQUIRED"),
        (order(no_margin=True), "alert.condition.no_margin", "FIELD_INVALID"),
        (order(no_quorum=True), "alert.condition.no_quorum", "FIELD_INVALID"),
        (order(clock_skew_above=duration(1)), "alert.condition.clock_skew_above",
         "FIELD_INVALID"),
        (order(namespace="", no_margin=False), "alert.condition.no_margin", "FIELD_INVALID"),
        (order(dead_letters_above=-1), "alert.condition.dead_letters_above", "FIELD_INVALID"),
        (order(lateness_above=duration(0)), "alert.condition.lateness_above", "FIELD_INVALID"),
        (order(workers_below=Below(queue="q")), "alert.condition.workers_below.minimum",
         "FIELD_INVALID"),
        (order(workers_below=Below(queue="q", minimum=10_001)),
         "alert.condition.workers_below.minimum", "FIELD_INVALID"),
        (order(workers_below=Below(minimum=1)), "alert.condition.workers_below.queue",
         "FIELD_REQUIRED"),
        (order(hold_ms=24 * 3_600_000 + 1, dead_letters_above=1), "alert.hold", "FIELD_INVALID"),
        (order(webhook="ftp://x", dead_letters_above=1), "alert.webhook", "FIELD_INVALID"),
        (order(webhook="http://" + "x" * 2_048, dead_letters_above=1), "alert.webhook",
         "LIMIT_EXCEEDED"),
    ],
)  # fmt: skip
def test_a_wrong_alert_is_refused(
    machine: Machine, wanted: alert_pb2.PutAlertRequest, field: str, reason: str
) -> None:
    refusal = machine.refused(wanted)

    assert [fault.field for fault in refusal.faults] == [field]
    assert refusal.word == reason


def test_what_stands_in_the_way_of_an_alert(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = alert_pb2.DeleteAlertRequest(namespace="default", alert="a")
    refusal = machine.refused(missing)
    assert (refusal.word, refusal.values["alert"]) == ("ALERT_NOT_FOUND", "a")
    assert machine.refused(order(namespace="no", dead_letters_above=1)).word == (
        "NAMESPACE_NOT_FOUND"
    )
    assert refuse(machine, alert_pb2.ListAlertsRequest(namespace="no"))
    monkeypatch.setattr(limits, "ALERTS", 1)
    put(machine, dead_letters_above=1)
    assert machine.refused(order("b", dead_letters_above=1)).values["limit"] == "alerts"
    put(machine, dead_letters_above=2)
    put(machine, "b", "", dead_letters_above=1)


def test_alerts_are_listed_by_name_and_owner(machine: Machine) -> None:
    for name in ("c", "a", "b"):
        put(machine, name, dead_letters_above=1)
    put(machine, "x", "", no_margin=True)

    assert [alert.name for alert in listed(machine)] == ["a", "b", "c"]
    assert [alert.name for alert in listed(machine, "")] == ["x"]
    answer = ask(
        machine, alert_pb2.ListAlertsRequest(namespace="default"), alert_pb2.ListAlertsResponse
    )
    assert answer.alerts[0].etag == "v1"


def test_a_deleted_alert_of_the_same_change_is_not_looked_at(machine: Machine) -> None:
    put(machine, dead_letters_above=0)
    dead(machine, 1)

    machine.do_all(
        alert_pb2.DeleteAlertRequest(namespace="default", alert="a"),
        Observe(WorkerCounts(), True, 0, 10),
    )

    assert listed(machine) == []
    assert not decide(machine.view(), []).change


def of_cluster(machine: Machine) -> AlertRecord:
    key = keys.alert(keys.CLUSTER, "a")
    return parse(key, machine.store.get(key) or b"", AlertRecord)


def call(machine: Machine, changed_in: int) -> None:
    machine.do(Called(keys.alert(keys.CLUSTER, "a"), changed_in))


def test_a_webhook_is_called_once_for_each_turn_of_its_alert(machine: Machine) -> None:
    put(machine, namespace="", no_margin=True, webhook="https://example.com")
    assert not waits_for_webhook(of_cluster(machine))
    observe(machine, margin=False)
    first = of_cluster(machine)
    assert waits_for_webhook(first)
    assert event_of(first).kind == RAISED
    assert (first.changed_in, first.changed_at_ms) == (machine.index, machine.now_ms)

    call(machine, first.changed_in)

    assert not waits_for_webhook(of_cluster(machine))
    observe(machine, margin=True)
    assert waits_for_webhook(of_cluster(machine))
    assert event_of(of_cluster(machine)).kind == CLEARED


def test_a_call_of_what_is_over_leaves_what_came_after_it_to_be_told(machine: Machine) -> None:
    put(machine, namespace="", no_margin=True, webhook="https://example.com")
    observe(machine, margin=False)
    raised_in = of_cluster(machine).changed_in
    observe(machine, margin=True)

    call(machine, raised_in)

    assert waits_for_webhook(of_cluster(machine))
    call(machine, of_cluster(machine).changed_in)
    before = image(machine.store)

    call(machine, raised_in)
    call(machine, machine.index + 100)

    assert image(machine.store) == before


def test_another_webhook_hears_only_of_what_comes(machine: Machine) -> None:
    put(machine, namespace="", no_margin=True)
    observe(machine, margin=False)
    assert not waits_for_webhook(of_cluster(machine))

    put(machine, namespace="", no_margin=True, webhook="https://example.com")

    assert not waits_for_webhook(of_cluster(machine))
    observe(machine, margin=True)
    assert waits_for_webhook(of_cluster(machine))
