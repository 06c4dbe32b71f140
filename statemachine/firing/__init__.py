"""What is due happens: timers are looked at, and scheduled times get their outcome.

Others may use:

* dispatch: what is due, oldest first.
* occurrence: one scheduled time becomes a run, or is recorded.
* catch_up: times that are late get their outcome.
* backlog: past times that are still to run.
* resume: what came to a paused job.
* bring_back: jobs that decided ahead by a wrong clock.
* set_time: the time of the state is set back.
* job_deletion: a job goes, in steps.
* namespace_deletion: a namespace goes, in steps.
"""
