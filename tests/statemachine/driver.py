"""A state machine with a clock in hand, for tests: each call is one decision, applied at once.

    machine.create("report", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    [lease] = machine.grant("w1")
    machine.succeed(lease)

Every decision is made twice, once with records kept in memory, as a leader does, and once from the
store alone, to see that it depends on nothing but state, requests and clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import TypeVar, cast

from google.protobuf.message import Message

from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2, schedule_pb2, worker_pb2
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.calls import runs as run_calls
from raftsched.statemachine.core.budget import Budget, Share, unlimited
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.core.store import Store
from raftsched.statemachine.machine import Decision, Request, apply, decide, read_meta
from raftsched.statemachine.model import answers, keys, timers
from raftsched.statemachine.model.entities import Job, run_with
from raftsched.statemachine.model.record import (
    JobRecord,
    LedgerRecord,
    Record,
    RunRecord,
    StateRecord,
    encode,
    parse,
)
from raftsched.statemachine.model.request import (
    FireTimers,
    Grant,
    Lapse,
    Note,
    Offer,
    Report,
    WorkDone,
)
from raftsched.statemachine.model.view import Recall, View
from raftsched.statemachine.piecewise import Failure
from raftsched.statemachine.selfcheck import invariants, verify

START_MS = 1_767_225_600_000  # 2026-01-01T00:00 UTC
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
FIRINGS_MAX = 10_000
Reply = TypeVar("Reply")


def instant(text: str) -> int:
    """Milliseconds of "2026-03-29T01:00", in UTC unless it says so."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def image(store: Store) -> dict[bytes, bytes]:
    """All that a store holds."""
    return dict(store.scan(b"\0", b"\xff" * 64))


def untaken(store: Store, view: View) -> None:
    """Nothing that a decision has only read differs from what is stored once it was applied."""
    if view.is_spoiled:
        return
    jobs, runs = view.jobs.values(), view.runs.values()
    lent: Iterable[tuple[bytes, Record]] = chain(
        view.records.items(),
        ((job.key, job.state) for job in jobs),
        ((keys.job(job.jid), job.definition) for job in jobs),
        ((run.key, run.record) for run in runs),
    )
    for key, record in lent:
        stored = store.get(key)
        assert stored is not None, f"{key!r} is lent and not stored"
        # One of a format of before is another record in bytes.
        same = stored == encode(record) or parse(key, stored, type(record)) == record
        assert same, f"a rule changed {key!r} and did not take it for that: {record}"


class Machine:
    """Requests in, replies out, one after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ms = START_MS
        self.index = 0
        # Changes in the order in which they were applied, as the journal holds them.
        self.log: list[bytes] = []
        # Attempts to stop, as the last decision said.
        self.stops: list[tuple[str, worker_pb2.Stop]] = []
        # Somebody lowered a limit, so that more may be under way than it says now.
        self.limits_may_be_exceeded = False
        # How long each decision may take.
        self.new_budget: Callable[[], Budget] = lambda: unlimited
        self._workers: dict[int, str] = {}
        # What failed in the last decision; and whether it may.
        self.failures: list[Failure] = []
        self.failing = False
        # A test wrote into the store, behind the back of what is kept in memory.
        self.memory_may_differ = False
        self._recall = Recall()
        # Where the next change goes on with what is due; see WorkDone.
        self._fresh_from = b""

    # Time.

    def at(self, when: int | str) -> None:
        """Set the clock: milliseconds since 1970, or "2026-01-01T09:00"."""
        self.now_ms = instant(when) if isinstance(when, str) else when

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    # Requests of any kind.

    def decide(self, *bodies: object, actor: str = "") -> Decision:
        """Decide without applying."""
        return decide(self.view(), self._requests(bodies, actor))

    def _requests(self, bodies: Iterable[object], actor: str) -> list[Request]:
        """What is due, and what can wait, have times of their own."""
        return [
            Request(body, actor, Share(self.new_budget) if isinstance(body, FireTimers) else None)
            for body in bodies
        ]

    def do_all(self, *bodies: object, actor: str = "") -> list[object]:
        """Decide some requests as one change and apply it; the replies, refusals among them."""
        view = View(self.store, self.now_ms, self._recall, self.new_budget())
        decision = decide(view, self._requests(bodies, actor))
        again = self.decide(*bodies, actor=actor)
        assert again.change == decision.change, "the same decision came out as two changes"
        if decision.change:
            before = read_meta(self.store)
            self.index += 1
            after = apply(self.store, self.index, decision.change)
            self.log.append(decision.change)
            assert after.revision == before.revision + 1
            assert after.fingerprint != before.fingerprint
            assert after.token >= before.token
            assert read_meta(self.store) == after
        if not self.memory_may_differ:
            untaken(self.store, view)
        self._recall.keep(view)
        self.failures = decision.failures
        if not self.failing and self.failures:
            raise self.failures[0].error
        self.stops = decision.stops
        return decision.replies

    def do(self, body: object, actor: str = "") -> object:
        """One request that must not be refused."""
        [reply] = self.do_all(body, actor=actor)
        assert not isinstance(reply, Rejection), f"{reply.word}: {reply.message}"
        return reply

    def ask(self, body: object, kind: type[Reply], actor: str = "") -> Reply:
        """As `do`, for a reply of a known type."""
        reply = self.do(body, actor)
        assert isinstance(reply, kind), reply
        return reply

    def refused(self, body: object, actor: str = "") -> Rejection:
        """One request that must be refused, and change nothing."""
        before = image(self.store)
        [reply] = self.do_all(body, actor=actor)
        assert isinstance(reply, Rejection), f"it was not refused: {reply}"
        assert image(self.store) == before, "a refusal changed something"
        return reply

    # Jobs.

    def create(
        self,
        name: str,
        *,
        cron: str | Iterable[str] = (),
        every_ms: int = 0,
        once: int | str | None = None,
        after_end_ms: int | None = None,
        after: Iterable[str] = (),
        namespace: str = "",
        handler: str = "work",
        **spec: object,
    ) -> job_pb2.Job:
        """Create a job; keywords beyond the schedules are fields of its spec."""
        job = job_of(
            name, cron=cron, every_ms=every_ms, once=once, after_end_ms=after_end_ms,
            after=after, namespace=namespace, handler=handler, **spec,
        )  # fmt: skip
        return self.ask(job_pb2.CreateJobRequest(job=job), job_pb2.Job)

    def trigger(self, name: str, **fields: object) -> run_pb2.Run:
        request = job_pb2.TriggerJobRequest(job=name, **fields)  # type: ignore[arg-type]
        return self.ask(request, run_pb2.Run)

    def job(self, name: str, namespace: str = "") -> job_pb2.Job:
        return answers.job(self._job(name, namespace))

    def jid(self, name: str, namespace: str = "") -> int:
        return self._job(name, namespace).jid

    def state(self, name: str, namespace: str = "") -> StateRecord:
        return self._job(name, namespace).state

    def _job(self, name: str, namespace: str) -> Job:
        return jobs.find(self.view(), namespace, name)

    # Runs.

    def run(self, run_id: str, namespace: str = "") -> run_pb2.Run:
        view = self.view()
        return answers.run(view, run_calls.find(view, namespace, run_id))

    def record(self, run_id: str, namespace: str = "") -> RunRecord:
        return run_calls.find(self.view(), namespace, run_id).record

    def live(self, name: str, namespace: str = "") -> list[run_pb2.Run]:
        """The runs of a job that are under way, oldest first."""
        job = self._job(name, namespace)
        prefix = keys.of_job(keys.RUN, job.jid)
        return self._runs(job, [key for key, _ in self.store.scan(prefix, keys.after(prefix))])

    def ended(self, name: str, namespace: str = "") -> list[run_pb2.Run]:
        """The runs of a job that have ended, newest first."""
        job = self._job(name, namespace)
        prefix = keys.of_job(keys.ENDED, job.jid)
        return self._runs(job, [key for key, _ in self.store.scan(prefix, keys.after(prefix))])

    def _runs(self, job: Job, found: Iterable[bytes]) -> list[run_pb2.Run]:
        view = self.view()
        runs = []
        for key in found:
            place = keys.run_of(key) if key[:1] == keys.RUN else keys.ended_of(key)
            record = view.need(key, RunRecord)
            runs.append(answers.run(view, run_with(job, place[1], record)))
        return runs

    def ledger(self, name: str, namespace: str = "") -> dict[int, LedgerRecord]:
        """What became of a job's scheduled times, by scheduled time."""
        prefix = keys.of_job(keys.LEDGER, self.jid(name, namespace))
        return {
            keys.scheduled_at(key): parse(key, value, LedgerRecord)
            for key, value in self.store.scan(prefix, keys.after(prefix))
        }

    # The leader's own work.

    def fire(self, most: int = 1_000) -> int:
        """Do all that is due, as a leader's changes do; how many timers that were."""
        done = 0
        for _ in range(FIRINGS_MAX):
            fired = self.fire_once(most)
            if fired is None:
                return done
            done += fired
        raise AssertionError(f"after {FIRINGS_MAX} changes timers are still due")

    def fire_all(self) -> None:
        self.fire()

    def fire_once(self, most: int = 1_000) -> int | None:
        """One change with what is due; how many timers that were. None without any."""
        asked = due_requests(self.store, self.now_ms, most, self._fresh_from)
        if not asked:
            return None
        replies = self.do_all(*asked)
        done = [reply for reply in replies if isinstance(reply, WorkDone)]
        assert len(done) == len(replies), replies
        if not asked[0].later:
            self._fresh_from = done[0].fresh_from
        return sum(reply.done for reply in done)

    def grant(
        self,
        worker: str = "w1",
        credits: int = 1_000,
        *,
        namespaces: tuple[str, ...] = ("default",),
        queues: tuple[str, ...] = ("default",),
        handlers: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[worker_pb2.Lease]:
        """What one worker is given."""
        offer = Offer(worker, credits, namespaces, queues, frozenset(handlers), labels or {})
        [leases] = self.offer(offer)
        return leases

    def offer(self, *offers: Offer, most: int = 1_000) -> list[list[worker_pb2.Lease]]:
        """What some workers are given, in the order of the offers."""
        given = cast("list[list[worker_pb2.Lease]]", self.do(Grant(offers, most)))
        for offer, leases in zip(offers, given, strict=True):
            assert len(leases) <= offer.credits
            self._workers.update({lease.token: offer.worker for lease in leases})
        return given

    def lapse(self, worker: str, most: int = 1_000) -> None:
        """A worker was silent for too long."""
        for _ in range(FIRINGS_MAX):
            if not self.ask(Lapse(worker, most), WorkDone).more:
                return
        raise AssertionError(f"after {FIRINGS_MAX} steps leases of {worker} are still there")

    # What workers say.

    def succeed(
        self, lease: worker_pb2.Lease, data: bytes = b"", log_tail: bytes = b"", warning: str = ""
    ) -> worker_pb2.ResultAck:
        success = worker_pb2.Success(result=common_pb2.Payload(data=data) if data else None)
        notes = worker_pb2.RunNotes(warning=warning) if warning else None
        return self._report(lease, success=success, log_tail=log_tail, notes=notes)

    def fail(
        self,
        lease: worker_pb2.Lease,
        kind: str = "Error",
        *,
        message: str = "it broke",
        fatal: bool = False,
        retry_after_ms: int | None = None,
    ) -> worker_pb2.ResultAck:
        failure = worker_pb2.Failure(
            error=run_pb2.RunError(kind=kind, message=message), fatal=fatal,
            retry_after=None if retry_after_ms is None else duration(retry_after_ms),
        )  # fmt: skip
        return self._report(lease, failure=failure)

    def release(
        self, lease: worker_pb2.Lease, *, delay_ms: int | None = None, checkpoint: bytes = b""
    ) -> worker_pb2.ResultAck:
        back = worker_pb2.GivenBack(
            delay=None if delay_ms is None else duration(delay_ms), checkpoint=checkpoint
        )
        return self._report(lease, given_back=back)

    @staticmethod
    def taken(run_id: str, token: int) -> worker_pb2.Lease:
        """A lease by its run and token, for what its worker says of it."""
        return worker_pb2.Lease(run=run_id, token=token)

    def _report(self, lease: worker_pb2.Lease, **end: object) -> worker_pb2.ResultAck:
        result = worker_pb2.Result(run=lease.run, token=lease.token, **end)  # type: ignore[arg-type]
        worker = self._workers.get(lease.token, "w1")
        [ack] = cast("list[worker_pb2.ResultAck]", self.do(Report(worker, (result,))))
        return ack

    def note(
        self,
        lease: worker_pb2.Lease,
        done: int = 0,
        total: int = 0,
        checkpoint: bytes = b"",
        log_tail: bytes = b"",
    ) -> worker_pb2.ResultAck:
        said = worker_pb2.ProgressReport(
            run=lease.run, token=lease.token, checkpoint=checkpoint, log_tail=log_tail,
            progress=run_pb2.Progress(done=done, total=total),
        )  # fmt: skip
        worker = self._workers.get(lease.token, "w1")
        [ack] = cast("list[worker_pb2.ResultAck]", self.do(Note(worker, (said,))))
        return ack

    # Looking.

    def forget(self) -> None:
        """Keep no record in memory, as after a start."""
        self._recall = Recall()

    def view(self) -> View:
        return View(self.store, self.now_ms, None, self.new_budget())

    def check(self) -> None:
        """The derived tables and counters are what the records say, and nothing is stuck."""
        found = [str(difference) for difference in verify.verify(self.store)]
        found += [str(breach) for breach in invariants.check(self.store)]
        if not self.limits_may_be_exceeded:
            found += [str(breach) for breach in invariants.check_limits(self.store)]
        prefix = keys.JOB
        for key, value in self.store.scan(prefix, keys.after(prefix)):
            template = parse(key, value, JobRecord).template
            if template.spec.SerializeToString(deterministic=True) != template.data:
                found.append(f"somebody changed the spec that all jobs like {key!r} share")
        assert not found, "\n".join(found)


def due_requests(
    store: Store, now_ms: int, most: int = 1_000, fresh_from: bytes = b""
) -> list[FireTimers]:
    """What a leader asks in its next change: for what is due, and then, in a request of its own,
    for what can wait, if some of that was due before the change."""
    meta = read_meta(store)
    due_ms, later_ms = timers.next_due_ms(store, meta), timers.next_later_ms(store, meta)
    asked = []
    if due_ms is not None and due_ms <= now_ms:
        asked.append(FireTimers(most, fresh_from=fresh_from))
    if later_ms is not None and later_ms <= now_ms:
        asked.append(FireTimers(most, later=True))
    return asked


def job_of(
    name: str,
    *,
    cron: str | Iterable[str] = (),
    every_ms: int = 0,
    once: int | str | None = None,
    after_end_ms: int | None = None,
    after: Iterable[str] = (),
    namespace: str = "",
    handler: str = "work",
    **spec: object,
) -> job_pb2.Job:
    """A job as a user would write it."""
    job = job_pb2.Job(namespace=namespace, name=name)
    job.spec.MergeFrom(job_pb2.JobSpec(**spec))  # type: ignore[arg-type]
    if not job.spec.HasField("action"):
        job.spec.action.handler = handler
    for expression in [cron] if isinstance(cron, str) else cron:
        job.spec.schedules.add().cron.expression = expression
    if every_ms:
        job.spec.schedules.add().interval.every.CopyFrom(duration(every_ms))
    if once is not None:
        at_ms = instant(once) if isinstance(once, str) else once
        job.spec.schedules.add().once.time.CopyFrom(timestamp(at_ms))
    if after_end_ms is not None:
        rest = schedule_pb2.AfterEnd(delay=duration(after_end_ms))
        job.spec.schedules.add().after_end.CopyFrom(rest)
    for upstream in after:
        job.spec.upstream.jobs.add(job=upstream)
    return job


def with_mask(path: str, **spec: object) -> job_pb2.UpdateJobRequest:
    """An update of one field of a job's spec; the keywords are `name` and fields of the spec."""
    name = str(spec.pop("name"))
    request = job_pb2.UpdateJobRequest(job=job_pb2.Job(name=name))
    request.job.spec.MergeFrom(job_pb2.JobSpec(**spec))  # type: ignore[arg-type]
    request.update_mask.paths.append(path)
    return request


def warn_all(machine: Machine, text: str) -> None:
    """A worker takes all that is ready, and succeeds with a warning."""
    for lease in machine.grant("w1"):
        machine.succeed(lease, warning=text)


def cut_off(name: str) -> job_pb2.UpdateJobRequest:
    """Take a job's upstream away, so that what waits for it and for others waits for ever."""
    return with_mask("spec.upstream", name=name)


def copy_of(message: Message) -> Message:
    other = type(message)()
    other.CopyFrom(message)
    return other
