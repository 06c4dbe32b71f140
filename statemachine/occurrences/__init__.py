"""The scheduled times of a job: which are to be decided on, what the policy says, what was decided.

Others may use:

* next_time: the next scheduled time of a job, and its timer.
* upcoming: the next time of a job that will run, as people ask for it.
* timeline: the times that are to be decided on.
* misfire: what becomes of times that are late: a pure choice.
* ledger: one outcome for each scheduled time.
* ledger_purge: when old outcomes go.
"""
