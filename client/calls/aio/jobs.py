# Made from the contracts and catalog.toml by generate.py; write there.
"""Create jobs, look at them, change them, run them manually."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal, Unpack

from ....proto.v1 import common_pb2, job_pb2, run_pb2
from ...sdk.options import ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.resources import (
    SpecWriting,
)
from ...sdk.specs import build
from ...sdk.values import Length, ListCount, choice, duration, texts, timestamp
from .jobs_by_hand import AsyncJobsByHand
from .run import AsyncRun


class AsyncJobs(AsyncJobsByHand):
    """Create jobs, look at them, change them, run them manually."""

    async def create(self, name: str, **options: Unpack[SpecWriting]) -> job_pb2.Job:
        """Create a job; SpecOptions says what there is to say about one.

        await client.jobs.create(
            "send-report", handler="send-email", payload={"to": "anna"},
            schedule=cron("*/5 * * * *", zone="Europe/Berlin"), retry=Retry(attempts=5),
        )
        """
        given, writing = parted(options)
        wanted, _ = build(name, self._namespace(writing), given)
        request = job_pb2.CreateJobRequest(job=wanted)
        return await self._send(request, job_pb2.Job, writing)

    async def get(self, job: str, **options: Unpack[ReadOptions]) -> job_pb2.Job:
        """Show a job.

        print((await client.jobs.get("report")).status.next_due_time)
        """
        request = made(job_pb2.GetJobRequest, job=job)
        return await self._send(request, job_pb2.Job, options)

    async def status(self, job: str, **options: Unpack[ReadOptions]) -> job_pb2.JobStatus:
        """Show only what the cluster knows about a job, warnings included.

        print((await client.jobs.status("report")).warnings)
        """
        request = made(job_pb2.GetJobStatusRequest, job=job)
        return await self._send(request, job_pb2.JobStatus, options)

    async def count(self, filter: str = "", **options: Unpack[ReadOptions]) -> ListCount:
        """How many jobs there are, all or those that the filter names.

        print((await client.jobs.count("state=PAUSED")).number)
        """
        request = made(job_pb2.ListJobsRequest, filter=filter)
        return await self._count(request, options)

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[job_pb2.Job]:
        """List jobs by name, or as `order_by` says. Filter fields: `name`, `labels.…`, `state`,
        `queue`, `owner`, `description`, `creator`, `zone`, `handler` (of an executor its kind:
        http, grpc, shell), `calendar` (one whose days it leaves out), `on_failure` (the job that
        it triggers), `last_state` (of the run that ended last), `create_time`, `update_time`,
        `next_time` (when it is due next). A condition on the beginning of the name that must hold
        leaves out the other names at no cost. What is listed can be imported again, so this is
        the export too.

        async for job in client.jobs.list("labels.team=a AND state=PAUSED"):
            print(job.name)
        """
        request = made(job_pb2.ListJobsRequest, filter=filter, order_by=order_by)
        return self._items(request, "jobs", limit, options)

    async def update(
        self, job: str, *, etag: str = "", **options: Unpack[SpecWriting]
    ) -> job_pb2.Job:
        """Change what the options speak of and nothing else; None takes a thing away.

        await client.jobs.update("report", priority="high", jitter=None)
        """
        given, writing = parted(options)
        wanted, paths = build(job, self._namespace(writing), given)
        if not paths:
            raise ValueError(f"no field is named to change of {job!r}")
        wanted.etag = etag
        request = job_pb2.UpdateJobRequest(job=wanted)
        request.update_mask.paths.extend(paths)
        return await self._send(request, job_pb2.Job, writing)

    async def delete(
        self, job: str, *, etag: str = "", **options: Unpack[Writing]
    ) -> job_pb2.DeleteJobResponse:
        """Delete a job. Runs under way are cancelled, its history is purged.

        await client.jobs.delete("report")
        """
        request = made(job_pb2.DeleteJobRequest, job=job, etag=etag)
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
        """Stop firing. Runs under way go on. Pausing a paused job changes reason and end. What is
        missed until it is resumed is treated by the misfire policy: scheduled times, and what
        other jobs bring, which is held back meanwhile. A run for later that comes due waits for
        the resume and then runs, unless it was triggered with `force`.

        await client.jobs.pause("report", "the printer is broken")
        """
        request = made(
            job_pb2.PauseJobRequest, job=job, reason=reason, until=timestamp(until), etag=etag
        )
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
        """Do the same to all jobs that fit a filter (an empty one: all), each alone. The answer
        counts them, and names some; with `validate_only` it counts what fits.

        done = await client.jobs.change_all("pause", "labels.team=billing", "month end")
        print(done.changed, [failure.name for failure in done.failures])
        """
        request = made(
            job_pb2.ChangeJobsRequest,
            change=choice(job_pb2.ChangeJobsRequest.Change, "CHANGE_", change),
            filter=filter,
            reason=reason,
            until=timestamp(until),
        )
        return await self._change_all(request, options)

    async def resume(self, job: str, *, etag: str = "", **options: Unpack[Writing]) -> job_pb2.Job:
        """Fire again. Brings back a job that stands still after SetStateTime, since it decided on
        times ahead: what has a ledger entry of its own keeps it, what was coalesced or missed
        ahead of its time is decided on again; refused with LIMIT_EXCEEDED where that is not known
        any more, or is too much for one change. Does nothing to any other job that is not paused.

        await client.jobs.resume("report")
        """
        request = made(job_pb2.ResumeJobRequest, job=job, etag=etag)
        return await self._send(request, job_pb2.Job, options)

    async def repair(self, job: str, *, etag: str = "", **options: Unpack[Writing]) -> job_pb2.Job:
        """Bring back a job that was set aside, after what broke it was mended. What came due
        meanwhile was missed: its misfire policy says what becomes of it. Its runs wait for
        workers again. A job that is not BROKEN stays as it is.

        await client.jobs.repair("report")
        """
        request = made(job_pb2.RepairJobRequest, job=job, etag=etag)
        return await self._send(request, job_pb2.Job, options)

    async def backfill(
        self,
        job: str,
        start: datetime,
        end: datetime,
        *,
        runs_per_minute: int = 0,
        **options: Unpack[Writing],
    ) -> job_pb2.BackfillJobResponse:
        """Run a past range of scheduled times, at a rate. Those that became a run (RAN, LATE or
        REPLACED) are left alone, and so are those that a calendar leaves out now, that somebody
        skipped or moved to an instant to come, or that wait for their run already. What it runs
        does not count towards `max_runs`, nor does that limit it.

        await client.jobs.backfill("report", monday, tuesday, runs_per_minute=10)
        """
        request = made(
            job_pb2.BackfillJobRequest,
            job=job,
            from_time=timestamp(start),
            to_time=timestamp(end),
            runs_per_minute=runs_per_minute,
        )
        return await self._send(request, job_pb2.BackfillJobResponse, options)

    async def drop_backlog(
        self, job: str, **options: Unpack[Writing]
    ) -> job_pb2.DropBacklogResponse:
        """Give up the missed scheduled times of a job that still wait for their run, after an
        outage or by a backfill: their outcome is MISSED; what a backfill was to run keeps the
        outcome it had. Runs that are there already go on. Does nothing when none wait.

        print((await client.jobs.drop_backlog("report")).dropped)
        """
        request = made(job_pb2.DropBacklogRequest, job=job)
        return await self._send(request, job_pb2.DropBacklogResponse, options)

    async def revert(
        self, job: str, scheduled: datetime, **options: Unpack[Writing]
    ) -> job_pb2.Job:
        """Take back what skip, move or add have said about an occurrence.

        await client.jobs.revert("report", datetime(2026, 12, 24, 8, tzinfo=UTC))
        """
        request = made(
            job_pb2.RevertOccurrenceRequest, job=job, scheduled_time=timestamp(scheduled)
        )
        return await self._send(request, job_pb2.Job, options)

    def history(
        self,
        job: str,
        filter: str = "",
        *,
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[AsyncRun]:
        """The runs of a job by scheduled time, newest first, those under way included. Filter
        fields: `state`, `scheduled_time`, `outcome`, and as in ListRuns `cause`, `kind`, `error`,
        `warning`, `end_time`, `last_worker`, `unique_key`, `attempt`.

        async for run in client.jobs.history("report", "state=FAILED", limit=10):
            print(run.id, run.message.error.message)
        """
        request = made(job_pb2.ListJobHistoryRequest, job=job, filter=filter)
        return self._runs(request, limit, options)

    def ledger(
        self,
        job: str,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        limit: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[run_pb2.LedgerEntry]:
        """The firing ledger of a job, newest first: what became of each scheduled time, those
        that became no run included.

        async for entry in client.jobs.ledger("report"):
            print(entry.scheduled_time, entry.outcome)
        """
        request = made(
            job_pb2.ListJobLedgerRequest,
            job=job,
            from_time=timestamp(start),
            to_time=timestamp(end),
        )
        return self._items(request, "entries", limit, options)

    async def audit(
        self,
        job: str,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[ReadOptions],
    ) -> job_pb2.AuditJobResponse:
        """The firing ledger of a job, compared with the scheduled times computed anew from its
        schedules, and with the outcome that each should have by the job's policies; and whether
        what somebody asked for has a run.

        assert (await client.jobs.audit("report")).sound
        """
        request = made(
            job_pb2.AuditJobRequest, job=job, from_time=timestamp(start), to_time=timestamp(end)
        )
        return await self._send(request, job_pb2.AuditJobResponse, options)

    async def audit_many(
        self,
        jobs: Sequence[str],
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[ReadOptions],
    ) -> job_pb2.AuditJobsResponse:
        """As AuditJob, for up to 100 jobs at once, which costs much less than one by one. A job
        that cannot be audited is named with the reason, and the others are audited all the same.
        Refused as a whole with NAMESPACE_NOT_FOUND, FIELD_REQUIRED, LIMIT_EXCEEDED (more than 100
        jobs).

        for one in (await client.jobs.audit_many(["report", "invoices"])).audits:
            print(one.job, one.audit.sound)
        """
        request = made(
            job_pb2.AuditJobsRequest,
            jobs=texts(jobs, "jobs"),
            from_time=timestamp(start),
            to_time=timestamp(end),
        )
        return await self._send(request, job_pb2.AuditJobsResponse, options)

    async def explain(self, job: str, **options: Unpack[ReadOptions]) -> run_pb2.Explanation:
        """Why a job does not fire, or when it will.

        print((await client.jobs.explain("report")).summary)
        """
        request = made(job_pb2.ExplainJobRequest, job=job)
        return await self._send(request, run_pb2.Explanation, options)

    async def outcomes(
        self, jobs: Sequence[str], *, count: int = 0, **options: Unpack[ReadOptions]
    ) -> job_pb2.GetOutcomesResponse:
        """Get how the last runs of some jobs ended, for lists of jobs: in the order of the
        request; those that are not there are left out.

        for one in (await client.jobs.outcomes(["report", "invoices"], count=5)).jobs:
            print(one)
        """
        request = made(job_pb2.GetOutcomesRequest, jobs=texts(jobs, "jobs"), count=count)
        return await self._send(request, job_pb2.GetOutcomesResponse, options)

    async def forecast(
        self,
        ahead: Length | None = None,
        *,
        max_age: Length | None = None,
        **options: Unpack[ReadOptions],
    ) -> job_pb2.ForecastFiringsResponse:
        """Firings per minute of the coming hours, over the jobs of a namespace: at most 1,000,000
        firings are counted.

        print(max(minute.firings for minute in (await client.jobs.forecast()).minutes))
        """
        request = made(
            job_pb2.ForecastFiringsRequest, ahead=duration(ahead), max_age=duration(max_age)
        )
        return await self._send(request, job_pb2.ForecastFiringsResponse, options)
