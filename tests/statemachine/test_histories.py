"""Long random histories of everything at once: the self-check holds after every step.

A failure prints its seed, and the seed is enough: `play(Machine(MemoryStore()), seed, steps)`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from raftsched.proto.v1 import (
    alert_pb2,
    common_pb2,
    dead_letter_pb2,
    event_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model.request import FireTimers, Observe, Offer, Resume, Resumed
from raftsched.statemachine.model.workers import WorkerCounts
from raftsched.statemachine.reads.events import events
from raftsched.statemachine.runs import leases

from ..sampled import some
from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Machine, job_of, with_mask

NAMES = ["a", "b", "c", "d", "e"]
JUMPS = [1, 500, SECOND_MS, 7 * SECOND_MS, MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 9 * HOUR_MS,
         3 * DAY_MS, 40 * DAY_MS]  # fmt: skip
Edit = schedule_pb2.OccurrenceEdit


class Player:
    """Does what comes to its mind."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine = machine
        self.random = Random(seed)
        self.leases: list[worker_pb2.Lease] = []
        # Limits move, so more may be under way than they say now.
        machine.limits_may_be_exceeded = True

    def step(self) -> str:
        moves: list[tuple[int, Callable[[], object]]] = [
            (12, self.time_passes), (10, self.grant), (14, self.report), (6, self.create),
            (6, self.trigger), (3, self.update), (2, self.pause), (2, self.resume),
            (2, self.delete), (2, self.edit), (2, self.revert), (2, self.backfill),
            (4, self.cancel), (2, self.lapse), (2, self.retry), (2, self.requeue), (1, self.purge),
            (2, self.queue), (1, self.namespace), (2, self.together), (1, self.drop_backlog),
            (2, self.hello), (2, self.lease_call), (2, self.tenant), (2, self.alert),
        ]  # fmt: skip
        weights = [weight for weight, _ in moves]
        [(_, move)] = self.random.choices(moves, weights)
        move()
        return move.__name__

    def try_(self, body: object) -> object:
        """A request that may be refused; then it must change nothing, which `decide` asserts."""
        [reply] = self.machine.do_all(body)
        return reply

    def name(self) -> str:
        return self.random.choice(NAMES)

    def time_passes(self) -> None:
        self.machine.advance(self.random.choices(JUMPS, [5, 5, 9, 9, 9, 5, 3, 1, 1, 1])[0])
        self.machine.fire(self.random.choice([1, 3, 1_000]))

    def grant(self) -> None:
        offers = tuple(
            Offer(worker, self.random.randint(1, 5), ("default",), ("default", "mail"))
            for worker in self.random.sample(["w1", "w2", "w3"], self.random.randint(1, 3))
        )
        for given in self.machine.offer(*offers, most=self.random.randint(1, 9)):
            self.leases += given

    def lease(self) -> worker_pb2.Lease | None:
        if not self.leases:
            return None
        # Old ones stay in the list now and then, and come with a token that has ended.
        if self.random.random() < 0.8:
            return self.leases.pop(self.random.randrange(len(self.leases)))
        return self.random.choice(self.leases)

    def report(self) -> None:
        lease = self.lease()
        if lease is None:
            return
        how = self.random.randrange(7)
        if how < 3:
            self.machine.succeed(lease, b"result", warning="look" if how == 0 else "")
        elif how == 3:
            self.machine.fail(lease, fatal=self.random.random() < 0.3)
        elif how == 4:
            self.machine.fail(lease, retry_after_ms=self.random.choice([0, 3_000]))
        elif how == 5:
            self.machine.release(lease, delay_ms=self.random.choice([None, 2_000]))
        else:
            self.machine.note(lease, 1, 2, b"so far")
            self.leases.append(lease)

    def job(self, name: str) -> job_pb2.Job:
        chance = self.random
        cron: list[str] = []
        kind = chance.randrange(7)
        if kind < 3:
            cron = [chance.choice(["* * * * *", "*/10 * * * *", "0 * * * *", "0 9 * * *"])]
        once = self.machine.now_ms + chance.choice([-1, 5_000]) if kind == 3 else None
        job = job_of(
            name, cron=cron, once=once,
            every_ms=90_000 if kind == 4 else 0, after_end_ms=20_000 if kind == 5 else None,
        )  # fmt: skip
        spec = job.spec
        spec.queue = chance.choice(["", "mail"])
        spec.priority = chance.choice(list(common_pb2.Priority.values()))
        spec.overlap.rule = chance.choice(list(job_pb2.OverlapPolicy.Rule.values()))
        spec.overlap.limit = chance.randrange(4)
        spec.misfire.rule = chance.choice(list(job_pb2.MisfirePolicy.Rule.values()))
        spec.misfire.maximum = chance.randrange(5)
        spec.retry.max_attempts = chance.randrange(4)
        spec.delivery = chance.choice(list(job_pb2.Delivery.values()))
        if chance.random() < 0.3:
            spec.misfire.start_deadline.CopyFrom(duration(chance.choice([1_000, 60_000])))
        if chance.random() < 0.4:
            spec.concurrency.job = chance.randrange(3)
        if chance.random() < 0.4:
            spec.concurrency.key, spec.concurrency.key_limit = "k", chance.randint(1, 2)
        for field in ("queue", "attempt", "run", "heartbeat"):
            if chance.random() < 0.15:
                getattr(spec.timeouts, field).CopyFrom(duration(chance.choice([2_000, 90_000])))
        if chance.random() < 0.2:
            spec.delete_after.CopyFrom(duration(chance.choice([0, HOUR_MS])))
        if chance.random() < 0.3:
            spec.timing.max_runs = chance.randint(1, 4)
        if chance.random() < 0.4:
            spec.on_failure.job = chance.choice([*NAMES, "nobody"])
        for other in NAMES[: NAMES.index(name)]:
            if chance.random() < 0.25:
                condition = chance.choice(list(job_pb2.Dependency.Condition.values()))
                spec.upstream.jobs.add(job=other, condition=condition)
                spec.upstream.join = chance.choice(list(job_pb2.Upstream.Join.values()))
        return job

    def create(self) -> None:
        self.try_(job_pb2.CreateJobRequest(job=self.job(self.name())))

    def update(self) -> None:
        mode = job_pb2.ImportJobsRequest.MODE_UPSERT
        self.try_(job_pb2.ImportJobsRequest(jobs=[self.job(self.name())], mode=mode))

    def trigger(self) -> None:
        request = job_pb2.TriggerJobRequest(job=self.name(), force=self.random.random() < 0.3)
        if self.random.random() < 0.2:
            request.due_time.CopyFrom(timestamp(self.machine.now_ms + 30_000))
        if self.random.random() < 0.4:
            request.unique.key = self.random.choice("xy")
            request.unique.policy = self.random.choice(list(run_pb2.UniqueKey.Policy.values()))
            if self.random.random() < 0.5:
                request.unique.hold.CopyFrom(duration(60_000))
        self.try_(request)

    def pause(self) -> None:
        request = job_pb2.PauseJobRequest(job=self.name())
        if self.random.random() < 0.5:
            request.until.CopyFrom(timestamp(self.machine.now_ms + 45_000))
        self.try_(request)

    def resume(self) -> None:
        self.try_(job_pb2.ResumeJobRequest(job=self.name()))

    def delete(self) -> None:
        self.try_(job_pb2.DeleteJobRequest(job=self.name()))

    def edit(self) -> None:
        name, kind = self.name(), self.random.choice([1, 2, 3])
        ahead_ms = self.random.choice([MINUTE_MS, 10 * MINUTE_MS, HOUR_MS])
        scheduled_ms = (self.machine.now_ms // ahead_ms + 1) * ahead_ms
        edit = Edit(scheduled_time=timestamp(scheduled_ms), kind=Edit.Kind.ValueType(kind))
        if kind == Edit.KIND_MOVE:
            by_ms = self.random.choice([-30_000, 30_000, 2 * HOUR_MS])
            edit.moved_to.CopyFrom(timestamp(max(0, scheduled_ms + by_ms)))
        self.try_(job_pb2.EditOccurrenceRequest(job=name, edit=edit))

    def revert(self) -> None:
        ahead_ms = self.random.choice([MINUTE_MS, 10 * MINUTE_MS, HOUR_MS])
        scheduled = timestamp((self.machine.now_ms // ahead_ms + 1) * ahead_ms)
        self.try_(job_pb2.RevertOccurrenceRequest(job=self.name(), scheduled_time=scheduled))

    def backfill(self) -> None:
        now_ms = self.machine.now_ms
        first = now_ms - self.random.choice([MINUTE_MS, HOUR_MS, 5 * HOUR_MS])
        self.try_(job_pb2.BackfillJobRequest(
            job=self.name(), from_time=timestamp(first),
            to_time=timestamp(self.random.randint(first + 1, now_ms)),
            runs_per_minute=self.random.choice([0, 600, 60_000]),
        ))  # fmt: skip

    def run(self, text: str = "") -> str:
        request = run_pb2.ListRunsRequest(filter=text)
        found = ask(self.machine, request, run_pb2.ListRunsResponse).runs
        return self.random.choice(found).id if found else "none.1.1"

    def cancel(self) -> None:
        if self.random.random() < 0.7:
            grace = duration(self.random.choice([0, 5_000]))
            self.try_(run_pb2.CancelRunRequest(run=self.run(), grace=grace))
        else:
            self.try_(run_pb2.TerminateRunRequest(run=self.run()))

    def lapse(self) -> None:
        self.machine.lapse(self.random.choice(["w1", "w2", "w3"]), self.random.choice([1, 100]))

    def retry(self) -> None:
        self.try_(run_pb2.RetryRunRequest(run=self.run("state=RETRYING")))

    def requeue(self) -> None:
        if self.random.random() < 0.5:
            request = dead_letter_pb2.RequeueDeadLetterRequest(run=self.run("state=FAILED"))
            self.try_(request)
        else:
            self.try_(dead_letter_pb2.RequeueDeadLettersRequest(filter=f"job={self.name()}"))

    def purge(self) -> None:
        self.try_(dead_letter_pb2.PurgeDeadLettersRequest())

    def queue(self) -> None:
        name = self.random.choice(["default", "mail"])
        how = self.random.randrange(3)
        if how == 0:
            self.try_(queue_pb2.PauseQueueRequest(queue=name))
        elif how == 1:
            self.try_(queue_pb2.ResumeQueueRequest(queue=name))
        else:
            queue = queue_pb2.Queue(name=name, concurrency=self.random.choice([0, 2]),
                                    rate=self.random.choice([0, 3]))  # fmt: skip
            request = queue_pb2.UpdateQueueRequest(queue=queue)
            request.update_mask.paths.extend(["concurrency", "rate"])
            self.try_(request)

    def namespace(self) -> None:
        quota = namespace_pb2.Quota(
            leases=self.random.choice([0, 3]), live_runs=self.random.choice([0, 0, 6])
        )
        settings = namespace_pb2.Namespace(name="default", quota=quota)
        settings.keep_succeeded.CopyFrom(duration(self.random.choice([HOUR_MS, 7 * DAY_MS])))
        settings.keep_ledger.CopyFrom(duration(HOUR_MS))
        request = namespace_pb2.UpdateNamespaceRequest(namespace=settings)
        settings.keep_failed.CopyFrom(duration(self.random.choice([HOUR_MS, 30 * DAY_MS])))
        settings.backlog_rate = self.random.choice([0, 1, 100_000])
        request.update_mask.paths.extend(
            ["quota", "keep_succeeded", "keep_failed", "keep_ledger", "backlog_rate"]
        )
        self.try_(request)

    def drop_backlog(self) -> None:
        self.try_(job_pb2.DropBacklogRequest(job=self.name()))

    def hello(self) -> None:
        """A worker comes back with some leases that it has, and some that it has not."""
        known = self.random.sample(self.leases, self.random.randint(0, len(self.leases)))
        held = {lease.token: lease.run for lease in known}
        worker, most = self.random.choice(["w1", "w2", "w3"]), self.random.choice([1, 100])
        rest: Resume | None = Resume(worker, held, most)
        while rest is not None:
            rest = self.machine.ask(rest, Resumed).rest
            self.machine.check()
        leases.cancels(self.machine.view(), worker)

    def lease_call(self) -> None:
        """The same call twice, the second time perhaps after something else."""
        worker = self.random.choice(["w1", "w2", "w3"])
        call = worker_pb2.LeaseRequest(
            hello=worker_pb2.WorkerHello(worker=worker), maximum=self.random.randint(1, 4),
            request_id=f"call-{self.machine.index}",
        )  # fmt: skip
        offer = Offer(worker, call.maximum, request=call)
        [taken] = self.machine.offer(offer)
        self.leases += taken
        if self.random.random() < 0.5:
            self.report()
        [again] = self.machine.offer(offer)
        if taken:
            assert {lease.token for lease in again} <= {lease.token for lease in taken}
        else:
            self.leases += again

    def tenant(self) -> None:
        """Another namespace comes, has something, and goes."""
        name = self.random.choice(["n", "m"])
        wanted = namespace_pb2.Namespace(name=name)
        moves: list[object] = [
            namespace_pb2.CreateNamespaceRequest(namespace=wanted),
            namespace_pb2.DeleteNamespaceRequest(namespace=name),
            job_pb2.CreateJobRequest(job=job_of("a", namespace=name, every_ms=90_000)),
            job_pb2.DeleteJobRequest(namespace=name, job="a"),
            queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(namespace=name, name="q", rate=3)),
        ]
        for move in self.random.sample(moves, 3):
            self.try_(move)

    def alert(self) -> None:
        condition = alert_pb2.AlertCondition(dead_letters_above=self.random.randrange(3))
        if self.random.random() < 0.5:
            condition = alert_pb2.AlertCondition(lateness_above=duration(MINUTE_MS))
        namespace = self.random.choice(["", "default", "n"])
        alert = alert_pb2.Alert(namespace=namespace, name="a", condition=condition)
        self.try_(alert_pb2.PutAlertRequest(alert=alert))
        self.machine.do(Observe(WorkerCounts(), True, 0, self.random.choice([1, 100])))

    def together(self) -> None:
        """Several requests in one change."""
        name = self.name()
        bodies: list[object] = [
            job_pb2.TriggerJobRequest(job=name, force=True), FireTimers(5),
            run_pb2.CancelRunRequest(run=self.run()), job_pb2.DeleteJobRequest(job=self.name()),
            job_pb2.CreateJobRequest(job=self.job(name)), job_pb2.PauseJobRequest(job=name),
            job_pb2.ResumeJobRequest(job=name), job_pb2.DropBacklogRequest(job=self.name()),
            Resume("w1", {}, 3),
        ]  # fmt: skip
        self.random.shuffle(bodies)
        self.machine.do_all(*bodies[: self.random.randint(2, 6)])


def play(machine: Machine, seed: int, steps: int) -> None:
    """Play a history; every step leaves a sound state, events and audits that fit together."""
    player = Player(machine, seed)
    done: list[str] = []
    fired: set[str] = set()
    for _ in range(steps):
        place = len(machine.log)
        done.append(player.step())
        try:
            machine.check()
            for at in range(place, len(machine.log)):
                for event in events(machine.log[at], at + 1, machine.store):
                    if event.kind == event_pb2.EVENT_KIND_RUN_FIRED and event.job != "deleted":
                        assert event.run.id not in fired, f"{event.run.id} was fired twice"
                        fired.add(event.run.id)
                    elif event.kind == event_pb2.EVENT_KIND_RUN_SKIPPED:
                        # It never began, so a backfill may run it after all.
                        fired.discard(event.run.id)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {len(done)} {done[-8:]}: {error}") from error


@pytest.mark.parametrize("seed", some(range(25), 8))
def test_after_each_step_of_a_random_history_the_state_is_sound(seed: int) -> None:
    play(Machine(MemoryStore()), seed, 120)


@pytest.mark.parametrize("seed", range(3))
def test_when_all_is_let_go_nothing_is_left_under_way(seed: int) -> None:
    """F4: with workers that work and no more pauses, every run comes to an end."""
    machine = Machine(MemoryStore())
    play(machine, 1_000 + seed, 100)
    for name in ("default", "mail"):
        queue = queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name=name))
        queue.update_mask.paths.extend(["concurrency", "rate"])
        machine.do_all(queue, queue_pb2.ResumeQueueRequest(queue=name))
    machine.do_all(namespace_pb2.UpdateNamespaceRequest(
        namespace=namespace_pb2.Namespace(name="default"),
        update_mask={"paths": ["quota"]},  # type: ignore[arg-type]
    ))  # fmt: skip
    for name in NAMES:
        # A paused job would keep what comes to it after others.
        update = with_mask("spec.schedules", name=name)
        machine.do_all(job_pb2.ResumeJobRequest(job=name), update)
    for worker in ("w1", "w2", "w3"):
        machine.lapse(worker)

    for _ in range(60):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
        for lease in machine.grant("w9", queues=("default", "mail")):
            machine.succeed(lease)

    machine.check()
    found = ask(machine, run_pb2.ListRunsRequest(), run_pb2.ListRunsResponse)
    assert not found.runs


def test_a_reply_of_a_history_is_a_message_or_a_refusal() -> None:
    machine = Machine(MemoryStore())
    player = Player(machine, 7)

    reply = player.try_(job_pb2.PauseJobRequest(job="nobody"))

    assert isinstance(reply, Rejection)
