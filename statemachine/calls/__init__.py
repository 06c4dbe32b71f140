"""What people ask for.

Others may use:

* jobs: create, update, pause and delete jobs.
* imports: many jobs in one call.
* occurrences: trigger, backfill, skip, move and add.
* triggers: many triggers in one call.
* runs: cancel runs and requeue dead letters.
* bulk: the same change to all jobs or runs that fit a filter.
* filtered: what filters see of jobs and runs.
* dead_letters: all dead letters that fit a filter.
* alerts: conditions that somebody wants to hear of.
* staging: a backup on its way into a cluster that runs.
* job_warnings: what may not mean what it seems to.
"""
