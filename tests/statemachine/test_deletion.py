"""A deleted job leaves nothing behind."""

from __future__ import annotations

from raftsched.proto.v1 import error_pb2, job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.model import keys

from .asking import ask, refuse
from .driver import Machine, image, job_of

DELETING = job_pb2.JobStatus.STATE_DELETING


def test_a_run_that_ends_while_its_job_is_deleted_leaves_no_history(machine: Machine) -> None:
    """The run's timeout and the deletion came due together; the run went into the history first,
    where the deletion, which looks at what is stored, did not see it, and the job went away."""
    machine.create("doomed", timeouts=job_pb2.Timeouts(run=duration(90_000)))
    machine.trigger("doomed")
    machine.advance(300_000)

    machine.do(job_pb2.DeleteJobRequest(job="doomed"))
    machine.fire()
    machine.advance(1)
    machine.fire()
    machine.fire()

    tables = {key[:1] for key in image(machine.store)}
    left = {keys.META, keys.AUDIT, keys.LANE, keys.LANE_OF, keys.QUEUE, keys.USAGE, keys.INDEXED}
    left.add(keys.LANES_INDEXED)
    assert tables <= left


def test_the_ledger_of_a_deleted_job_stays_as_long_as_its_history(machine: Machine) -> None:
    """The run timed out in the same fire in which the ledger was purged: for a moment it had a
    history that no ledger knew of."""
    machine.create("doomed", every_ms=10_000, timeouts=job_pb2.Timeouts(queue=duration(40_000)))
    machine.advance(10_000)
    machine.fire()
    machine.advance(61_000)

    machine.do(job_pb2.DeleteJobRequest(job="doomed"))
    machine.fire()

    machine.check()


def test_a_name_is_free_again_when_the_job_is_gone(machine: Machine) -> None:
    machine.create("a")
    machine.create("other", after=["a"])
    machine.do(job_pb2.DeleteJobRequest(job="other"))
    machine.trigger("a")
    machine.do(job_pb2.DeleteJobRequest(job="a"))

    listed = ask(machine, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse)
    states = {job.name: job.status.state for job in listed.jobs}
    assert states == {"a": DELETING, "other": DELETING}
    for refused in (
        job_pb2.DeleteJobRequest(job="a"),
        job_pb2.TriggerJobRequest(job="a"),
        job_pb2.UpdateJobRequest(job=job_of("a")),
        job_pb2.CreateJobRequest(job=job_of("b", after=["a"])),
    ):
        assert machine.refused(refused).word == "JOB_NOT_FOUND"
    assert refuse(machine, job_pb2.GetJobRequest(job="a")) == error_pb2.ERROR_REASON_JOB_NOT_FOUND
    taken = machine.refused(job_pb2.CreateJobRequest(job=job_of("a")))
    assert taken.word == "JOB_EXISTS"
    assert "is being deleted" in taken.message
    upsert = job_pb2.ImportJobsRequest.MODE_UPSERT
    [result] = machine.ask(
        job_pb2.ImportJobsRequest(jobs=[job_of("a")], mode=upsert), job_pb2.ImportJobsResponse
    ).results
    assert result.reason == "JOB_EXISTS"

    for _ in range(3):
        machine.advance(1)
        machine.fire()

    assert not ask(machine, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse).jobs
    assert machine.create("a").uid == 3


def test_a_job_that_is_being_deleted_counts_for_no_quota(machine: Machine) -> None:
    settings = namespace_pb2.Namespace(name="n", quota=namespace_pb2.Quota(jobs=1))
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))
    machine.create("a", namespace="n")
    machine.do(job_pb2.DeleteJobRequest(namespace="n", job="a"))

    machine.create("b", namespace="n")


def test_the_runs_of_a_job_that_is_being_deleted_are_listed_until_they_are_gone(
    machine: Machine,
) -> None:
    machine.create("a")
    machine.trigger("a")
    machine.do(job_pb2.DeleteJobRequest(job="a"))

    listed = ask(machine, run_pb2.ListRunsRequest(filter="job=a"), run_pb2.ListRunsResponse)

    assert len(listed.runs) == 1
