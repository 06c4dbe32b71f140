# Made from aio/jobs_by_hand.py by calls/generate.py; write there.
"""Why by hand: `trigger` has words of its own for a run that is wanted; `trigger_many` and
`import_` cut what they are given into requests; `skip`, `move` and `add` are one call with three
meanings; `preview` takes schedules as Python says them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Unpack

from ....proto.v1 import job_pb2, schedule_pb2
from ...sdk.imports import ImportProgress, import_requests
from ...sdk.options import ReadOptions, Writing
from ...sdk.ranges import made
from ...sdk.schedules import When
from ...sdk.specs import PriorityWord, build
from ...sdk.trace import current_trace
from ...sdk.triggers import single_request, trigger_of, trigger_requests
from ...sdk.values import Length, choice, timestamp
from .run import Run
from .service import Service


class JobsByHand(Service):
    """Beside what the contracts say by themselves."""

    def trigger(
        self,
        job: str,
        *,
        payload: object = None,
        priority: PriorityWord | None = None,
        queue: str = "",
        due: datetime | None = None,
        force: bool = False,
        if_running: Literal["wait", "refuse"] = "wait",
        unique_key: str = "",
        when_taken: Literal["return_existing", "reject", "replace"] = "return_existing",
        hold: Length | None = None,
        concurrency_key: str = "",
        labels: Mapping[str, str] | None = None,
        trace_context: Mapping[str, str] | None = None,
        **options: Unpack[Writing],
    ) -> Run:
        """Start a run by hand, now or at `due`. It waits while the overlap policy lets none begin,
        or is refused then with `if_running="refuse"`. With a `unique_key` at most one is there. A
        `concurrency_key` counts instead of the job's. `labels` are written on the run. It is in the
        trace of `trace_context` (`traceparent` and `tracestate`, as OpenTelemetry injects them); in
        a handler in that of its own run, unless another one or `{}` is given.

        run = client.jobs.trigger("report", payload={"day": "2026-11-18"})
        print(run.result(timeout=60))
        """
        trigger = trigger_of(
            job, payload=payload, priority=priority, queue=queue, due=due, force=force,
            if_running=if_running, unique_key=unique_key, when_taken=when_taken, hold=hold,
            concurrency_key=concurrency_key, labels=labels,
            trace_context=current_trace() if trace_context is None else trace_context,
        )  # fmt: skip
        return self._run(single_request(trigger, self._namespace(options)), options)

    def trigger_many(
        self, triggers: Iterable[job_pb2.Trigger], **options: Unpack[Writing]
    ) -> Sequence[job_pb2.TriggerResult]:
        """Start many runs by hand, a thousand in each call; what became of each, in their order.

        A refused one does not stop the others.

        names = ["anna", "ben"]
        client.jobs.trigger_many(trigger_of("mail", payload={"to": name}) for name in names)
        """
        requests = trigger_requests(
            triggers, self._namespace(options), options.pop("request_id", "")
        )
        results: list[job_pb2.TriggerResult] = []
        for request in requests:
            answer = self._send(request, job_pb2.TriggerJobsResponse, options)
            results.extend(answer.results)
        return results

    def skip(self, job: str, scheduled: datetime, **options: Unpack[Writing]) -> job_pb2.Job:
        """Leave one future occurrence out.

        client.jobs.skip("report", datetime(2026, 12, 24, 8, tzinfo=UTC))
        """
        return self._edit(job, scheduled, "skip", None, options)

    def move(
        self, job: str, scheduled: datetime, to: datetime, **options: Unpack[Writing]
    ) -> job_pb2.Job:
        """Make one future occurrence due at another instant.

        client.jobs.move("report", eight, nine)
        """
        return self._edit(job, scheduled, "move", to, options)

    def add(self, job: str, scheduled: datetime, **options: Unpack[Writing]) -> job_pb2.Job:
        """Add an occurrence that no schedule names.

        client.jobs.add("report", datetime(2026, 12, 31, 23, tzinfo=UTC))
        """
        return self._edit(job, scheduled, "add", None, options)

    def preview(
        self,
        job: str = "",
        *,
        schedule: When | Sequence[When] = (),
        zone: str = "",
        start: datetime | None = None,
        count: int = 5,
        **options: Unpack[ReadOptions],
    ) -> job_pb2.PreviewScheduleResponse:
        """The next scheduled times of a job, or of schedules that no job has yet.

        for occurrence in client.jobs.preview(schedule=cron("@daily")).occurrences:
            print(occurrence.local_time)
        """
        request = made(
            job_pb2.PreviewScheduleRequest, job=job, from_time=timestamp(start), count=count
        )
        if schedule:
            spec = build("preview", "", {"schedule": schedule, "zone": zone})[0].spec
            request.schedules.extend(spec.schedules)
            request.timing.CopyFrom(spec.timing)
        return self._send(request, job_pb2.PreviewScheduleResponse, options)

    def import_(
        self, jobs: Iterable[job_pb2.Job], *, replace: bool = False, **options: Unpack[Writing]
    ) -> Sequence[job_pb2.ImportResult]:
        """Create many jobs, and with `replace` change those that are there; what became of each.

        Jobs that name no namespace go into the client's. A refused job does not stop the others.

        results = client.jobs.import_([job_of("a", handler="x"), job_of("b", handler="x")])
        """
        return list(self.import_each(jobs, replace=replace, **options))

    def import_each(
        self, jobs: Iterable[job_pb2.Job], *, replace: bool = False,
        progress: ImportProgress | None = None, **options: Unpack[Writing],
    ) -> Generator[job_pb2.ImportResult, None, None]:  # fmt: skip
        """As `import_`, for any number of jobs: yields what became of each as soon as its thousand
        is done. With a `progress` that is kept it goes on where it stopped, in another process too.

        progress = ImportProgress.kept("customers.progress")
        for result in client.jobs.import_each(jobs, progress=progress):
            print(result.job, result.reason)
        progress.forget()
        """
        named = options.pop("request_id", "")
        now = progress or (ImportProgress(named) if named else ImportProgress())
        namespace = self._namespace(options)
        requests = import_requests(jobs, replace=replace, namespace=namespace, progress=now)
        for request in requests:
            answer = self._send(request, job_pb2.ImportJobsResponse, options)
            now.took(answer)
            yield from answer.results

    def _edit(
        self, job: str, scheduled: datetime, kind: str, to: datetime | None, options: Writing
    ) -> job_pb2.Job:
        edit = schedule_pb2.OccurrenceEdit(
            scheduled_time=timestamp(scheduled), moved_to=timestamp(to),
            kind=choice(schedule_pb2.OccurrenceEdit.Kind, "KIND_", kind),
        )  # fmt: skip
        request = job_pb2.EditOccurrenceRequest(job=job, edit=edit)
        return self._send(request, job_pb2.Job, options)
