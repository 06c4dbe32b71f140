"""When a job happens. Nothing here knows of a run.

`compiler` turns schedules and timing into a `Plan`; `plan` answers the questions. A plan knows
nothing of runs, pauses or the ledger. Calendars are asked apart, since a time that they leave out
still gets its outcome.

Sets, not steps. The instants of an expression in a zone are a set; next, previous and count are
questions about it, so a step can neither repeat nor go back nor loop. A zone is cut into segments
of one offset, in which wall and real time are the same clock; daylight saving exists only at the
edges (zoned_cron.py has the rules). By default a daily job runs exactly once for each local day and
an hourly one every real hour; a whole missing day runs at the first instant after it.

croniter reads, we walk. Days are a bit mask for each month, times of day three short tuples; a step
costs a few microseconds in both directions, and a year of minutes is counted in about 20. So the
number of missed times is exact for one schedule; unions are listed up to 10,000, then "at least". A
list of many is made day by day (`CronFields.between`), at a tenth of the price of a walk: 10,000
minutes take a millisecond, which is what a backfill asks for.

Recurring times begin when the schedules took force, so nothing was missed before a job existed; a
backfill looks further back. Jitter is a hash of the job, not of the time: due times keep the order
and distance of scheduled times. Zone data comes file by file from the tzdata package; the host's is
never read. Memos are bounded and never change an answer; many equal expressions cost one search.

Others may use:

* compiler: schedules and timing become a plan, or a list of all that is wrong with them.
* plan: a compiled plan, and the questions the rules ask of it.
* calendar_days: the days that a calendar leaves out.
* zones: time zones, from the packaged data.
* describe: schedules in English.
* preview: the next times, with the reasons for odd ones.
"""
