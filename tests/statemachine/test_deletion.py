"""A deleted job leaves nothing behind."""

from __future__ import annotations

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import keys
from raftsched.statemachine.instants import duration

from .driver import Machine, image


def test_a_run_that_ends_while_its_job_is_deleted_leaves_no_history(machine: Machine) -> None:
    """The run's timeout and the deletion came due together; the run went into the history first,
    where the deletion, which looks at what is stored, did not see it, and the job went away."""
    machine.create("doomed", timeouts=job_pb2.Timeouts(run=duration(90_000)))
    machine.trigger("doomed")
    machine.advance(300_000)

    machine.do(job_pb2.DeleteJobRequest(job="doomed"))
    machine.ring()
    machine.advance(1)
    machine.ring()
    machine.ring()

    tables = {key[:1] for key in image(machine.store)}
    assert tables <= {keys.META, keys.AUDIT, keys.LANE, keys.LANE_OF, keys.QUEUE, keys.USAGE}


def test_the_ledger_of_a_deleted_job_stays_as_long_as_its_history(machine: Machine) -> None:
    """The run timed out in the same ring in which the ledger was purged: for a moment it had a
    history that no ledger knew of."""
    machine.create("doomed", every_ms=10_000, timeouts=job_pb2.Timeouts(queue=duration(40_000)))
    machine.advance(10_000)
    machine.ring()
    machine.advance(61_000)

    machine.do(job_pb2.DeleteJobRequest(job="doomed"))
    machine.ring()

    machine.check()
