"""A deleted namespace leaves nothing behind, and nothing of it meets another one."""

from __future__ import annotations

from raftsched.proto.v1 import alert_pb2, calendar_pb2, job_pb2, namespace_pb2, queue_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.model import keys

from .asking import ask
from .driver import Machine, image

LEFT = {keys.META, keys.AUDIT, keys.NAMESPACE, keys.INDEXED, keys.LANES_INDEXED}


def make(machine: Machine, name: str = "n") -> None:
    settings = namespace_pb2.Namespace(name=name)
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))


def delete(machine: Machine, name: str = "n") -> None:
    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace=name))


def fill(machine: Machine, queues: int = 3, name: str = "n") -> None:
    for number in range(queues):
        queue = queue_pb2.Queue(namespace=name, name=f"q{number}", concurrency=1)
        machine.do(queue_pb2.UpdateQueueRequest(queue=queue))
    off = calendar_pb2.Calendar(
        namespace=name, name="off", rules=[calendar_pb2.CalendarRule(date="2026-01-01")]
    )
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    alert = alert_pb2.Alert(
        namespace=name, name="a", condition=alert_pb2.AlertCondition(dead_letters_above=1)
    )
    machine.do(alert_pb2.PutAlertRequest(alert=alert))
    machine.create("job", namespace=name, queue="mail", worker_labels={"zone": "x"})
    machine.trigger("job", namespace=name)
    machine.do(job_pb2.DeleteJobRequest(namespace=name, job="job"))
    for _ in range(3):
        machine.advance(1)
        machine.fire()


def tables(machine: Machine) -> set[bytes]:
    return {key[:1] for key in image(machine.store)}


def delete_namespace(machine: Machine) -> int:
    """FireTimers until nothing is left to do; how many timers fired."""
    fired = 0
    while now := machine.fire():
        fired += now
        machine.check()
    return fired


def test_queues_lanes_calendars_and_alerts_go_with_their_namespace(machine: Machine) -> None:
    make(machine)
    fill(machine)
    assert {keys.QUEUE, keys.LANE, keys.LANE_OF, keys.CALENDAR, keys.ALERT} <= tables(machine)

    delete(machine)
    delete_namespace(machine)

    assert tables(machine) <= LEFT


def test_much_goes_in_steps(machine: Machine) -> None:
    make(machine)
    fill(machine, limits.STEP + 50)

    delete(machine)
    machine.check()

    assert delete_namespace(machine) == 3
    assert tables(machine) <= LEFT


def test_another_namespace_keeps_what_it_has(machine: Machine) -> None:
    for name in ("n", "m"):
        make(machine, name)
        fill(machine, name=name)

    delete(machine)
    delete_namespace(machine)

    request = queue_pb2.ListQueuesRequest(namespace="m")
    assert len(ask(machine, request, queue_pb2.ListQueuesResponse).queues) == 4
    calendars = calendar_pb2.ListCalendarsRequest(namespace="m")
    assert len(ask(machine, calendars, calendar_pb2.ListCalendarsResponse).calendars) == 1


def test_a_name_is_free_again_at_once(machine: Machine) -> None:
    make(machine)
    fill(machine)
    delete(machine)

    make(machine)

    request = queue_pb2.ListQueuesRequest(namespace="n")
    assert not ask(machine, request, queue_pb2.ListQueuesResponse).queues
    fill(machine)
    delete_namespace(machine)
    assert len(ask(machine, request, queue_pb2.ListQueuesResponse).queues) == 4


def test_a_namespace_with_a_job_that_is_being_deleted_is_in_use(machine: Machine) -> None:
    make(machine)
    machine.create("job", namespace="n", once=machine.now_ms + 1)
    machine.do(job_pb2.DeleteJobRequest(namespace="n", job="job"))

    assert machine.refused(namespace_pb2.DeleteNamespaceRequest(namespace="n")).word == "IN_USE"
    machine.fire()
    delete(machine)
    delete_namespace(machine)

    assert tables(machine) <= LEFT
