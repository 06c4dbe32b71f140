"""How long ended runs and waves stay: as long as their namespace says now, also in old jobs."""

from __future__ import annotations

from raftsched.proto.v1 import dead_letter_pb2, event_pb2, job_pb2, namespace_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.model import keys
from raftsched.statemachine.reads.events import events

from .driver import DAY_MS, HOUR_MS, Machine, cut_off, image, job_of

Update = namespace_pb2.UpdateNamespaceRequest
ONCE = job_pb2.RetryPolicy(max_attempts=1)


def keep(machine: Machine, **times: int) -> None:
    settings = {name: duration(ms) for name, ms in times.items()}
    wanted = namespace_pb2.Namespace(name="default", **settings)  # type: ignore[arg-type]
    machine.do(Update(namespace=wanted))


def waves(machine: Machine) -> int:
    return sum(1 for key in image(machine.store) if key[:1] == keys.FLOW)


def pass_time(machine: Machine, ms: int) -> None:
    machine.advance(ms)
    machine.fire()


def test_a_namespace_that_keeps_runs_for_a_shorter_time_reaches_jobs_that_exist(
    machine: Machine,
) -> None:
    machine.create("a", retry=ONCE)
    keep(machine, keep_succeeded=HOUR_MS, keep_failed=2 * HOUR_MS)
    machine.trigger("a")
    machine.succeed(machine.grant()[0])
    machine.trigger("a")
    machine.fail(machine.grant()[0])

    pass_time(machine, HOUR_MS - 1)
    assert len(machine.ended("a")) == 2
    pass_time(machine, 1)
    assert [run.state for run in machine.ended("a")] == [run_pb2.RUN_STATE_FAILED]
    pass_time(machine, HOUR_MS)
    assert machine.ended("a") == []


def test_a_namespace_that_keeps_runs_for_longer_keeps_those_that_have_ended_too(
    machine: Machine,
) -> None:
    machine.create("a")
    machine.trigger("a")
    machine.succeed(machine.grant()[0])
    keep(machine, keep_succeeded=9 * DAY_MS)

    pass_time(machine, 7 * DAY_MS)
    assert len(machine.ended("a")) == 1
    pass_time(machine, 2 * DAY_MS - 1)
    assert len(machine.ended("a")) == 1
    pass_time(machine, 1)
    assert machine.ended("a") == []


def test_a_change_of_the_keeping_counts_in_its_own_change(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a")
    wanted = namespace_pb2.Namespace(name="default", keep_succeeded=duration(HOUR_MS))
    other = machine.trigger("a", force=True)

    machine.do_all(
        run_pb2.CancelRunRequest(run=run.id),
        Update(namespace=wanted),
        run_pb2.CancelRunRequest(run=other.id),
    )

    pass_time(machine, HOUR_MS)
    assert [left.id for left in machine.ended("a")] == [run.id]


def test_a_job_that_says_how_long_is_not_reached(machine: Machine) -> None:
    machine.create("a", keep_history=duration(3 * HOUR_MS))
    keep(machine, keep_succeeded=HOUR_MS)
    machine.trigger("a")
    machine.succeed(machine.grant()[0])

    pass_time(machine, 3 * HOUR_MS - 1)
    assert len(machine.ended("a")) == 1
    pass_time(machine, 1)
    assert machine.ended("a") == []


def test_a_wave_is_kept_as_long_as_its_runs_are(machine: Machine) -> None:
    for name in ("good", "bad"):
        machine.create(name, retry=ONCE)
        machine.create(f"after-{name}", after=[name])
    machine.trigger("good")
    machine.succeed(machine.grant()[0])
    machine.succeed(machine.grant()[0])
    machine.trigger("bad")
    machine.fail(machine.grant()[0])
    assert waves(machine) == 2

    pass_time(machine, limits.KEEP_SUCCEEDED_MS)
    assert waves(machine) == 1
    pass_time(machine, limits.KEEP_FAILED_MS - limits.KEEP_SUCCEEDED_MS - 1)
    assert waves(machine) == 1
    pass_time(machine, 1)
    assert waves(machine) == 0


def test_a_wave_that_is_to_be_kept_for_longer_is(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.trigger("a")
    machine.succeed(machine.grant()[0])
    machine.succeed(machine.grant()[0])
    keep(machine, keep_succeeded=9 * DAY_MS)

    pass_time(machine, 7 * DAY_MS)
    assert waves(machine) == 1
    pass_time(machine, 2 * DAY_MS)
    assert waves(machine) == 0


def stuck(machine: Machine, *others: str) -> str:
    """A wave whose step waits for a job that nobody starts; others come behind its first one."""
    machine.create("a")
    for other in others:
        machine.create(other, after=["a"], retry=ONCE)
    machine.create("never", after=["a"])
    machine.create("b", after=["a", "never"])
    machine.do(cut_off("never"))
    run = machine.trigger("a")
    machine.succeed(machine.grant()[0])
    return run.id


def test_a_stuck_wave_is_forgotten_when_it_has_had_its_time(machine: Machine) -> None:
    stuck(machine)

    pass_time(machine, limits.STUCK_AFTER_MS)
    assert waves(machine) == 1
    pass_time(machine, limits.KEEP_FAILED_MS - 1)
    assert waves(machine) == 1
    pass_time(machine, 1)

    assert waves(machine) == 0
    assert not [key for key in image(machine.store) if key[:1] in (keys.STEP, keys.FLOW_BY_AGE)]


def test_a_stuck_wave_that_is_to_be_kept_for_longer_is_not_reported_again(
    machine: Machine,
) -> None:
    def kinds() -> list[int]:
        return [event.kind for event in events(machine.log[-1], machine.index, machine.store)]

    stuck(machine)
    pass_time(machine, limits.STUCK_AFTER_MS)
    assert kinds() == [event_pb2.EVENT_KIND_FLOW_STUCK]
    keep(machine, keep_failed=limits.KEEP_FAILED_MS + HOUR_MS)

    pass_time(machine, limits.KEEP_FAILED_MS)
    assert (waves(machine), kinds()) == (1, [])
    pass_time(machine, HOUR_MS)
    assert waves(machine) == 0


def test_a_stuck_wave_with_a_run_under_way_is_not_forgotten(machine: Machine) -> None:
    machine.create("c")
    stuck(machine)
    machine.create("slow", after=["a"])
    machine.trigger("a")
    machine.succeed(machine.grant()[0])
    [lease] = machine.grant()
    assert lease.job == "slow"
    pass_time(machine, limits.STUCK_AFTER_MS)
    pass_time(machine, limits.KEEP_FAILED_MS)
    assert waves(machine) == 1

    machine.succeed(lease)
    pass_time(machine, limits.KEEP_FAILED_MS)

    assert waves(machine) == 0


def test_a_stuck_wave_of_which_a_run_began_once_more_is_forgotten_in_its_time(
    machine: Machine,
) -> None:
    """Nothing looks at it again when that run has ended: all that waits is known to be stuck."""
    stuck(machine, "frail")
    [lease] = machine.grant()
    machine.fail(lease)
    pass_time(machine, limits.STUCK_AFTER_MS)
    machine.advance(HOUR_MS)
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=lease.run))
    machine.fail(machine.grant()[0])

    pass_time(machine, limits.KEEP_FAILED_MS - 1)
    assert waves(machine) == 1
    pass_time(machine, 1)

    assert waves(machine) == 0


def test_a_wave_that_gets_stuck_again_has_its_time_anew(machine: Machine) -> None:
    machine.create("a")
    machine.create("never", after=["a"])
    machine.create("b", after=["a", "never"])
    machine.create("slow", after=["a"])
    machine.create("d", after=["slow", "never"])
    machine.do(cut_off("never"))
    machine.trigger("a")
    machine.succeed(machine.grant()[0])
    [lease] = machine.grant()
    pass_time(machine, limits.STUCK_AFTER_MS)
    machine.succeed(lease)
    pass_time(machine, limits.STUCK_AFTER_MS)

    pass_time(machine, limits.KEEP_FAILED_MS - 1)
    assert waves(machine) == 1
    pass_time(machine, 1)
    assert waves(machine) == 0


def test_a_wave_with_a_failure_is_kept_as_such_also_when_it_ended_well(machine: Machine) -> None:
    machine.create("bad", retry=ONCE)
    job = job_of("clean-up", after=["bad"])
    job.spec.upstream.jobs[0].condition = job_pb2.Dependency.CONDITION_FAILURE
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.trigger("bad")
    machine.fail(machine.grant()[0])
    machine.succeed(machine.grant()[0])

    pass_time(machine, limits.KEEP_FAILED_MS - 1)
    assert waves(machine) == 1
    pass_time(machine, 1)
    assert waves(machine) == 0
