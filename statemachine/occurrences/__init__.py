"""The scheduled times of a job: which are to be decided on, what the policy says, what was decided.

Times that are due late, or several at once, are decided on together. `timeline.undecided` is the
one answer to which these are: stretches of the schedules since the last time that was decided on,
less what ran before its time, cut where calendars begin and end; and what somebody skipped, moved
or added, one by one; in the order in which they are due. A stretch is counted and searched in,
never walked, so ten years of seconds cost some dozens of steps; only unions are listed. Only
calendars are asked day by day, 4,000 days at once.

`misfire.choose` is a pure function from these to what becomes of each, held against a model in
every small world (tests/statemachine/test_missed.py). What is late by no more than the grace is in
time under every policy; the others are missed, and the policy chooses among those that may run. The
maximum of ALL counts the missed ones only. What comes behind one that waits, waits as well, so the
order stays. Where the overlap policy skips, the times that are in time together are one choice, but
under ALL, where each of them runs in its turn.
Times less than a second apart that are in time come one by one, so a punctual job pays nothing.
A job that is late and left out by a calendar rests, for twice as long as it was late and 15 s at
most, so those that have nothing to run cannot keep a leader late.

The ledger has exactly one outcome for each scheduled time. What did not run gets one entry for the
whole stretch. A stretch ends before what was moved, added or skipped by hand, which has an outcome
of its own. What ran before its time, or by a backfill later, stands inside a stretch as an entry of
its own and is not counted in it. Stretches also stand in a table of their own, so the one around a
time is one step away however many runs lie between. A state older than that table gets it a
thousand entries at a time.

`max_runs` holds for missed times too: none behind it is caught up with. What waits or was moved
counts towards it; what a backfill ran that the job was not to decide on does not.

Where the schedules change, what came under the old ones and still waits is missed, and so is what
was moved if the new ones do not name its time; a skip of such a time goes. Another `max_runs`,
jitter or calendar changes no scheduled time, so nothing is lost to it; only a job that has used up
its runs begins anew then. Under other schedules one that has none left stands where it stood: it
has passed by nothing since then, so what was moved from there still finds no place. Up to where a
job has decided says its next time, or `decided_ms` where it has none: the last entry of the ledger
may be of one that ran before its time.

Others may use:

* next_time: the next scheduled time of a job, and its timer.
* upcoming: the next time of a job that will run, as people ask for it.
* timeline: the times that are to be decided on.
* misfire: what becomes of times that are late: a pure choice.
* ledger: one outcome for each scheduled time.
* ledger_purge: when old outcomes go.
"""
