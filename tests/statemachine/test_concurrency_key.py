"""One at a time for each customer: the concurrency key from the payload, and from the trigger."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.proto.v1 import common_pb2, dead_letter_pb2, job_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.model import concurrency_key

from .asking import ask
from .driver import MINUTE_MS, Machine, job_of, with_mask
from .world import ALLOW

Payload = common_pb2.Payload
NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)


def limit(key: str = "payload.customer", most: int = 1) -> job_pb2.ConcurrencyLimit:
    return job_pb2.ConcurrencyLimit(key=key, key_limit=most)


def of(**fields: object) -> Payload:
    return Payload(data=json.dumps(fields).encode(), content_type="application/json")


def trigger(job: str = "a", **fields: object) -> job_pb2.TriggerJobRequest:
    return job_pb2.TriggerJobRequest(job=job, payload=of(**fields))


def leased(machine: Machine) -> list[str]:
    """The customers whose runs are leased now, in order."""
    found = [json.loads(lease.payload.data)["customer"] for lease in machine.grant()]
    machine.check()
    return found


def test_each_customer_has_a_limit_of_its_own(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit())
    for customer in ("acme", "acme", "bolt", "acme", "bolt"):
        machine.do(trigger(customer=customer))

    leases = machine.grant()
    found = [json.loads(lease.payload.data)["customer"] for lease in leases]
    assert found == ["acme", "bolt"]
    machine.succeed(leases[0])
    assert leased(machine) == ["acme"]
    machine.succeed(leases[1])
    assert leased(machine) == ["bolt"]


def test_jobs_that_read_the_same_field_share_the_key(machine: Machine) -> None:
    for name in ("a", "b"):
        machine.create(name, overlap=ALLOW, concurrency=limit())
    machine.create("c", overlap=ALLOW, concurrency=limit("payload.order"))
    machine.do(trigger("a", customer="acme"))
    machine.do(trigger("b", customer="acme"))
    machine.do(trigger("c", customer="acme", order="acme"))

    assert sorted(lease.job for lease in machine.grant()) == ["a", "c"]


def test_a_trigger_names_a_key_of_its_own(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit("database", 1))
    for key in ("x", "x", "", "payload.customer", "payload.customer=acme"):
        request = trigger(customer="acme")
        request.concurrency_key = key
        run = machine.ask(request, run_pb2.Run)
        wanted = "payload.customer=acme" if key.startswith("payload.") else key
        assert run.concurrency_key == wanted
    machine.check()

    leases = machine.grant()
    keys = [machine.record(lease.run).limit_key for lease in leases]
    assert sorted(keys) == ["database", "payload.customer=acme", "x"]
    for lease in leases:
        machine.succeed(lease)
    assert len(machine.grant()) == 2
    machine.check()


def test_the_key_of_a_trigger_stays_through_attempts_and_other_limits(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit("database"), retry=NO_RETRY)
    request = trigger(customer="acme")
    request.concurrency_key = "x"
    run = machine.ask(request, run_pb2.Run).id
    machine.do(with_mask("spec.concurrency", name="a", concurrency=limit("other", 3)))
    [lease] = machine.grant()
    machine.fail(lease)

    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run))
    [lease] = machine.grant()

    assert machine.record(lease.run).limit_key == "x"
    machine.check()


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        (b'{"order": 1}', "application/json", "has no 'customer'"),
        (b"", "", "there is no payload"),
        (b"{", "", "is no JSON"),
        (b"\xff\xfe", "", "is no JSON"),
        (b"[" * 60_000, "", "is no JSON"),
        (b'{"customer": "a"}', "text/plain", "'text/plain', not JSON"),
        (b'{"customer": null}', "", "is no text, whole number"),
        (b'{"customer": 1.5}', "", "is no text, whole number"),
        (b'{"customer": ["a"]}', "", "is no text, whole number"),
        (b'{"customer": ""}', "", "has 0 characters"),
        (b'{"customer": "%s"}' % (b"x" * 129), "", "has 129 characters; a key has 1 to 128"),
        (b'{"customer": "a\\u0000b"}', "", "control character"),
        (b'["customer"]', "", "has no 'customer'"),
    ],
)
def test_a_trigger_without_a_readable_key_is_refused(
    machine: Machine, data: bytes, kind: str, why: str
) -> None:
    machine.create("a", concurrency=limit())
    request = job_pb2.TriggerJobRequest(job="a", payload=Payload(data=data, content_type=kind))

    refusal = machine.refused(request)

    [fault] = refusal.faults
    assert (refusal.word, fault.field) == ("FIELD_INVALID", "payload")
    assert why in fault.message
    assert "concurrency_key" in fault.message
    request.concurrency_key = "named"
    machine.do(request)


def test_the_jobs_payload_counts_where_the_trigger_has_none(machine: Machine) -> None:
    machine.create("a", concurrency=limit("payload.who.id"), payload=of(who={"id": 7}))
    machine.do(job_pb2.TriggerJobRequest(job="a"))

    [lease] = machine.grant()

    assert machine.record(lease.run).limit_key == "payload.who.id=7"


def test_what_was_triggered_before_another_payload_counts_by_its_own(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit(), payload=of(customer="old"))
    machine.do(job_pb2.TriggerJobRequest(job="a"))
    machine.do(with_mask("spec.payload", name="a", payload=of(customer="new")))
    machine.do(job_pb2.TriggerJobRequest(job="a"))

    keys = [machine.record(lease.run).limit_key for lease in machine.grant()]

    assert keys == ["payload.customer=old", "payload.customer=new"]


def test_a_key_needs_a_limit_of_the_job(machine: Machine) -> None:
    machine.create("a", concurrency=job_pb2.ConcurrencyLimit(job=3))
    request = trigger(customer="acme")
    request.concurrency_key = "x"

    assert "set concurrency.key and concurrency.key_limit" in machine.refused(request).message


@pytest.mark.parametrize(
    ("key", "word", "why"),
    [
        ("x" * 129, "LIMIT_EXCEEDED", "129 characters"),
        ("a\nb", "FIELD_INVALID", "control character"),
        ("payload.", "FIELD_INVALID", "empty part"),
        ("payload.a..b", "FIELD_INVALID", "empty part"),
    ],
)
def test_a_wrong_key_is_refused(machine: Machine, key: str, word: str, why: str) -> None:
    refusal = machine.refused(job_pb2.CreateJobRequest(job=job_of("a", concurrency=limit(key))))
    assert (refusal.word, refusal.faults[0].field) == (word, "spec.concurrency.key")
    assert why in refusal.message
    machine.create("a", concurrency=limit())
    request = trigger(customer="acme")
    request.concurrency_key = key
    assert why in machine.refused(request).message


def warned(machine: Machine, **spec: object) -> list[str]:
    job = job_of("w", **spec)  # type: ignore[arg-type]
    return list(machine.ask(job_pb2.CreateJobRequest(job=job), job_pb2.Job).status.warnings)


def test_scheduled_runs_without_a_key_get_a_warning_and_share_one(machine: Machine) -> None:
    [warning] = warned(machine, cron="* * * * *", overlap=ALLOW, concurrency=limit())
    assert "cannot be read from the job's payload (there is no payload)" in warning
    machine.advance(MINUTE_MS)
    machine.fire()
    machine.advance(MINUTE_MS)
    machine.fire()

    [lease] = machine.grant()

    assert machine.record(lease.run).limit_key == "payload.customer"
    machine.succeed(lease)
    assert len(machine.grant()) == 1
    machine.check()


def test_what_has_a_key_or_is_triggered_only_gets_no_warning(machine: Machine) -> None:
    readable = of(customer="acme")
    assert not warned(machine, cron="* * * * *", concurrency=limit(), payload=readable)
    machine.do(job_pb2.DeleteJobRequest(job="w"))
    machine.fire_all()
    assert not warned(machine, concurrency=limit())


@pytest.mark.parametrize(
    "key", ["{customer}", "customer-{customer}", "${customer}", "{{ payload.customer }}"]
)
def test_a_key_that_looks_like_a_template_gets_a_warning(machine: Machine, key: str) -> None:
    [warning] = warned(machine, concurrency=limit(key))

    assert "taken as it is written" in warning
    assert warning.endswith("write payload.customer")


def test_explain_and_the_run_show_the_key(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit())
    machine.do(trigger(customer="acme"))
    waiting = machine.ask(trigger(customer="acme"), run_pb2.Run).id
    [lease] = machine.grant()

    found = ask(machine, run_pb2.ExplainRunRequest(run=waiting), run_pb2.Explanation)

    assert "1 run with the key 'payload.customer=acme' is leased" in found.summary
    shown = ask(machine, run_pb2.GetRunRequest(run=lease.run), run_pb2.Run)
    assert shown.concurrency_key == "payload.customer=acme"


def test_a_limit_that_is_raised_lets_runs_of_each_value_go_on(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit())
    for customer in ("acme", "bolt") * 3:
        machine.do(trigger(customer=customer))
    assert sorted(leased(machine)) == ["acme", "bolt"]

    machine.do(with_mask("spec.concurrency", name="a", concurrency=limit(most=2)))

    assert sorted(leased(machine)) == ["acme", "bolt"]
    machine.do(with_mask("spec.concurrency", name="a"))
    assert sorted(leased(machine)) == ["acme", "bolt"]


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("ab"), inner),
))  # fmt: skip
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_payload_gives_a_bounded_key_or_a_word(value: object) -> None:
    try:
        key = concurrency_key.read("payload.a.b", json.dumps({"a": value}).encode(), "")
    except concurrency_key.UnreadableKey:
        return
    assert isinstance(value, dict)
    text = key.removeprefix("payload.a.b=")
    assert 1 <= len(text) <= limits.LIMIT_KEY_CHARS
    assert min(text) >= " "


@pytest.mark.parametrize(("most", "more"), [(3, 2), (0, 5)])
def test_a_limit_that_is_raised_or_removed_counts_for_keys_of_triggers(
    machine: Machine, most: int, more: int
) -> None:
    machine.create("a", overlap=ALLOW, concurrency=limit("own"))
    for _ in range(6):
        machine.do(job_pb2.TriggerJobRequest(job="a", concurrency_key="z"))
    assert len(machine.grant()) == 1

    concurrency = limit("own", most) if most else job_pb2.ConcurrencyLimit()
    machine.do(with_mask("spec.concurrency", name="a", concurrency=concurrency))
    machine.check()

    assert len(machine.grant()) == more
    machine.check()
