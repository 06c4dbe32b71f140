"""Jobs: the standing orders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Unpack

from ....proto.v1 import common_pb2, job_pb2, run_pb2, schedule_pb2
from ...sdk.imports import import_requests
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.schedules import When
from ...sdk.specs import PriorityWord, SpecOptions, build
from ...sdk.triggers import single_request, trigger_of, trigger_requests
from ...sdk.values import Length, ListCount, choice, duration, timestamp
from ...worker.context import current_trace
from .runs import AsyncRun
from .service import AsyncService


class SpecWriting(SpecOptions, Writing, total=False):
    """What may be said where a job is written."""


class AsyncJobs(AsyncService):
    """Create jobs, look at them, change them, run them by hand."""

    async def create(self, name: str, **options: Unpack[SpecWriting]) -> job_pb2.Job:
        """Create a job; SpecOptions says what there is to say about one.

        await client.jobs.create(
            "send-report", handler="send-email", payload={"to": "anna"},
            schedule=cron("*/5 * * * *", zone="Europe/Berlin"), retry=Retry(attempts=5),
        )
        """
        spec, writing = parted(options)
        job, _ = build(name, self._namespace(writing), spec)
        return await self._send(job_pb2.CreateJobRequest(job=job), job_pb2.Job, writing)

    async def get(self, job: str, **options: Unpack[ReadOptions]) -> job_pb2.Job:
        """Show a job.

        print((await client.jobs.get("report")).status.next_due_time)
        """
        return await self._send(job_pb2.GetJobRequest(job=job), job_pb2.Job, options)

    async def status(self, job: str, **options: Unpack[ReadOptions]) -> job_pb2.JobStatus:
        """Show only what the cluster knows about a job, warnings included.

        print((await client.jobs.status("report")).warnings)
        """
        request = job_pb2.GetJobStatusRequest(job=job)
        return await self._send(request, job_pb2.JobStatus, options)

    async def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> ListCount:
        """How many jobs there are, all or those that the filter names.

        print((await client.jobs.count("state=PAUSED")).number)
        """
        return await self._count(job_pb2.ListJobsRequest(filter=filter), options)

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[job_pb2.Job]:
        """The jobs by name, all or those that the filter names, or in another order.

        async for job in client.jobs.list("labels.team=a AND state=PAUSED"):
            print(job.name)
        """
        request = job_pb2.ListJobsRequest(filter=filter, order_by=order_by)
        return self._items(request, "jobs", limit, options)

    async def update(
        self, job: str, *, etag: str = "", **options: Unpack[SpecWriting]
    ) -> job_pb2.Job:
        """Change what the options speak of and nothing else; None takes a thing away.

        await client.jobs.update("report", priority="high", jitter=None)
        """
        spec, writing = parted(options)
        changed, paths = build(job, self._namespace(writing), spec)
        if not paths:
            raise ValueError(f"no field is named to change of {job!r}")
        changed.etag = etag
        request = job_pb2.UpdateJobRequest(job=changed)
        request.update_mask.paths.extend(paths)
        return await self._send(request, job_pb2.Job, writing)

    async def delete(
        self, job: str, *, etag: str = "", **options: Unpack[Writing]
    ) -> job_pb2.DeleteJobResponse:
        """Delete a job; its runs under way are cancelled.

        await client.jobs.delete("report")
        """
        request = job_pb2.DeleteJobRequest(job=job, etag=etag)
        return await self._send(request, job_pb2.DeleteJobResponse, options)

    async def pause(
        self,
        job: str,
        reason: str = "",
        *,
        until: datetime | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> job_pb2.Job:
        """Stop firing, until `until` if it is given; runs under way go on.

        await client.jobs.pause("report", "the printer is broken")
        """
        request = job_pb2.PauseJobRequest(job=job, reason=reason, until=timestamp(until), etag=etag)
        return await self._send(request, job_pb2.Job, options)

    async def change_all(
        self,
        change: Literal["pause", "resume", "trigger", "delete"],
        filter: str,
        reason: str = "",
        *,
        until: datetime | None = None,
        **options: Unpack[Writing],
    ) -> common_pb2.BulkChange:
        """Do the same to all jobs that fit a filter (an empty one: all), each alone.

        The answer counts them, and names some; with `validate_only` it counts what fits.

        done = await client.jobs.change_all("pause", "labels.team=billing", "month end")
        print(done.changed, [failure.name for failure in done.failures])
        """
        request = job_pb2.ChangeJobsRequest(filter=filter, reason=reason, until=timestamp(until))
        request.change = choice(job_pb2.ChangeJobsRequest.Change, "CHANGE_", change)
        return await self._change_all(request, options)

    async def resume(self, job: str, *, etag: str = "", **options: Unpack[Writing]) -> job_pb2.Job:
        """Fire again.

        await client.jobs.resume("report")
        """
        request = job_pb2.ResumeJobRequest(job=job, etag=etag)
        return await self._send(request, job_pb2.Job, options)

    async def repair(self, job: str, *, etag: str = "", **options: Unpack[Writing]) -> job_pb2.Job:
        """Bring back a job that is BROKEN, after what broke it was mended.

        await client.jobs.repair("report")
        """
        request = job_pb2.RepairJobRequest(job=job, etag=etag)
        return await self._send(request, job_pb2.Job, options)

    async def trigger(
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
    ) -> AsyncRun:
        """Start a run by hand, now or at `due`. It waits while the overlap policy lets none begin,
        or is refused then with `if_running="refuse"`. With a `unique_key` at most one is there. A
        `concurrency_key` counts instead of the job's. `labels` are written on the run. It is in the
        trace of `trace_context` (`traceparent` and `tracestate`, as OpenTelemetry injects them); in
        a handler in that of its own run, unless another one or `{}` is given.

        run = await client.jobs.trigger("report", payload={"day": "2026-11-18"})
        print(await run.result(timeout=60))
        """
        trigger = trigger_of(
            job, payload=payload, priority=priority, queue=queue, due=due, force=force,
            if_running=if_running, unique_key=unique_key, when_taken=when_taken, hold=hold,
            concurrency_key=concurrency_key, labels=labels,
            trace_context=current_trace() if trace_context is None else trace_context,
        )  # fmt: skip
        request = single_request(trigger, self._namespace(options))
        return AsyncRun(self._client, await self._send(request, run_pb2.Run, options))

    async def trigger_many(
        self, triggers: Iterable[job_pb2.Trigger], **options: Unpack[Writing]
    ) -> Sequence[job_pb2.TriggerResult]:
        """Start many runs by hand, a thousand in each call; what became of each, in their order.

        A refused one does not stop the others.

        names = ["anna", "ben"]
        await client.jobs.trigger_many(trigger_of("mail", payload={"to": name}) for name in names)
        """
        requests = trigger_requests(
            triggers, self._namespace(options), options.pop("request_id", "")
        )
        results: list[job_pb2.TriggerResult] = []
        for request in requests:
            answer = await self._send(request, job_pb2.TriggerJobsResponse, options)
            results.extend(answer.results)
        return results

    async def backfill(
        self,
        job: str,
        start: datetime,
        end: datetime,
        *,
        runs_per_minute: int = 0,
        **options: Unpack[Writing],
    ) -> job_pb2.BackfillJobResponse:
        """Run the scheduled times of a past range that have not run, at a rate.

        await client.jobs.backfill("report", monday, tuesday, runs_per_minute=10)
        """
        request = made(
            job_pb2.BackfillJobRequest, job=job, from_time=timestamp(start), to_time=timestamp(end),
            runs_per_minute=runs_per_minute,
        )  # fmt: skip
        return await self._send(request, job_pb2.BackfillJobResponse, options)

    async def drop_backlog(
        self, job: str, **options: Unpack[Writing]
    ) -> job_pb2.DropBacklogResponse:
        """Give up the missed scheduled times that still wait for their run.

        print((await client.jobs.drop_backlog("report")).dropped)
        """
        request = job_pb2.DropBacklogRequest(job=job)
        return await self._send(request, job_pb2.DropBacklogResponse, options)

    async def skip(self, job: str, scheduled: datetime, **options: Unpack[Writing]) -> job_pb2.Job:
        """Leave one future occurrence out.

        await client.jobs.skip("report", datetime(2026, 12, 24, 8, tzinfo=UTC))
        """
        return await self._edit(job, scheduled, "skip", None, options)

    async def move(
        self, job: str, scheduled: datetime, to: datetime, **options: Unpack[Writing]
    ) -> job_pb2.Job:
        """Make one future occurrence due at another instant.

        await client.jobs.move("report", eight, nine)
        """
        return await self._edit(job, scheduled, "move", to, options)

    async def add(self, job: str, scheduled: datetime, **options: Unpack[Writing]) -> job_pb2.Job:
        """Add an occurrence that no schedule names.

        await client.jobs.add("report", datetime(2026, 12, 31, 23, tzinfo=UTC))
        """
        return await self._edit(job, scheduled, "add", None, options)

    async def revert(
        self, job: str, scheduled: datetime, **options: Unpack[Writing]
    ) -> job_pb2.Job:
        """Take back what skip, move or add have said about an occurrence.

        await client.jobs.revert("report", datetime(2026, 12, 24, 8, tzinfo=UTC))
        """
        request = job_pb2.RevertOccurrenceRequest(job=job, scheduled_time=timestamp(scheduled))
        return await self._send(request, job_pb2.Job, options)

    async def preview(
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

        for occurrence in (await client.jobs.preview(schedule=cron("@daily"))).occurrences:
            print(occurrence.local_time)
        """
        request = made(
            job_pb2.PreviewScheduleRequest, job=job, from_time=timestamp(start), count=count
        )
        if schedule:
            spec = build("preview", "", {"schedule": schedule, "zone": zone})[0].spec
            request.schedules.extend(spec.schedules)
            request.timing.CopyFrom(spec.timing)
        return await self._send(request, job_pb2.PreviewScheduleResponse, options)

    async def import_(
        self, jobs: Iterable[job_pb2.Job], *, replace: bool = False, **options: Unpack[Writing]
    ) -> Sequence[job_pb2.ImportResult]:
        """Create many jobs, and with `replace` change those that are there; what became of each.

        Jobs that name no namespace go into the client's. A refused job does not stop the others.

        results = await client.jobs.import_([job_of("a", handler="x"), job_of("b", handler="x")])
        """
        requests = import_requests(
            jobs, replace=replace, namespace=self._namespace(options),
            request_id=options.pop("request_id", ""),
        )  # fmt: skip
        results: list[job_pb2.ImportResult] = []
        for request in requests:
            answer = await self._send(request, job_pb2.ImportJobsResponse, options)
            results.extend(answer.results)
        return results

    async def history(
        self,
        job: str,
        filter: str = "",
        *,
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[AsyncRun]:
        """The runs of a job, newest scheduled time first, those under way included.

        async for run in client.jobs.history("report", "state=FAILED", limit=10):
            print(run.id, run.message.error.message)
        """
        request = job_pb2.ListJobHistoryRequest(job=job, filter=filter)
        async for run in self._items(request, "runs", limit, options):
            yield AsyncRun(self._client, run)

    def ledger(
        self,
        job: str,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[run_pb2.LedgerEntry]:
        """What became of each scheduled time of a job, newest first.

        async for entry in client.jobs.ledger("report"):
            print(entry.scheduled_time, entry.outcome)
        """
        request = job_pb2.ListJobLedgerRequest(
            job=job, from_time=timestamp(start), to_time=timestamp(end)
        )
        return self._items(request, "entries", limit, options)

    async def audit(
        self,
        job: str,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[ReadOptions],
    ) -> job_pb2.AuditJobResponse:
        """Compare the ledger of a job with the scheduled times computed anew, and with what each
        should have become. `findings` says what is wrong or cannot be judged, and why.

        assert (await client.jobs.audit("report")).sound
        """
        request = job_pb2.AuditJobRequest(
            job=job, from_time=timestamp(start), to_time=timestamp(end)
        )
        return await self._send(request, job_pb2.AuditJobResponse, options)

    async def explain(self, job: str, **options: Unpack[ReadOptions]) -> run_pb2.Explanation:
        """Why a job does not fire, or when it will.

        print((await client.jobs.explain("report")).summary)
        """
        request = job_pb2.ExplainJobRequest(job=job)
        return await self._send(request, run_pb2.Explanation, options)

    async def forecast(
        self, ahead: Length | None = None, **options: Unpack[ReadOptions]
    ) -> job_pb2.ForecastFiringsResponse:
        """Firings per minute of the time ahead (an hour), over all jobs of the namespace.

        print(max(minute.firings for minute in (await client.jobs.forecast()).minutes))
        """
        request = job_pb2.ForecastFiringsRequest(ahead=duration(ahead))
        return await self._send(request, job_pb2.ForecastFiringsResponse, options)

    async def _edit(
        self, job: str, scheduled: datetime, kind: str, to: datetime | None, options: Writing
    ) -> job_pb2.Job:
        edit = schedule_pb2.OccurrenceEdit(
            scheduled_time=timestamp(scheduled), moved_to=timestamp(to),
            kind=choice(schedule_pb2.OccurrenceEdit.Kind, "KIND_", kind),
        )  # fmt: skip
        request = job_pb2.EditOccurrenceRequest(job=job, edit=edit)
        return await self._send(request, job_pb2.Job, options)
