"""What is due happens: timers are looked at, and scheduled times get their outcome.

Timers are looked at oldest first, and of one instant those of runs. A job whose scheduled time is
due gets, in one change: the run (or the reason why there is none), the entry in the ledger, and its
next time. There is no instant between these at which a crash could lose or double anything.

What catches up, under any policy, gets a slot of the whole namespace, so many of them a second
(`backlog_rate`): that is the outage guard. It is one number, the instant at which the next slot is
free. A job that has used its slot takes the next one, so jobs take turns. A time whose slot is not
free yet waits in the backlog of its job, before the job's backfills. Backlog
runs are patient: where the overlap policy or the quota says no, they wait for the next end instead
of being skipped. A rest after the end of a run begins when what waits of the schedule has run. A
backlog can be dropped: its times are missed then, and what a backfill was to run keeps its outcome.

A backfill runs what did not run, but for what a calendar leaves out as it is now.

What comes to a paused job is held for its resume: steps of flows, and runs for later that were not
forced. The resume walks over them in steps, newest first (EARLIEST: oldest first). Steps are
treated as missed times are; what somebody triggered goes on in any case.

A job that is deleted is found by nobody from then on, but keeps its name until its runs, history
and ledger are gone, in steps. A namespace is deleted only when it has no job left. Its name is free
at once; what it had lies under a number that is never given out again, until it is deleted.

Others may use:

* dispatch: what is due, oldest first.
* scheduled_time: one scheduled time becomes a run, or is recorded.
* catch_up: times that are late get their outcome.
* backlog: past times that are still to run.
* other_schedules: what has come and waits when a job gets other schedules.
* effects: what the end of a run brings about for others.
* pause: a job is paused.
* on_failure: the failure of a run triggers another job.
* resume: what came to a paused job.
* bring_back: jobs that decided ahead by a wrong clock.
* set_time: the time of the state is set back.
* job_deletion: a job goes, in steps.
* namespace_deletion: a namespace goes, in steps.
"""
